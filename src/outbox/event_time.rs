//! The time of an event, which becomes the record's timestamp.

use std::ops::RangeInclusive;

use super::problem::Problem;
use super::router::{Content, Roles, require};
use super::schema::Kind;
use super::value::Value;
use crate::config;

/// Milliseconds that a record can carry: from 1970 to the end of the year 9999, and the -1 that
/// means none.
pub(super) const KAFKA_TIMES: RangeInclusive<i64> = -1..=253_402_300_799_999;

/// The record's timestamp; `time_ms` when no column gives one.
pub(super) fn of(
    options: &config::Router,
    roles: &Roles,
    content: Content<'_, '_>,
    time_ms: i64,
) -> Result<i64, Problem> {
    let Some(name) = &options.timestamp else {
        return Ok(time_ms);
    };
    let at = require(roles.timestamp, name, "event timestamp column")?;
    let instant = match options.timestamp_strict {
        true => None,
        false => content.instant(at),
    };
    let moment = match instant {
        Some(moment) => moment,
        None => debeziums_timestamp(name, at, content)?,
    };
    match moment {
        None => Ok(time_ms),
        Some(millis) if options.timestamp_strict || KAFKA_TIMES.contains(&millis) => Ok(millis),
        Some(_) => {
            content.replace_time(at);
            Ok(time_ms)
        }
    }
}

/// The moment in a column of the types that Debezium's router takes.
fn debeziums_timestamp(
    name: &str,
    at: usize,
    content: Content<'_, '_>,
) -> Result<Option<i64>, Problem> {
    let stored = match content.read(at, name, &Kind::Int64)? {
        Value::Null => return Ok(None),
        Value::Int64(stored) => stored,
        _ => {
            return Err(Problem::column(
                name,
                "time.precision.mode=connect and an event timestamp column do not go together",
            ));
        }
    };
    let schema = content.schema(at);
    match schema.as_ref().and_then(|schema| schema.name.as_deref()) {
        Some("io.debezium.time.Timestamp") => Ok(Some(stored)),
        Some("io.debezium.time.MicroTimestamp") => Ok(Some(stored / 1000)),
        Some("io.debezium.time.NanoTimestamp") => Ok(Some(stored / 1_000_000)),
        _ => Err(Problem::column(
            name,
            "the event timestamp column must be of type timestamp, timestamptz or date",
        )),
    }
}
