//! A dead letter, and the record that carries it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::lsn::{CommitInfo, Lsn};
use crate::record::{Header, Record};
use crate::source::row::{Cell, Relation, Span, Tuple};

/// Names a letter by its content: table, position and row. The same event makes the same letter
/// after every restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetterId(u128);

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LetterId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// Why an event is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It cannot become a record, or Kafka refuses the record.
    Poison,
    /// An earlier event of its aggregate is a dead letter.
    Order,
}

impl Cause {
    /// The word in documents and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Poison => "poison",
            Cause::Order => "order",
        }
    }
}

/// Where it went wrong, in the words of Connect's `Stage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Routing and converting.
    Transformation,
    /// Handing the record to Kafka.
    Produce,
}

impl Stage {
    /// Connect's word.
    pub fn label(self) -> &'static str {
        match self {
            Stage::Transformation => "TRANSFORMATION",
            Stage::Produce => "KAFKA_PRODUCE",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Stage::Transformation => "io.debezium.transforms.outbox.EventRouter",
            Stage::Produce => "org.apache.kafka.clients.producer.KafkaProducer",
        }
    }
}

/// What happened to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOperation {
    /// A committed INSERT.
    Insert,
    /// Found by the snapshot.
    Read,
    /// A committed UPDATE.
    Update,
    /// A TRUNCATE, which has no row.
    Truncate,
}

impl RowOperation {
    /// The word in documents.
    pub fn label(self) -> &'static str {
        match self {
            RowOperation::Insert => "insert",
            RowOperation::Read => "read",
            RowOperation::Update => "update",
            RowOperation::Truncate => "truncate",
        }
    }
}

/// A row with bytes of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Kept {
    /// Adds the next column's value.
    pub fn push(&mut self, cell: Cell<'_>) {
        let end = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.spans.push(match cell {
            Cell::Null => Span::Null,
            Cell::Unchanged => Span::Unchanged,
            Cell::Text(text) => {
                let start = end(&self.bytes);
                self.bytes.extend_from_slice(text);
                Span::Text {
                    start,
                    end: end(&self.bytes),
                }
            }
        });
    }

    /// As the router reads it.
    pub fn tuple(&self) -> Tuple<'_> {
        Tuple::new(&self.bytes, &self.spans)
    }
}

/// The event itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A row of an outbox table.
    Row {
        /// What happened to it.
        operation: RowOperation,
        /// The table as it was then, without the columns that are not to leave the database.
        relation: Relation,
        /// The row, column by column as in `relation`.
        new: Option<Kept>,
        /// What it was before, where the server sent that.
        old: Option<Kept>,
    },
    /// A logical message.
    Message {
        /// See [`crate::source::row::LogicalMessage::transactional`].
        transactional: bool,
        /// Prefix.
        prefix: String,
        /// Content.
        content: Vec<u8>,
    },
}

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The connector that wrote it.
    pub connector: String,
    /// Why.
    pub cause: Cause,
    /// Where it went wrong.
    pub stage: Stage,
    /// What went wrong, without a value of the event.
    pub reason: String,
    /// Event id, where it can be read.
    pub event_id: Option<String>,
    /// Aggregate id, where it is known: the key column as text.
    pub aggregate: Option<Vec<u8>>,
    /// Position of the event; for a snapshot row the slot's consistent point.
    pub lsn: Lsn,
    /// The last position before its transaction: a start at or before it reads the event again.
    pub after: Lsn,
    /// Its transaction.
    pub commit: Option<CommitInfo>,
    /// The event.
    pub body: Body,
}

impl Letter {
    /// Names the letter by its content.
    pub fn id(&self) -> LetterId {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        match &self.body {
            Body::Row {
                operation,
                relation,
                new,
                old,
            } => {
                part(operation.label().as_bytes());
                part(relation.schema.as_bytes());
                part(relation.table.as_bytes());
                // A snapshot taken again stands at another position.
                if *operation != RowOperation::Read {
                    part(&self.lsn.as_u64().to_be_bytes());
                }
                for row in [new, old].into_iter().flatten() {
                    for (index, column) in relation.columns.iter().enumerate() {
                        part(column.name.as_bytes());
                        match row.tuple().cell(index) {
                            Cell::Null => part(b"n"),
                            Cell::Unchanged => part(b"u"),
                            Cell::Text(text) => {
                                part(b"t");
                                part(text);
                            }
                        }
                    }
                }
            }
            Body::Message {
                prefix, content, ..
            } => {
                part(b"message");
                part(&self.lsn.as_u64().to_be_bytes());
                part(prefix.as_bytes());
                part(content);
            }
        }
        let digest = hash.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        LetterId(u128::from_be_bytes(first))
    }

