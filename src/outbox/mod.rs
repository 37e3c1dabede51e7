//! A row and a relation in, a record or a verdict out. No I/O, no clock, no async.
//!
//! Owns everything that decides the bytes of a record: column types, defaults, the Event Router and
//! the transforms around it, converters, topic names. Byte for byte it is what Debezium's Outbox
//! Event Router on Kafka Connect would have produced; where that has no defined result, or would
//! hide a loss, the event is [`Poison`]. Never: a connection, a position, a retry.

mod bound;
mod columns;
mod convert;
mod defaults;
mod draft;
mod envelope;
mod event_time;
mod expand;
mod fields;
mod guess;
mod heartbeat;
mod java;
mod json;
mod names;
mod plain;
mod poison;
mod problem;
mod router;
mod schema;
mod topic;
mod trace;
mod transform;
mod types;
mod value;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

pub use poison::Poison;

use bound::{Admitted, Bound};
use draft::{DraftHeader, Part};
use problem::Problem;
use router::RouterState;
use schema::{Kind, Schema};
use transform::{Raw, RawContent, Routed, Step};
use value::Value;

use crate::config::{Connector, InvalidOp, RecordTime};
use crate::error::Failure;
use crate::lsn::{CommitInfo, Lsn};
use crate::record::Record;
use crate::source::row::{Change, LogicalMessage, Operation, Relation, TableFacts};

/// Notices kept until the pipeline takes them; later ones are only counted.
const NOTICES_MAX: usize = 100;

/// The router of one connector run, with all that it remembers.
pub struct Outbox {
    connector: Connector,
    chain: Vec<Step>,
    routers: Vec<RouterState>,
    context_headers: Vec<(&'static str, String)>,
    context_schema: Arc<Schema>,
    tables: Vec<Bound>,
    by_oid: HashMap<u32, usize>,
    notices: Notices,
}

/// What became of a change.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, taken apart at once; a box would be an allocation per record"
)]
pub enum Outcome<'a> {
    /// A record to publish.
    Record(Record<'a>),
    /// Nothing to publish, and why.
    Dropped(Dropped),
}

/// What may become a record.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A change of an outbox table.
    Change(Change<'a>),
    /// A logical message.
    Message(LogicalMessage<'a>),
}

impl Item<'_> {
    /// Its position.
    pub fn lsn(&self) -> Lsn {
        match self {
            Item::Change(change) => change.lsn,
            Item::Message(message) => message.lsn,
        }
    }
}

/// Whom an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Event id, where it can be read.
    pub event_id: Option<String>,
    /// Aggregate id, where it can be read: the key column as text.
    pub aggregate: Option<Vec<u8>>,
}

/// Why a change is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// An UPDATE, which an outbox should not see; `Warn` or `Error` says how to log it.
    Update(InvalidOp),
    /// A DELETE.
    Delete,
    /// A TRUNCATE.
    Truncate,
    /// An operation that `skipped.operations` names.
    Skipped,
    /// A logical message whose prefix is not wanted.
    Prefix,
    /// A Filter of the chain took it.
    Filtered,
    /// No router of the chain took it: its predicate said no, or a message was not decoded.
    NotRouted,
}

/// What a value of a row was published as instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replaced {
    /// NULL, because it has no Connect form (`event.converting.failure.handling.mode=warn`).
    Value,
    /// The time of `record.timestamp`, because Kafka has no timestamp for the moment.
    Time,
}

/// A value that was published otherwise than it stands in the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it was, and so what stands for it.
    pub what: Replaced,
    /// `schema.table`.
    pub table: String,
    /// Column.
    pub column: Arc<str>,
    /// Event id, where it can be read.
    pub event_id: Option<String>,
    /// WAL position of the row.
    pub lsn: Lsn,
}

/// What [`Outbox::take_notices`] gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notices {
    /// The first ones since the last call.
    pub kept: Vec<Notice>,
    /// How many there were of [`Replaced::Value`].
    pub values: u64,
    /// How many there were of [`Replaced::Time`].
    pub times: u64,
}

impl Notices {
    fn add(&mut self, notice: Notice) {
        match notice.what {
            Replaced::Value => self.values += 1,
            Replaced::Time => self.times += 1,
        }
        if self.kept.len() < NOTICES_MAX {
            self.kept.push(notice);
        }
    }
}

