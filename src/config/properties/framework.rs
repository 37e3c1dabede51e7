//! What Kafka Connect itself reads from a source connector's configuration.

use super::{Family, Kind, no_effect, refused, works};

/// Connector properties of the framework.
#[rustfmt::skip] // one row per property
pub(in super::super) static FRAMEWORK: Family = Family {
    title: "Kafka Connect framework",
    intro: "Properties of a connector that Kafka Connect reads. Client settings stand below \
            `producer.override.`.",
    prefix: "",
    properties: &[
        works("name", Kind::Text, "", "Name of the connector: part of its stored position. The file's name without its extension when absent."),
        works("connector.class", Kind::Class, "io.debezium.connector.postgresql.PostgresConnector", "Debezium's Postgres connector, full or short; may be absent."),
        no_effect("connector.plugin.version", Kind::Text, "", "Version of the plugin to load.", "there are no plugins"),
        no_effect("tasks.max", Kind::Number(1, i32::MAX as i64), "1", "Number of tasks.", "one slot is one ordered stream, so there is always one task"),
        no_effect("tasks.max.enforce", Kind::Flag, "true", "Whether `tasks.max` binds.", "there is always one task"),
        works("key.converter", Kind::Class, "org.apache.kafka.connect.storage.StringConverter", "Converter of record keys. Worker-level options of a converter do not apply once the connector names one."),
        works("value.converter", Kind::Class, "org.apache.kafka.connect.storage.StringConverter", "Converter of record values."),
        works("header.converter", Kind::Class, "org.apache.kafka.connect.storage.SimpleHeaderConverter", "Converter of record headers."),
        no_effect("key.converter.plugin.version", Kind::Text, "", "Version of the plugin to load.", "there are no plugins"),
        no_effect("value.converter.plugin.version", Kind::Text, "", "Version of the plugin to load.", "there are no plugins"),
        no_effect("header.converter.plugin.version", Kind::Text, "", "Version of the plugin to load.", "there are no plugins"),
        works("transforms", Kind::List, "", "Aliases of the transforms, in order. Without any, the Event Router applies with its defaults."),
        works("predicates", Kind::List, "", "Aliases of the predicates."),
        no_effect("config.action.reload", Kind::Choice(&["none", "restart"]), "restart", "What to do when a secret changes outside.", "files are read at start; restart the process to read them again"),
        works("errors.tolerance", Kind::Choice(&["none", "all"]), "none", "`none`: an event that cannot become a record stops the connector; `all`: it goes to the dead-letter topic or, without one, is skipped, counted and logged."),
        works("errors.retry.timeout", Kind::Number(-1, i64::MAX), "0", "How long passing errors (a broker or the database away) may last before the connector gives up, in milliseconds. 0 and -1 set no limit: transforms and converters, which Connect's 0 forbids to repeat, never fail here for a passing reason."),
        works("errors.retry.delay.max.ms", Kind::Millis(0), "60000", "Longest pause between two attempts, where it is shorter than `retriable.restart.connector.wait.ms`; 0 leaves it to that."),
        no_effect("errors.log.enable", Kind::Flag, "false", "Log each failed event.", "each is always logged, with event id, table and LSN"),
        no_effect("errors.log.include.messages", Kind::Flag, "false", "Log the failed record too.", "payloads are never logged"),
        works("errors.deadletterqueue.topic.name", Kind::Text, "", "Dead-letter topic: with `errors.tolerance=all`, where events go that cannot become records. Connect has it for sinks only. Created when missing."),
        works("errors.deadletterqueue.topic.replication.factor", Kind::Number(-1, 32767), "3", "Replicas of the dead-letter topic when it is created; -1 is the broker's default, and so is a cluster too small for 3 where the property is not set."),
        works("errors.deadletterqueue.context.headers.enable", Kind::Flag, "false", "Describe the error in the headers `__connect.errors.*` of the dead letter too; its value always does."),
        works("topic.creation.groups", Kind::List, "", "Groups of topics, each with its `topic.creation.<group>.*`, in order."),
        works("exactly.once.support", Kind::Choice(&["requested", "required"]), "requested", "`required`: do not start unless the worker has `exactly.once.source.support=enabled`; `requested`: deliver as the worker says."),
        works("transaction.boundary", Kind::Choice(&["poll", "interval", "connector"]), "poll", "With exactly-once delivery, when a Kafka transaction ends: `poll`, as soon as nothing more is waiting, but not oftener than every 50 ms (100 ms under load, 200 ms while tens of thousands come a second); `interval`, after `transaction.boundary.interval.ms`; `connector`, with each Postgres transaction. Always between two Postgres transactions, unless one is larger than `transaction.max.records`."),
        works("transaction.boundary.interval.ms", Kind::Millis(1), "", "Length of a Kafka transaction with `transaction.boundary=interval`, by default `offset.flush.interval.ms`. At half of the producer's `transaction.timeout.ms` it ends in any case."),
        no_effect("consumer.override.<setting…>", Kind::Secret, "", "Settings of the consumer.", "a source has none; offsets are read with the worker's own settings"),
        no_effect("admin.override.<setting…>", Kind::Secret, "", "Settings of topic administration.", "topics are created with the worker's own settings"),
        works("offsets.storage.topic", Kind::Text, "", "Offsets topic of this connector alone, instead of the worker's."),
    ],
};

