//! What a slot's retained WAL means: how long it may go on, what to say of it, when to give the
//! slot up. Pure: time comes in as an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::SlotGuard;
use crate::source::SlotState;

/// The rate is taken over so long: shorter than an operator's patience, longer than a checkpoint's
/// jump.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// Below this a rate would be a guess.
const RATE_SPAN: Duration = Duration::from_secs(4);

/// The kind, which does not change with the figures, and the text.
pub(super) type Warning = (&'static str, String);

/// What one look at the slot comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Seconds until the nearest limit at the current rate; `None` without a limit or growth.
    pub(super) seconds_to_limit: Option<u64>,
    /// What to warn about.
    pub(super) warning: Option<Warning>,
    /// Why the connector is not ready.
    pub(super) unready: Option<String>,
    /// Why the slot is to be dropped.
    pub(super) condemned: Option<String>,
}

/// Since when the slot has been above its last threshold, counted from its lowest point.
#[derive(Debug, Clone, Copy)]
struct Above {
    since: Instant,
    lowest: u64,
}

/// Remembers enough of one slot to tell growth from a backlog that is being worked off.
#[derive(Debug)]
pub(super) struct Judge {
    limits: SlotGuard,
    history: VecDeque<(Instant, u64)>,
    above: Option<Above>,
}

impl Judge {
    pub(super) fn new(limits: SlotGuard) -> Self {
        Self {
            limits,
            history: VecDeque::new(),
            above: None,
        }
    }

    /// Takes the slot as it is now. `ours`: no other process streams from it.
    pub(super) fn look(&mut self, slot: Option<&SlotState>, ours: bool, now: Instant) -> Verdict {
        let Some((slot, retained)) = slot.and_then(|slot| Some((slot, slot.retained_bytes?)))
        else {
            // A slot that is gone or lost holds nothing back.
            self.history.clear();
            self.above = None;
            return Verdict::default();
        };
        self.remember(retained, now);
        let seconds_to_limit = self.seconds_to_limit(slot.safe_wal_size, retained);
        Verdict {
            seconds_to_limit,
            warning: self.warning(slot, retained, seconds_to_limit),
            unready: reached(self.limits.unready, retained)
                .map(|limit| beyond(retained, "slot.retained.wal.unready.bytes", limit)),
            condemned: self.condemned(retained, ours, now),
        }
    }

    fn remember(&mut self, retained: u64, now: Instant) {
        self.history.push_back((now, retained));
        while let Some((at, _)) = self.history.get(1)
            && now.duration_since(*at) >= RATE_WINDOW
        {
            self.history.pop_front();
        }
    }

    /// Bytes a second, while it grows.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn growth(&self) -> Option<f64> {
        let ((began, first), (ended, last)) = (self.history.front()?, self.history.back()?);
        let span = ended.duration_since(*began);
        (span >= RATE_SPAN && last > first).then(|| (last - first) as f64 / span.as_secs_f64())
    }

    /// The server's limit and the one at which we drop the slot are both ends; without either it
    /// is the next threshold of ours.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; a cast of a float saturates"
    )]
    fn seconds_to_limit(&self, safe_wal_size: Option<i64>, retained: u64) -> Option<u64> {
        let growth = self.growth()?;
        let left = |limit: u64| limit.saturating_sub(retained);
        let of_the_server = safe_wal_size.map(|safe| u64::try_from(safe).unwrap_or(0));
        let ends = [of_the_server, self.limits.drop.map(left)];
        let left = ends
            .into_iter()
            .flatten()
            .min()
            .or(self.limits.unready.map(left))
            .or(self.limits.warn.map(left))?;
        Some((left as f64 / growth) as u64)
    }

    fn warning(&self, slot: &SlotState, retained: u64, seconds: Option<u64>) -> Option<Warning> {
        let (kind, text) = match slot.wal_status.as_deref() {
            Some(status @ ("unreserved" | "lost")) => (
                "wal_status",
                format!(
                    "wal_status of the slot is {status}: the server is about to give it up, or \
                     has; raise max_slot_wal_keep_size"
                ),
            ),
            status => match (reached(self.limits.warn, retained), status) {
                (Some(limit), _) => (
                    "threshold",
                    beyond(retained, "slot.retained.wal.warn.bytes", limit),
                ),
                (None, Some("extended")) => (
                    "extended",
                    "the slot holds back more wal than max_wal_size; deliver faster or raise it"
                        .to_owned(),
                ),
                (None, _) => return None,
            },
        };
        let left = |seconds| format!("{text}; at the current rate its limit is {seconds} s away");
        Some((kind, seconds.map_or(text.clone(), left)))
    }

    fn condemned(&mut self, retained: u64, ours: bool, now: Instant) -> Option<String> {
        let Some(limit) = reached(self.limits.drop, retained).filter(|_| ours) else {
            self.above = None;
            return None;
        };
        let above = match self.above {
            Some(above) if retained >= above.lowest => above,
            _ => Above {
                since: now,
                lowest: retained,
            },
        };
        self.above = Some(above);
        let waited = now.duration_since(above.since);
        (waited >= self.limits.drop_after).then(|| {
            format!(
                "{}, and had not come down for {} s",
                beyond(retained, "slot.retained.wal.drop.bytes", limit),
                waited.as_secs()
            )
        })
    }
}

