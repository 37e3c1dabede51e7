//! The record that says "alive, nothing to report", as Debezium's heartbeats do.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::convert::convert;
use super::schema::{Field, Kind, Schema};
use super::value::{Struct, Value};
use crate::config::Connector;
use crate::error::Failure;
use crate::record::Record;

/// The heartbeat of `connector` at `now_ms`. No transform sees it: the router leaves such records
/// as they are.
///
/// # Errors
/// `Config` when a converter cannot write a struct.
pub(super) fn record(connector: &Connector, now_ms: i64) -> Result<Record<'static>, Failure> {
    let converters = &connector.converters;
    let refused = |property: &str| {
        let topic = &connector.heartbeat.topic;
        Failure::config(format!(
            "write a heartbeat record for topic {topic:?}: {property} cannot write a struct; use \
             JsonConverter or StringConverter, or set heartbeat.interval.ms=0"
        ))
    };
    let prefix = Value::String(Cow::Owned(connector.topic_prefix.clone()));
    let (key_schema, key) = member(
        "io.debezium.connector.common.ServerNameKey",
        "serverName",
        Kind::String,
        prefix,
    );
    let (value_schema, value) = member(
        "io.debezium.connector.common.Heartbeat",
        "ts_ms",
        Kind::Int64,
        Value::Int64(now_ms),
    );
    Ok(Record {
        topic: Cow::Owned(connector.heartbeat.topic.clone()),
        partition: Some(0),
        key: convert(&converters.key, Some(&key_schema), key)
            .map_err(|_| refused("key.converter"))?,
        value: convert(&converters.value, Some(&value_schema), value)
            .map_err(|_| refused("value.converter"))?,
        headers: SmallVec::new(),
        timestamp_ms: None,
    })
}

/// A struct of one member.
fn member(
    name: &'static str,
    field: &str,
    kind: Kind,
    value: Value<'static>,
) -> (Arc<Schema>, Value<'static>) {
    let field = Field {
        name: field.into(),
        schema: Arc::new(Schema::new(kind)),
    };
    let schema = Arc::new(Schema::logical(Kind::Struct(vec![field]), name));
    let whole = Struct {
        schema: schema.clone(),
        values: vec![value],
    };
    (schema, Value::Struct(whole))
}