/// Options of one predicate.
#[rustfmt::skip] // one row per property
pub(in super::super) static PREDICATE: Family = Family {
    title: "Predicates",
    intro: "Options of an entry of `predicates`. The classes that work are `TopicNameMatches`, \
            `HasHeaderKey` and `RecordIsTombstone`.",
    prefix: "predicates.<alias>.",
    properties: &[
        works("type", Kind::Class, "", "Class of the predicate, full or short."),
        works("pattern", Kind::Regex, "", "`TopicNameMatches`: expression that the whole topic must match."),
        works("name", Kind::Text, "", "`HasHeaderKey`: the header that must be present."),
    ],
};

/// Options of the converters.
#[rustfmt::skip] // one row per property
pub(in super::super) static CONVERTER: Family = Family {
    title: "Converters",
    intro: "Options below `key.converter.`, `value.converter.`, `header.converter.`, and once more \
            below `delegate.converter.type.`. The classes that work are Connect's `StringConverter`, \
            `JsonConverter`, `ByteArrayConverter`, `SimpleHeaderConverter` (headers), `BooleanConverter`, \
            `ShortConverter`, `IntegerConverter`, `LongConverter`, `FloatConverter`, \
            `DoubleConverter`, and Debezium's `BinaryDataConverter`.",
    prefix: "<key|value|header>.converter.",
    properties: &[
        works("schemas.enable", Kind::Flag, "true", "`JsonConverter`: wrap each value in its schema."),
        works("decimal.format", Kind::Choice(&["BASE64", "NUMERIC"]), "BASE64", "`JsonConverter`: how decimals are written."),
        works("replace.null.with.default", Kind::Flag, "true", "`JsonConverter`: write a column's default where the value is NULL."),
        no_effect("schemas.cache.size", Kind::Number(0, i32::MAX as i64), "1000", "`JsonConverter`: number of cached schemas.", "schemas live as long as their table's layout"),
        refused("schema.content", Kind::Text, "", "`JsonConverter`: a fixed schema for all values.", "a fixed schema is not offered"),
        refused("converter.encoding", Kind::Choice(&["UTF-8", "UTF8"]), "UTF-8", "`StringConverter`: character set.", "text is always written in UTF-8"),
        no_effect("converter.type", Kind::Choice(&["key", "value", "header"]), "", "What the converter is for.", "the prefix says it"),
        works("delegate.converter.type", Kind::Class, "", "`BinaryDataConverter`: converter for whatever is not binary."),
    ],
};

/// Options of one topic creation group.
#[rustfmt::skip] // one row per property
pub(in super::super) static TOPIC_GROUP: Family = Family {
    title: "Topic creation",
    intro: "With any of these, and `topic.creation.enable`, walpost creates missing topics. The \
            group `default` takes every topic that no other group takes.",
    prefix: "topic.creation.<group>.",
    properties: &[
        works("replication.factor", Kind::Number(-1, 32767), "-1", "Replicas; -1 is the broker's default."),
        works("partitions", Kind::Number(-1, i32::MAX as i64), "-1", "Partitions; -1 is the broker's default."),
        works("include", Kind::Regexes, "", "Topics of the group."),
        works("exclude", Kind::Regexes, "", "Topics that do not belong to it after all."),
        works("<topic setting…>", Kind::Text, "", "Any topic configuration, for example `cleanup.policy` or `retention.ms`."),
    ],
};
