//! What is done to an event before its converters: predicates, transforms, the Event Router.

use super::NameAdjustment;
use crate::config::date_pattern::DatePattern;

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
        /// `regex`.
        regex: TopicPattern,
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
    /// `route.topic.regex`, case-sensitive.
    pub route_regex: TopicPattern,
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

/// The expression of a RegexRouter. It must match the whole topic; what is then replaced is the
/// first thing that it finds there, which need not be the whole.
#[derive(Debug, Clone)]
pub struct TopicPattern {
    /// Anchored at both ends.
    pub whole: fancy_regex::Regex,
    /// Not anchored.
    pub first: fancy_regex::Regex,
}
