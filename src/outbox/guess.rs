//! The type that Connect guesses for a text from its looks.
//!
//! A number, a truth value, a moment, or something like JSON with any of these inside; whatever
//! cannot be read as one of them is text.

use std::sync::Arc;

use super::convert;
use super::draft::Part;
use super::java::Decimal;
use super::schema::{Kind, Schema};
use super::types::calendar;
use super::value::Value;
use crate::config::Converter;

/// Lists and maps inside one another, at most; deeper ones stay text.
const DEPTH_MAX: usize = 100;

/// A value and its schema; `None` is null.
type Guess = Option<(Schema, Value<'static>)>;

/// The text is not what it began like.
struct Malformed;

/// InsertHeader's literal: Connect guesses its type from its looks.
pub(super) fn literal(text: &str) -> Part<'static> {
    let plain = || {
        (
            Schema::new(Kind::String),
            Value::String(text.to_owned().into()),
        )
    };
    let guess = if text.is_empty() {
        Some(plain())
    } else {
        Tokens::of(text)
            .top()
            .unwrap_or_else(|Malformed| Some(plain()))
    };
    match guess {
        None => Part {
            schema: None,
            value: Value::Null,
        },
        Some((schema, value)) => Part {
            schema: Some(Arc::new(schema)),
            value,
        },
    }
}

/// A text cut at its delimiters, with one token of look-ahead.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
    peeked: Option<&'t str>,
}

