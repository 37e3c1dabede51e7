//! From Postgres' text to a Connect value.

use std::borrow::Cow;
use std::sync::Arc;

use super::calendar::{self, Moment};
use super::literal::{self, Item};
use super::{Codec, Numeric, Origin, Precision, Unconvertible, binary};
use crate::config::{DecimalMode, HstoreMode, IntervalMode, TimeMode};
use crate::outbox::java::{self, Decimal};
use crate::outbox::json::write_java_string;
use crate::outbox::schema::{Kind, Schema};
use crate::outbox::value::{Struct, Value};

/// Average days of a month, as Debezium counts an interval.
const DAYS_PER_MONTH: f64 = 365.25 / 12.0;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// A value, and whether a part of it was lost on the way and reads as NULL.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::outbox) struct Decoded<'a> {
    pub(in crate::outbox) value: Value<'a>,
    pub(in crate::outbox) lost: bool,
}

impl Codec {
    /// Reads the text of a value that is not NULL; a struct gets the schema given.
    pub(in crate::outbox) fn decode<'a>(
        &self,
        schema: &Arc<Schema>,
        text: &'a str,
        origin: Origin,
    ) -> Result<Decoded<'a>, Unconvertible> {
        let value = match self {
            Codec::Array(item) => return decode_array(item, schema, text),
            // A snapshot reads it by another path, which knows the type.
            Codec::Void if origin == Origin::Snapshot => Value::String(Cow::Borrowed(text)),
            Codec::Void => {
                return Ok(Decoded {
                    value: Value::Null,
                    lost: true,
                });
            }
            codec => codec.scalar(schema, text, origin).ok_or(Unconvertible)?,
        };
        Ok(Decoded { value, lost: false })
    }

    fn scalar<'a>(&self, schema: &Arc<Schema>, text: &'a str, origin: Origin) -> Option<Value<'a>> {
        Some(match self {
            Codec::Text => Value::String(Cow::Borrowed(text)),
            Codec::Boolean => Value::Boolean(text.eq_ignore_ascii_case("t")),
            Codec::Int16 => Value::Int16(text.parse().ok()?),
            Codec::Int32 => Value::Int32(text.parse().ok()?),
            Codec::Int64 => Value::Int64(text.parse().ok()?),
            Codec::Float32 => match text {
                "NaN" => Value::Float32(f32::NAN),
                "Infinity" => Value::Float32(f32::INFINITY),
                "-Infinity" => Value::Float32(f32::NEG_INFINITY),
                _ => Value::Float32(text.parse().ok()?),
            },
            Codec::Float64 => Value::Float64(literal::parse_f64(text)?),
            // Inside an array the driver takes what is no number for a mistake.
            Codec::Numeric(_) if origin == Origin::Element && text.ends_with(['N', 'y']) => {
                return None;
            }
            Codec::Numeric(numeric) => numeric.decode(schema, text)?,
            Codec::Money { mode, digits } => money(*mode, *digits, &literal::parse_money(text)?),
            Codec::Bytea(mode) => binary::present(*mode, Cow::Owned(binary::parse_bytea(text)?)),
            Codec::Opaque(mode) => binary::present(*mode, Cow::Borrowed(text.as_bytes())),
            Codec::OpaqueShape(mode) => {
                binary::present(*mode, Cow::Owned(literal::java_shape(text)?.into_bytes()))
            }
            Codec::Bit if text.is_empty() => return None,
            Codec::Bit => Value::Boolean(!binary::parse_bits(text)?.is_empty()),
            Codec::Bits => Value::Bytes(binary::parse_bits(text)?),
            Codec::Date(mode) => date(*mode, day(text, origin)?),
            Codec::Time(mode, precision) => {
                let micros = calendar::parse_time(text)?;
                // java.sql.Time has milliseconds, and no 24:00.
                let micros = match origin {
                    Origin::Element => micros / 1000 * 1000 % 86_400_000_000,
                    Origin::Stream | Origin::Snapshot => micros,
                };
                time(*mode, *precision, micros)?
            }
            Codec::Timestamp(mode, precision) => {
                let moment = match origin {
                    Origin::Element => calendar::legacy_timestamp(text)?,
                    Origin::Stream | Origin::Snapshot => calendar::parse_timestamp(text)?,
                };
                timestamp(*mode, *precision, moment)?
            }
            Codec::TimeZoned => {
                let micros = calendar::parse_zoned_time(text)?;
                // Inside an array java.sql.Time gives whole seconds only.
                let micros = match origin {
                    Origin::Element => micros / 1_000_000 * 1_000_000,
                    Origin::Stream | Origin::Snapshot => micros,
                };
                Value::String(calendar::iso_time(micros).into())
            }
            Codec::TimestampZoned { digits } => zoned(text, *digits, origin)?,
            Codec::Interval(mode) => interval(*mode, literal::parse_interval(text)?),
            Codec::Hstore(mode) => hstore(*mode, literal::parse_hstore(text)?),
            Codec::Point => {
                let (x, y) = literal::parse_point(text)?;
                point(schema, x, y)
            }
            Codec::Array(_) | Codec::Void => return None,
        })
    }
}