fn reached(limit: Option<u64>, retained: u64) -> Option<u64> {
    limit.filter(|limit| retained >= *limit)
}

fn beyond(retained: u64, property: &str, limit: u64) -> String {
    format!("the slot holds back {retained} bytes of wal ({property} is {limit})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(retained: u64) -> SlotState {
        SlotState {
            retained_bytes: Some(retained),
            wal_status: Some("reserved".to_owned()),
            ..SlotState::default()
        }
    }

    fn limits() -> SlotGuard {
        SlotGuard {
            warn: Some(100),
            unready: Some(200),
            drop: Some(300),
            drop_after: Duration::from_secs(10),
        }
    }

    struct Watch {
        judge: Judge,
        began: Instant,
    }

    impl Watch {
        fn new(limits: SlotGuard) -> Self {
            Self {
                judge: Judge::new(limits),
                began: Instant::now(),
            }
        }

        fn at(&mut self, seconds: u64, slot: &SlotState) -> Verdict {
            let now = self.began + Duration::from_secs(seconds);
            self.judge.look(Some(slot), true, now)
        }
    }

    #[test]
    fn each_threshold_has_its_own_action_and_nothing_is_done_below() {
        let mut watch = Watch::new(limits());
        assert_eq!(watch.at(0, &slot(99)), Verdict::default());
        let verdict = watch.at(1, &slot(100));
        assert!(verdict.warning.is_some() && verdict.unready.is_none());
        let verdict = watch.at(2, &slot(200));
        assert!(verdict.unready.is_some_and(|text| text.contains("200")));
        assert_eq!(watch.at(3, &slot(299)).condemned, None);
        let mut watch = Watch::new(SlotGuard::default());
        for second in 0..100 {
            assert_eq!(watch.at(second, &slot(u64::MAX)), Verdict::default());
        }
    }

    #[test]
    fn a_slot_is_given_up_only_when_it_has_not_come_down_for_the_whole_time() {
        let mut watch = Watch::new(limits());
        for (second, retained, dropped) in [
            (0, 300, false),
            (9, 400, false),
            // Worked off, slowly: the clock begins anew with each new low.
            (10, 299, false),
            (11, 500, false),
            (20, 490, false),
            (29, 480, false),
            (38, 600, false),
            (39, 480, true),
        ] {
            let condemned = watch.at(second, &slot(retained)).condemned;
            assert_eq!(condemned.is_some(), dropped, "second {second}");
        }
    }

    #[test]
    fn a_slot_that_others_use_or_the_server_gave_up_is_left_alone() {
        let mut watch = Watch::new(SlotGuard {
            drop_after: Duration::ZERO,
            ..limits()
        });
        let now = watch.began;
        assert_eq!(
            watch.judge.look(Some(&slot(900)), false, now).condemned,
            None
        );
        assert_eq!(watch.judge.look(None, true, now), Verdict::default());
        let lost = SlotState {
            retained_bytes: None,
            ..slot(0)
        };
        assert_eq!(watch.at(0, &lost).condemned, None);
        assert!(watch.at(0, &slot(900)).condemned.is_some());
    }

    #[test]
    fn the_time_left_follows_the_rate_and_is_unknown_without_growth_or_limit() {
        let mut watch = Watch::new(limits());
        assert_eq!(
            watch.at(0, &slot(100)).seconds_to_limit,
            None,
            "no rate yet"
        );
        assert_eq!(watch.at(10, &slot(100)).seconds_to_limit, None, "no growth");
        // 100 bytes in 20 s, 100 bytes below the threshold at which it is dropped.
        assert_eq!(watch.at(20, &slot(200)).seconds_to_limit, Some(20));
        let of_the_server = SlotState {
            safe_wal_size: Some(50),
            ..slot(200)
        };
        assert_eq!(watch.at(20, &of_the_server).seconds_to_limit, Some(10));
        // The window moves on: what was long ago does not count.
        assert_eq!(watch.at(100, &slot(200)).seconds_to_limit, None);
        let mut watch = Watch::new(SlotGuard::default());
        watch.at(0, &slot(100));
        assert_eq!(watch.at(10, &slot(200)).seconds_to_limit, None, "no limit");
    }

    #[test]
    fn what_the_server_says_of_the_slot_is_passed_on() {
        let mut watch = Watch::new(SlotGuard::default());
        for (status, said) in [
            ("reserved", ""),
            ("extended", "max_wal_size"),
            ("unreserved", "max_slot_wal_keep_size"),
        ] {
            let slot = SlotState {
                wal_status: Some(status.to_owned()),
                ..slot(1)
            };
            let (_, warning) = watch.at(0, &slot).warning.unwrap_or_default();
            assert!(warning.contains(said) && warning.is_empty() == said.is_empty());
        }
    }
}
