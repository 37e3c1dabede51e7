//! One connector, put together from its properties.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::problem::Findings;
use super::properties::{CONNECTOR, DATABASE, FRAMEWORK, OWN};
use super::secret::Secret;
use super::settings::{Settings, View};
use super::validated::{
    Autocreate, ColumnRules, Connector, Database, DeadLetters, ErrorPolicy, Heartbeat, Limits,
    OffsetMismatch, Pattern, Publication, RecordTime, Slot, SlotGuard, Snapshot, SnapshotMode,
    SslMode, TableFilter, Tls, Transform, TransformKind, Worker,
};
use super::{converters, exactly_once, hosts, kafka, topics, transforms, value, values};

/// Options of START_REPLICATION that decide what the stream looks like.
const STREAM_PARAMS_OF_OURS: [&str; 6] = [
    "proto_version",
    "publication_names",
    "messages",
    "streaming",
    "two_phase",
    "binary",
];

/// Reads a connector whose properties were checked one by one.
pub(super) fn read(
    settings: &Settings,
    worker_settings: &Settings,
    worker: &Worker,
    findings: &mut Findings,
) -> Connector {
    let view = settings.view("", &CONNECTOR);
    let framework = settings.view("", &FRAMEWORK);
    let own = settings.view("", &OWN);
    check_class(settings, findings);
    refuse_contradictions(settings, findings);
    refuse_half_said(settings, findings);
    let name = name(settings, findings);
    let topic_prefix = topic_prefix(settings, &name, findings);
    let transforms = transforms::read(settings, findings);
    let tables = tables(&view, &transforms, settings, findings);
    let producer = kafka::producer(settings, worker_settings, &worker.client, findings);
    let exactly_once = exactly_once::read(
        settings,
        worker_settings,
        (worker, &name, &producer),
        findings,
    );
    let skipped = view.list("skipped.operations");
    let skips = |operation: &str| {
        skipped
            .iter()
            .any(|word| word.eq_ignore_ascii_case(operation))
    };
    Connector {
        origin: settings.origin().to_owned(),
        database: database(settings, findings),
        slot: slot(&view, &own),
        publication: publication(&view, &own),
        tables,
        columns: columns(settings),
        snapshot: snapshot(settings, findings),
        heartbeat: heartbeat(&view, &topic_prefix),
        status_interval: view.millis("status.update.interval.ms"),
        confirm_to_slot: confirms(&view),
        offset_mismatch: offset_mismatch(&view),
        values: values::read(&view),
        converters: converters::read(settings, worker_settings, findings),
        context_headers: view.flag("extended.headers.enabled"),
        record_time: match own.choice("record.timestamp") {
            "processing" => RecordTime::Processing,
            _ => RecordTime::Commit,
        },
        insert_events: !skips("c"),
        update_events: !skips("u"),
        truncate_events: !skips("t"),
        message_prefixes: view.filter("message.prefix"),
        topic_creation: topics::read(settings, worker.topic_creation, findings),
        errors: error_policy(settings, findings),
        own_offset_topic: framework.optional("offsets.storage.topic"),
        limits: limits(&view, &own),
        exactly_once,
        topic_delimiter: view.text("topic.delimiter"),
        name,
        topic_prefix,
        transforms,
        producer,
    }
}

fn check_class(settings: &Settings, findings: &mut Findings) {
    const FULL: &str = "io.debezium.connector.postgresql.PostgresConnector";
    let short = ["PostgresConnector", "Postgres"];
    if let Some(setting) = settings.setting("connector.class")
        && setting.value.trim() != FULL
        && !short.contains(&setting.value.trim())
    {
        findings.problem(
            settings.origin(),
            "connector.class",
            format!(
                "{:?} is refused: walpost does what {FULL} does, and nothing else",
                setting.written
            ),
        );
    }
}

