//! What one connector last told, and what follows from it for lag and movement. Pure: time comes
//! in as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::clock::{Now, micros, seconds};
use super::telemetry::{Progress, SAMPLE_INTERVAL, ServerSample, SnapshotView, State, Trouble};
use crate::error::Class;
use crate::lsn::Lsn;

/// A sample older than this says nothing about now.
const SAMPLE_MAX_AGE: Duration = SAMPLE_INTERVAL.saturating_mul(3);

/// Positions of the server that we have not reached yet, remembered with their times. When full,
/// every second one goes: lag gets coarser, memory does not grow.
const MARKS_MAX: usize = 128;

/// The four stages that a position passes, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Read from the server.
    Received,
    /// Acknowledged by Kafka.
    Delivered,
    /// Durable as the place for a restart.
    Stored,
    /// Told to the slot.
    Confirmed,
}

impl Stage {
    pub(super) const ALL: [Stage; 4] = [
        Stage::Received,
        Stage::Delivered,
        Stage::Stored,
        Stage::Confirmed,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Stage::Received => "received",
            Stage::Delivered => "delivered",
            Stage::Stored => "stored",
            Stage::Confirmed => "confirmed",
        }
    }

    /// The position of this stage.
    pub(super) fn position(self, progress: &Progress) -> Option<Lsn> {
        match self {
            Stage::Received => progress.received,
            Stage::Delivered => progress.delivered,
            Stage::Stored => progress.stored,
            Stage::Confirmed => progress.confirmed,
        }
    }

    /// Commit time of the oldest received transaction that is not past this stage.
    fn pending_since_us(self, progress: &Progress) -> Option<i64> {
        match self {
            Stage::Received => None,
            Stage::Delivered => progress.undelivered_since_us,
            Stage::Stored => progress.unstored_since_us,
            Stage::Confirmed => progress.unconfirmed_since_us,
        }
    }
}

/// Distance of a stage from the server. `None` is "cannot be known now".
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Lag {
    pub(super) bytes: Option<u64>,
    pub(super) seconds: Option<f64>,
}

/// The last error, for the status page.
#[derive(Debug, Clone)]
pub(super) struct LastError {
    pub(super) class: Option<Class>,
    pub(super) text: Option<String>,
    pub(super) at: Instant,
}

/// What waits for Kafka.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queue {
    pub(super) records: usize,
    pub(super) bytes: usize,
    pub(super) fill_ratio: f64,
}

/// A position of the server, and when it had it by its own clock.
#[derive(Debug, Clone, Copy)]
struct Mark {
    position: Lsn,
    server_us: i64,
    at: Instant,
}

/// Since when something waits, and when it last moved.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    since: Option<Instant>,
}

impl Wait {
    /// `waiting`: there is something to do. `moved`: some of it was done just now.
    fn observe(&mut self, waiting: bool, moved: bool, now: Now) {
        self.since = match (waiting, moved, self.since) {
            (false, _, _) => None,
            (true, false, Some(since)) => Some(since),
            (true, _, _) => Some(now.monotonic),
        };
    }

    fn duration(self, now: Now) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

/// What one connector last told.
#[derive(Debug)]
pub(super) struct Board {
    state: State,
    state_since: Instant,
    progress: Progress,
    /// Records acknowledged in all, when progress was last told.
    acknowledged: u64,
    sample: Option<ServerSample>,
    /// The server's clock minus ours.
    skew_us: i64,
    marks: VecDeque<Mark>,
    /// Everything that committed before this time (server's clock) has been received.
    horizon_us: Option<i64>,
    delivery: Wait,
    storing: Wait,
    received_at: Instant,
    queue: Queue,
    snapshot: Option<SnapshotView>,
    last_error: Option<LastError>,
    troubles: BTreeMap<Trouble, String>,
    blocked: Option<Blocked>,
}

/// What dead letters hold back; known only where they keep an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) aggregates: usize,
    pub(super) letters: usize,
}

