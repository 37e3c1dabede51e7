//! The worker: what all connectors of a process share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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
