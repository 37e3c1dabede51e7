//! The Event Router's own options.

use super::{Family, Kind, no_effect, works};

/// Options of `io.debezium.transforms.outbox.EventRouter`.
pub(in super::super) static ROUTER: Family = Family {
    title: "Event Router",
    intro: "Options of the transform `io.debezium.transforms.outbox.EventRouter`. A connector \
            without `transforms` gets this router with its defaults.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "table.field.event.id",
            Kind::Text,
            "id",
            "Column with the event id; becomes the header `id`.",
        ),
        works(
            "table.field.event.key",
            Kind::Text,
            "aggregateid",
            "Column whose value becomes the record key.",
        ),
        no_effect(
            "table.field.event.type",
            Kind::Text,
            "type",
            "Column with the event type.",
            "Debezium declares this option and never reads it; use `type:header:eventType` in \
             `table.fields.additional.placement`",
        ),
        works(
            "table.field.event.payload",
            Kind::Text,
            "payload",
            "Column whose value becomes the record value.",
        ),
        works(
            "table.field.event.timestamp",
            Kind::Text,
            "",
            "Column of type `timestamp`, `timestamptz` or `date` with the record timestamp; without \
             it, and for NULL, `record.timestamp` decides. See `event.timestamp.strict`.",
        ),
        works(
            "table.field.event.schema.version",
            Kind::Text,
            "",
            "Integer column with the version of the envelope's schema; read only when there is an \
             envelope placement.",
        ),
        works(
            "table.fields.additional.placement",
            Kind::Placements,
            "",
            "Further columns and where they go: `header`, `envelope` or `partition`, with an \
             optional alias, for example `type:header:eventType,tenant:envelope`.",
        ),
        works(
            "table.field.additional.missing",
            Kind::Choice(&["error", "ignore"]),
            "error",
            "What to do when a column of `table.fields.additional.placement` does not exist.",
        ),
        works(
            "table.expand.json.payload",
            Kind::Flag,
            "false",
            "Parse a JSON payload and publish it with an inferred schema.",
        ),
        works(
            "table.json.payload.null.behavior",
            Kind::Choice(&["ignore", "optional_bytes"]),
            "ignore",
            "JSON nulls when expanding: leave the member out, or keep it as optional bytes.",
        ),
        works(
            "table.json.payload.empty.array.behavior",
            Kind::Choice(&["ignore", "optional_string"]),
            "ignore",
            "Empty arrays when expanding: leave the member out, or keep it as an array of optional \
             strings (Debezium 3.7 and later).",
        ),
        works(
            "field.name.adjustment.mode",
            Kind::Choice(&["none", "avro", "avro_unicode"]),
            "none",
            "How member names are adjusted when expanding.",
        ),
        works(
            "route.by.field",
            Kind::Text,
            "aggregatetype",
            "Text column with the routing value.",
        ),
        works(
            "route.topic.regex",
            Kind::Regex,
            "(?<routedByValue>.*)",
            "Expression that the whole routing value must match; otherwise the raw routing value is \
             the topic.",
        ),
        works(
            "route.topic.replacement",
            Kind::Text,
            "outbox.event.${routedByValue}",
            "Topic, in the replacement syntax of Java expressions.",
        ),
        works(
            "route.tombstone.on.empty.payload",
            Kind::Flag,
            "false",
            "Publish a tombstone when the payload is NULL or empty.",
        ),
        works(
            "table.op.invalid.behavior",
            Kind::Choice(&["warn", "error", "fatal"]),
            "warn",
            "What an UPDATE of an outbox row does: log a warning, log an error, or stop.",
        ),
        works(
            "tracing.span.context.field",
            Kind::Text,
            "tracingspancontext",
            "Text column with a tracing context, as lines `name=value` of a properties file; read \
             with `tracing.propagate=true`. A table without it has no context.",
        ),
        no_effect(
            "tracing.operation.name",
            Kind::Text,
            "debezium-read",
            "Name of the processing span.",
            NO_SPANS,
        ),
        no_effect(
            "tracing.with.context.field.only",
            Kind::Flag,
            "true",
            "Trace only rows that carry a context. Debezium documents `false`; its router behaves \
             as with `true` when the option is absent.",
            NO_SPANS,
        ),
    ],
};

const NO_SPANS: &str = "walpost makes no spans of its own; it carries the row's context on";
