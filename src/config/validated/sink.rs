//! Where events go: topics, dead letters, bounds.

use std::collections::BTreeMap;
use std::time::Duration;

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