impl Board {
    pub(super) fn new(now: Now) -> Self {
        Self {
            state: State::Starting,
            state_since: now.monotonic,
            progress: Progress::default(),
            acknowledged: 0,
            sample: None,
            skew_us: 0,
            marks: VecDeque::new(),
            horizon_us: None,
            delivery: Wait::default(),
            storing: Wait::default(),
            received_at: now.monotonic,
            queue: Queue::default(),
            snapshot: None,
            last_error: None,
            troubles: BTreeMap::new(),
            blocked: None,
        }
    }

    pub(super) fn state(&mut self, state: State, now: Now) {
        if state == self.state {
            return; // told again: since when does not change
        }
        match &state {
            State::Retrying { error, .. } => self.explain(None, error, now),
            State::Stopped {
                class,
                error: Some(error),
            } => self.explain(*class, error, now),
            _ => {}
        }
        if state == State::Starting {
            self.troubles.clear();
            self.blocked = None;
        }
        // A new attempt gets its own time before it counts as stuck.
        self.delivery = Wait::default();
        self.storing = Wait::default();
        self.received_at = now.monotonic;
        self.state_since = now.monotonic;
        self.state = state;
    }

    pub(super) fn trouble(&mut self, with: Trouble, text: Option<String>) {
        match text {
            Some(text) => self.troubles.insert(with, text),
            None => self.troubles.remove(&with),
        };
    }

    pub(super) fn blocked(&mut self, aggregates: usize, letters: usize) {
        self.blocked = Some(Blocked {
            aggregates,
            letters,
        });
    }

    pub(super) fn blocked_now(&self) -> Option<Blocked> {
        self.blocked
    }

    pub(super) fn error(&mut self, class: Class, now: Now) {
        self.last_error = Some(LastError {
            class: Some(class),
            text: None,
            at: now.monotonic,
        });
    }

    /// The text belongs to the class counted just before, if no text has taken it yet.
    fn explain(&mut self, class: Option<Class>, text: &str, now: Now) {
        let counted = self
            .last_error
            .as_ref()
            .filter(|last| last.text.is_none())
            .and_then(|last| last.class);
        self.last_error = Some(LastError {
            class: class.or(counted),
            text: Some(text.to_owned()),
            at: now.monotonic,
        });
    }

    pub(super) fn progress(&mut self, progress: &Progress, acknowledged: u64, now: Now) {
        let last = std::mem::replace(&mut self.progress, *progress);
        if progress.received < last.received {
            // Begun again from the stored position: whatever was not stored is still to come.
            self.horizon_us = last.unstored_since_us.or(self.horizon_us);
        }
        if progress.received != last.received {
            self.received_at = now.monotonic;
        }
        self.delivery.observe(
            progress.in_flight || progress.undelivered_since_us.is_some(),
            progress.delivered > last.delivered || acknowledged != self.acknowledged,
            now,
        );
        self.storing.observe(
            progress.delivered > progress.stored,
            progress.stored > last.stored,
            now,
        );
        self.acknowledged = acknowledged;
        self.horizon_us = self.horizon_us.max(progress.received_commit_us);
        self.pass_marks();
    }

