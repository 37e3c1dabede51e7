//! The configuration as the rest of walpost sees it: typed, complete, consistent.
//!
//! Built only by [`load`](fn@crate::config::load). Nothing stringly typed is left, except the Kafka client
//! properties, which keep their Java names until `sink` and `offset` translate them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::date_pattern::DatePattern;
use super::hosts::{Host, SessionTarget};
use super::java::{self, RegexError};
use super::secret::Secret;

/// Everything one process runs: the worker's settings and one or more connectors.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings shared by all connectors of the process.
    pub worker: Worker,
    /// The connectors, in the order of the command line.
    pub connectors: Vec<Connector>,
}

/// Settings of the process, in Connect's names.
#[derive(Debug, Clone)]
pub struct Worker {
    /// `group.id`; part of the transactional id.
    pub group_id: String,
    /// Where positions are kept.
    pub offsets: OffsetStorage,
    /// `offset.flush.interval.ms`: upper bound between two stored positions.
    pub flush_interval: Duration,
    /// `task.shutdown.graceful.timeout.ms`: how long a stop may take to reach a commit and flush.
    pub shutdown_timeout: Duration,
    /// `listeners`: where metrics, health and status are served.
    pub listeners: Vec<Listener>,
    /// Top-level Kafka client properties (security included), Java names. They configure the
    /// clients that are not producers: offsets and topic administration. `bootstrap.servers` is in.
    pub client: KafkaProperties,
    /// `topic.creation.enable`.
    pub topic_creation: bool,
    /// `exactly.once.source.support` is `enabled`.
    pub exactly_once: bool,
}

/// Kafka client properties in Java's names, secrets included; never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaProperties(pub BTreeMap<String, String>);

impl std::fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl KafkaProperties {
    /// These properties with `over` laid on top.
    #[must_use]
    pub fn overlaid(&self, over: &KafkaProperties) -> KafkaProperties {
        let mut merged = self.0.clone();
        merged.extend(
            over.0
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        KafkaProperties(merged)
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Where positions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetStorage {
    /// A compacted topic in Connect's format.
    Topic(OffsetTopic),
    /// `offset.storage.file.filename`.
    File(PathBuf),
}

/// `offset.storage.topic` and how to create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetTopic {
    /// Topic name.
    pub name: String,
    /// `offset.storage.partitions`; -1 is the broker's default.
    pub partitions: i32,
    /// `offset.storage.replication.factor`; -1 is the broker's default.
    pub replication_factor: i32,
    /// Other `offset.storage.*` settings, applied as topic configuration at creation.
    pub settings: BTreeMap<String, String>,
}

/// One address of `listeners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Host name or address; empty means every address, as in Connect.
    pub host: String,
    /// Port; 0 picks a free one.
    pub port: u16,
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

/// `exactly.once.*` and `transaction.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactlyOnce {
    /// `<group.id>-<connector>-0`, as Connect names it, so that each fences the other.
    pub transactional_id: String,
    /// When a transaction ends.
    pub boundary: Boundary,
    /// The producer's `transaction.timeout.ms`.
    pub timeout: Duration,
    /// `transaction.max.records`: a larger Postgres transaction is committed in parts.
    pub max_records: u64,
}

/// `transaction.boundary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// When nothing more is waiting, at a bounded rate.
    Poll,
    /// After this time.
    Interval(Duration),
    /// With each Postgres transaction.
    Connector,
}

impl Connector {
    /// Whether logical messages are routed: some transform turns them into events.
    pub fn wants_messages(&self) -> bool {
        self.transforms
            .iter()
            .any(|transform| matches!(transform.kind, TransformKind::DecodeMessage { .. }))
    }
}

/// How to reach Postgres.
#[derive(Debug, Clone)]
pub struct Database {
    /// `database.hostname` and `database.port`, in the order in which they are tried.
    pub hosts: Vec<Host>,
    /// `database.target.session.attrs`.
    pub target: SessionTarget,
    /// `database.user`.
    pub user: String,
    /// `database.password`.
    pub password: Option<Secret>,
    /// `database.dbname`.
    pub dbname: String,
    /// TLS.
    pub tls: Tls,
    /// `database.tcpKeepAlive`.
    pub tcp_keepalive: bool,
    /// `database.initial.statements`, split.
    pub initial_statements: Vec<String>,
    /// `database.query.timeout.ms`; zero means none.
    pub query_timeout: Duration,
    /// `connection.validation.timeout.ms`: bound on one attempt to connect.
    pub connect_timeout: Duration,
}

