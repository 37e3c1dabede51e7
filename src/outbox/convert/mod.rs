//! Converters: a Connect value and its schema become the bytes of a key, a value or a header.
//!
//! Each writes what Connect's class of that name writes, and refuses what that class refuses.

mod json;
mod simple;
mod string;

use std::borrow::Cow;

pub(super) use json::schema_text;

use super::schema::{Kind, Schema};
use super::value::Value;
use crate::config::Converter;

/// Why a converter does not take a value; never quotes the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// Bytes, or `None` for Kafka's null.
pub(super) type Bytes<'a> = Option<Cow<'a, [u8]>>;

/// Converts `value`. A tombstone has no schema.
pub(super) fn convert<'a>(
    converter: &Converter,
    schema: Option<&Schema>,
    value: Value<'a>,
) -> Result<Bytes<'a>, Refusal> {
    match converter {
        Converter::String => match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text_bytes(text))),
            value => string::java_text(&value).map(owned),
        },
        Converter::SimpleHeader => match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text_bytes(text))),
            value => Ok(owned(simple::text(&value))),
        },
        Converter::Json(options) => {
            json::write(*options, schema, &value).map(|text| text.map(to_bytes))
        }
        Converter::ByteArray => byte_array(schema, value),
        Converter::BinaryData(delegate) => binary_data(delegate.as_deref(), schema, value),
        // Alone of these it looks at the schema, even where there is no value.
        Converter::Boolean if schema.is_some_and(|schema| schema.kind != Kind::Boolean) => {
            Err(Refusal("BooleanConverter takes booleans only".to_owned()))
        }
        Converter::Boolean
        | Converter::Short
        | Converter::Integer
        | Converter::Long
        | Converter::Float
        | Converter::Double => primitive(converter, &value),
    }
}

fn to_bytes<'a>(text: String) -> Cow<'a, [u8]> {
    Cow::Owned(text.into_bytes())
}

fn owned<'a>(text: String) -> Bytes<'a> {
    Some(to_bytes(text))
}

fn text_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn raw(value: Value<'_>) -> Result<Bytes<'_>, Value<'_>> {
    match value {
        Value::Null => Ok(None),
        Value::Buffer(bytes) => Ok(Some(bytes)),
        Value::Bytes(bytes) => Ok(Some(Cow::Owned(bytes))),
        value => Err(value),
    }
}

fn takes_bytes(schema: Option<&Schema>) -> bool {
    schema.is_none_or(|schema| schema.kind == Kind::Bytes)
}

fn byte_array<'a>(schema: Option<&Schema>, value: Value<'a>) -> Result<Bytes<'a>, Refusal> {
    let type_name = schema.map_or("no", |schema| schema.kind.label());
    if !takes_bytes(schema) {
        return Err(Refusal(format!(
            "ByteArrayConverter takes bytes and not {type_name}"
        )));
    }
    raw(value).map_err(|_| Refusal("ByteArrayConverter takes bytes and nothing else".to_owned()))
}

fn binary_data<'a>(
    delegate: Option<&Converter>,
    schema: Option<&Schema>,
    value: Value<'a>,
) -> Result<Bytes<'a>, Refusal> {
    let value = if takes_bytes(schema) {
        match raw(value) {
            Ok(bytes) => return Ok(bytes),
            Err(value) => value,
        }
    } else {
        value
    };
    match delegate {
        Some(delegate) => convert(delegate, schema, value),
        None => Err(Refusal(format!(
            "BinaryDataConverter takes bytes and not {}; set delegate.converter.type",
            schema.map_or("a value without schema", |schema| schema.kind.label())
        ))),
    }
}

fn primitive<'a>(converter: &Converter, value: &Value<'_>) -> Result<Bytes<'a>, Refusal> {
    let bytes: Vec<u8> = match (converter, value) {
        (_, Value::Null) => return Ok(None),
        (Converter::Boolean, Value::Boolean(value)) => vec![u8::from(*value)],
        (Converter::Short, Value::Int16(value)) => value.to_be_bytes().into(),
        (Converter::Integer, Value::Int32(value)) => value.to_be_bytes().into(),
        (Converter::Long, Value::Int64(value)) => value.to_be_bytes().into(),
        (Converter::Float, Value::Float32(value)) => canonical_f32(*value).to_be_bytes().into(),
        (Converter::Double, Value::Float64(value)) => canonical_f64(*value).to_be_bytes().into(),
        _ => {
            return Err(Refusal(format!(
                "{converter:?}Converter takes values of that type only"
            )));
        }
    };
    Ok(Some(Cow::Owned(bytes)))
}

/// Java has one NaN.
fn canonical_f32(value: f32) -> u32 {
    if value.is_nan() {
        0x7fc0_0000
    } else {
        value.to_bits()
    }
}

fn canonical_f64(value: f64) -> u64 {
    if value.is_nan() {
        0x7ff8_0000_0000_0000
    } else {
        value.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JsonConverter;

    fn json(schemas: bool) -> Converter {
        Converter::Json(JsonConverter {
            schemas,
            decimal_numeric: false,
            null_to_default: true,
        })
    }

    fn text(schema: &Schema, converter: &Converter, value: Value<'_>) -> Option<String> {
        convert(converter, Some(schema), value)
            .unwrap()
            .map(|bytes| String::from_utf8(bytes.into_owned()).unwrap())
    }

    #[test]
    fn null_is_a_kafka_null_except_under_json() {
        let schema = Schema::optional(Kind::String);
        assert_eq!(text(&schema, &Converter::String, Value::Null), None);
        assert_eq!(text(&schema, &json(false), Value::Null).unwrap(), "null");
        assert_eq!(
            text(&schema, &json(true), Value::Null).unwrap(),
            "{\"schema\":{\"type\":\"string\",\"optional\":true},\"payload\":null}"
        );
        assert_eq!(convert(&json(true), None, Value::Null), Ok(None));
    }

    #[test]
    fn raw_converters_refuse_text() {
        let schema = Schema::optional(Kind::String);
        let value = || Value::String("secret".into());
        for converter in [Converter::ByteArray, Converter::BinaryData(None)] {
            let refusal = convert(&converter, Some(&schema), value()).unwrap_err();
            assert!(!refusal.0.contains("secret"));
        }
        let delegated = Converter::BinaryData(Some(Box::new(json(false))));
        assert_eq!(text(&schema, &delegated, value()).unwrap(), "\"secret\"");
    }

    #[test]
    fn a_buffer_prints_its_limits() {
        let schema = Schema::new(Kind::Bytes);
        let buffer = Value::Buffer(Cow::Borrowed(&[1, 2]));
        assert_eq!(
            text(&schema, &Converter::String, buffer.clone()).unwrap(),
            "java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]"
        );
        assert_eq!(
            text(&schema, &Converter::SimpleHeader, buffer).unwrap(),
            "AQI="
        );
    }

    #[test]
    fn numbers_are_big_endian() {
        let bytes = convert(&Converter::Long, None, Value::Int64(42)).unwrap();
        assert_eq!(bytes.unwrap().as_ref(), [0, 0, 0, 0, 0, 0, 0, 42]);
        assert!(convert(&Converter::Long, None, Value::Int32(42)).is_err());
    }
}