    pub(super) fn server(&mut self, sample: Option<ServerSample>, now: Now) {
        if let Some(sample) = &sample {
            let age_us = micros(now.since(sample.at));
            if let Some(clock_us) = sample.clock_us {
                self.skew_us = clock_us.saturating_add(age_us).saturating_sub(now.unix_us);
            }
            if self.marks.len() >= MARKS_MAX {
                let mut keep = false;
                self.marks.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
            self.marks.push_back(Mark {
                position: sample.wal_position,
                server_us: self.server_clock_us(now).saturating_sub(age_us),
                at: sample.at,
            });
        }
        self.sample = sample;
        self.pass_marks();
    }

    /// A position of the server that we have received was ahead of every commit before its time.
    fn pass_marks(&mut self) {
        let Some(received) = self.progress.received else {
            return;
        };
        while let Some(mark) = self.marks.front().filter(|mark| mark.position <= received) {
            self.horizon_us = self.horizon_us.max(Some(mark.server_us));
            self.marks.pop_front();
        }
    }

    pub(super) fn queue(&mut self, records: usize, bytes: usize, fill_ratio: f64) {
        self.queue = Queue {
            records,
            bytes,
            fill_ratio,
        };
    }

    pub(super) fn snapshot(&mut self, snapshot: Option<SnapshotView>, now: Now) {
        if snapshot.map(|view| view.rows) != self.snapshot.map(|view| view.rows) {
            self.received_at = now.monotonic;
        }
        self.snapshot = snapshot;
    }

    fn server_clock_us(&self, now: Now) -> i64 {
        now.unix_us.saturating_add(self.skew_us)
    }

    /// The sample, unless it is too old to say anything about now.
    pub(super) fn fresh_sample(&self, now: Now) -> Option<&ServerSample> {
        self.sample
            .as_ref()
            .filter(|sample| now.since(sample.at) <= SAMPLE_MAX_AGE)
    }

    /// Where the server is. What it has sent us may be newer than the sample.
    pub(super) fn server_position(&self, now: Now) -> Option<Lsn> {
        let sampled = self.fresh_sample(now)?.wal_position;
        Some(
            self.progress
                .received
                .map_or(sampled, |lsn| lsn.max(sampled)),
        )
    }

    /// Bytes: the server's position minus the stage's.
    ///
    /// Seconds, for `received`: 0 once the server's position was reached, else the age of the
    /// newest moment of which we know that all commits before it have come. For the others: the
    /// age of the oldest commit that is not past the stage, known or (by the estimate for
    /// `received`) not even received.
    pub(super) fn lag(&self, stage: Stage, now: Now) -> Lag {
        let server = self.server_position(now);
        let age = |time_us: i64| seconds(self.server_clock_us(now).saturating_sub(time_us));
        let receiving = match (server, self.progress.received) {
            (Some(server), Some(received)) if received >= server => Some(0.0),
            (Some(_), Some(_)) => self.horizon_us.map(age),
            _ => None,
        };
        let pending = stage.pending_since_us(&self.progress).map(age);
        Lag {
            bytes: server
                .zip(stage.position(&self.progress))
                .map(|(server, position)| server.bytes_since(position)),
            seconds: match (pending, receiving) {
                (Some(pending), Some(receiving)) => Some(pending.max(receiving)),
                (pending, receiving) => pending.or(receiving),
            },
        }
    }

    /// How long records have waited for Kafka without one being acknowledged.
    pub(super) fn undelivered_for(&self, now: Now) -> Duration {
        self.delivery.duration(now)
    }

    /// How long a delivered position has waited to be stored.
    pub(super) fn unstored_for(&self, now: Now) -> Duration {
        self.storing.duration(now)
    }

    /// How long the server has been ahead of us while nothing arrived.
    pub(super) fn starved_for(&self, now: Now) -> Duration {
        match self.marks.front() {
            Some(mark) if self.fresh_sample(now).is_some() => {
                now.since(mark.at.max(self.received_at))
            }
            _ => Duration::ZERO,
        }
    }

    pub(super) fn current_state(&self) -> &State {
        &self.state
    }

    pub(super) fn state_age(&self, now: Now) -> Duration {
        now.since(self.state_since)
    }

    pub(super) fn positions(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn queue_now(&self) -> Queue {
        self.queue
    }

    pub(super) fn snapshot_now(&self) -> Option<SnapshotView> {
        self.snapshot
    }

    pub(super) fn known_troubles(&self) -> impl Iterator<Item = &str> {
        self.troubles.values().map(String::as_str)
    }

    pub(super) fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