/// `database.ssl*`.
#[derive(Debug, Clone)]
pub struct Tls {
    /// `database.sslmode`.
    pub mode: SslMode,
    /// `database.sslrootcert`: PEM.
    pub root_cert: Option<PathBuf>,
    /// `database.sslcert`: PEM.
    pub cert: Option<PathBuf>,
    /// `database.sslkey`: PEM or PKCS#8 DER.
    pub key: Option<PathBuf>,
}

/// libpq's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// Plain first, TLS if the server insists.
    Allow,
    /// TLS first, plain if the server has none.
    Prefer,
    /// TLS, certificate unchecked.
    Require,
    /// TLS, certificate chain checked.
    VerifyCa,
    /// TLS, chain and host name checked.
    VerifyFull,
}

/// The replication slot.
#[derive(Debug, Clone)]
pub struct Slot {
    /// `slot.name`, `[a-z0-9_]{1,63}`.
    pub name: String,
    /// `slot.failover` (Postgres 17 and later).
    pub failover: bool,
    /// `slot.drop.on.stop`.
    pub drop_on_stop: bool,
    /// `slot.stream.params`: further options of START_REPLICATION.
    pub stream_params: Vec<(String, String)>,
    /// `slot.retained.wal.*`.
    pub guard: SlotGuard,
}

/// What to do when the slot holds back too much WAL: bytes from which on, `None` is never.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotGuard {
    /// `slot.retained.wal.warn.bytes`: say so.
    pub warn: Option<u64>,
    /// `slot.retained.wal.unready.bytes`: fail the readiness probe.
    pub unready: Option<u64>,
    /// `slot.retained.wal.drop.bytes`: drop the slot and stop.
    pub drop: Option<u64>,
    /// `slot.retained.wal.drop.after.ms`: for how long it must not have come down before that.
    pub drop_after: Duration,
}

/// The publication.
#[derive(Debug, Clone)]
pub struct Publication {
    /// `publication.name`.
    pub name: String,
    /// `publication.autocreate.mode`.
    pub autocreate: Autocreate,
    /// `publish.via.partition.root`.
    pub via_partition_root: bool,
    /// `publication.mismatch.strategy` is `warn`: run although it cannot deliver.
    pub tolerate_mismatch: bool,
}

/// `publication.autocreate.mode`. All modes that create do so for the outbox tables only; see
/// docs/differences-from-debezium.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autocreate {
    /// Create when missing; for every table of the database only on Debezium's explicit word.
    AllTables,
    /// Create when missing for the included tables, and keep the table set in step.
    Filtered,
    /// Create an empty publication (logical messages need one).
    NoTables,
    /// Never create.
    Disabled,
}

/// A Java regular expression list, matched against whole names without regard to case.
#[derive(Debug, Clone, Default)]
pub struct NameFilter {
    /// Names to take; empty means all.
    pub include: Vec<Pattern>,
    /// Names to leave.
    pub exclude: Vec<Pattern>,
}

impl NameFilter {
    /// Whether `name` is taken.
    pub fn takes(&self, name: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

/// One anchored, case-insensitive expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: fancy_regex::Regex,
}

impl Pattern {
    /// Compiles `text`, as Debezium does for its include and exclude lists.
    ///
    /// # Errors
    /// The expression is not valid.
    pub fn new(text: &str) -> Result<Self, RegexError> {
        Ok(Self {
            text: text.to_owned(),
            regex: java::whole_ignoring_case(text)?,
        })
    }

    /// The expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `name` matches. An expression that runs out of its backtracking budget
    /// does not match.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name).unwrap_or(false)
    }
}

/// Which tables are outbox tables: `schema.*.list` on schema names, `table.*.list` on
/// `schema.table`.
#[derive(Debug, Clone, Default)]
pub struct TableFilter {
    /// `schema.include.list` and `schema.exclude.list`.
    pub schemas: NameFilter,
    /// `table.include.list` and `table.exclude.list`.
    pub tables: NameFilter,
    /// `include.partitions`: a partition is ours when its root is.
    pub partitions: bool,
}

impl TableFilter {
    /// Whether `schema.table` is one of ours.
    pub fn takes(&self, schema: &str, table: &str) -> bool {
        self.schemas.takes(schema) && self.tables.takes(&format!("{schema}.{table}"))
    }

