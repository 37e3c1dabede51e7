//! The metrics, gathered anew at each scrape. A family without a known value is left out whole:
//! unknown is absent, never 0.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use super::Observability;
use super::board::{Board, Stage};
use super::clock::Now;
use super::exposition::{Families, Format, Kind, Value};
use super::status::{Role, state_label};
use super::telemetry::Reporter;
use crate::error::Class;
use crate::lsn::Lsn;

/// Every value of `walpost_state`'s label.
const STATES: [&str; 7] = [
    "starting",
    "standby",
    "snapshotting",
    "streaming",
    "retrying",
    "stopping",
    "stopped",
];

/// Every value that Postgres gives `wal_status`.
const WAL_STATUSES: [&str; 4] = ["reserved", "extended", "unreserved", "lost"];

/// All metrics as text.
pub(super) fn render(observability: &Observability, format: Format) -> Result<String, fmt::Error> {
    let now = Now::read();
    let mut families = Families::default();
    process(&mut families, observability);
    for reporter in observability.connectors() {
        connector(&mut families, &reporter, now);
    }
    families.render(format)
}

fn process(families: &mut Families, observability: &Observability) {
    families.add(
        ("walpost_build_info", Kind::Gauge),
        "The running program; always 1",
        vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
        1_u64,
    );
    families.add(
        ("process_start_time_seconds", Kind::Gauge),
        "When the process started, seconds since the Unix epoch",
        Vec::new(),
        seconds(observability.process.started_unix_us),
    );
}

fn connector(families: &mut Families, reporter: &Reporter, now: Now) {
    let mut series = Series {
        families,
        connector: &reporter.about.name,
    };
    series.counters(reporter);
    let board = reporter.board();
    series.positions(&board, now);
    series.slot(&board, now);
    series.state(&board);
    series.work(&board);
}

/// Adds samples of one connector.
struct Series<'a> {
    families: &'a mut Families,
    connector: &'a str,
}