impl Outbox {
    /// The record of `heartbeat.interval.ms`. The router leaves it as it is.
    ///
    /// # Errors
    /// `Config` when a converter cannot write it.
    pub fn heartbeat(&self, now_ms: i64) -> Result<Record<'static>, Failure> {
        heartbeat::record(&self.connector, now_ms)
    }

    /// For one run of `connector`; `run_id` is a value of the context headers.
    pub fn new(connector: &Connector, run_id: &str) -> Self {
        let chain = transform::prepare(connector);
        let routers = transform::routers(&chain).map(RouterState::new).collect();
        let context_headers = if connector.context_headers {
            vec![
                (
                    "__debezium.context.connectorLogicalName",
                    connector.topic_prefix.clone(),
                ),
                ("__debezium.context.taskId", "0".to_owned()),
                ("__debezium.context.connectorName", "postgresql".to_owned()),
                ("__debezium.context.runId", run_id.to_owned()),
            ]
        } else {
            Vec::new()
        };
        Self {
            connector: connector.clone(),
            chain,
            routers,
            context_headers,
            context_schema: Arc::new(Schema::new(Kind::String)),
            tables: Vec::new(),
            by_oid: HashMap::new(),
            notices: Notices::default(),
        }
    }

    /// Takes a description of a table, before its rows. Wanted columns are looked up here, once.
    ///
    /// # Errors
    /// `facts` do not describe the columns of `relation`.
    pub fn bind(&mut self, relation: &Arc<Relation>, facts: &TableFacts) -> Result<(), Failure> {
        if facts.columns.len() != relation.columns.len() {
            return Err(Failure::internal(format!(
                "bind table {}.{}: {} columns in the stream, catalog facts of {}",
                relation.schema,
                relation.table,
                relation.columns.len(),
                facts.columns.len()
            )));
        }
        let bound = Bound::new(relation, facts, &self.connector, &self.chain);
        match self.by_oid.get(&relation.oid) {
            Some(&at) => {
                if let Some(slot) = self.tables.get_mut(at) {
                    *slot = bound;
                }
            }
            None => {
                self.by_oid.insert(relation.oid, self.tables.len());
                self.tables.push(bound);
            }
        }
        Ok(())
    }

    /// Routes a change. `now_ms` is the wall clock.
    ///
    /// # Errors
    /// The change cannot become a record.
    pub fn route<'a>(
        &'a mut self,
        change: &Change<'a>,
        now_ms: i64,
    ) -> Result<Outcome<'a>, Poison> {
        let time_ms = self.record_time(change.commit, now_ms);
        let Outbox {
            connector,
            chain,
            routers,
            context_headers,
            context_schema,
            tables,
            by_oid,
            notices,
        } = self;
        let connector: &'a Connector = connector;
        let tables: &'a [Bound] = tables;
        let Some(bound) = described(tables, by_oid, change.relation.oid) else {
            return Err(undescribed(change));
        };
        let admitted = match bound.admit(connector, chain, &change.operation) {
            Ok(Admitted::Row(admitted)) => admitted,
            Ok(Admitted::Dropped(dropped)) => return Ok(Outcome::Dropped(dropped)),
            Err((problem, tuple)) => return Err(bound.poison(problem, tuple, change.lsn)),
        };
        let tuple = admitted.row.new;
        let poison = |problem| bound.poison(problem, Some(tuple), change.lsn);
        if let (Some(plain), false) = (&bound.plain, admitted.key_changed)
            && let Some(slices) = plain.slice(tuple, time_ms)
        {
            // A plain table was made for the chain's only router.
            let [router] = routers.as_mut_slice() else {
                return Err(poison(Problem::new(
                    "the router of a plain table is missing",
                )));
            };
            return slices.route(router).map(Outcome::Record).map_err(poison);
        }
        let context = context_headers
            .iter()
            .map(|(name, value)| context_header(name, value, context_schema));
        let (draft, replaced) = bound
            .run(admitted, chain, routers, context, time_ms)
            .map_err(poison)?;
        for (what, column) in replaced {
            notices.add(Notice {
                what,
                table: bound.table.name.clone(),
                column,
                event_id: bound.event_id(tuple),
                lsn: change.lsn,
            });
        }
        finish(draft, connector).map_err(poison)
    }

    /// Routes a logical message. `now_ms` is the wall clock.
    ///
    /// # Errors
    /// The message cannot become a record.
    pub fn message<'a>(
        &'a mut self,
        message: &LogicalMessage<'a>,
        now_ms: i64,
    ) -> Result<Outcome<'a>, Poison> {
        if !self.connector.message_prefixes.takes(message.prefix) {
            return Ok(Outcome::Dropped(Dropped::Prefix));
        }
        let raw = Raw {
            topic: Cow::Owned(message_topic(&self.connector)),
            headers: Vec::new(),
            content: RawContent::Message(message.content),
            time_ms: self.record_time(message.commit, now_ms),
        };
        let Outbox {
            connector,
            chain,
            routers,
            ..
        } = self;
        let connector: &'a Connector = connector;
        let routed = transform::run(chain, routers, raw).and_then(|draft| finish(draft, connector));
        routed.map_err(|problem| Poison {
            reason: problem.reason,
            event_id: None,
            table: None,
            column: problem.column,
            lsn: message.lsn,
        })
    }

    /// Whom an event is about, read from its columns whether or not it can become a record.
    pub fn subject(&self, event: &Item<'_>) -> Subject {
        match event {
            Item::Change(change) => {
                let (Operation::Insert { new }
                | Operation::Read { new }
                | Operation::Update { new, .. }) = change.operation
                else {
                    return Subject::default();
                };
                let bound = described(&self.tables, &self.by_oid, change.relation.oid);
                bound.map_or_else(Subject::default, |bound| Subject {
                    event_id: bound.event_id(new),
                    aggregate: bound.aggregate(new),
                })
            }
            Item::Message(message) => transform::subject(&self.chain, message.content),
        }
    }

    /// What of a column's text may leave the database, as `column.*` says; `None` for a column that
    /// may not.
    pub fn shown<'a>(&'a self, oid: u32, index: usize, text: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        described(&self.tables, &self.by_oid, oid)?
            .table
            .shown(index, text)
    }

    /// The topic that raw changes of a table, or messages, would go to without a router.
    pub fn raw_topic(&self, event: &Item<'_>) -> String {
        let described = match event {
            Item::Change(change) => described(&self.tables, &self.by_oid, change.relation.oid),
            Item::Message(_) => None,
        };
        described.map_or_else(
            || message_topic(&self.connector),
            |bound| bound.table.topic.clone(),
        )
    }

    /// Values that were published otherwise than they stand since the last call.
    pub fn take_notices(&mut self) -> Notices {
        std::mem::take(&mut self.notices)
    }

    fn record_time(&self, commit: Option<CommitInfo>, now_ms: i64) -> i64 {
        match (self.connector.record_time, commit) {
            (RecordTime::Commit, Some(commit)) => commit.time_us / 1000,
            _ => now_ms,
        }
    }
}

