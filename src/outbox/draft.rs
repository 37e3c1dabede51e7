//! A record whose key, value and headers are still Connect values, as transforms see it.

use std::borrow::Cow;
use std::sync::Arc;

use super::convert::{self, Refusal};
use super::problem::Problem;
use super::schema::Schema;
use super::topic;
use super::value::Value;
use crate::config::{Converter, Converters};
use crate::record::{Header, Record};

/// A value and its schema. A tombstone has none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part<'a> {
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) value: Value<'a>,
}

/// A header that is not yet bytes.
pub(super) type DraftHeader<'a> = (Cow<'a, str>, Part<'a>);

/// A routed record.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) topic: String,
    pub(super) partition: Option<i32>,
    pub(super) key: Part<'a>,
    pub(super) value: Part<'a>,
    pub(super) headers: Vec<DraftHeader<'a>>,
    pub(super) timestamp_ms: i64,
}

impl<'a> Draft<'a> {
    /// Writes the bytes and checks what Kafka or Connect would refuse.
    pub(super) fn finish(self, converters: &Converters) -> Result<Record<'a>, Problem> {
        let headers = self
            .headers
            .into_iter()
            .map(|(name, part)| {
                let value = part.write(&converters.header).map_err(|Refusal(reason)| {
                    Problem::new(format!("the header {name:?} cannot be written: {reason}"))
                })?;
                Ok(Header { name, value })
            })
            .collect::<Result<_, Problem>>()?;
        let refused = |what: &'static str| {
            move |Refusal(reason)| Problem::new(format!("the {what} cannot be written: {reason}"))
        };
        let key = self.key.write(&converters.key).map_err(refused("key"))?;
        let value = self
            .value
            .write(&converters.value)
            .map_err(refused("value"))?;
        topic::check(&self.topic)?;
        Ok(Record {
            topic: Cow::Owned(self.topic),
            partition: legal_partition(self.partition)?,
            key,
            value,
            headers,
            timestamp_ms: legal_timestamp(self.timestamp_ms)?,
        })
    }
}

impl<'a> Part<'a> {
    fn write(self, converter: &Converter) -> Result<convert::Bytes<'a>, Refusal> {
        convert::convert(converter, self.schema.as_deref(), self.value)
    }
}

/// A partition as the producer takes it.
pub(super) fn legal_partition(partition: Option<i32>) -> Result<Option<i32>, Problem> {
    match partition {
        Some(number) if number < 0 => Err(Problem::new(format!(
            "the partition {number} is negative; Kafka counts from 0"
        ))),
        partition => Ok(partition),
    }
}

/// A timestamp as the producer takes it: -1 means none.
pub(super) fn legal_timestamp(timestamp_ms: i64) -> Result<Option<i64>, Problem> {
    match timestamp_ms {
        -1 => Ok(None),
        negative if negative < 0 => Err(Problem::new(
            "the event timestamp lies before 1970, which Kafka has no timestamps for",
        )),
        timestamp_ms => Ok(Some(timestamp_ms)),
    }
}