    /// Whether a partition of a table that is ours is ours as well.
    pub fn takes_leaf(&self, schema: &str, partition: &str) -> bool {
        self.partitions || self.takes(schema, partition)
    }
}

/// `column.*` rules, on `schema.table.column`.
#[derive(Debug, Clone, Default)]
pub struct ColumnRules {
    /// `column.include.list` and `column.exclude.list`.
    pub filter: NameFilter,
    /// `column.mask.with.N.chars`: length and columns.
    pub mask: Vec<(usize, Vec<Pattern>)>,
    /// `column.truncate.to.N.chars`: length and columns.
    pub truncate: Vec<(usize, Vec<Pattern>)>,
    /// `column.propagate.source.type`: columns whose schema carries `__debezium.source.column.*`.
    pub propagate_source_type: Vec<Pattern>,
}

/// Rows that existed before the slot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// `snapshot.mode`.
    pub mode: SnapshotMode,
    /// `snapshot.existing.slot` is `snapshot`: a slot that somebody else made is no reason to leave
    /// existing rows out.
    pub over_existing_slot: bool,
    /// `snapshot.select.statement.overrides.<schema.table>`.
    pub select_overrides: BTreeMap<String, String>,
}

/// `snapshot.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Existing rows first when there is neither slot nor stored position.
    Initial,
    /// Existing rows, then stop.
    InitialOnly,
    /// Only what commits from now on.
    NoData,
    /// As `Initial`, and again when the stored position can no longer be served.
    WhenNeeded,
    /// Existing rows first at every start.
    Always,
}

/// Heartbeats.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// `heartbeat.interval.ms`; `None` is off.
    pub interval: Option<Duration>,
    /// `heartbeat.action.query`.
    pub action_query: Option<String>,
    /// Topic of heartbeat records.
    pub topic: String,
}

/// `offset.mismatch.strategy`: what to do when stored position and slot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetMismatch {
    /// Stop (our default).
    Stop,
    /// Debezium's default: do not look.
    NoValidation,
    /// The stored position wins; the slot is advanced to it.
    TrustOffset,
    /// The slot wins.
    TrustSlot,
    /// The greater of the two wins.
    TrustGreaterLsn,
}

/// How column values become Connect values.
#[derive(Debug, Clone)]
pub struct ValueOptions {
    /// `binary.handling.mode`.
    pub binary: BinaryMode,
    /// `decimal.handling.mode`.
    pub decimal: DecimalMode,
    /// `time.precision.mode`.
    pub time: TimeMode,
    /// `interval.handling.mode`.
    pub interval: IntervalMode,
    /// `hstore.handling.mode`.
    pub hstore: HstoreMode,
    /// `money.fraction.digits`.
    pub money_fraction_digits: u16,
    /// `include.unknown.datatypes`.
    pub include_unknown: bool,
    /// `unavailable.value.placeholder`.
    pub unavailable_placeholder: String,
    /// `event.converting.failure.handling.mode`.
    pub converting_failure: FailureMode,
    /// `schema.name.adjustment.mode`.
    pub schema_names: NameAdjustment,
    /// `field.name.adjustment.mode` of the connector.
    pub field_names: NameAdjustment,
}

/// `binary.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

/// `decimal.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum DecimalMode {
    Precise,
    Double,
    String,
}

/// `time.precision.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicroseconds,
    Connect,
    IsoString,
    Microseconds,
    Nanoseconds,
}

/// `interval.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum IntervalMode {
    Numeric,
    String,
}

/// `hstore.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum HstoreMode {
    Json,
    Map,
}

/// `event.converting.failure.handling.mode`: a value that does not fit its Connect type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// The event is poison (our default).
    Fail,
    /// Warn and go on with NULL, as Debezium does.
    Warn,
    /// Go on with NULL in silence.
    Skip,
}

/// `*.name.adjustment.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum NameAdjustment {
    None,
    Avro,
    AvroUnicode,
}

/// Where the record timestamp comes from when `table.field.event.timestamp` is unset or NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordTime {
    /// The transaction's commit time (our default: the same after a restart).
    Commit,
    /// The wall clock when the row was processed, as Debezium does.
    Processing,
}

/// One entry of `transforms`.
#[derive(Debug, Clone)]
pub struct Transform {
    /// Its alias.
    pub alias: String,
    /// `transforms.<alias>.predicate`, resolved.
    pub predicate: Option<Predicate>,
    /// What it does.
    pub kind: TransformKind,
}

