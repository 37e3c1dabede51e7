//! A connector with defaults, as `config` would build it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::server::tables;
use crate::config::*;

pub(super) fn connector(database: Database, include: &str) -> Connector {
    Connector {
        name: "test".to_owned(),
        origin: "test".to_owned(),
        topic_prefix: "test".to_owned(),
        topic_delimiter: ".".to_owned(),
        database,
        slot: super::server::slot("s"),
        publication: Publication {
            tolerate_mismatch: false,
            name: "p".to_owned(),
            autocreate: Autocreate::AllTables,
            via_partition_root: false,
        },
        tables: tables(include),
        columns: ColumnRules::default(),
        snapshot: Snapshot {
            mode: SnapshotMode::Initial,
            over_existing_slot: false,
            select_overrides: BTreeMap::new(),
        },
        heartbeat: Heartbeat {
            interval: None,
            action_query: None,
            topic: "heartbeat".to_owned(),
        },
        status_interval: Duration::from_secs(10),
        confirm_to_slot: true,
        offset_mismatch: OffsetMismatch::Stop,
        values: ValueOptions {
            binary: BinaryMode::Bytes,
            decimal: DecimalMode::Precise,
            time: TimeMode::Adaptive,
            interval: IntervalMode::Numeric,
            hstore: HstoreMode::Json,
            money_fraction_digits: 2,
            include_unknown: false,
            unavailable_placeholder: b"__debezium_unavailable_value".to_vec(),
            converting_failure: FailureMode::Fail,
            schema_names: NameAdjustment::None,
            field_names: NameAdjustment::None,
        },
        transforms: vec![Transform {
            alias: "outbox".to_owned(),
            predicate: None,
            kind: TransformKind::EventRouter(Box::new(router())),
        }],
        converters: Converters {
            key: Converter::String,
            value: Converter::String,
            header: Converter::SimpleHeader,
        },
        context_headers: false,
        record_time: RecordTime::Commit,
        insert_events: true,
        update_events: true,
        truncate_events: false,
        message_prefixes: NameFilter::default(),
        producer: KafkaProperties::default(),
        topic_creation: None,
        errors: ErrorPolicy {
            tolerate: false,
            max_retries: None,
            dead_letters: None,
            retry_timeout: None,
            max_backoff: Duration::from_secs(10),
        },
        own_offset_topic: None,
        exactly_once: None,
        limits: Limits {
            in_flight_bytes: 1 << 20,
            in_flight_records: 1000,
        },
    }
}

fn router() -> Router {
    Router {
        id: "id".to_owned(),
        key: "aggregateid".to_owned(),
        payload: "payload".to_owned(),
        timestamp: None,
        timestamp_strict: false,
        schema_version: None,
        route_by: "aggregatetype".to_owned(),
        route_regex: TopicPattern {
            whole: fancy_regex::Regex::new("(?<routedByValue>.*)").unwrap(),
            first: fancy_regex::Regex::new("(?<routedByValue>.*)").unwrap(),
        },
        route_replacement: "outbox.event.${routedByValue}".to_owned(),
        placements: Vec::new(),
        ignore_missing: false,
        tombstone_on_empty: false,
        invalid_op: InvalidOp::Warn,
        expand: None,
        tracing: None,
    }
}
