//! Kafka Connect's worker properties.

use super::{Family, Kind, no_effect, works};

const GROUP: &str = "walpost forms no Connect group; standbys wait on the replication slot";
const STORED: &str = "configuration and status are not stored in topics";
const REST: &str = "the listener serves metrics, health and status only";
const JMX: &str = "there is no JMX; metrics are served at /metrics";
const PLUGINS: &str = "there are no plugins";

/// Worker properties.
#[rustfmt::skip] // one row per property
pub(in super::super) static WORKER: Family = Family {
    title: "Worker",
    intro: "Properties of the process: from the worker file (`-w`), from `CONNECT_*` variables, or \
            inside a connector's file, which wins. Kafka client settings at this level configure the \
            clients for offsets and topics; below `producer.` they configure the producers.",
    prefix: "",
    properties: &[
        works("bootstrap.servers", Kind::List, "localhost:9092", "Kafka brokers."),
        works("group.id", Kind::Text, "walpost", "Name of the group of workers."),
        works("offset.storage.topic", Kind::Text, "walpost-offsets", "Compacted topic with the stored positions, in Connect's format."),
        works("offset.storage.partitions", Kind::Number(-1, i32::MAX as i64), "25", "Partitions of that topic when it is created; -1 is the broker's default."),
        works("offset.storage.replication.factor", Kind::Number(-1, 32767), "-1", "Its replicas; -1 is the broker's default. Connect's default is 3."),
        works("offset.storage.file.filename", Kind::Path, "", "File with the stored positions, instead of a topic."),
        works("offset.storage.<topic setting…>", Kind::Text, "", "Any further configuration of the offsets topic, used when it is created."),
        works("offset.flush.interval.ms", Kind::Millis(1), "60000", "Longest time between two stored positions. Positions are stored within 100 ms anyway; a smaller value is honoured."),
        no_effect("offset.flush.timeout.ms", Kind::Millis(1), "5000", "How long storing may take.", "a position that cannot be stored is retried until it is"),
        works("task.shutdown.graceful.timeout.ms", Kind::Millis(0), "10000", "How long a stop may take to reach a commit and store it. Connect's default is 5000."),
        works("listeners", Kind::Listeners, "http://127.0.0.1:8083", "Where metrics, health and status are served. Port 0 takes a free one."),
        works("topic.creation.enable", Kind::Flag, "true", "Whether connectors may create topics."),
        works("exactly.once.source.support", Kind::Choice(&["disabled", "preparing", "enabled"]), "disabled", "`enabled`: events and stored position are committed in one Kafka transaction, so that readers with `isolation.level=read_committed` see each event once. `preparing`, a step of Connect's rolling upgrade, delivers as `disabled` does. Needs an offsets topic, not a file."),
        works("key.converter", Kind::Class, "org.apache.kafka.connect.storage.StringConverter", "Key converter of connectors that name none; options below `key.converter.`."),
        works("value.converter", Kind::Class, "org.apache.kafka.connect.storage.StringConverter", "Value converter of connectors that name none."),
        works("header.converter", Kind::Class, "org.apache.kafka.connect.storage.SimpleHeaderConverter", "Header converter of connectors that name none."),
        works("connector.client.config.override.policy", Kind::Text, "All", "Which `producer.override.*` connectors may use: `All`, `Principal` or `None`."),
        no_effect("config.providers", Kind::List, "", "Names of the placeholder providers.", "`${env:…}`, `${file:…}` and `${dir:…}` work without being declared"),
        works("config.providers.<name>.class", Kind::Class, "", "Class of a provider; `FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider` work."),
        works("config.providers.<name>.param.allowed.paths", Kind::List, "", "The only folders and files that `${file:…}` or `${dir:…}` may read."),
        works("config.providers.<name>.param.allowlist.pattern", Kind::Regex, "", "The only variables that `${env:…}` may read."),
        no_effect("config.providers.<name>.param.<parameter…>", Kind::Secret, "", "Other parameters of a provider.", "the providers that work have no others"),
        no_effect("config.storage.topic", Kind::Text, "", "Topic with connector configurations.", STORED),
        no_effect("config.storage.<setting…>", Kind::Text, "", "Its settings.", STORED),
        no_effect("status.storage.topic", Kind::Text, "", "Topic with connector states.", STORED),
        no_effect("status.storage.<setting…>", Kind::Text, "", "Its settings.", STORED),
        no_effect("plugin.path", Kind::Text, "", "Folders with plugins.", PLUGINS),
        no_effect("plugin.discovery", Kind::Text, "hybrid_warn", "How plugins are found.", PLUGINS),
        works("rest.host.name", Kind::Text, "", "Old form of `listeners`: its host."),
        works("rest.port", Kind::Number(0, 65535), "8083", "Old form of `listeners`: its port."),
        no_effect("rest.advertised.host.name", Kind::Text, "", "Address for other workers.", GROUP),
        no_effect("rest.advertised.port", Kind::Text, "", "Port for other workers.", GROUP),
        no_effect("rest.advertised.listener", Kind::Text, "", "Listener for other workers.", GROUP),
        no_effect("rest.extension.classes", Kind::List, "", "Extensions of the REST interface.", REST),
        no_effect("admin.listeners", Kind::Text, "", "Listeners of administration.", REST),
        no_effect("access.control.allow.origin", Kind::Text, "", "CORS origin.", REST),
        no_effect("access.control.allow.methods", Kind::Text, "", "CORS methods.", REST),
        no_effect("response.http.headers.config", Kind::Text, "", "Headers of answers.", REST),
        no_effect("listeners.https.<setting…>", Kind::Secret, "", "TLS of the listener.", "only http:// is served; put a proxy in front for TLS"),
        no_effect("admin.listeners.https.<setting…>", Kind::Secret, "", "TLS of the administration listener.", REST),
        no_effect("connect.protocol", Kind::Text, "sessioned", "Protocol of the worker group.", GROUP),
        no_effect("session.timeout.ms", Kind::Millis(0), "10000", "Session of a worker.", GROUP),
        no_effect("heartbeat.interval.ms", Kind::Millis(0), "3000", "Heartbeats of a worker, in a worker file; in a connector's file it is the connector's.", GROUP),
        no_effect("rebalance.timeout.ms", Kind::Millis(0), "60000", "Time to join the group.", GROUP),
        no_effect("scheduled.rebalance.max.delay.ms", Kind::Millis(0), "300000", "Wait for a lost worker.", GROUP),
        no_effect("worker.sync.timeout.ms", Kind::Millis(0), "3000", "Time to catch up with the group.", GROUP),
        no_effect("worker.unsync.backoff.ms", Kind::Millis(0), "300000", "Pause after that.", GROUP),
        no_effect("inter.worker.<setting…>", Kind::Text, "", "Keys between workers.", GROUP),
        no_effect("topic.tracking.enable", Kind::Flag, "true", "Remember which topics a connector uses.", STORED),
        no_effect("topic.tracking.allow.reset", Kind::Flag, "true", "Allow to forget them.", STORED),
        no_effect("metrics.sample.window.ms", Kind::Millis(1), "30000", "Window of JMX metrics.", JMX),
        no_effect("metrics.num.samples", Kind::Number(1, i32::MAX as i64), "2", "Samples of JMX metrics.", JMX),
        no_effect("metrics.recording.level", Kind::Text, "INFO", "Level of JMX metrics.", JMX),
        no_effect("metric.reporters", Kind::List, "", "Reporters of metrics.", JMX),
        no_effect("auto.include.jmx.reporter", Kind::Flag, "true", "Report to JMX.", JMX),
        no_effect("metrics.context.<label…>", Kind::Text, "", "Labels of JMX metrics.", JMX),
        no_effect("log4j.<setting…>", Kind::Text, "", "Logging of the Connect images.", "use `--log-level` or `WALPOST_LOG`"),
        no_effect("internal.key.converter", Kind::Class, "", "Converter of old Connect's own topics.", "Connect itself has ignored it since 3.0"),
        no_effect("internal.value.converter", Kind::Class, "", "Converter of old Connect's own topics.", "Connect itself has ignored it since 3.0"),
        no_effect("internal.key.converter.<setting…>", Kind::Text, "", "Its options.", "Connect itself has ignored it since 3.0"),
        no_effect("internal.value.converter.<setting…>", Kind::Text, "", "Its options.", "Connect itself has ignored it since 3.0"),
        no_effect("consumer.<setting…>", Kind::Secret, "", "Settings of consumers.", "a source has none; offsets are read with the worker's own settings"),
        no_effect("admin.<setting…>", Kind::Secret, "", "Settings of topic administration.", "topics are created with the worker's own settings"),
    ],
};