fn message_topic(connector: &Connector) -> String {
    format!("{}.message", connector.topic_prefix)
}

fn described<'a>(tables: &'a [Bound], by_oid: &HashMap<u32, usize>, oid: u32) -> Option<&'a Bound> {
    match tables {
        [only] if only.oid == oid => Some(only),
        _ => by_oid.get(&oid).and_then(|&at| tables.get(at)),
    }
}

fn undescribed(change: &Change<'_>) -> Poison {
    let relation = change.relation;
    Poison {
        reason: "the stream sent a row of a table that it had not described".to_owned(),
        event_id: None,
        table: Some(format!("{}.{}", relation.schema, relation.table)),
        column: None,
        lsn: change.lsn,
    }
}

fn context_header<'a>(name: &'a str, value: &'a str, schema: &Arc<Schema>) -> DraftHeader<'a> {
    let part = Part {
        schema: Some(Arc::clone(schema)),
        value: Value::String(Cow::Borrowed(value)),
    };
    (Cow::Borrowed(name), part)
}

fn finish<'a>(routed: Routed<'a>, connector: &Connector) -> Result<Outcome<'a>, Problem> {
    match routed {
        Err(dropped) => Ok(Outcome::Dropped(dropped)),
        Ok(draft) => draft.finish(&connector.converters).map(Outcome::Record),
    }
}
