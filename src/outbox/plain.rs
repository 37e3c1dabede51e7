//! The short way: where topic, key, value and headers are the very text that Postgres sent, a
//! record is slices of the row. Nothing is formatted, and nothing allocated but a first sight of a
//! routing value.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::columns::{Column, Table};
use super::draft;
use super::event_time::KAFKA_TIMES;
use super::problem::Problem;
use super::router::{Roles, RouterState};
use super::schema::Kind;
use super::types::Codec;
use super::value::{Value, is_blank};
use crate::config::{self, Connector, Converter, Place};
use crate::record::{Header, Record};
use crate::source::row::{Cell, Tuple};

/// Where the parts of a record stand in a row.
#[derive(Debug)]
pub(super) struct Plain {
    key: Slot,
    payload: Slot,
    id: Slot,
    /// Position in the row, since the column has no default for this purpose.
    route_by: usize,
    timestamp: Option<(usize, Codec)>,
    timestamp_strict: bool,
    partition: Option<usize>,
    headers: Vec<(String, Slot)>,
    tombstone_on_empty: bool,
}

/// A column that is taken as it stands.
#[derive(Debug)]
struct Slot {
    index: usize,
    nullable: bool,
    /// What stands in for NULL.
    default: Option<Box<[u8]>>,
}

/// The row needs the long way.
struct NotPlain;

impl Plain {
    /// For a table and the only transform that its changes pass; `None` when a part of the record
    /// is more than a slice.
    pub(super) fn new(
        table: &Table,
        options: &config::Router,
        roles: &Roles,
        connector: &Connector,
    ) -> Option<Self> {
        let converters = &connector.converters;
        let plain_converters = converters.key == Converter::String
            && converters.value == Converter::String
            && matches!(
                converters.header,
                Converter::String | Converter::SimpleHeader
            );
        let in_order = !connector.context_headers && options.expand.is_none();
        if !plain_converters || !in_order || roles.tracing.is_some() {
            return None;
        }
        let column = |at: Option<usize>| at.and_then(|at| table.columns.get(at));
        let mut headers = Vec::new();
        let mut partition = None;
        for (placement, at) in options.placements.iter().zip(&roles.placements) {
            if at.is_none() && options.ignore_missing && placement.place != Place::Envelope {
                continue;
            }
            let column = column(*at)?;
            match placement.place {
                Place::Header => headers.push((placement.alias.clone(), Slot::new(column)?)),
                Place::Partition if column.codec == Codec::Int32 && column.is_plain() => {
                    partition = Some(column.index);
                }
                Place::Partition | Place::Envelope => return None,
            }
        }
        let route_by = column(roles.route_by)
            .filter(|column| column.is_plain() && column.schema.kind == Kind::String)?;
        let timestamp = match &options.timestamp {
            None => None,
            Some(_) => {
                let column = column(roles.timestamp)?;
                let fits = match column.codec {
                    Codec::Timestamp(config::TimeMode::Adaptive, _) => true,
                    Codec::TimestampZoned { .. } | Codec::Date(_) => !options.timestamp_strict,
                    _ => false,
                };
                if !fits {
                    return None;
                }
                Some((column.index, column.codec.clone()))
            }
        };
        Some(Self {
            key: Slot::new(column(roles.key)?)?,
            payload: Slot::new(column(roles.payload)?)?,
            id: Slot::new(column(roles.id)?)?,
            route_by: route_by.index,
            timestamp,
            timestamp_strict: options.timestamp_strict,
            partition,
            headers,
            tombstone_on_empty: options.tombstone_on_empty,
        })
    }

    /// The parts of an inserted row, or `None` when this row needs the long way after all.
    pub(super) fn slice<'a>(&'a self, row: Tuple<'a>, time_ms: i64) -> Option<Slices<'a>> {
        self.parts(row, time_ms).ok()
    }

