//! How far each stage has come. The only place that compares two positions of a running stream.

use std::collections::VecDeque;

use crate::error::Failure;
use crate::lsn::Lsn;
use crate::observability::Stage;

/// Where the stream is: received ≥ delivered ≥ stored ≥ confirmed, each only ever rising.
#[derive(Debug)]
pub(super) struct Progress {
    received: Lsn,
    delivered: Lsn,
    stored: Lsn,
    confirmed: Lsn,
    /// Of each burst, the end of its last commit and the time of its first, kept until confirmed.
    commits: VecDeque<(Lsn, i64)>,
    newest_commit_us: Option<i64>,
}

/// Commit times, in microseconds since the epoch, of the transactions of one burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommitTimes {
    pub(super) oldest_us: i64,
    pub(super) newest_us: i64,
}

/// Marks kept at most. Beyond it the newest is replaced, which makes a lag in seconds a little
/// too large, never too small.
const MARKS_MAX: usize = 4096;

impl Progress {
    /// Every stage stands at the position the stream starts from.
    pub(super) fn starting_at(at: Lsn) -> Self {
        Self {
            received: at,
            delivered: at,
            stored: at,
            confirmed: at,
            commits: VecDeque::new(),
            newest_commit_us: None,
        }
    }

    /// The server has mentioned `lsn`.
    pub(super) fn received(&mut self, lsn: Lsn) {
        self.received = self.received.max(lsn);
    }

    /// A burst was read whose last restart position is `end`; `times` of its commits, if it had any.
    pub(super) fn ended(&mut self, end: Lsn, times: Option<CommitTimes>) {
        self.received(end);
        let Some(times) = times else { return };
        self.newest_commit_us = Some(times.newest_us);
        if self.commits.len() < MARKS_MAX {
            self.commits.push_back((end, times.oldest_us));
        } else if let Some(newest) = self.commits.back_mut() {
            newest.0 = end;
        }
    }

    /// Commit time of the newest transaction read.
    pub(super) fn newest_commit_us(&self) -> Option<i64> {
        self.newest_commit_us
    }

    /// Kafka has everything up to `lsn`.
    pub(super) fn delivered(&mut self, lsn: Lsn) -> Result<(), Failure> {
        self.rise(Stage::Delivered, lsn)
    }

    /// The offset store has `lsn`.
    pub(super) fn stored(&mut self, lsn: Lsn) -> Result<(), Failure> {
        self.rise(Stage::Stored, lsn)
    }

    /// The slot was told `lsn`.
    pub(super) fn confirmed(&mut self, lsn: Lsn) -> Result<(), Failure> {
        self.rise(Stage::Confirmed, lsn)?;
        while self.commits.front().is_some_and(|(end, _)| *end <= lsn) {
            self.commits.pop_front();
        }
        Ok(())
    }

    /// The position of `stage`.
    pub(super) fn at(&self, stage: Stage) -> Lsn {
        match stage {
            Stage::Received => self.received,
            Stage::Delivered => self.delivered,
            Stage::Stored => self.stored,
            Stage::Confirmed => self.confirmed,
        }
    }

    /// Commit time, in microseconds since the epoch, of the oldest transaction read but not yet
    /// past `stage`; `None` when there is none.
    pub(super) fn oldest_pending_us(&self, stage: Stage) -> Option<i64> {
        let at = self.at(stage);
        let first = self.commits.partition_point(|(end, _)| *end <= at);
        self.commits.get(first).map(|(_, time_us)| *time_us)
    }

    fn rise(&mut self, stage: Stage, to: Lsn) -> Result<(), Failure> {
        let (now, before, bound) = match stage {
            Stage::Received => (&mut self.received, "server", to),
            Stage::Delivered => (&mut self.delivered, "received", self.received),
            Stage::Stored => (&mut self.stored, "delivered", self.delivered),
            Stage::Confirmed => (&mut self.confirmed, "stored", self.stored),
        };
        if to > bound {
            return Err(Failure::internal(format!(
                "refusing to move the {stage:?} position to {to}, past the {before} position {bound}"
            )));
        }
        *now = to.max(*now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn lsn(raw: u64) -> Lsn {
        Lsn::new(raw).unwrap()
    }

    fn times(us: i64) -> Option<CommitTimes> {
        Some(CommitTimes {
            oldest_us: us,
            newest_us: us,
        })
    }

    #[test]
    fn no_stage_overtakes_the_one_before() {
        let mut progress = Progress::starting_at(lsn(10));
        progress.received(lsn(20));
        assert!(progress.delivered(lsn(21)).is_err());
        progress.delivered(lsn(20)).unwrap();
        assert!(progress.confirmed(lsn(15)).is_err(), "not stored yet");
        progress.stored(lsn(15)).unwrap();
        progress.confirmed(lsn(15)).unwrap();
        assert_eq!(progress.at(Stage::Confirmed), lsn(15));
    }

    #[test]
    fn the_age_of_a_stage_is_that_of_its_oldest_pending_commit() {
        let mut progress = Progress::starting_at(lsn(10));
        progress.ended(lsn(20), times(100));
        progress.ended(lsn(30), times(200));
        assert_eq!(progress.oldest_pending_us(Stage::Delivered), Some(100));
        progress.delivered(lsn(20)).unwrap();
        assert_eq!(progress.oldest_pending_us(Stage::Delivered), Some(200));
        assert_eq!(progress.oldest_pending_us(Stage::Stored), Some(100));
        progress.delivered(lsn(30)).unwrap();
        progress.stored(lsn(30)).unwrap();
        progress.confirmed(lsn(30)).unwrap();
        assert_eq!(progress.oldest_pending_us(Stage::Confirmed), None);
    }

    proptest::proptest! {
        #[test]
        fn any_interleaving_keeps_the_order(steps in proptest::collection::vec((0u8..4, 1u64..1000), 1..200)) {
            let mut progress = Progress::starting_at(lsn(1));
            for (stage, raw) in steps {
                let at = lsn(raw);
                let _refused_is_fine = match stage {
                    0 => { progress.received(at); Ok(()) }
                    1 => progress.delivered(at),
                    2 => progress.stored(at),
                    _ => progress.confirmed(at),
                };
                proptest::prop_assert!(progress.received >= progress.delivered);
                proptest::prop_assert!(progress.delivered >= progress.stored);
                proptest::prop_assert!(progress.stored >= progress.confirmed);
            }
        }
    }
}
