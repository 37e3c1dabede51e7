//! The configuration as the rest of walpost sees it: typed, complete, consistent.
//!
//! Built only by [`load`](fn@crate::config::load). Nothing stringly typed is left, except the Kafka client
//! properties, which keep their Java names until `sink` and `offset` translate them.

mod sink;
mod source;
mod tables;
mod transforms;
mod values;
mod worker;

use std::time::Duration;

pub use sink::*;
pub use source::*;
pub use tables::*;
pub use transforms::*;
pub use values::*;
pub use worker::*;

/// Everything one process runs: the worker's settings and one or more connectors.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings shared by all connectors of the process.
    pub worker: Worker,
    /// The connectors, in the order of the command line.
    pub connectors: Vec<Connector>,
}

/// One connector: one slot, one database.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Connector name: first element of the offset key.
    pub name: String,
    /// The file it came from, for messages.
    pub origin: String,
    /// `topic.prefix`: second element of the offset key, part of schema names.
    pub topic_prefix: String,
    /// `topic.delimiter`: between prefix, schema and table in schema names, and in the heartbeat
    /// topic.
    pub topic_delimiter: String,
    /// How to reach Postgres.
    pub database: Database,
    /// The replication slot.
    pub slot: Slot,
    /// The publication.
    pub publication: Publication,
    /// Which tables are outbox tables.
    pub tables: TableFilter,
    /// Which columns of them exist for the router.
    pub columns: ColumnRules,
    /// Rows that existed before the slot.
    pub snapshot: Snapshot,
    /// Heartbeats.
    pub heartbeat: Heartbeat,
    /// `status.update.interval.ms`.
    pub status_interval: Duration,
    /// `lsn.flush.mode` is not `manual`: tell the slot what was stored.
    pub confirm_to_slot: bool,
    /// `offset.mismatch.strategy`.
    pub offset_mismatch: OffsetMismatch,
    /// How column values become Connect values.
    pub values: ValueOptions,
    /// `transforms`, in order.
    pub transforms: Vec<Transform>,
    /// Converters for key, value and headers, worker defaults applied.
    pub converters: Converters,
    /// `extended.headers.enabled`: Debezium's context headers.
    pub context_headers: bool,
    /// Source of the record timestamp when no column is configured.
    pub record_time: RecordTime,
    /// `skipped.operations` does not name `c`: inserted rows are events (snapshot rows always are).
    pub insert_events: bool,
    /// `skipped.operations` does not name `u`: updated rows reach the router.
    pub update_events: bool,
    /// `skipped.operations` does not name `t`.
    pub truncate_events: bool,
    /// `message.prefix.include.list` and `.exclude.list`.
    pub message_prefixes: NameFilter,
    /// Producer properties: worker `producer.*` overlaid with `producer.override.*`, Java names,
    /// with `bootstrap.servers` and (as a fallback) the worker's security settings.
    pub producer: KafkaProperties,
    /// `topic.creation.*`; `None` leaves creation to the broker.
    pub topic_creation: Option<TopicCreation>,
    /// `errors.*`.
    pub errors: ErrorPolicy,
    /// `offsets.storage.topic`: the connector's own offsets topic.
    pub own_offset_topic: Option<String>,
    /// Bounds on memory.
    pub limits: Limits,
    /// Events and position in one Kafka transaction; `None` is at-least-once delivery.
    pub exactly_once: Option<ExactlyOnce>,
}

impl Connector {
    /// Whether logical messages are routed: some transform turns them into events.
    pub fn wants_messages(&self) -> bool {
        self.transforms
            .iter()
            .any(|transform| matches!(transform.kind, TransformKind::DecodeMessage { .. }))
    }
}
