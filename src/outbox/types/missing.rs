//! What stands in for a value that the stream does not give: a NULL that the column's schema
//! forbids, and a large value that an UPDATE left where it was.

use std::borrow::Cow;
use std::sync::Arc;

use super::calendar;
use super::decode;
use super::{Codec, Unconvertible, literal};
use crate::config::{BinaryMode, DecimalMode, IntervalMode};
use crate::outbox::java::Decimal;
use crate::outbox::schema::Schema;
use crate::outbox::value::Value;

impl Codec {
    /// Debezium's stand-in for NULL in a column that the catalog now calls NOT NULL.
    pub(in crate::outbox) fn fallback(&self, schema: &Arc<Schema>) -> Value<'static> {
        let zero = || Decimal::parse("0");
        match self {
            Codec::Text | Codec::Void => Value::String("".into()),
            Codec::Boolean | Codec::Bit => Value::Boolean(false),
            Codec::Int16 => Value::Int16(0),
            Codec::Int32 => Value::Int32(0),
            Codec::Int64 => Value::Int64(0),
            Codec::Float32 => Value::Float32(0.0),
            Codec::Float64 => Value::Float64(0.0),
            Codec::Numeric(numeric) => zero()
                .and_then(|zero| numeric.present(schema, &zero))
                .unwrap_or(Value::Null),
            Codec::Money { mode, digits } => zero().map_or(Value::Null, |zero| {
                let zero = zero.rounded_half_up(*digits);
                decode::money(*mode, *digits, &zero)
            }),
            Codec::Bytea(BinaryMode::Bytes)
            | Codec::Opaque(BinaryMode::Bytes)
            | Codec::OpaqueShape(BinaryMode::Bytes) => Value::Buffer(Cow::Borrowed(&[])),
            Codec::Bytea(_) | Codec::Opaque(_) | Codec::OpaqueShape(_) => Value::String("".into()),
            Codec::Bits => Value::Bytes(Vec::new()),
            Codec::Date(mode) => decode::date(*mode, 0),
            Codec::Time(mode, precision) => {
                decode::time(*mode, *precision, 0).unwrap_or(Value::Null)
            }
            Codec::Timestamp(mode, precision) => calendar::parse_timestamp("1970-01-01 00:00:00")
                .and_then(|epoch| decode::timestamp(*mode, *precision, epoch))
                .unwrap_or(Value::Null),
            Codec::TimeZoned => Value::String("00:00:00Z".into()),
            Codec::TimestampZoned { .. } => Value::String("1970-01-01T00:00:00Z".into()),
            Codec::Interval(mode) => decode::interval(*mode, literal::Interval::default()),
            Codec::Hstore(mode) => decode::hstore(*mode, Vec::new()),
            Codec::Point => decode::point(schema, 0.0, 0.0),
            Codec::Array(_) => Value::List(Vec::new()),
        }
    }

    /// `unavailable.value.placeholder` in the column's type. Types that cannot hold it fail as a
    /// conversion does.
    pub(in crate::outbox) fn unavailable<'a>(
        &self,
        type_name: &str,
        placeholder: &'a str,
    ) -> Result<Value<'a>, Unconvertible> {
        let text = || Value::String(Cow::Borrowed(placeholder));
        match self {
            Codec::Text => Ok(text()),
            Codec::Bytea(BinaryMode::Bytes) => {
                Ok(Value::Buffer(Cow::Borrowed(placeholder.as_bytes())))
            }
            Codec::Bytea(BinaryMode::Hex) => Ok(text()),
            Codec::Hstore(mode) => Ok(decode::hstore(
                *mode,
                vec![(placeholder.to_owned(), Some(placeholder.to_owned()))],
            )),
            // These are strings that the placeholder passes through unread.
            Codec::Numeric(numeric) if numeric.mode != DecimalMode::Double => match numeric.mode {
                DecimalMode::String => Ok(text()),
                _ => Err(Unconvertible),
            },
            Codec::Interval(IntervalMode::String) => Ok(text()),
            Codec::Array(item) => unavailable_array(item, type_name, placeholder),
            _ => Err(Unconvertible),
        }
    }
}

fn unavailable_array<'a>(
    item: &Codec,
    type_name: &str,
    placeholder: &'a str,
) -> Result<Value<'a>, Unconvertible> {
    let signed = |byte: &u8| byte.cast_signed();
    let items = match type_name {
        "_text" | "_varchar" | "_bpchar" | "_json" | "_jsonb" => {
            vec![Value::String(Cow::Borrowed(placeholder))]
        }
        "_bytea" if *item == Codec::Bytea(BinaryMode::Bytes) => {
            vec![Value::Bytes(placeholder.as_bytes().to_vec())]
        }
        "_int4" | "_date" if *item != Codec::Date(crate::config::TimeMode::Connect) => placeholder
            .as_bytes()
            .iter()
            .map(|byte| Value::Int32(i32::from(signed(byte))))
            .collect(),
        "_int8" => placeholder
            .as_bytes()
            .iter()
            .map(|byte| Value::Int64(i64::from(signed(byte))))
            .collect(),
        _ => return Err(Unconvertible),
    };
    Ok(Value::List(items))
}
