use super::*;

const COMMIT_US: i64 = 1_800_000_000_000_000;

/// A clock that the test moves.
struct Clock {
    start: Instant,
    elapsed: Duration,
    /// Our wall clock minus the server's.
    wrong_by_us: i64,
}

impl Clock {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            elapsed: Duration::ZERO,
            wrong_by_us: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.start + self.elapsed,
            unix_us: COMMIT_US + micros(self.elapsed) + self.wrong_by_us,
        }
    }

    fn server_us(&self) -> i64 {
        COMMIT_US + micros(self.elapsed)
    }

    fn pass(&mut self, seconds: u64) {
        self.elapsed += Duration::from_secs(seconds);
    }
}

fn lsn(raw: u64) -> Lsn {
    Lsn::new(raw).unwrap()
}

fn sample(position: u64, clock: &Clock) -> Option<ServerSample> {
    Some(ServerSample {
        wal_position: lsn(position),
        clock_us: Some(clock.server_us()),
        wal_status: Some("reserved".to_owned()),
        safe_wal_size: None,
        retained_bytes: Some(100),
        invalidation_reason: None,
        inactive_seconds: None,
        seconds_to_limit: None,
        at: clock.now().monotonic,
    })
}

/// All four stages at `position`, nothing pending.
fn idle_at(position: u64) -> Progress {
    let at = Some(lsn(position));
    Progress {
        received: at,
        delivered: at,
        stored: at,
        confirmed: at,
        ..Progress::default()
    }
}

#[test]
fn nothing_is_known_before_anything_was_told() {
    let clock = Clock::new();
    let board = Board::new(clock.now());
    for stage in Stage::ALL {
        assert_eq!(board.lag(stage, clock.now()), Lag::default());
    }
    assert!(board.server_position(clock.now()).is_none());
}

#[test]
fn idle_and_caught_up_is_zero_however_long_it_lasts() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.progress(&idle_at(1_000), 0, clock.now());
    for _ in 0..120 {
        clock.pass(5);
        board.server(sample(1_000, &clock), clock.now());
    }
    for stage in Stage::ALL {
        let lag = board.lag(stage, clock.now());
        assert_eq!((lag.bytes, lag.seconds), (Some(0), Some(0.0)), "{stage:?}");
    }
    assert_eq!(board.starved_for(clock.now()), Duration::ZERO);
}

#[test]
fn lag_rises_with_the_clock_while_kafka_is_frozen() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.server(sample(1_000, &clock), clock.now());
    let progress = Progress {
        received: Some(lsn(1_000)),
        delivered: Some(lsn(400)),
        stored: Some(lsn(400)),
        confirmed: Some(lsn(400)),
        received_commit_us: Some(clock.server_us()),
        undelivered_since_us: Some(clock.server_us()),
        unstored_since_us: Some(clock.server_us()),
        unconfirmed_since_us: Some(clock.server_us()),
        in_flight: true,
    };
    board.progress(&progress, 0, clock.now());
    clock.pass(300);
    board.server(sample(1_500, &clock), clock.now());
    let lag = board.lag(Stage::Delivered, clock.now());
    assert_eq!(lag.bytes, Some(1_100));
    assert_eq!(lag.seconds, Some(300.0));
}

#[test]
fn lag_rises_while_the_stream_is_frozen_and_nothing_is_known_to_be_pending() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.progress(&idle_at(1_000), 0, clock.now());
    board.server(sample(1_000, &clock), clock.now());
    for step in 1..=60 {
        clock.pass(5);
        board.server(sample(1_000 + step * 10, &clock), clock.now());
    }
    let lag = board.lag(Stage::Delivered, clock.now());
    assert_eq!(lag.bytes, Some(600));
    assert_eq!(lag.seconds, Some(300.0));
    assert!(board.starved_for(clock.now()) >= Duration::from_secs(290));
}

#[test]
fn a_stale_or_missing_sample_makes_lag_unknown_not_zero_and_not_the_last_value() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.progress(&idle_at(1_000), 0, clock.now());
    board.server(sample(1_000, &clock), clock.now());
    clock.pass(16);
    assert_eq!(board.lag(Stage::Confirmed, clock.now()), Lag::default());
    board.server(sample(1_000, &clock), clock.now());
    assert_eq!(board.lag(Stage::Confirmed, clock.now()).bytes, Some(0));
    board.server(None, clock.now());
    assert_eq!(board.lag(Stage::Confirmed, clock.now()), Lag::default());
}

#[test]
fn what_is_known_to_be_pending_keeps_its_age_without_a_sample() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    let progress = Progress {
        undelivered_since_us: Some(clock.server_us()),
        ..idle_at(1_000)
    };
    board.progress(&progress, 0, clock.now());
    clock.pass(42);
    let lag = board.lag(Stage::Delivered, clock.now());
    assert_eq!((lag.bytes, lag.seconds), (None, Some(42.0)));
}

