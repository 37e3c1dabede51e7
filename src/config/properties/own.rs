//! What only walpost has.

use super::{Family, Kind, works};

/// Walpost's own properties.
pub(in super::super) static OWN: Family = Family {
    title: "Walpost's own",
    intro: "Properties that neither Debezium nor Kafka Connect knows; both ignore them.",
    prefix: "",
    properties: &[
        works(
            "unknown.properties",
            Kind::Choice(&["refuse", "warn"]),
            "refuse",
            "What to do with a property that is not on this page. `warn` is what Connect does: it \
             goes on as if the line were not there.",
        ),
        works(
            "database.target.session.attrs",
            Kind::Choice(&[
                "any",
                "read-write",
                "read-only",
                "primary",
                "standby",
                "prefer-standby",
            ]),
            "",
            "Which of the hosts of `database.hostname` will do, in libpq's words. When absent: \
             `primary` with several hosts, `any` with one. Streaming from a standby needs Postgres \
             16, and a slot and a publication that are there.",
        ),
        works(
            "slot.retained.wal.warn.bytes",
            Kind::Number(0, i64::MAX),
            "0",
            "Warn when the slot holds back at least so many bytes of WAL; 0 is never.",
        ),
        works(
            "slot.retained.wal.unready.bytes",
            Kind::Number(0, i64::MAX),
            "0",
            "Fail the readiness probe while the slot holds back at least so many bytes of WAL; 0 is \
             never.",
        ),
        works(
            "slot.retained.wal.drop.bytes",
            Kind::Number(0, i64::MAX),
            "0",
            "Drop the slot and stop with exit code 3 when it holds back at least so many bytes of \
             WAL, so that the server does not run out of disk; rows that were not delivered by then \
             are given up. 0 is never.",
        ),
        works(
            "slot.retained.wal.drop.after.ms",
            Kind::Millis(0),
            "60000",
            "How long the slot must have been at or above `slot.retained.wal.drop.bytes` without \
             coming down before it is dropped; a backlog that is being worked off is left alone.",
        ),
        works(
            "record.timestamp",
            Kind::Choice(&["commit", "processing"]),
            "commit",
            "Record timestamp when no column gives one: the commit's time, the same after every \
             restart, or the clock when the row is processed, as Debezium does.",
        ),
        works(
            "event.timestamp.strict",
            Kind::Flag,
            "false",
            "Read `table.field.event.timestamp` as Debezium does: only a column of type `timestamp`, \
             and a moment before 1970 stops. By default the column may also be a `timestamptz` or a \
             `date`, and a moment that Kafka cannot date (infinite, before 1970, after the year \
             9999) is replaced by that of `record.timestamp`, counted and reported.",
        ),
        works(
            "snapshot.existing.slot",
            Kind::Choice(&["stream", "snapshot"]),
            "stream",
            "What to do with a slot that exists when no position is stored: stream from where it \
             stands, or, as Debezium does, publish the existing rows and stream what commits after \
             that. Rows that were deleted between the slot and the snapshot are then not published.",
        ),
        works(
            "include.partitions",
            Kind::Flag,
            "true",
            "Take the rows of a partition when `table.include.list` takes its root, under whichever \
             of the two names the publication sends them. `false` is Debezium's way: only the name \
             that is sent counts, so the rows of partitions that are sent under their own names are \
             passed over.",
        ),
        works(
            "publication.mismatch.strategy",
            Kind::Choice(&["stop", "warn"]),
            "stop",
            "What to do with a publication that cannot deliver inserts into the outbox. `warn` is \
             close to what Debezium does, which streams without a word and publishes nothing.",
        ),
        works(
            "allow.reordering",
            Kind::Flag,
            "false",
            "Let the producer's settings give up what keeps events in order and unlost: `acks=all`, \
             idempotence, at most five requests in flight.",
        ),
        works(
            "tracing.propagate",
            Kind::Flag,
            "false",
            "Carry the tracing context of `tracing.span.context.field` on: `traceparent`, \
             `tracestate` and `baggage` in the column become headers before `id`. Debezium does it \
             when OpenTelemetry's classes are installed, which they are not by default.",
        ),
        works(
            "transaction.max.records",
            Kind::Number(1, 1_000_000_000),
            "500000",
            "With exactly-once delivery: a Postgres transaction with more events than this is \
             committed to Kafka in parts, with a position inside it. One that takes longer than half \
             of the producer's `transaction.timeout.ms` is too.",
        ),
        works(
            "in.flight.max.bytes",
            Kind::Number(65_536, 4_294_967_296),
            "33554432",
            "Bytes handed to Kafka and not yet acknowledged, at most; reading pauses above it.",
        ),
        works(
            "in.flight.max.records",
            Kind::Number(1, 10_000_000),
            "40000",
            "Records handed to Kafka and not yet acknowledged, at most.",
        ),
        works(
            "errors.deadletterqueue.order",
            Kind::Choice(&["none", "aggregate"]),
            "none",
            "What a dead letter means for later events of its aggregate. `none`: nothing, they are \
             published. `aggregate`: they follow it into the dead-letter topic until the aggregate \
             is released by `walpost dlq replay` or `walpost dlq discard`, so that no consumer sees \
             an event without the one before it.",
        ),
    ],
};
