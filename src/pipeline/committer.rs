//! With exactly-once delivery: when a Kafka transaction ends, and which position it says.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::{Boundary, ExactlyOnce};
use crate::lsn::{Lsn, ResumePoint};
use crate::offset::OffsetStore;

/// Shortest time from one commit to the next while rows come: what a commit costs is shared by the
/// rows of this time. After a pause the first row is committed at once.
const PACE: Duration = Duration::from_millis(50);

/// The same while so many rows come that throughput counts, not latency.
const BUSY_PACE: Duration = Duration::from_millis(100);

/// And while they pour in: a commit waits for all that is on its way to Kafka, and all behind it
/// waits for the commit.
const POURING_PACE: Duration = Duration::from_millis(200);

/// Records in a transaction from which on it is a busy one: some 10,000 a second.
const BUSY: u64 = 500;

/// Records from which on they pour in: some 50,000 a second.
const POURING: u64 = 5_000;

/// A position with no events before it is worth a transaction this often.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Knows when to commit and what is committed; the sink knows what is in the open transaction.
pub(super) struct Committer {
    /// Never written to: it makes the records that the sink commits.
    pub(super) store: OffsetStore,
    boundary: Boundary,
    /// Half of `transaction.timeout.ms`.
    longest: Duration,
    /// Until here each Postgres transaction has one of Kafka's, since one of them is known to fail.
    apart_until: Option<Lsn>,
    /// When the open Kafka transaction got its first record.
    began: Option<Instant>,
    /// Records in it.
    records: u64,
    /// When the last commit was begun.
    last: Option<Instant>,
    reached: ResumePoint,
    stored: Lsn,
    /// A heartbeat was due while nothing could be produced.
    pub(super) owes_heartbeat: bool,
}

impl Committer {
    /// A committer for a stream that begins at `at`.
    pub(super) fn new(
        store: OffsetStore,
        options: &ExactlyOnce,
        at: ResumePoint,
        apart_until: Option<Lsn>,
    ) -> Self {
        Self {
            store,
            boundary: options.boundary,
            longest: options.timeout / 2,
            apart_until,
            began: None,
            records: 0,
            last: None,
            reached: at,
            stored: at.lsn(),
            owes_heartbeat: false,
        }
    }

    /// A burst was enqueued. `end` is the last resume point in it, `records` how many the open
    /// transaction has now.
    pub(super) fn enqueued(&mut self, end: Option<ResumePoint>, records: u64) {
        if let Some(end) = end.filter(|end| end.lsn() > self.reached.lsn()) {
            self.reached = end;
        }
        self.records = records;
        if records > 0 && self.began.is_none() {
            self.began = Some(Instant::now());
        }
    }

    /// The last position at which a restart may begin.
    pub(super) fn reached(&self) -> ResumePoint {
        self.reached
    }

    /// Whether everything is committed.
    pub(super) fn is_idle(&self) -> bool {
        self.began.is_none() && self.reached.lsn() <= self.stored
    }

    /// When to commit, between two transactions of the source.
    pub(super) fn due(&self) -> Option<Instant> {
        let earliest = |pace| self.last.map(|last| last + pace);
        let Some(began) = self.began else {
            let moved = self.reached.lsn() > self.stored;
            return moved.then(|| earliest(IDLE_INTERVAL).unwrap_or_else(Instant::now));
        };
        let due = match self.boundary {
            _ if self.keeps_apart() => began,
            Boundary::Connector => began,
            Boundary::Poll => {
                let pace = match self.records {
                    ..BUSY => PACE,
                    BUSY..POURING => BUSY_PACE,
                    _ => POURING_PACE,
                };
                earliest(pace).map_or(began, |paced| paced.max(began))
            }
            Boundary::Interval(interval) => began + interval,
        };
        Some(due.min(began + self.longest))
    }

    /// When to commit even inside a transaction of the source: the broker will not wait longer.
    pub(super) fn overdue(&self) -> Option<Instant> {
        self.began.map(|began| began + self.longest)
    }

    /// Whether the next burst has to stop at the first commit it meets.
    pub(super) fn wants_boundary(&self) -> bool {
        self.boundary == Boundary::Connector
            || self.keeps_apart()
            || (self.began.is_some() && self.due().is_some_and(|due| due <= Instant::now()))
    }

    fn keeps_apart(&self) -> bool {
        self.apart_until.is_some_and(|until| self.stored < until)
    }

    /// A commit has begun.
    pub(super) fn committing(&mut self) {
        self.last = Some(Instant::now());
    }

    /// It has happened, up to `at`.
    pub(super) fn committed(&mut self, at: Lsn) {
        self.began = None;
        self.records = 0;
        self.stored = at;
    }
}
