//! What stands in for a value that the stream does not give: a NULL that the column's schema
//! forbids, and a large value that an UPDATE left where it was.

use std::borrow::Cow;
use std::sync::Arc;

use super::calendar;
use super::decode;
use super::{Codec, Precision, Unconvertible, literal};
use crate::config::{BinaryMode, DecimalMode, IntervalMode, TimeMode};
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

    /// What a default says with infinity, or with 24:00: the first or last date and time that
    /// Java's classes have, or nothing (the inner `None`) where its unit cannot hold them. A value
    /// of the stream takes another way and comes out elsewhere.
    pub(in crate::outbox) fn at_javas_limit(&self, text: &str) -> Option<Option<Value<'static>>> {
        let last = match text {
            "infinity" | "24:00:00" => true,
            "-infinity" => false,
            _ => return None,
        };
        Some(match self {
            Codec::Date(mode) => {
                let day = if last {
                    calendar::LAST_DAY
                } else {
                    calendar::FIRST_DAY
                };
                Some(decode::date(*mode, day))
            }
            Codec::Time(TimeMode::Nanoseconds, _) => {
                Some(Value::Int64(calendar::LAST_MICROSECOND * 1000 + 999))
            }
            Codec::Time(TimeMode::IsoString, _) => {
                Some(Value::String("23:59:59.999999999Z".into()))
            }
            Codec::Time(mode, precision) => {
                decode::time(*mode, *precision, calendar::LAST_MICROSECOND)
            }
            Codec::Timestamp(TimeMode::IsoString, _) => {
                Some(Value::String(Cow::Borrowed(if last {
                    "+999999999-12-31T23:59:59.999999999Z"
                } else {
                    "-999999999-01-01T00:00:00Z"
                })))
            }
            Codec::Timestamp(mode @ TimeMode::Microseconds, precision)
            | Codec::Timestamp(
                mode @ (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds),
                precision @ Precision::Micros,
            ) => {
                let moment = if last {
                    calendar::LAST_MOMENT
                } else {
                    calendar::FIRST_MOMENT
                };
                decode::timestamp(*mode, *precision, moment)
            }
            _ => None,
        })
    }

    /// `unavailable.value.placeholder` in the column's type. Types that cannot hold it fail as a
    /// conversion does.
    pub(in crate::outbox) fn unavailable<'a>(
        &self,
        type_name: &str,
        placeholder: &'a [u8],
    ) -> Result<Value<'a>, Unconvertible> {
        let text = || Value::String(String::from_utf8_lossy(placeholder));
        match self {
            Codec::Text => Ok(text()),
            Codec::Bytea(BinaryMode::Bytes) => Ok(Value::Buffer(Cow::Borrowed(placeholder))),
            Codec::Bytea(BinaryMode::Hex) => Ok(text()),
            Codec::Hstore(mode) => {
                let text = String::from_utf8_lossy(placeholder).into_owned();
                Ok(decode::hstore(*mode, vec![(text.clone(), Some(text))]))
            }
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
    placeholder: &'a [u8],
) -> Result<Value<'a>, Unconvertible> {
    let signed = |byte: &u8| byte.cast_signed();
    let items = match type_name {
        "_text" | "_varchar" | "_bpchar" | "_json" | "_jsonb" => {
            vec![Value::String(String::from_utf8_lossy(placeholder))]
        }
        "_bytea" if *item == Codec::Bytea(BinaryMode::Bytes) => {
            vec![Value::Bytes(placeholder.to_vec())]
        }
        "_int4" | "_date" if *item != Codec::Date(TimeMode::Connect) => placeholder
            .iter()
            .map(|byte| Value::Int32(i32::from(signed(byte))))
            .collect(),
        "_int8" => placeholder
            .iter()
            .map(|byte| Value::Int64(i64::from(signed(byte))))
            .collect(),
        _ => return Err(Unconvertible),
    };
    Ok(Value::List(items))
}