/// An array whose items are lost one by one keeps its length; one that cannot be read is lost whole.
fn decode_array<'a>(
    item: &Codec,
    schema: &Arc<Schema>,
    text: &str,
) -> Result<Decoded<'a>, Unconvertible> {
    let item_schema = match &schema.kind {
        Kind::Array(item_schema) => item_schema,
        _ => return Err(Unconvertible),
    };
    let Some(elements) = literal::parse_array(text) else {
        // An int2vector is called an array and is not written as one.
        return Ok(Decoded {
            value: Value::List(Vec::new()),
            lost: true,
        });
    };
    let mut lost = false;
    let mut values = Vec::new();
    for element in elements {
        values.push(match element {
            Item::Null => Value::Null,
            // Java would print the address of the inner array, or give up.
            Item::Nested => {
                lost = true;
                Value::Null
            }
            Item::Text(text) => {
                match item.decode(item_schema, &text, Origin::Element) {
                    Ok(decoded) => {
                        lost |= decoded.lost;
                        decoded.value.into_owned()
                    }
                    // Debezium gives up on a single one only where nanoseconds overflow.
                    Err(Unconvertible)
                        if matches!(item, Codec::Timestamp(TimeMode::Nanoseconds, _)) =>
                    {
                        lost = true;
                        Value::Null
                    }
                    Err(unconvertible) => return Err(unconvertible),
                }
            }
        });
    }
    Ok(Decoded {
        value: Value::List(values),
        lost,
    })
}

impl Numeric {
    /// A value of the column, rescaled to its declaration.
    fn decode<'a>(self, schema: &Arc<Schema>, text: &str) -> Option<Value<'a>> {
        let special = match text {
            "NaN" => Some((f64::NAN, "NAN")),
            "Infinity" => Some((f64::INFINITY, "POSITIVE_INFINITY")),
            "-Infinity" => Some((f64::NEG_INFINITY, "NEGATIVE_INFINITY")),
            _ => None,
        };
        match (special, self.mode) {
            (Some(_), DecimalMode::Precise) => None,
            (Some((value, _)), DecimalMode::Double) => Some(Value::Float64(value)),
            (Some((_, name)), DecimalMode::String) => Some(Value::String(name.into())),
            (None, _) => self.present(schema, &Decimal::parse(text)?),
        }
    }

    pub(super) fn present<'a>(self, schema: &Arc<Schema>, value: &Decimal) -> Option<Value<'a>> {
        let scaled = if self.variable {
            value.clone()
        } else {
            value.with_scale(self.scale)?
        };
        Some(match self.mode {
            DecimalMode::Double => Value::Float64(scaled.to_f64()),
            DecimalMode::String => Value::String(scaled.plain().into()),
            DecimalMode::Precise if self.variable => variable(schema, &scaled.stripped()),
            DecimalMode::Precise => Value::Decimal(scaled),
        })
    }
}

fn variable<'a>(schema: &Arc<Schema>, value: &Decimal) -> Value<'a> {
    Value::Struct(Struct {
        schema: Arc::clone(schema),
        values: vec![
            Value::Int32(value.scale()),
            Value::Bytes(value.unscaled_bytes()),
        ],
    })
}

pub(super) fn money<'a>(mode: DecimalMode, digits: i32, value: &Decimal) -> Value<'a> {
    match mode {
        DecimalMode::Double => Value::Float64(value.to_f64()),
        DecimalMode::String => Value::String(value.plain().into()),
        DecimalMode::Precise => Value::Decimal(value.rounded_half_up(digits)),
    }
}

fn day(text: &str, origin: Origin) -> Option<i64> {
    match origin {
        Origin::Stream => calendar::parse_days(text),
        Origin::Snapshot | Origin::Element => calendar::legacy_days(text),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Java narrows the day number, and infinity relies on it"
)]
pub(super) fn date<'a>(mode: TimeMode, day: i64) -> Value<'a> {
    match mode {
        TimeMode::IsoString => Value::String(calendar::iso_date(day).into()),
        TimeMode::Connect => Value::Date(i64::from(day as i32) * MILLIS_PER_DAY),
        TimeMode::Adaptive
        | TimeMode::AdaptiveTimeMicroseconds
        | TimeMode::Microseconds
        | TimeMode::Nanoseconds => Value::Int32(day as i32),
    }
}

