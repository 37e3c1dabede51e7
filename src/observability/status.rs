//! `/status`: all that is known, as JSON for people and scripts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;

use super::Observability;
use super::board::{Board, Stage};
use super::clock::Now;
use super::health::{self, Health};
use super::telemetry::{Reporter, SnapshotView, State};
use crate::error::Class;
use crate::lsn::Lsn;

/// Whether a connector has the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// It has the slot.
    Active,
    /// Another process has it; this one waits.
    Standby,
    /// Neither: starting, between two attempts, or stopped.
    None,
}

impl Role {
    pub(super) fn of(state: &State) -> Self {
        match state {
            State::Snapshotting | State::Streaming | State::Stopping => Role::Active,
            State::Standby { .. } => Role::Standby,
            State::Starting | State::Retrying { .. } | State::Stopped { .. } => Role::None,
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Role::Active => "active",
            Role::Standby => "standby",
            Role::None => "none",
        }
    }
}

pub(super) fn state_label(state: &State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Standby { .. } => "standby",
        State::Snapshotting => "snapshotting",
        State::Streaming => "streaming",
        State::Retrying { .. } => "retrying",
        State::Stopping => "stopping",
        State::Stopped { .. } => "stopped",
    }
}

/// The whole page.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    version: &'static str,
    uptime_seconds: f64,
    live: bool,
    ready: bool,
    connectors: Vec<ConnectorStatus>,
}

#[derive(Debug, Serialize)]
struct ConnectorStatus {
    name: String,
    database: String,
    role: Role,
    state: &'static str,
    state_seconds: f64,
    #[serde(flatten)]
    detail: Detail,
    ready: bool,
    reasons: Vec<String>,
    positions: BTreeMap<&'static str, Option<Position>>,
    lag: BTreeMap<&'static str, LagStatus>,
    slot: SlotStatus,
    offsets: String,
    queue: QueueStatus,
    topics: BTreeMap<String, TopicStatus>,
    snapshot: Option<SnapshotStatus>,
    errors: BTreeMap<&'static str, u64>,
    retries: u64,
    reconnects: u64,
    dropped: BTreeMap<&'static str, u64>,
    replaced: BTreeMap<&'static str, u64>,
    dead_letters: DeadLetterStatus,
    last_error: Option<ErrorStatus>,
}