/// A predicate and whether it is negated.
#[derive(Debug, Clone)]
pub struct Predicate {
    /// `negate`.
    pub negate: bool,
    /// The condition.
    pub test: PredicateTest,
}

/// Connect's three predicates.
#[derive(Debug, Clone)]
pub enum PredicateTest {
    /// `TopicNameMatches`, already anchored to match the whole topic name.
    TopicNameMatches(fancy_regex::Regex),
    /// `HasHeaderKey`.
    HasHeaderKey(String),
    /// `RecordIsTombstone`.
    RecordIsTombstone,
}

/// What a transform does.
#[derive(Debug, Clone)]
pub enum TransformKind {
    /// `io.debezium.transforms.outbox.EventRouter`.
    EventRouter(Box<Router>),
    /// `DecodeLogicalDecodingMessageContent`.
    DecodeMessage {
        /// `fields.null.include`.
        include_nulls: bool,
    },
    /// `RegexRouter`.
    RegexRouter {
        /// `regex`, already anchored to match the whole topic.
        regex: fancy_regex::Regex,
        /// `replacement`, in Java's syntax.
        replacement: String,
    },
    /// `InsertHeader`.
    InsertHeader {
        /// `header`.
        name: String,
        /// `value.literal`.
        value: String,
    },
    /// `DropHeaders`.
    DropHeaders {
        /// `headers`.
        names: Vec<String>,
    },
    /// `Filter`.
    Filter,
    /// `HeaderFrom`, `ReplaceField` or `ExtractField`.
    Members {
        /// `$Key` rather than `$Value`.
        of_key: bool,
        /// `replace.null.with.default`.
        null_to_default: bool,
        /// Which of them.
        action: MemberAction,
    },
    /// `TimestampRouter`.
    TimestampRouter {
        /// `topic.format`.
        topic_format: String,
        /// `timestamp.format`.
        timestamp_format: DatePattern,
    },
}

/// What a transform does with the members of a struct.
#[derive(Debug, Clone)]
pub enum MemberAction {
    /// `HeaderFrom`.
    HeaderFrom {
        /// `fields`.
        fields: Vec<String>,
        /// `headers`.
        headers: Vec<String>,
        /// `operation` is `move`.
        remove: bool,
    },
    /// `ReplaceField`.
    ReplaceField {
        /// `include`; empty means all.
        include: Vec<String>,
        /// `exclude`.
        exclude: Vec<String>,
        /// `renames`, old and new name.
        renames: Vec<(String, String)>,
    },
    /// `ExtractField`: `field`.
    ExtractField(String),
}

/// Options of the Event Router (`transforms.<alias>.*`).
#[derive(Debug, Clone)]
pub struct Router {
    /// `table.field.event.id`.
    pub id: String,
    /// `table.field.event.key`.
    pub key: String,
    /// `table.field.event.payload`.
    pub payload: String,
    /// `table.field.event.timestamp`.
    pub timestamp: Option<String>,
    /// `event.timestamp.strict`: only Debezium's type for that column, and no stand-in.
    pub timestamp_strict: bool,
    /// `table.field.event.schema.version`.
    pub schema_version: Option<String>,
    /// `route.by.field`.
    pub route_by: String,
    /// `route.topic.regex`, already anchored to match the whole routing value, case-sensitively.
    pub route_regex: fancy_regex::Regex,
    /// `route.topic.replacement`, in Java's syntax.
    pub route_replacement: String,
    /// `table.fields.additional.placement`.
    pub placements: Vec<Placement>,
    /// `table.field.additional.missing` is `ignore`.
    pub ignore_missing: bool,
    /// `route.tombstone.on.empty.payload`.
    pub tombstone_on_empty: bool,
    /// `table.op.invalid.behavior`.
    pub invalid_op: InvalidOp,
    /// `table.expand.json.payload` and its options.
    pub expand: Option<Expand>,
    /// `tracing.span.context.field`, with `tracing.propagate`.
    pub tracing: Option<String>,
}

/// One entry of `table.fields.additional.placement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Column.
    pub column: String,
    /// Where its value goes.
    pub place: Place,
    /// Name there; the column's name unless given.
    pub alias: String,
}

/// Where an additional column goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A record header.
    Header,
    /// A field of the value's envelope.
    Envelope,
    /// The record's partition.
    Partition,
}