pub(super) fn time<'a>(mode: TimeMode, precision: Precision, micros: i64) -> Option<Value<'a>> {
    Some(match (mode, precision) {
        (TimeMode::Adaptive, Precision::Millis) => Value::Int32(i32::try_from(micros / 1000).ok()?),
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds, _) => {
            Value::Int64(micros)
        }
        (TimeMode::Nanoseconds, _) => Value::Int64(micros * 1000),
        (TimeMode::IsoString, _) => Value::String(calendar::iso_time(micros).into()),
        (TimeMode::Connect, _) => Value::Date(micros / 1000),
    })
}

pub(super) fn timestamp<'a>(
    mode: TimeMode,
    precision: Precision,
    moment: Moment,
) -> Option<Value<'a>> {
    Some(match (mode, precision) {
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds, Precision::Millis) => {
            Value::Int64(moment.epoch_millis())
        }
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds, _) => {
            Value::Int64(moment.epoch_micros())
        }
        (TimeMode::Nanoseconds, _) => Value::Int64(moment.epoch_nanos()?),
        (TimeMode::IsoString, _) => Value::String(moment.iso(None).into()),
        (TimeMode::Connect, _) => Value::Date(moment.epoch_millis()),
    })
}

fn zoned<'a>(text: &'a str, digits: usize, origin: Origin) -> Option<Value<'a>> {
    if matches!(text, "infinity" | "-infinity") {
        return Some(Value::String(Cow::Borrowed(text)));
    }
    let moment = match origin {
        Origin::Element => calendar::legacy_zoned(text)?,
        Origin::Stream | Origin::Snapshot => calendar::parse_zoned(text)?,
    };
    let width = (1..=9).contains(&digits).then_some(digits);
    Some(Value::String(moment.iso(width).into()))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Java's conversion from double saturates, as this one does"
)]
pub(super) fn interval<'a>(mode: IntervalMode, interval: literal::Interval) -> Value<'a> {
    let literal::Interval {
        years,
        months,
        days,
        hours,
        minutes,
        seconds,
    } = interval;
    match mode {
        IntervalMode::String => {
            let mut text = String::new();
            java::write_f64(&mut text, seconds);
            let seconds = Decimal::parse(&text).map_or(text, |value| value.stripped().plain());
            Value::String(format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S").into())
        }
        IntervalMode::Numeric => {
            let months = f64::from(years.wrapping_mul(12).wrapping_add(months));
            let days = months * DAYS_PER_MONTH + f64::from(days);
            let minutes = (days * 24.0 + f64::from(hours)) * 60.0 + f64::from(minutes);
            Value::Int64(((minutes * 60.0 + seconds) * 1e6) as i64)
        }
    }
}

pub(super) fn hstore<'a>(
    mode: HstoreMode,
    mut entries: Vec<(String, Option<String>)>,
) -> Value<'a> {
    java::sort_like_hash_map(&mut entries);
    match mode {
        HstoreMode::Map => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    (
                        key,
                        value.map_or(Value::Null, |text| Value::String(text.into())),
                    )
                })
                .collect(),
        ),
        HstoreMode::Json => {
            let mut out = String::from("{");
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_java_string(&mut out, key);
                out.push(':');
                match value {
                    Some(value) => write_java_string(&mut out, value),
                    None => out.push_str("null"),
                }
            }
            out.push('}');
            Value::String(out.into())
        }
    }
}

pub(super) fn point<'a>(schema: &Arc<Schema>, x: f64, y: f64) -> Value<'a> {
    Value::Struct(Struct {
        schema: Arc::clone(schema),
        values: vec![
            Value::Float64(x),
            Value::Float64(y),
            Value::Bytes(binary::point_wkb(x, y)),
            Value::Null,
        ],
    })
}

impl Codec {
    /// The moment that the text of a column names, in milliseconds cut toward zero as the router
    /// cuts it; infinity is the end of the range. `None` for a type that names no moment.
    pub(in crate::outbox) fn millis(&self, text: &str) -> Option<i64> {
        match (self, text) {
            (Codec::TimestampZoned { .. } | Codec::Date(_), "infinity") => Some(i64::MAX),
            (Codec::TimestampZoned { .. } | Codec::Date(_), "-infinity") => Some(i64::MIN),
            (Codec::TimestampZoned { .. }, _) => Some(calendar::parse_zoned(text)?.epoch_millis()),
            (Codec::Date(_), _) => calendar::parse_days(text)?.checked_mul(86_400_000),
            (Codec::Timestamp(TimeMode::Adaptive, precision), _) => {
                let moment = calendar::parse_timestamp(text)?;
                Some(match precision {
                    Precision::Millis => moment.epoch_millis(),
                    Precision::Micros => moment.epoch_micros() / 1000,
                })
            }
            _ => None,
        }
    }
}
