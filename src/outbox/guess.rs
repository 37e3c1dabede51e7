//! The type that Connect guesses for a text from its looks.

use std::sync::Arc;

use super::draft::Part;
use super::java::Decimal;
use super::schema::{Kind, Schema};
use super::value::Value;

/// InsertHeader's literal: Connect guesses its type from its looks.
pub(super) fn literal(text: &str) -> Part<'static> {
    let (kind, value) = match text {
        "null" => {
            return Part {
                schema: None,
                value: Value::Null,
            };
        }
        "true" | "false" => (Kind::Boolean, Value::Boolean(text == "true")),
        _ => number(text).unwrap_or_else(|| (Kind::String, Value::String(text.to_owned().into()))),
    };
    Part {
        schema: Some(Arc::new(Schema::new(kind))),
        value,
    }
}

/// The smallest type that holds a number.
fn number(text: &str) -> Option<(Kind, Value<'static>)> {
    let text = text.trim();
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-')) {
        return None;
    }
    let decimal = Decimal::parse(text)?;
    let whole: Option<i64> = decimal
        .with_scale(0)
        .and_then(|whole| whole.plain().parse().ok());
    if let Some(value) = whole {
        return Some(if let Ok(value) = i8::try_from(value) {
            (Kind::Int8, Value::Int8(value))
        } else if let Ok(value) = i16::try_from(value) {
            (Kind::Int16, Value::Int16(value))
        } else if let Ok(value) = i32::try_from(value) {
            (Kind::Int32, Value::Int32(value))
        } else {
            (Kind::Int64, Value::Int64(value))
        });
    }
    let text = decimal.to_string();
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && decimal.scale() != 0 => {
            Some((Kind::Float32, Value::Float32(value)))
        }
        _ => match text.parse::<f64>() {
            Ok(value) if value.is_finite() && decimal.scale() != 0 => {
                Some((Kind::Float64, Value::Float64(value)))
            }
            _ => Some((Kind::Bytes, Value::Decimal(decimal))),
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
            ("2024-01-01", Value::String("2024-01-01".into())),
            ("null", Value::Null),
        ] {
            assert_eq!(literal(text).value, expected, "{text:?}");
        }
    }
}