#[test]
fn a_backlog_is_as_old_as_the_commits_that_arrive() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.server(sample(1_000_000, &clock), clock.now());
    let a_day_us = 86_400_000_000;
    let progress = Progress {
        received_commit_us: Some(clock.server_us() - a_day_us),
        ..idle_at(1_000)
    };
    board.progress(&progress, 0, clock.now());
    assert_eq!(
        board.lag(Stage::Received, clock.now()).seconds,
        Some(86_400.0)
    );
    clock.pass(1);
    let caught_up = Progress {
        received_commit_us: Some(clock.server_us()),
        ..idle_at(1_000_000)
    };
    board.progress(&caught_up, 0, clock.now());
    assert_eq!(board.lag(Stage::Received, clock.now()).seconds, Some(0.0));
}

#[test]
fn our_own_clock_being_wrong_changes_no_lag() {
    for wrong_by_us in [-300_000_000, 300_000_000] {
        let mut clock = Clock::new();
        clock.wrong_by_us = wrong_by_us;
        let mut board = Board::new(clock.now());
        board.server(sample(1_000, &clock), clock.now());
        let progress = Progress {
            undelivered_since_us: Some(clock.server_us()),
            ..idle_at(1_000)
        };
        board.progress(&progress, 0, clock.now());
        clock.pass(2);
        let lag = board.lag(Stage::Delivered, clock.now());
        assert_eq!(lag.seconds, Some(2.0), "off by {wrong_by_us}");
    }
}

#[test]
fn a_restart_from_the_stored_position_does_not_forget_what_was_undelivered() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    let pending_us = clock.server_us();
    let progress = Progress {
        delivered: Some(lsn(400)),
        stored: Some(lsn(400)),
        received_commit_us: Some(pending_us + 5_000_000),
        undelivered_since_us: Some(pending_us),
        unstored_since_us: Some(pending_us),
        ..idle_at(1_000)
    };
    board.progress(&progress, 0, clock.now());
    clock.pass(60);
    board.server(sample(2_000, &clock), clock.now());
    board.progress(&idle_at(400), 0, clock.now());
    let lag = board.lag(Stage::Delivered, clock.now());
    assert_eq!(lag.seconds, Some(60.0));
}

#[test]
fn a_position_newer_than_the_sample_is_not_a_negative_lag() {
    let clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.server(sample(1_000, &clock), clock.now());
    let progress = Progress {
        delivered: Some(lsn(1_100)),
        ..idle_at(1_500)
    };
    board.progress(&progress, 0, clock.now());
    assert_eq!(board.server_position(clock.now()), Some(lsn(1_500)));
    assert_eq!(board.lag(Stage::Received, clock.now()).bytes, Some(0));
    assert_eq!(board.lag(Stage::Delivered, clock.now()).bytes, Some(400));
}

#[test]
fn a_long_transaction_that_is_acknowledged_bit_by_bit_is_moving() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    let progress = Progress {
        undelivered_since_us: Some(clock.server_us()),
        ..idle_at(1_000)
    };
    for acknowledged in 1..=20 {
        board.progress(&progress, acknowledged, clock.now());
        clock.pass(10);
    }
    assert!(board.undelivered_for(clock.now()) <= Duration::from_secs(10));
    board.progress(&progress, 20, clock.now());
    clock.pass(100);
    assert!(board.undelivered_for(clock.now()) >= Duration::from_secs(100));
}

#[test]
fn a_delivered_position_that_cannot_be_stored_is_noticed() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    let progress = Progress {
        stored: Some(lsn(400)),
        ..idle_at(1_000)
    };
    board.progress(&progress, 0, clock.now());
    clock.pass(31);
    board.progress(&progress, 0, clock.now());
    assert_eq!(board.unstored_for(clock.now()), Duration::from_secs(31));
    board.progress(&idle_at(1_000), 0, clock.now());
    assert_eq!(board.unstored_for(clock.now()), Duration::ZERO);
}

#[test]
fn memory_for_a_frozen_stream_is_bounded() {
    let mut clock = Clock::new();
    let mut board = Board::new(clock.now());
    board.progress(&idle_at(1), 0, clock.now());
    for step in 0..10_000 {
        clock.pass(5);
        board.server(sample(1_000 + step, &clock), clock.now());
    }
    assert!(board.marks.len() <= MARKS_MAX);
}

proptest::proptest! {
    #[test]
    fn lag_is_never_negative_and_never_infinite(
        position in 1u64..,
        received in 1u64..,
        commit_us in proptest::prelude::any::<i64>(),
        clock_us in proptest::prelude::any::<i64>(),
    ) {
        let clock = Clock::new();
        let mut board = Board::new(clock.now());
        let mut told = sample(position, &clock);
        if let Some(told) = &mut told {
            told.clock_us = Some(clock_us);
        }
        board.server(told, clock.now());
        let progress = Progress {
            received_commit_us: Some(commit_us),
            undelivered_since_us: Some(commit_us),
            ..idle_at(received)
        };
        board.progress(&progress, 0, clock.now());
        for stage in Stage::ALL {
            if let Some(seconds) = board.lag(stage, clock.now()).seconds {
                proptest::prop_assert!(seconds.is_finite() && seconds >= 0.0);
            }
        }
    }
}
