//! The text forms of Postgres' composite values: arrays, hstore, intervals, points, money.

use crate::outbox::java::{self, Decimal};

/// An element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Null,
    Text(String),
    /// A row of a higher dimension.
    Nested,
}

/// Reads `{a,"b c",NULL}`, with or without bounds in front.
pub(super) fn parse_array(text: &str) -> Option<Vec<Item>> {
    let text = match text.strip_prefix('[') {
        Some(bounds) => bounds.split_once('=')?.1,
        None => text,
    };
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.chars();
    let mut items = Vec::new();
    loop {
        let mut item = String::new();
        let (mut quoted, mut nested, mut depth, mut inside) = (false, false, 0_usize, false);
        let end = loop {
            let Some(character) = rest.next() else {
                break None;
            };
            match character {
                '\\' => item.push(rest.next()?),
                '"' => {
                    inside = !inside;
                    quoted = true;
                }
                _ if inside => item.push(character),
                '{' => {
                    depth += 1;
                    nested = true;
                }
                '}' => depth = depth.checked_sub(1)?,
                ',' if depth == 0 => break Some(()),
                _ => item.push(character),
            }
        };
        if inside || depth > 0 {
            return None;
        }
        let empty_array = end.is_none() && items.is_empty() && item.is_empty();
        if !(empty_array && !quoted && !nested) {
            items.push(if nested {
                Item::Nested
            } else if !quoted && item == "NULL" {
                Item::Null
            } else {
                Item::Text(item)
            });
        }
        if end.is_none() {
            return Some(items);
        }
    }
}

/// Reads `"a"=>"1", "b"=>NULL`.
pub(super) fn parse_hstore(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut entries = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (key, after) = quoted(rest)?;
        let after = after.strip_prefix("=>")?;
        let (value, after) = match after.strip_prefix("NULL") {
            Some(after) => (None, after),
            None => {
                let (value, after) = quoted(after)?;
                (Some(value), after)
            }
        };
        entries.push((key, value));
        rest = match after.strip_prefix(", ") {
            Some(after) => after,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(entries)
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut characters = text.strip_prefix('"')?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((out, &text[at + 2..])),
            '\\' => out.push(characters.next()?.1),
            _ => out.push(character),
        }
    }
    None
}

/// An interval, as pgjdbc takes it apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Interval {
    pub(super) years: i32,
    pub(super) months: i32,
    pub(super) days: i32,
    pub(super) hours: i32,
    pub(super) minutes: i32,
    pub(super) seconds: f64,
}

/// Reads `1 year 2 mons -3 days +04:05:06.789`. Words it does not know count nothing.
pub(super) fn parse_interval(text: &str) -> Option<Interval> {
    let mut interval = Interval::default();
    let text = text.replace(['+', '@'], " ");
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        if word.contains(':') {
            parse_clock(word, &mut interval)?;
            continue;
        }
        let Some(unit) = words.next() else { break };
        let slot = match unit.get(..3)? {
            "yea" => &mut interval.years,
            "mon" => &mut interval.months,
            "day" => &mut interval.days,
            _ => continue,
        };
        *slot = word.parse().ok()?;
    }
    Some(interval)
}

fn parse_clock(word: &str, interval: &mut Interval) -> Option<()> {
    let (sign, fsign, clock) = match word.strip_prefix('-') {
        Some(clock) => (-1, -1.0, clock),
        None => (1, 1.0, word),
    };
    let mut parts = clock.splitn(3, ':');
    interval.hours = sign * parts.next()?.parse::<i32>().ok()?;
    interval.minutes = sign * parts.next()?.parse::<i32>().ok()?;
    let seconds: f64 = match parts.next() {
        Some(seconds) => seconds.parse().ok()?,
        None => 0.0,
    };
    // pgjdbc keeps whole seconds and rounded microseconds apart.
    let signed = fsign * seconds;
    let micros = ((signed - signed.trunc()) * 1e6).round();
    interval.seconds = signed.trunc() + micros / 1e6;
    Some(())
}

/// Reads `(x,y)`.
pub(super) fn parse_point(text: &str) -> Option<(f64, f64)> {
    let (x, y) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some((parse_f64(x)?, parse_f64(y)?))
}