impl<'t> Tokens<'t> {
    fn of(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            peeked: None,
        }
    }

    fn mark(&self) -> usize {
        self.at - self.peeked.map_or(0, str::len)
    }

    fn rewind(&mut self, mark: usize) {
        self.at = mark;
        self.peeked = None;
    }

    fn has_next(&self) -> bool {
        self.peeked.is_some() || self.at < self.text.len()
    }

    fn next(&mut self) -> &'t str {
        self.peeked.take().unwrap_or_else(|| self.cut())
    }

    /// The next token: a delimiter, or all up to one that no backslash precedes.
    fn cut(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let mut escaped = false;
        let end = rest.char_indices().find_map(|(at, character)| {
            let ends = !escaped && ":,{}[]\"".contains(character);
            escaped = character == '\\' && !escaped;
            ends.then_some(at.max(1))
        });
        let token = &rest[..end.unwrap_or(rest.len())];
        self.at += token.len();
        token
    }

    /// Takes the next token if it is this one; blank tokens are passed over.
    fn takes(&mut self, expected: &str) -> bool {
        if !self.has_next() {
            return false;
        }
        let mut token = self.next();
        while token.trim().is_empty() && self.at < self.text.len() {
            token = self.cut();
        }
        let found = token.trim() == expected;
        if !found {
            self.peeked = Some(token);
        }
        found
    }

    /// Takes a word, which at the top must be the last.
    fn takes_word(&mut self, word: &str, depth: usize) -> bool {
        let mark = self.mark();
        if self.takes(word) && (depth > 0 || !self.has_next()) {
            return true;
        }
        self.rewind(mark);
        false
    }

    fn top(&mut self) -> Result<Guess, Malformed> {
        self.value(0)
    }

    fn value(&mut self, depth: usize) -> Result<Guess, Malformed> {
        if !self.has_next() {
            return Ok(None);
        }
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        if depth > 0 && self.takes("\"") {
            return Ok(Some(self.quoted()));
        }
        if self.takes_word("null", depth) {
            return Ok(None);
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.takes_word(word, depth) {
                return Ok(Some((Schema::new(Kind::Boolean), Value::Boolean(value))));
            }
        }
        if self.takes("[") {
            return self.list(depth).map(Some);
        }
        if self.takes("{") {
            return self.map(depth).map(Some);
        }
        let token = self.next();
        self.scalar(token).map(Some).ok_or(Malformed)
    }

    /// Up to the closing quote: a moment, or text with its backslashes.
    fn quoted(&mut self) -> (Schema, Value<'static>) {
        let mut content = String::new();
        while self.has_next() && !self.takes("\"") {
            content.push_str(self.next());
        }
        moment(&content)
            .unwrap_or_else(|| (Schema::new(Kind::String), Value::String(content.into())))
    }

    fn list(&mut self, depth: usize) -> Result<(Schema, Value<'static>), Malformed> {
        let (mut items, mut common) = (Vec::new(), None);
        while self.has_next() {
            if self.takes("]") {
                let Some(item) = common else {
                    return Ok((untyped(), Value::List(items)));
                };
                let items = items.into_iter().map(|value| aligned(&item, value));
                let items = items.collect::<Result<_, _>>()?;
                let schema = Schema::new(Kind::Array(Arc::new(item)));
                return Ok((schema, Value::List(items)));
            }
            if self.takes(",") {
                return Err(Malformed);
            }
            let (schema, value) = apart(self.value(depth + 1)?);
            common = common_schema(common, schema);
            items.push(value);
            let mark = self.mark();
            if self.takes("]") {
                self.rewind(mark);
            } else if !self.takes(",") {
                return Err(Malformed);
            }
        }
        Err(Malformed)
    }

    fn map(&mut self, depth: usize) -> Result<(Schema, Value<'static>), Malformed> {
        let mut entries: Vec<(Value<'static>, Value<'static>)> = Vec::new();
        let (mut keys, mut values) = (None, None);
        while self.has_next() {
            if self.takes("}") {
                return finished_map(entries, keys, values);
            }
            if self.takes(",") {
                return Err(Malformed);
            }
            let (key_schema, key) = self.value(depth + 1)?.ok_or(Malformed)?;
            if !self.takes(":") {
                return Err(Malformed);
            }
            let (schema, value) = apart(self.value(depth + 1)?);
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some(entry) => entry.1 = value,
                None => entries.push((key, value)),
            }
            self.takes(",");
            keys = common_schema(keys, Some(key_schema));
            values = common_schema(values, schema);
        }
        Err(Malformed)
    }

    /// A moment or a number. What follows it is cut off.
    fn scalar(&mut self, token: &str) -> Option<(Schema, Value<'static>)> {
        let token = token.trim();
        if token.starts_with(|first: char| first.is_ascii_digit()) {
            // The colons of a clock have made five tokens of it.
            let mark = self.mark();
            let mut whole = token.to_owned();
            let mut missing = false;
            for _ in 0..4 {
                missing |= !self.has_next();
                whole.push_str(self.next());
            }
            if !missing && let Some(found) = moment(&whole) {
                return Some(found);
            }
            self.rewind(mark);
            if let Some(found) = moment(token) {
                return Some(found);
            }
        }
        number(token)
    }
}

fn apart(guess: Guess) -> (Option<Schema>, Value<'static>) {
    guess.map_or((None, Value::Null), |(schema, value)| (Some(schema), value))
}

/// Stands for a list or map of values that have no type in common, which JSON cannot write.
fn untyped() -> Schema {
    Schema::new(Kind::Struct(Vec::new()))
}

fn finished_map(
    entries: Vec<(Value<'static>, Value<'static>)>,
    keys: Option<Schema>,
    values: Option<Schema>,
) -> Result<(Schema, Value<'static>), Malformed> {
    let of_text = |(key, value)| match key {
        Value::String(key) => Ok((key.into_owned(), value)),
        key => Err((key, value)),
    };
    let mut named = Vec::new();
    for entry in &entries {
        match of_text(entry.clone()) {
            Ok((key, value)) => named.push((
                key,
                match &values {
                    Some(schema) => aligned(schema, value)?,
                    None => value,
                },
            )),
            // Maps have text keys here; such a one is written at once.
            Err(_) => return Ok(written_map(&entries)),
        }
    }
    let schema = match (keys, values) {
        (Some(keys), Some(values)) => Schema::new(Kind::Map(Arc::new(keys), Arc::new(values))),
        _ => untyped(),
    };
    Ok((schema, Value::Map(named)))
}