    fn parts<'a>(&'a self, row: Tuple<'a>, time_ms: i64) -> Result<Slices<'a>, NotPlain> {
        let payload = self.payload.bytes(row)?;
        let empty = payload.is_none_or(is_blank);
        let mut headers = SmallVec::new();
        headers.push(Header {
            name: Cow::Borrowed("id"),
            value: self.id.bytes(row)?.map(Cow::Borrowed),
        });
        for (name, slot) in &self.headers {
            headers.push(Header {
                name: Cow::Borrowed(name),
                value: slot.bytes(row)?.map(Cow::Borrowed),
            });
        }
        let Cell::Text(routing_value) = row.cell(self.route_by) else {
            return Err(NotPlain);
        };
        Ok(Slices {
            routing_value,
            key: self.key.bytes(row)?,
            value: payload.filter(|_| !(empty && self.tombstone_on_empty)),
            headers,
            partition: self.partition_of(row)?,
            timestamp_ms: self.timestamp_of(row, time_ms)?,
        })
    }

    fn partition_of(&self, row: Tuple<'_>) -> Result<Option<i32>, NotPlain> {
        let Some(index) = self.partition else {
            return Ok(None);
        };
        match row.cell(index) {
            Cell::Null => Ok(None),
            Cell::Text(text) => parse(text).map(Some),
            Cell::Unchanged => Err(NotPlain),
        }
    }

    fn timestamp_of(&self, row: Tuple<'_>, time_ms: i64) -> Result<i64, NotPlain> {
        let Some((index, codec)) = &self.timestamp else {
            return Ok(time_ms);
        };
        match row.cell(*index) {
            Cell::Null => Ok(time_ms),
            Cell::Text(text) => std::str::from_utf8(text)
                .ok()
                .and_then(|text| codec.millis(text))
                .filter(|millis| self.timestamp_strict || KAFKA_TIMES.contains(millis))
                .ok_or(NotPlain),
            Cell::Unchanged => Err(NotPlain),
        }
    }
}

fn parse(text: &[u8]) -> Result<i32, NotPlain> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(NotPlain)
}

/// A record but for its topic.
pub(super) struct Slices<'a> {
    routing_value: &'a [u8],
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: SmallVec<[Header<'a>; 4]>,
    partition: Option<i32>,
    timestamp_ms: i64,
}

impl<'a> Slices<'a> {
    /// The record, with the topic that the router gives it.
    pub(super) fn route(self, router: &'a mut RouterState) -> Result<Record<'a>, Problem> {
        let topic = router.topics.legal(self.routing_value)?;
        Ok(Record {
            topic: Cow::Borrowed(topic),
            partition: draft::legal_partition(self.partition)?,
            key: self.key.map(Cow::Borrowed),
            value: self.value.map(Cow::Borrowed),
            headers: self.headers,
            timestamp_ms: draft::legal_timestamp(self.timestamp_ms)?,
        })
    }
}

impl Slot {
    fn new(column: &Column) -> Option<Self> {
        if !column.is_plain() {
            return None;
        }
        let default = match &column.schema.default {
            None => None,
            Some(Value::String(text)) => Some(text.as_bytes().into()),
            Some(Value::Int16(value)) => Some(value.to_string().into_bytes().into()),
            Some(Value::Int32(value)) => Some(value.to_string().into_bytes().into()),
            Some(Value::Int64(value)) => Some(value.to_string().into_bytes().into()),
            Some(_) => return None,
        };
        Some(Self {
            index: column.index,
            nullable: column.schema.optional,
            default,
        })
    }

    fn bytes<'a>(&'a self, row: Tuple<'a>) -> Result<Option<&'a [u8]>, NotPlain> {
        match row.cell(self.index) {
            Cell::Text(text) => Ok(Some(text)),
            Cell::Null if self.default.is_some() => Ok(self.default.as_deref()),
            Cell::Null if self.nullable => Ok(None),
            Cell::Null | Cell::Unchanged => Err(NotPlain),
        }
    }
}
