//! The Kafka record between router and sink. It borrows the row's bytes where it can.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::lsn::Lsn;

/// One record, ready to be produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Topic name, already checked against Kafka's rules.
    pub topic: Cow<'a, str>,
    /// Explicit partition; `None` lets the key decide, as Java's producer does.
    pub partition: Option<i32>,
    /// Key bytes; `None` is Kafka's null key.
    pub key: Option<Cow<'a, [u8]>>,
    /// Value bytes; `None` is a tombstone.
    pub value: Option<Cow<'a, [u8]>>,
    /// Headers in order; names may repeat.
    pub headers: SmallVec<[Header<'a>; 4]>,
    /// Milliseconds since the Unix epoch; `None` lets the producer take the wall clock.
    pub timestamp_ms: Option<i64>,
}

/// One record header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header<'a> {
    /// Header name.
    pub name: Cow<'a, str>,
    /// Header bytes; `None` is a null header.
    pub value: Option<Cow<'a, [u8]>>,
}

impl Record<'_> {
    /// The same record with bytes of its own, to outlive the row it came from.
    pub fn into_owned(self) -> Record<'static> {
        let owned = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        Record {
            topic: Cow::Owned(self.topic.into_owned()),
            partition: self.partition,
            key: self.key.map(owned),
            value: self.value.map(owned),
            headers: self
                .headers
                .into_iter()
                .map(|header| Header {
                    name: Cow::Owned(header.name.into_owned()),
                    value: header.value.map(owned),
                })
                .collect(),
            timestamp_ms: self.timestamp_ms,
        }
    }

    /// The id of the event, as its header carries it.
    pub fn event_id(&self) -> Option<String> {
        let id = self.headers.iter().find(|header| header.name == "id")?;
        Some(String::from_utf8_lossy(id.value.as_deref()?).into_owned())
    }

    /// Bytes this record takes in memory while it waits: key, value and headers.
    pub fn size(&self) -> usize {
        let bytes = |value: &Option<Cow<'_, [u8]>>| value.as_ref().map_or(0, |v| v.len());
        bytes(&self.key)
            + bytes(&self.value)
            + self
                .headers
                .iter()
                .map(|h| h.name.len() + bytes(&h.value))
                .sum::<usize>()
    }
}

/// Where a record came from, so that a refusal by Kafka names the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// LSN of the row's change (of the slot's consistent point for a snapshot row).
    pub lsn: Lsn,
    /// Which of the connector's tables, as numbered by the pipeline.
    pub table: TableIndex,
}

/// Number of a table within one connector run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableIndex(pub u8);

impl TableIndex {
    /// No table: the record of a position, which travels among the events.
    pub const POSITION: Self = Self(u8::MAX);
}