fn refuse_contradictions(settings: &Settings, findings: &mut Findings) {
    for stem in ["schema", "table", "column", "message.prefix"] {
        let include = format!("{stem}.include.list");
        let exclude = format!("{stem}.exclude.list");
        let given = |name: &str| {
            settings
                .get(name)
                .is_some_and(|text| !text.trim().is_empty())
        };
        if given(&include) && given(&exclude) {
            findings.problem(
                settings.origin(),
                &exclude,
                format!("contradicts {include}; keep one of the two"),
            );
        }
    }
}

/// Properties that make sense only together, or only alone.
fn refuse_half_said(settings: &Settings, findings: &mut Findings) {
    let view = settings.view("", &CONNECTOR);
    for (name, other) in [
        ("database.sslcert", "database.sslkey"),
        ("database.sslkey", "database.sslcert"),
    ] {
        if settings.get(name).is_some() && settings.get(other).is_none() {
            findings.problem(settings.origin(), name, format!("needs {other} beside it"));
        }
    }
    let manual = view.choice("lsn.flush.mode") == "manual";
    if ["lsn.flush.mode", "flush.lsn.source"]
        .iter()
        .all(|name| settings.get(name).is_some())
        && manual == view.flag("flush.lsn.source")
    {
        findings.problem(
            settings.origin(),
            "flush.lsn.source",
            "contradicts lsn.flush.mode, its new form; remove it",
        );
    }
    let params = value::pairs(&view.text("slot.stream.params")).unwrap_or_default();
    for (param, _) in params {
        if STREAM_PARAMS_OF_OURS.contains(&param.as_str()) {
            findings.problem(
                settings.origin(),
                "slot.stream.params",
                format!("may not say {param}: walpost sets it, and reads only what it sets"),
            );
        }
    }
}

fn name(settings: &Settings, findings: &mut Findings) -> String {
    let name = settings.get("name").unwrap_or_default().to_owned();
    if name.trim().is_empty() {
        findings.problem(
            settings.origin(),
            "name",
            "is required and must not be empty",
        );
    } else if name.chars().any(char::is_control) {
        findings.problem(settings.origin(), "name", "contains control characters");
    }
    name
}

fn topic_prefix(settings: &Settings, name: &str, findings: &mut Findings) -> String {
    if let Some(prefix) = settings.get("topic.prefix") {
        return prefix.to_owned();
    }
    if let Err(expected) = value::topic_prefix(name) {
        findings.problem(
            settings.origin(),
            "topic.prefix",
            format!("is required, since the connector's name {name:?} cannot stand in: {expected}"),
        );
    }
    name.to_owned()
}

fn tables(
    view: &View<'_>,
    transforms: &[Transform],
    settings: &Settings,
    findings: &mut Findings,
) -> TableFilter {
    let filter = TableFilter {
        schemas: view.filter("schema"),
        tables: view.filter("table"),
        partitions: settings.view("", &OWN).flag("include.partitions"),
    };
    let decodes =
        |transform: &Transform| matches!(transform.kind, TransformKind::DecodeMessage { .. });
    let chosen = [&filter.schemas, &filter.tables]
        .iter()
        .any(|names| !names.include.is_empty() || !names.exclude.is_empty());
    let given = [
        "table.include.list",
        "table.exclude.list",
        "schema.include.list",
    ]
    .iter()
    .any(|name| {
        settings
            .get(name)
            .is_some_and(|text| !text.trim().is_empty())
    });
    if !chosen && !given && !transforms.iter().any(decodes) {
        findings.problem(
            settings.origin(),
            "table.include.list",
            "is required: name the outbox table as schema.table, for example public.outbox",
        );
    }
    filter
}