/// What only some states have.
#[derive(Debug, Default, Serialize)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_in_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Position {
    lsn: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct LagStatus {
    bytes: Option<u64>,
    seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SlotStatus {
    name: String,
    wal_status: Option<String>,
    retained_bytes: Option<u64>,
    safe_wal_bytes: Option<i64>,
    seconds_to_limit: Option<u64>,
    inactive_seconds: Option<u64>,
    invalidation_reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct QueueStatus {
    records: usize,
    bytes: usize,
    fill_ratio: f64,
}

#[derive(Debug, Serialize)]
struct TopicStatus {
    events: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct SnapshotStatus {
    rows: u64,
    estimated_rows: Option<u64>,
    tables_done: usize,
    tables: usize,
    rows_per_second: f64,
}

/// What went to the dead-letter topic, and what waits there; aggregates are data and not named.
#[derive(Debug, Serialize)]
struct DeadLetterStatus {
    topic: Option<String>,
    written: BTreeMap<&'static str, u64>,
    blocked_aggregates: Option<usize>,
    blocking_letters: Option<usize>,
}

#[derive(Debug, Serialize)]
struct ErrorStatus {
    class: Option<&'static str>,
    error: Option<String>,
    seconds_ago: f64,
}

impl Status {
    pub(super) fn new(observability: &Observability) -> Self {
        let now = Now::read();
        let reporters = observability.connectors();
        let connectors: Vec<_> = reporters
            .iter()
            .map(|reporter| ConnectorStatus::new(reporter, now))
            .collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: now.since(observability.process.started).as_secs_f64(),
            live: Health::live(observability).is_good(),
            ready: Health::ready(observability).is_good(),
            connectors,
        }
    }
}

impl ConnectorStatus {
    fn new(reporter: &Reporter, now: Now) -> Self {
        // Takes the board's lock itself, so before ours.
        let reasons = health::not_ready(reporter, now);
        let board = reporter.board();
        let state = board.current_state();
        Self {
            name: reporter.about.name.clone(),
            database: reporter.about.database.clone(),
            role: Role::of(state),
            state: state_label(state),
            state_seconds: board.state_age(now).as_secs_f64(),
            detail: Detail::new(state, board.state_age(now)),
            ready: reasons.is_empty(),
            reasons,
            positions: positions(&board, now),
            lag: lag(&board, now),
            slot: SlotStatus::new(&reporter.about.slot, &board, now),
            offsets: reporter.about.offsets.clone(),
            queue: QueueStatus::new(&board),
            topics: topics(reporter),
            snapshot: board.snapshot_now().map(SnapshotStatus::from),
            errors: Class::ALL
                .into_iter()
                .map(Class::label)
                .zip(reporter.errors.iter().map(|count| count.load(Relaxed)))
                .collect(),
            retries: reporter.retries.load(Relaxed),
            reconnects: reporter.reconnects.load(Relaxed),
            dropped: reporter.dropped().clone(),
            replaced: reporter.replaced().clone(),
            dead_letters: DeadLetterStatus {
                topic: reporter.about.dead_letters.clone(),
                written: reporter.dead_letters().clone(),
                blocked_aggregates: board.blocked_now().map(|blocked| blocked.aggregates),
                blocking_letters: board.blocked_now().map(|blocked| blocked.letters),
            },
            last_error: board.last_error().map(|last| ErrorStatus {
                class: last.class.map(Class::label),
                error: last.text.clone(),
                seconds_ago: now.since(last.at).as_secs_f64(),
            }),
        }
    }
}

impl Detail {
    fn new(state: &State, age: Duration) -> Self {
        match state {
            State::Standby { holder } => Self {
                holder: Some(holder.clone()),
                ..Self::default()
            },
            State::Retrying {
                attempt, next_in, ..
            } => Self {
                next_attempt: Some(*attempt),
                next_attempt_in_seconds: Some(next_in.saturating_sub(age).as_secs_f64()),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}

impl SlotStatus {
    fn new(name: &str, board: &Board, now: Now) -> Self {
        let sample = board.fresh_sample(now);
        Self {
            name: name.to_owned(),
            wal_status: sample.and_then(|sample| sample.wal_status.clone()),
            retained_bytes: sample.and_then(|sample| sample.retained_bytes),
            safe_wal_bytes: sample.and_then(|sample| sample.safe_wal_size),
            seconds_to_limit: sample.and_then(|sample| sample.seconds_to_limit),
            inactive_seconds: sample.and_then(|sample| sample.inactive_seconds),
            invalidation_reason: sample.and_then(|sample| sample.invalidation_reason.clone()),
        }
    }
}

impl QueueStatus {
    fn new(board: &Board) -> Self {
        let queue = board.queue_now();
        Self {
            records: queue.records,
            bytes: queue.bytes,
            fill_ratio: queue.fill_ratio,
        }
    }
}

impl From<SnapshotView> for SnapshotStatus {
    fn from(view: SnapshotView) -> Self {
        Self {
            rows: view.rows,
            estimated_rows: view.estimated_rows,
            tables_done: view.tables_done,
            tables: view.tables,
            rows_per_second: view.rows_per_second,
        }
    }
}

impl From<Lsn> for Position {
    fn from(lsn: Lsn) -> Self {
        Self {
            lsn: lsn.to_string(),
            bytes: lsn.as_u64(),
        }
    }
}

fn positions(board: &Board, now: Now) -> BTreeMap<&'static str, Option<Position>> {
    let server = ("server", board.server_position(now).map(Position::from));
    let stages = Stage::ALL.into_iter().map(|stage| {
        (
            stage.label(),
            stage.position(board.positions()).map(Position::from),
        )
    });
    stages.chain([server]).collect()
}

fn lag(board: &Board, now: Now) -> BTreeMap<&'static str, LagStatus> {
    Stage::ALL
        .into_iter()
        .map(|stage| {
            let lag = board.lag(stage, now);
            (
                stage.label(),
                LagStatus {
                    bytes: lag.bytes,
                    seconds: lag.seconds,
                },
            )
        })
        .collect()
}

fn topics(reporter: &Reporter) -> BTreeMap<String, TopicStatus> {
    reporter
        .topics()
        .iter()
        .map(|(topic, totals)| {
            (
                topic.clone(),
                TopicStatus {
                    events: totals.events.load(Relaxed),
                    bytes: totals.bytes.load(Relaxed),
                },
            )
        })
        .collect()
}
