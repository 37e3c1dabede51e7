//! The two verdicts, as lists of reasons against; empty is good.
//!
//! *Live*: our own loop can still make progress by itself. Postgres or Kafka being away does not
//! count: restarting us would not bring them back. *Ready*: streaming, reading the snapshot or
//! standing by, and nothing stands still that should move.

use std::time::Duration;

use serde::Serialize;

use super::Observability;
use super::board::Board;
use super::clock::Now;
use super::telemetry::{Reporter, State};

/// Without a beat for this long the loop counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Work that has not moved for this long is reported.
const STALL_MAX: Duration = Duration::from_secs(30);

/// A verdict over all connectors of the process.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
    reasons: Vec<Reason>,
}

#[derive(Debug, Serialize)]
struct Reason {
    #[serde(skip_serializing_if = "Option::is_none")]
    connector: Option<String>,
    reason: String,
}

impl Health {
    /// Every loop can make progress by itself.
    pub(super) fn live(observability: &Observability) -> Self {
        let now = Now::read();
        let mut reasons = Vec::new();
        for reporter in observability.connectors() {
            reasons.extend(Reason::all(&reporter, not_live(&reporter, now)));
        }
        Self::new(reasons)
    }

    /// Every connector does what it is there for. One that finished its work does not count,
    /// unless all have.
    pub(super) fn ready(observability: &Observability) -> Self {
        let now = Now::read();
        let reporters = observability.connectors();
        if reporters.is_empty() {
            return Self::new(vec![Reason {
                connector: None,
                reason: "no connector has started yet".to_owned(),
            }]);
        }
        let all_finished = reporters.iter().all(|reporter| finished(reporter));
        let mut reasons = Vec::new();
        for reporter in &reporters {
            if all_finished || !finished(reporter) {
                reasons.extend(Reason::all(reporter, not_ready(reporter, now)));
            }
        }
        Self::new(reasons)
    }

    fn new(reasons: Vec<Reason>) -> Self {
        Self {
            status: if reasons.is_empty() { "UP" } else { "DOWN" },
            reasons,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl Reason {
    fn all(reporter: &Reporter, reasons: Vec<String>) -> impl Iterator<Item = Reason> {
        let connector = reporter.about.name.clone();
        reasons.into_iter().map(move |reason| Reason {
            connector: Some(connector.clone()),
            reason,
        })
    }
}

/// Why the connector's loop cannot make progress by itself.
fn not_live(reporter: &Reporter, now: Now) -> Vec<String> {
    let allowed = match reporter.board().current_state() {
        State::Stopped { .. } => return Vec::new(),
        State::Retrying { next_in, .. } => SILENCE_MAX.saturating_add(*next_in),
        _ => SILENCE_MAX,
    };
    let silence = reporter.silent_for(now);
    if silence > allowed {
        vec![format!(
            "the loop has shown no sign of life for {} s",
            silence.as_secs()
        )]
    } else {
        Vec::new()
    }
}

/// Why the connector does not do what it is there for.
pub(super) fn not_ready(reporter: &Reporter, now: Now) -> Vec<String> {
    let mut reasons = not_live(reporter, now);
    let board = reporter.board();
    match board.current_state() {
        State::Standby { .. } => {}
        State::Snapshotting | State::Streaming => stalls(&board, now, &mut reasons),
        State::Starting => reasons.push("starting: not streaming yet".to_owned()),
        State::Retrying { error, attempt, .. } => {
            reasons.push(format!("waiting for attempt {attempt} after: {error}"));
        }
        State::Stopping => reasons.push("stopping".to_owned()),
        State::Stopped { error, .. } => reasons.push(match error {
            Some(error) => format!("stopped: {error}"),
            None => "stopped".to_owned(),
        }),
    }
    reasons
}

/// Whether the connector ended without an error. It then has nothing to be ready for, and does not
/// make its neighbours in the process unready.
fn finished(reporter: &Reporter) -> bool {
    matches!(
        reporter.board().current_state(),
        State::Stopped {
            class: None,
            error: None
        }
    )
}

fn stalls(board: &Board, now: Now, reasons: &mut Vec<String>) {
    let waited = board.undelivered_for(now);
    if waited > STALL_MAX {
        reasons.push(format!(
            "records have waited {} s without an acknowledgement from kafka",
            waited.as_secs()
        ));
    }
    let waited = board.unstored_for(now);
    if waited > STALL_MAX {
        reasons.push(format!(
            "a delivered position has waited {} s to be stored",
            waited.as_secs()
        ));
    }
    // While records wait for Kafka it is we who may not be reading.
    let waited = board.starved_for(now);
    if waited > STALL_MAX && board.undelivered_for(now).is_zero() && reasons.is_empty() {
        reasons.push(format!(
            "the server is ahead, and nothing has arrived from it for {} s",
            waited.as_secs()
        ));
    }
    reasons.extend(board.known_troubles().map(str::to_owned));
    if let Some(sample) = board
        .fresh_sample(now)
        .filter(|sample| sample.is_slot_lost())
    {
        let status = sample.wal_status.as_deref().unwrap_or("unknown");
        reasons.push(match &sample.invalidation_reason {
            Some(reason) => format!("the replication slot is lost ({reason})"),
            None => format!("the replication slot is lost (wal_status = {status})"),
        });
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