fn written_map(entries: &[(Value<'static>, Value<'static>)]) -> (Schema, Value<'static>) {
    let embedded = |value: &Value<'static>| {
        let list = Value::List(vec![value.clone()]);
        let text = match convert::convert(&Converter::SimpleHeader, None, list) {
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        text.trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned()
    };
    let entries: Vec<String> = entries
        .iter()
        .map(|(key, value)| format!("{}:{}", embedded(key), embedded(value)))
        .collect();
    let text = format!("{{{}}}", entries.join(","));
    (Schema::new(Kind::String), Value::String(text.into()))
}

/// The wider of two numbers' types, the later of two schemas of one type, otherwise none.
fn common_schema(previous: Option<Schema>, latest: Option<Schema>) -> Option<Schema> {
    let Some(latest) = latest else {
        return previous;
    };
    let Some(previous) = previous else {
        return Some(latest);
    };
    if std::mem::discriminant(&previous.kind) == std::mem::discriminant(&latest.kind) {
        return Some(latest);
    }
    match (width(&previous.kind)?, width(&latest.kind)?) {
        (one, other) if one > other => Some(previous),
        _ => Some(latest),
    }
}

fn width(kind: &Kind) -> Option<u8> {
    Some(match kind {
        Kind::Int8 => 0,
        Kind::Int16 => 1,
        Kind::Int32 => 2,
        Kind::Int64 => 3,
        Kind::Float32 => 4,
        Kind::Float64 => 5,
        _ => return None,
    })
}

/// A value in the type that its list or map settled on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the type is the widest of the list; floats lose what they lose in Java"
)]
fn aligned(schema: &Schema, value: Value<'static>) -> Result<Value<'static>, Malformed> {
    let whole = match value {
        Value::Int8(value) => i64::from(value),
        Value::Int16(value) => i64::from(value),
        Value::Int32(value) => i64::from(value),
        Value::Int64(value) => value,
        Value::Float32(value) if schema.kind == Kind::Float64 => {
            return Ok(Value::Float64(value.into()));
        }
        value => {
            let fits = matches!(
                (&schema.kind, &value),
                (Kind::Boolean, Value::Boolean(_))
                    | (Kind::Float32, Value::Float32(_))
                    | (Kind::Float64, Value::Float64(_))
                    | (Kind::String, Value::String(_))
                    | (Kind::Bytes, Value::Decimal(_))
                    | (Kind::Int32 | Kind::Int64, Value::Date(_))
                    | (Kind::Array(_) | Kind::Struct(_), Value::List(_))
                    | (Kind::Map(..) | Kind::Struct(_), Value::Map(_))
            );
            return if fits { Ok(value) } else { Err(Malformed) };
        }
    };
    Ok(match schema.kind {
        Kind::Int8 => Value::Int8(whole as i8),
        Kind::Int16 => Value::Int16(whole as i16),
        Kind::Int32 => Value::Int32(whole as i32),
        Kind::Int64 => Value::Int64(whole),
        Kind::Float32 => Value::Float32(whole as f32),
        Kind::Float64 => Value::Float64(whole as f64),
        _ => return Err(Malformed),
    })
}

/// A date, a time or both, of exactly the length that Connect writes them in.
fn moment(text: &str) -> Option<(Schema, Value<'static>)> {
    let text = text.replace("\\:", ":");
    let (kind, name, millis) = match text.len() {
        10 => (Kind::Int32, "Date", calendar::lenient_date(&text)?),
        13 => (Kind::Int32, "Time", calendar::lenient_clock(&text)?),
        24 => {
            let (date, clock) = text.split_once('T')?;
            let millis = calendar::lenient_date(date)? + calendar::lenient_clock(clock)?;
            (Kind::Int64, "Timestamp", millis)
        }
        _ => return None,
    };
    let schema = Schema::logical(
        kind,
        match name {
            "Date" => "org.apache.kafka.connect.data.Date",
            "Time" => "org.apache.kafka.connect.data.Time",
            _ => "org.apache.kafka.connect.data.Timestamp",
        },
    );
    Some((schema, Value::Date(millis)))
}

/// The smallest type that holds a number.
fn number(text: &str) -> Option<(Schema, Value<'static>)> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-')) {
        return None;
    }
    let decimal = Decimal::parse(text)?;
    let (kind, value) = whole(&decimal).unwrap_or_else(|| fraction(decimal));
    let mut schema = Schema::new(kind);
    if let Value::Decimal(decimal) = &value {
        schema = Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal")
            .with("scale", decimal.scale().to_string());
    }
    Some((schema, value))
}