    /// `schema.table`; `None` for a logical message.
    pub fn table(&self) -> Option<String> {
        match &self.body {
            Body::Row { relation, .. } => Some(format!("{}.{}", relation.schema, relation.table)),
            Body::Message { .. } => None,
        }
    }

    /// Whether the snapshot found it.
    pub fn is_of_snapshot(&self) -> bool {
        matches!(
            self.body,
            Body::Row {
                operation: RowOperation::Read,
                ..
            }
        )
    }

    /// For log lines and messages: event, table and position, never a value.
    pub fn describe(&self) -> String {
        let event = match &self.event_id {
            Some(id) => format!("event {id:?}"),
            None => "an event without a readable id".to_owned(),
        };
        let table = match self.table() {
            Some(table) => format!("of table {table}"),
            None => "of a logical message".to_owned(),
        };
        format!("{event} {table} at {}", self.lsn)
    }

    /// The record for the dead-letter topic. With `described`, Connect's headers say what went
    /// wrong; `origin` is the topic that they name: the one the table's raw changes would go to.
    pub fn record(&self, topic: &str, described: Option<&str>, now_ms: i64) -> Record<'static> {
        let mut headers = Vec::new();
        headers.extend(self.event_id.clone().map(|id| ("id", id)));
        if let Some(origin) = described {
            headers.extend(self.connect_headers(origin));
        }
        headers.push(("__walpost.errors.cause", self.cause.label().to_owned()));
        headers.push(("__walpost.errors.lsn", self.lsn.to_string()));
        headers.extend(
            self.event_id
                .clone()
                .map(|id| ("__walpost.errors.event.id", id)),
        );
        headers.extend(self.table().map(|table| ("__walpost.errors.table", table)));
        headers.push(("__walpost.errors.letter", self.id().to_string()));
        Record {
            topic: Cow::Owned(topic.to_owned()),
            partition: None,
            key: self.aggregate.clone().map(Cow::Owned),
            value: Some(Cow::Owned(self.encode())),
            headers: headers
                .into_iter()
                .map(|(name, value)| Header {
                    name: Cow::Borrowed(name),
                    value: Some(Cow::Owned(value.into_bytes())),
                })
                .collect(),
            timestamp_ms: Some(now_ms.max(0)),
        }
    }

    /// The headers of Connect's `DeadLetterQueueReporter`. A source has one partition, the slot, and
    /// its offset is the LSN as a number.
    fn connect_headers(&self, origin: &str) -> [(&'static str, String); 10] {
        let exception = match (self.cause, self.stage) {
            (Cause::Order, _) => "walpost.EarlierEventIsDeadLetter",
            (Cause::Poison, Stage::Transformation) => {
                "org.apache.kafka.connect.errors.DataException"
            }
            (Cause::Poison, Stage::Produce) => "org.apache.kafka.common.errors.ApiException",
        };
        [
            ("__connect.errors.topic", origin.to_owned()),
            ("__connect.errors.partition", "0".to_owned()),
            ("__connect.errors.offset", self.lsn.as_u64().to_string()),
            ("__connect.errors.connector.name", self.connector.clone()),
            ("__connect.errors.task.id", "0".to_owned()),
            ("__connect.errors.stage", self.stage.label().to_owned()),
            ("__connect.errors.class.name", self.stage.class().to_owned()),
            (
                "__connect.errors.exception.class.name",
                exception.to_owned(),
            ),
            ("__connect.errors.exception.message", self.reason.clone()),
            (
                "__connect.errors.exception.stacktrace",
                format!("{exception}: {}", self.reason),
            ),
        ]
    }
}
