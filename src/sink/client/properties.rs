//! The table of Java's client properties, security apart.

use rdkafka::config::ClientConfig;

use super::{Role, Translation};

/// What becomes of a Java property.
enum Rule {
    /// librdkafka has it under this name with the same meaning.
    Same(&'static str),
    /// Nothing to do with delivery; no word about it.
    Silent,
    /// No effect, and the user should know why.
    Note(&'static str),
    /// Needs a look at the value.
    Value(fn(&str, &str, &mut Translation)),
}

use Rule::{Note, Same, Silent, Value};

/// Java name, whether only producers have it, rule.
const TABLE: &[(&str, bool, Rule)] = &[
    ("bootstrap.servers", false, Same("bootstrap.servers")),
    ("client.id", false, Same("client.id")),
    ("client.dns.lookup", false, Value(dns_lookup)),
    ("client.rack", false, Silent),
    (
        "connections.max.idle.ms",
        false,
        Same("connections.max.idle.ms"),
    ),
    ("reconnect.backoff.ms", false, Same("reconnect.backoff.ms")),
    (
        "reconnect.backoff.max.ms",
        false,
        Same("reconnect.backoff.max.ms"),
    ),
    ("retry.backoff.ms", false, Same("retry.backoff.ms")),
    ("retry.backoff.max.ms", false, Same("retry.backoff.max.ms")),
    ("request.timeout.ms", false, Value(request_timeout)),
    (
        "socket.connection.setup.timeout.ms",
        false,
        Same("socket.connection.setup.timeout.ms"),
    ),
    ("socket.connection.setup.timeout.max.ms", false, Silent),
    ("send.buffer.bytes", false, Value(send_buffer)),
    ("receive.buffer.bytes", false, Value(receive_buffer)),
    ("metadata.max.age.ms", false, Value(metadata_age)),
    ("metadata.max.idle.ms", false, Silent),
    (
        "metadata.recovery.strategy",
        false,
        Same("metadata.recovery.strategy"),
    ),
    (
        "metadata.recovery.rebootstrap.trigger.ms",
        false,
        Same("metadata.recovery.rebootstrap.trigger.ms"),
    ),
    ("default.api.timeout.ms", false, Silent),
    ("enable.metrics.push", false, Same("enable.metrics.push")),
    ("acks", true, Value(acks)),
    ("batch.size", true, Value(batch_size)),
    (
        "buffer.memory",
        true,
        Note("memory is bounded by walpost's own limits"),
    ),
    ("compression.type", true, Same("compression.type")),
    ("compression.gzip.level", true, Same("compression.level")),
    ("compression.lz4.level", true, Same("compression.level")),
    ("compression.zstd.level", true, Same("compression.level")),
    ("delivery.timeout.ms", true, Silent),
    ("enable.idempotence", true, Value(idempotence)),
    ("linger.ms", true, Same("linger.ms")),
    ("max.block.ms", true, Silent),
    (
        "max.in.flight.requests.per.connection",
        true,
        Value(in_flight),
    ),
    ("max.request.size", true, Value(request_size)),
    ("partitioner.class", true, Value(partitioner_class)),
    ("partitioner", true, Value(partitioner)),
    ("partitioner.adaptive.partitioning.enable", true, Silent),
    ("partitioner.availability.timeout.ms", true, Silent),
    ("partitioner.ignore.keys", true, Value(ignore_keys)),
    ("retries", true, Silent),
    (
        "transactional.id",
        true,
        Note("walpost names its transactions itself, <group.id>-<name>-0 as Connect does"),
    ),
    ("transaction.timeout.ms", true, Silent),
    ("key.serializer", true, Silent),
    ("value.serializer", true, Silent),
    ("key.deserializer", false, Silent),
    ("value.deserializer", false, Silent),
    ("group.id", false, Silent),
    (
        "interceptor.classes",
        false,
        Note("interceptors are Java classes"),
    ),
    ("metric.reporters", false, Silent),
    ("auto.include.jmx.reporter", false, Silent),
];

/// Families of names that only mean something to a JVM or to Connect.
const FOREIGN: &[&str] = &["metrics.", "confluent."];

/// Producer settings that make the guarantees; librdkafka's own names do not get past them.
const KEPT: &[&str] = &[
    "message.timeout.ms",
    "request.required.acks",
    "max.in.flight",
    "message.send.max.retries",
    "queuing.strategy",
    "enable.gapless.guarantee",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "log.queue",
    "dr_msg_cb",
    "delivery.report.only.error",
];

/// Translates one property.
pub(super) fn translate(name: &str, value: &str, role: Role, out: &mut Translation) {
    let value = value.trim();
    let known = TABLE.iter().find(|(java, ..)| *java == name);
    if let Some((_, producer_only, rule)) = known {
        if *producer_only && role != Role::Producer {
            return;
        }
        match rule {
            Same(ours) => out.set(ours, name, value),
            Silent => {}
            Note(why) => out.notice(format!("{name} has no effect: {why}")),
            Value(look) => look(name, value, out),
        }
    } else if FOREIGN.iter().any(|family| name.starts_with(family)) {
        // Monitoring add-ons of other distributions: common, and harmless to leave out.
    } else if KEPT.contains(&name) {
        out.notice(format!("{name} has no effect: walpost sets it itself"));
    } else if is_librdkafka(name, value) {
        out.set(name, name, value);
    } else {
        out.notice(format!(
            "{name} has no effect: the Kafka client used here has no such property"
        ));
    }
}

/// Whether librdkafka itself knows `name`; a value it dislikes is reported when the client is made.
fn is_librdkafka(name: &str, value: &str) -> bool {
    let mut probe = ClientConfig::new();
    probe.set(name, value);
    match probe.create_native_config() {
        Ok(_) => true,
        Err(rdkafka::error::KafkaError::ClientConfig(kind, ..)) => {
            kind != rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN
        }
        Err(_) => false,
    }
}

/// A whole number, or a problem.
fn number(name: &str, value: &str, out: &mut Translation) -> Option<i64> {
    let parsed = value.parse().ok();
    if parsed.is_none() {
        out.problem(format!("{name} must be a whole number, not {value:?}"));
    }
    parsed
}

fn dns_lookup(name: &str, value: &str, out: &mut Translation) {
    // "default" left Java in 3.0; librdkafka's default is Java's present one.
    if value != "default" {
        out.set("client.dns.lookup", name, value);
    }
}

/// Java means how long the client waits; librdkafka has that as the socket time-out and sends the
/// broker a time-out of its own, which must not be the longer one.
fn request_timeout(name: &str, value: &str, out: &mut Translation) {
    if let Some(wait) = number(name, value, out) {
        let wait = wait.clamp(10, 300_000);
        out.set("socket.timeout.ms", name, &wait.to_string());
        out.set("request.timeout.ms", name, &wait.to_string());
    }
}

fn send_buffer(name: &str, value: &str, out: &mut Translation) {
    buffer("socket.send.buffer.bytes", name, value, out);
}

fn receive_buffer(name: &str, value: &str, out: &mut Translation) {
    buffer("socket.receive.buffer.bytes", name, value, out);
}

/// Java's -1, "as the system likes", is librdkafka's 0.
fn buffer(ours: &str, name: &str, value: &str, out: &mut Translation) {
    if let Some(bytes) = number(name, value, out) {
        out.set(ours, name, &bytes.max(0).to_string());
    }
}

fn metadata_age(name: &str, value: &str, out: &mut Translation) {
    if let Some(age) = number(name, value, out) {
        let refresh = age.clamp(10, 3_600_000);
        out.set(
            "topic.metadata.refresh.interval.ms",
            name,
            &refresh.to_string(),
        );
        let keep = refresh.saturating_mul(3).min(86_400_000);
        out.set("metadata.max.age.ms", name, &keep.to_string());
    }
}

fn acks(name: &str, value: &str, out: &mut Translation) {
    if !matches!(value, "all" | "-1") {
        out.notice(format!(
            "{name}={value} has no effect: walpost always waits for all in-sync replicas"
        ));
    }
}

fn idempotence(name: &str, value: &str, out: &mut Translation) {
    if !value.eq_ignore_ascii_case("true") {
        out.notice(format!(
            "{name}={value} has no effect: without idempotence a retry could reorder events"
        ));
    }
}

fn in_flight(name: &str, value: &str, out: &mut Translation) {
    match number(name, value, out) {
        Some(count @ 1..=5) => out.set("max.in.flight", name, &count.to_string()),
        Some(_) => out.notice(format!(
            "{name}={value} is taken as 5, the most with which order is kept"
        )),
        None => {}
    }
}

/// Java's batch size is a buffer per partition that grows by itself; taken literally it would cost
/// most of the throughput here.
fn batch_size(name: &str, value: &str, out: &mut Translation) {
    match number(name, value, out) {
        Some(bytes) if bytes > super::super::producer::BATCH_BYTES => {
            out.set("batch.size", name, &bytes.to_string());
        }
        Some(_) => out.notice(format!(
            "{name}={value} has no effect: batches hold up to {} bytes, and only a larger \
             value counts",
            super::super::producer::BATCH_BYTES
        )),
        None => {}
    }
}

fn request_size(name: &str, value: &str, out: &mut Translation) {
    if let Some(bytes) = number(name, value, out) {
        let bytes = bytes.clamp(1000, 1_000_000_000);
        out.set("message.max.bytes", name, &bytes.to_string());
    }
}

fn partitioner_class(name: &str, value: &str, out: &mut Translation) {
    match value.rsplit('.').next().unwrap_or(value) {
        "" | "DefaultPartitioner" | "BuiltInPartitioner" => {}
        "RoundRobinPartitioner" | "UniformStickyPartitioner" => {
            out.notice(format!(
                "{name}={value}: keys no longer decide the partition, so the order of an \
                 aggregate's events is lost"
            ));
            out.set("partitioner", name, "random");
            if value.ends_with("RoundRobinPartitioner") {
                out.set("sticky.partitioning.linger.ms", name, "0");
            }
        }
        _ => out.problem(format!(
            "{name}={value} cannot be used: it is a Java class; remove it to place keys as \
             Java's default does, or set partitioner to one of librdkafka's"
        )),
    }
}

fn partitioner(name: &str, value: &str, out: &mut Translation) {
    if value != "murmur2_random" {
        out.notice(format!(
            "{name}={value}: keys go to other partitions than Java's producer chooses"
        ));
    }
    out.set("partitioner", name, value);
}

fn ignore_keys(name: &str, value: &str, out: &mut Translation) {
    if value.eq_ignore_ascii_case("true") {
        out.notice(format!(
            "{name}=true: keys no longer decide the partition, so the order of an aggregate's \
             events is lost"
        ));
        out.set("partitioner", name, "random");
    }
}