fn database(settings: &Settings, findings: &mut Findings) -> Database {
    let view = settings.view("", &DATABASE);
    let path = |name: &str| view.optional(name).map(PathBuf::from);
    let hosts = hosts::read(settings, findings);
    Database {
        target: hosts::target(settings, &hosts),
        hosts,
        user: view.text("database.user"),
        password: view
            .configured("database.password")
            .filter(|password| !password.is_empty())
            .map(Secret::new),
        dbname: view.text("database.dbname"),
        tls: Tls {
            mode: match view.choice("database.sslmode") {
                "disable" => SslMode::Disable,
                "allow" => SslMode::Allow,
                "require" => SslMode::Require,
                "verify-ca" => SslMode::VerifyCa,
                "verify-full" => SslMode::VerifyFull,
                _ => SslMode::Prefer,
            },
            root_cert: path("database.sslrootcert"),
            cert: path("database.sslcert"),
            key: path("database.sslkey"),
        },
        tcp_keepalive: view.flag("database.tcpKeepAlive"),
        initial_statements: value::statements(&view.text("database.initial.statements")),
        query_timeout: view.millis("database.query.timeout.ms"),
        connect_timeout: view.millis("connection.validation.timeout.ms"),
    }
}

fn slot(view: &View<'_>, own: &View<'_>) -> Slot {
    let bytes = |name: &str| Some(own.number(name)).filter(|bytes| *bytes > 0);
    Slot {
        name: view.text("slot.name"),
        failover: view.flag("slot.failover"),
        drop_on_stop: view.flag("slot.drop.on.stop"),
        stream_params: value::pairs(&view.text("slot.stream.params")).unwrap_or_default(),
        guard: SlotGuard {
            warn: bytes("slot.retained.wal.warn.bytes"),
            unready: bytes("slot.retained.wal.unready.bytes"),
            drop: bytes("slot.retained.wal.drop.bytes"),
            drop_after: own.millis("slot.retained.wal.drop.after.ms"),
        },
    }
}

fn publication(view: &View<'_>, own: &View<'_>) -> Publication {
    Publication {
        name: view.text("publication.name"),
        autocreate: match view.choice("publication.autocreate.mode") {
            "filtered" => Autocreate::Filtered,
            "no_tables" => Autocreate::NoTables,
            "disabled" => Autocreate::Disabled,
            _ => Autocreate::AllTables,
        },
        via_partition_root: view.flag("publish.via.partition.root"),
        tolerate_mismatch: own.choice("publication.mismatch.strategy") == "warn",
    }
}

fn columns(settings: &Settings) -> ColumnRules {
    let view = settings.view("", &CONNECTOR);
    let sized = |before: &str| -> Vec<(usize, Vec<Pattern>)> {
        settings
            .below(before)
            .filter_map(|(rest, setting)| {
                let size = rest.strip_suffix(".chars")?.parse().ok()?;
                Some((size, value::patterns(&setting.value).ok()?))
            })
            .collect()
    };
    ColumnRules {
        filter: view.filter("column"),
        mask: sized("column.mask.with."),
        truncate: sized("column.truncate.to."),
        propagate_source_type: view.patterns("column.propagate.source.type"),
    }
}

fn snapshot(settings: &Settings, findings: &mut Findings) -> Snapshot {
    const OVERRIDES: &str = "snapshot.select.statement.overrides";
    let view = settings.view("", &CONNECTOR);
    let mut select_overrides = BTreeMap::new();
    for table in view.list(OVERRIDES) {
        let property = format!("{OVERRIDES}.{table}");
        match settings.get(&property) {
            Some(statement) => {
                select_overrides.insert(table, statement.to_owned());
            }
            None => findings.problem(
                settings.origin(),
                &property,
                format!("is required, since {OVERRIDES} names {table}"),
            ),
        }
    }
    Snapshot {
        mode: match view.choice("snapshot.mode") {
            "initial_only" => SnapshotMode::InitialOnly,
            "no_data" => SnapshotMode::NoData,
            "when_needed" => SnapshotMode::WhenNeeded,
            "always" => SnapshotMode::Always,
            _ => SnapshotMode::Initial,
        },
        over_existing_slot: settings.view("", &OWN).choice("snapshot.existing.slot") == "snapshot",
        select_overrides,
    }
}