impl Series<'_> {
    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: Option<(&'static str, &str)>,
        value: u64,
    ) {
        self.sample((name, Kind::Counter), help, label, Value::Whole(value));
    }

    fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: Option<(&'static str, &str)>,
        value: Option<impl Into<Value>>,
    ) {
        if let Some(value) = value {
            self.sample((name, Kind::Gauge), help, label, value.into());
        }
    }

    fn sample(
        &mut self,
        metric: (&'static str, Kind),
        help: &'static str,
        label: Option<(&'static str, &str)>,
        value: Value,
    ) {
        let mut labels = vec![("connector", self.connector.to_owned())];
        labels.extend(label.map(|(name, value)| (name, value.to_owned())));
        self.families.add(metric, help, labels, value);
    }

    fn one_hot<'v>(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = &'v str>,
        current: &str,
    ) {
        for value in values {
            let on = u64::from(value == current);
            self.gauge(name, help, Some((label, value)), Some(on));
        }
    }

    fn counters(&mut self, reporter: &Reporter) {
        for (topic, totals) in reporter.topics().iter() {
            self.counter(
                "walpost_events",
                "Events that Kafka acknowledged",
                Some(("topic", topic)),
                totals.events.load(Relaxed),
            );
            self.counter(
                "walpost_event_bytes",
                "Bytes of events that Kafka acknowledged: key, value and headers",
                Some(("topic", topic)),
                totals.bytes.load(Relaxed),
            );
        }
        for (class, count) in Class::ALL.into_iter().zip(&reporter.errors) {
            self.counter(
                "walpost_errors",
                "Errors by class",
                Some(("class", class.label())),
                count.load(Relaxed),
            );
        }
        for (reason, count) in reporter.dropped().iter() {
            self.counter(
                "walpost_dropped_events",
                "Events left out on purpose, by reason",
                Some(("reason", reason)),
                *count,
            );
        }
        for (what, count) in reporter.replaced().iter() {
            self.counter(
                "walpost_replaced_values",
                "Values published otherwise than they stand in the row, by what they were",
                Some(("what", what)),
                *count,
            );
        }
        for (cause, count) in reporter.dead_letters().iter() {
            self.counter(
                "walpost_dead_letters",
                "Events that went to the dead-letter topic, by cause: poison, or order, which \
                 follows a dead letter of the same aggregate",
                Some(("cause", cause)),
                *count,
            );
        }
        self.counter(
            "walpost_retries",
            "Attempts after a retriable error",
            None,
            reporter.retries.load(Relaxed),
        );
        self.counter(
            "walpost_reconnects",
            "Connections to Postgres opened again after a loss",
            None,
            reporter.reconnects.load(Relaxed),
        );
        self.gauge(
            "walpost_last_delivered_timestamp_seconds",
            "When Kafka last acknowledged an event, seconds since the Unix epoch",
            None,
            reporter.last_delivered_us().map(seconds),
        );
    }

    fn positions(&mut self, board: &Board, now: Now) {
        for stage in Stage::ALL {
            let lag = board.lag(stage, now);
            let label = Some(("stage", stage.label()));
            self.gauge(
                "walpost_lag_bytes",
                "WAL between the server's current position and this stage's",
                label,
                lag.bytes,
            );
            self.gauge(
                "walpost_lag_seconds",
                "Age of the oldest commit that is not past this stage; 0 when there is none",
                label,
                lag.seconds,
            );
            self.gauge(
                "walpost_position_bytes",
                "Position of this stage in the WAL, as a number of bytes",
                label,
                stage.position(board.positions()).map(Lsn::as_u64),
            );
        }
        self.gauge(
            "walpost_server_position_bytes",
            "The server's current position in the WAL, as a number of bytes",
            None,
            board.server_position(now).map(Lsn::as_u64),
        );
    }

    fn slot(&mut self, board: &Board, now: Now) {
        let Some(sample) = board.fresh_sample(now) else {
            return;
        };
        self.gauge(
            "walpost_slot_retained_bytes",
            "WAL that the replication slot holds back",
            None,
            sample.retained_bytes,
        );
        self.gauge(
            "walpost_slot_safe_wal_bytes",
            "WAL that may still be written before the slot is at risk; absent without a limit",
            None,
            sample.safe_wal_size,
        );
        self.gauge(
            "walpost_slot_seconds_to_limit",
            "Seconds until the slot holds back as much WAL as it may, at the current rate",
            None,
            sample.seconds_to_limit,
        );
        self.gauge(
            "walpost_slot_inactive_seconds",
            "For how long nobody has used the replication slot; absent while it is in use",
            None,
            sample.inactive_seconds,
        );
        if let Some(status) = &sample.wal_status {
            self.gauge(
                "walpost_slot_invalidated",
                "Whether the server has given the replication slot up",
                None,
                Some(u64::from(sample.is_slot_lost())),
            );
            self.one_hot(
                "walpost_slot_wal_status",
                "What the server says of the WAL that the slot needs; 1 for the current status",
                "status",
                WAL_STATUSES,
                status,
            );
        }
    }

    fn state(&mut self, board: &Board) {
        let state = board.current_state();
        self.one_hot(
            "walpost_state",
            "What the connector is doing; 1 for the current state",
            "state",
            STATES,
            state_label(state),
        );
        let role = Role::of(state);
        self.one_hot(
            "walpost_role",
            "Whether the connector has the slot or waits for it; 0 for both when it does neither",
            "role",
            [Role::Active.label(), Role::Standby.label()],
            role.label(),
        );
    }

    fn work(&mut self, board: &Board) {
        let queue = board.queue_now();
        self.gauge(
            "walpost_queue_records",
            "Records handed to Kafka and not acknowledged",
            None,
            Some(queue.records),
        );
        self.gauge(
            "walpost_queue_bytes",
            "Bytes handed to Kafka and not acknowledged",
            None,
            Some(queue.bytes),
        );
        self.gauge(
            "walpost_queue_fill_ratio",
            "How full that queue is, 0 to 1; at 1 nothing more is read from Postgres",
            None,
            Some(queue.fill_ratio),
        );
        let blocked = board.blocked_now();
        self.gauge(
            "walpost_blocked_aggregates",
            "Aggregates whose events go to the dead-letter topic until they are released",
            None,
            blocked.map(|blocked| blocked.aggregates),
        );
        self.gauge(
            "walpost_blocking_dead_letters",
            "Dead letters that wait to be replayed or discarded and hold these aggregates back",
            None,
            blocked.map(|blocked| blocked.letters),
        );
        let Some(snapshot) = board.snapshot_now() else {
            return;
        };
        let mut gauge = |name, help, value: Option<u64>| self.gauge(name, help, None, value);
        gauge(
            "walpost_snapshot_rows",
            "Rows read by the snapshot that is running",
            Some(snapshot.rows),
        );
        gauge(
            "walpost_snapshot_estimated_rows",
            "Rows that the snapshot will read, by the server's statistics",
            snapshot.estimated_rows,
        );
        gauge(
            "walpost_snapshot_tables_done",
            "Tables that the snapshot has finished",
            Some(snapshot.tables_done as u64),
        );
        gauge(
            "walpost_snapshot_tables",
            "Tables that the snapshot reads",
            Some(snapshot.tables as u64),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "times since 1970 in seconds")]
fn seconds(us: i64) -> Value {
    Value::Real(us as f64 / 1e6)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