fn whole(decimal: &Decimal) -> Option<(Kind, Value<'static>)> {
    // Its digits are not worth spelling out where 64 bits cannot hold them.
    if decimal.scale() < -20 {
        return None;
    }
    let value: i64 = decimal.with_scale(0)?.plain().parse().ok()?;
    Some(if let Ok(value) = i8::try_from(value) {
        (Kind::Int8, Value::Int8(value))
    } else if let Ok(value) = i16::try_from(value) {
        (Kind::Int16, Value::Int16(value))
    } else if let Ok(value) = i32::try_from(value) {
        (Kind::Int32, Value::Int32(value))
    } else {
        (Kind::Int64, Value::Int64(value))
    })
}

fn fraction(decimal: Decimal) -> (Kind, Value<'static>) {
    let text = decimal.to_string();
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && decimal.scale() != 0 => {
            (Kind::Float32, Value::Float32(value))
        }
        _ => match text.parse::<f64>() {
            Ok(value) if value.is_finite() && decimal.scale() != 0 => {
                (Kind::Float64, Value::Float64(value))
            }
            _ => (Kind::Bytes, Value::Decimal(decimal)),
        },
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_has_the_smallest_type_that_holds_it() {
        for (text, expected) in [
            ("billing", Value::String("billing".into())),
            ("", Value::String("".into())),
            ("true", Value::Boolean(true)),
            ("5", Value::Int8(5)),
            ("-200", Value::Int16(-200)),
            ("70000", Value::Int32(70_000)),
            ("3000000000", Value::Int64(3_000_000_000)),
            ("1.5", Value::Float32(1.5)),
            ("2024-01-01", Value::Date(1_704_067_200_000)),
            ("2020-02-30", Value::Date(1_583_020_800_000)),
            ("12:34:56.789Z", Value::Date(45_296_789)),
            ("2020-01-01T00:00:01.000Z", Value::Date(1_577_836_801_000)),
            ("12:34", Value::Int8(12)),
            (" true ", Value::Boolean(true)),
            ("true false", Value::String("true false".into())),
            ("null", Value::Null),
        ] {
            assert_eq!(literal(text).value, expected, "{text:?}");
        }
    }

    #[test]
    fn lists_and_maps_settle_on_one_type_or_stay_text() {
        let header = |text: &str| {
            let bytes = convert::convert(&Converter::SimpleHeader, None, literal(text).value);
            String::from_utf8(bytes.ok().flatten().unwrap().into_owned()).unwrap()
        };
        for (text, expected) in [
            ("[ 1 , 2.5 ]", "[1.0,2.5]"),
            ("[1,\"a\"]", "[1,\"a\"]"),
            ("[1, null]", "[1, null]"),
            ("[\"a\",\"b\",]", "[\"a\",\"b\"]"),
            ("[,1]", "[,1]"),
            ("[a,b]", "[a,b]"),
            ("{ \"a\" : [1] }", "{\"a\":[1]}"),
            ("{1:2}", "{1:2}"),
            ("{a:1}", "{a:1}"),
            ("[\"2020-01-01\"]", "[2020-01-01]"),
            ("\"x\"", "\"x\""),
        ] {
            assert_eq!(header(text), expected, "{text:?}");
        }
        assert_eq!(
            literal(&"[".repeat(100_000)).value,
            Value::String("[".repeat(100_000).into())
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[-0-9a-z:,{}\\[\\]\"\\\\ .TZ]{0,30}") {
            let _ = literal(&text);
        }
    }
}