fn heartbeat(view: &View<'_>, topic_prefix: &str) -> Heartbeat {
    let interval = view.millis("heartbeat.interval.ms");
    Heartbeat {
        interval: (interval > Duration::ZERO).then_some(interval),
        action_query: view.optional("heartbeat.action.query"),
        topic: view.optional("topic.heartbeat.name").unwrap_or_else(|| {
            let prefix = view.text("topic.heartbeat.prefix");
            format!("{prefix}{}{topic_prefix}", view.text("topic.delimiter"))
        }),
    }
}

fn confirms(view: &View<'_>) -> bool {
    match view.configured("lsn.flush.mode") {
        Some(_) => view.choice("lsn.flush.mode") != "manual",
        None => view.flag("flush.lsn.source"),
    }
}

fn offset_mismatch(view: &View<'_>) -> OffsetMismatch {
    match view.choice("offset.mismatch.strategy") {
        "no_validation" => OffsetMismatch::NoValidation,
        "trust_offset" => OffsetMismatch::TrustOffset,
        "trust_slot" => OffsetMismatch::TrustSlot,
        "trust_greater_lsn" => OffsetMismatch::TrustGreaterLsn,
        _ => OffsetMismatch::Stop,
    }
}

fn error_policy(settings: &Settings, findings: &mut Findings) -> ErrorPolicy {
    let view = settings.view("", &CONNECTOR);
    let framework = settings.view("", &FRAMEWORK);
    let retries: i64 = view.number("errors.max.retries");
    let budget: i64 = framework.number("errors.retry.timeout");
    ErrorPolicy {
        tolerate: framework.choice("errors.tolerance") == "all",
        dead_letters: dead_letters(settings, findings),
        max_retries: u32::try_from(retries).ok(),
        retry_timeout: u64::try_from(budget)
            .ok()
            .filter(|budget| *budget > 0)
            .map(Duration::from_millis),
        max_backoff: view.millis("retriable.restart.connector.wait.ms").min(
            match framework.millis("errors.retry.delay.max.ms") {
                // Attempts without any pause would only keep the servers busy.
                Duration::ZERO => Duration::MAX,
                longest => longest,
            },
        ),
    }
}

fn dead_letters(settings: &Settings, findings: &mut Findings) -> Option<DeadLetters> {
    const TOPIC: &str = "errors.deadletterqueue.topic.name";
    const FACTOR: &str = "errors.deadletterqueue.topic.replication.factor";
    let framework = settings.view("", &FRAMEWORK);
    let own = settings.view("", &OWN);
    let by_aggregate = own.choice("errors.deadletterqueue.order") == "aggregate";
    let Some(topic) = framework.optional(TOPIC) else {
        if by_aggregate {
            findings.problem(
                settings.origin(),
                "errors.deadletterqueue.order",
                format!("needs {TOPIC} beside it: without a topic there is nothing to follow"),
            );
        }
        return None;
    };
    let letters = DeadLetters {
        topic: topic.trim().to_owned(),
        replication_factor: framework
            .configured(FACTOR)
            .map(|_| framework.number(FACTOR)),
        context_headers: framework.flag("errors.deadletterqueue.context.headers.enable"),
        by_aggregate,
    };
    if let Err(expected) = value::topic_name(&letters.audit_topic()) {
        findings.problem(
            settings.origin(),
            TOPIC,
            format!("{:?} is not valid: {expected}", letters.topic),
        );
    }
    if framework.choice("errors.tolerance") != "all" {
        findings.notice(
            settings.origin(),
            TOPIC,
            "has no effect while errors.tolerance=none stops at a poison event; set \
             errors.tolerance=all",
        );
    }
    Some(letters)
}

fn limits(view: &View<'_>, own: &View<'_>) -> Limits {
    let queue: usize = view.number("max.queue.size.in.bytes");
    Limits {
        in_flight_bytes: match queue {
            0 => own.number("in.flight.max.bytes"),
            bytes => bytes,
        },
        in_flight_records: own.number("in.flight.max.records"),
    }
}