/// A shape with its numbers printed as Java prints them: `(3,4),(1,2)` as `(3.0,4.0),(1.0,2.0)`.
pub(super) fn java_shape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if "()[]{}<>,".contains(first) {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let end = rest
                .find(|character| "()[]{}<>,".contains(character))
                .unwrap_or(rest.len());
            java::write_f64(&mut out, parse_f64(&rest[..end])?);
            rest = &rest[end..];
        }
    }
    Some(out)
}

/// Reads a double as Postgres prints it.
pub(super) fn parse_f64(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) => {
            text.parse().ok().filter(|value: &f64| !value.is_nan())
        }
        _ => None,
    }
}

/// Reads `-$1,234.50`: one currency character, commas between thousands.
pub(super) fn parse_money(text: &str) -> Option<Decimal> {
    let (negative, amount) = match text.strip_prefix('-') {
        Some(amount) => (true, amount),
        None => match text.strip_prefix('(') {
            Some(amount) => (true, amount.strip_suffix(')')?),
            None => (false, text),
        },
    };
    let amount = match amount.chars().next()? {
        first if first.is_ascii_digit() || first == '.' => amount,
        first => &amount[first.len_utf8()..],
    };
    let sign = if negative { "-" } else { "" };
    Decimal::parse(&format!("{sign}{}", amount.replace(',', "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[&str]) -> Vec<Item> {
        items
            .iter()
            .map(|item| Item::Text((*item).to_owned()))
            .collect()
    }

    #[test]
    fn arrays_with_quotes_nulls_bounds_and_rows() {
        assert_eq!(parse_array("{}"), Some(vec![]));
        assert_eq!(parse_array("{\"\"}"), Some(texts(&[""])));
        assert_eq!(parse_array("[2:3]={a,b}"), Some(texts(&["a", "b"])));
        assert_eq!(
            parse_array("{a,\"b c\",\"NULL\",\"q\\\"uote\",\"back\\\\slash\",\"x,y\",\"{z}\"}"),
            Some(texts(&[
                "a",
                "b c",
                "NULL",
                "q\"uote",
                "back\\slash",
                "x,y",
                "{z}"
            ]))
        );
        assert_eq!(
            parse_array("{1,NULL}"),
            Some(vec![Item::Text("1".to_owned()), Item::Null])
        );
        assert_eq!(
            parse_array("{{1,2},{3,4}}"),
            Some(vec![Item::Nested, Item::Nested])
        );
        for text in ["", "{", "a", "{\"a}", "{{1}", "{1}}"] {
            assert_eq!(parse_array(text), None, "{text:?} was accepted");
        }
    }

    #[test]
    fn hstore_entries() {
        assert_eq!(parse_hstore(""), Some(vec![]));
        assert_eq!(
            parse_hstore("\"a\"=>\"1\", \"b c\"=>NULL, \"q\"=>\"\\\"x\\\\\""),
            Some(vec![
                ("a".to_owned(), Some("1".to_owned())),
                ("b c".to_owned(), None),
                ("q".to_owned(), Some("\"x\\".to_owned())),
            ])
        );
        assert_eq!(parse_hstore("\"a\"=>"), None);
        assert_eq!(parse_hstore("a=>1"), None);
    }

    #[test]
    fn shapes_are_printed_with_doubles() {
        assert_eq!(java_shape("<(1,-2),3.5>").unwrap(), "<(1.0,-2.0),3.5>");
        assert_eq!(java_shape("{1,x}"), None);
    }

    #[test]
    fn intervals_and_money() {
        let interval = parse_interval("1 year 2 mons -3 days +04:05:06.789").unwrap();
        assert_eq!((interval.years, interval.months, interval.days), (1, 2, -3));
        assert_eq!((interval.hours, interval.minutes), (4, 5));
        assert_eq!(parse_interval("-00:00:01.5").unwrap().seconds, -1.5);
        assert_eq!(parse_interval("00:00:00"), Some(Interval::default()));
        let money = |text| parse_money(text).unwrap().to_string();
        assert_eq!(money("-$1,234.56"), "-1234.56");
        assert_eq!(money("$12.30"), "12.30");
        assert_eq!(money("€0.00"), "0.00");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            let _ = (parse_array(&text), parse_hstore(&text), parse_interval(&text));
            let _ = (parse_point(&text), parse_money(&text), parse_f64(&text));
        }
    }
}