/// `table.op.invalid.behavior`: an UPDATE of an outbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidOp {
    /// Log a warning, drop the change.
    Warn,
    /// Log an error, drop the change.
    Error,
    /// Stop.
    Fatal,
}

/// Options of JSON expansion.
#[derive(Debug, Clone)]
pub struct Expand {
    /// `table.json.payload.null.behavior` is `optional_bytes`.
    pub keep_nulls: bool,
    /// `table.json.payload.empty.array.behavior` is `optional_string`.
    pub keep_empty_arrays: bool,
    /// `field.name.adjustment.mode` of the transform.
    pub field_names: NameAdjustment,
}

/// The three converters.
#[derive(Debug, Clone)]
pub struct Converters {
    /// `key.converter`.
    pub key: Converter,
    /// `value.converter`.
    pub value: Converter,
    /// `header.converter`.
    pub header: Converter,
}

/// A converter of Connect or Debezium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Converter {
    /// `StringConverter`.
    String,
    /// `JsonConverter`.
    Json(JsonConverter),
    /// `ByteArrayConverter`.
    ByteArray,
    /// Debezium's `BinaryDataConverter` with its delegate.
    BinaryData(Option<Box<Converter>>),
    /// `SimpleHeaderConverter`.
    SimpleHeader,
    /// `BooleanConverter`.
    Boolean,
    /// `ShortConverter`.
    Short,
    /// `IntegerConverter`.
    Integer,
    /// `LongConverter`.
    Long,
    /// `FloatConverter`.
    Float,
    /// `DoubleConverter`.
    Double,
}

/// Options of `JsonConverter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonConverter {
    /// `schemas.enable`.
    pub schemas: bool,
    /// `decimal.format` is `NUMERIC`.
    pub decimal_numeric: bool,
    /// `replace.null.with.default`.
    pub null_to_default: bool,
}

/// `topic.creation.*`.
#[derive(Debug, Clone)]
pub struct TopicCreation {
    /// Named groups in order, then the default group.
    pub groups: Vec<TopicGroup>,
}

/// One group of `topic.creation.*`.
#[derive(Debug, Clone)]
pub struct TopicGroup {
    /// Group name; `default` for the last.
    pub name: String,
    /// `include`; empty means every topic (the default group).
    pub include: Vec<fancy_regex::Regex>,
    /// `exclude`; wins over `include`.
    pub exclude: Vec<fancy_regex::Regex>,
    /// `partitions`; -1 is the broker's default.
    pub partitions: i32,
    /// `replication.factor`; -1 is the broker's default.
    pub replication_factor: i32,
    /// Topic configuration.
    pub settings: BTreeMap<String, String>,
}

/// `errors.*`.
#[derive(Debug, Clone)]
pub struct ErrorPolicy {
    /// `errors.tolerance` is `all`: a poison event goes to the dead-letter topic or, without one, is
    /// skipped, counted and logged.
    pub tolerate: bool,
    /// `errors.deadletterqueue.*`; `None` without a topic.
    pub dead_letters: Option<DeadLetters>,
    /// `errors.max.retries`: attempts before giving up; `None` is for ever.
    pub max_retries: Option<u32>,
    /// `errors.retry.timeout`: how long attempts may go on failing; `None` is for ever.
    pub retry_timeout: Option<Duration>,
    /// `retriable.restart.connector.wait.ms`, or `errors.retry.delay.max.ms` if that is shorter:
    /// longest wait between two attempts.
    pub max_backoff: Duration,
}

/// `errors.deadletterqueue.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetters {
    /// `errors.deadletterqueue.topic.name`.
    pub topic: String,
    /// `errors.deadletterqueue.topic.replication.factor`; `None` when it is not set.
    pub replication_factor: Option<i32>,
    /// `errors.deadletterqueue.context.headers.enable`.
    pub context_headers: bool,
    /// `errors.deadletterqueue.order` is `aggregate`: later events of an aggregate follow its dead
    /// letter.
    pub by_aggregate: bool,
}

impl DeadLetters {
    /// The topic that says what became of dead letters.
    pub fn audit_topic(&self) -> String {
        format!("{}{}", self.topic, Self::AUDIT)
    }

    /// What follows the name of the dead-letter topic.
    pub(super) const AUDIT: &str = ".audit";
}

/// Bounds on memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes handed to Kafka and not yet acknowledged, at most.
    pub in_flight_bytes: usize,
    /// Records handed to Kafka and not yet acknowledged, at most.
    pub in_flight_records: usize,
}
