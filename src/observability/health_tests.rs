use super::super::telemetry::Trouble;
use super::*;
use crate::error::Class;
use crate::lsn::Lsn;
use crate::observability::telemetry::{About, Progress, ServerSample};

fn reporter() -> (Reporter, Now) {
    let now = Now::read();
    let about = About {
        name: "orders".to_owned(),
        slot: "orders".to_owned(),
        database: "shop".to_owned(),
        offsets: "file /tmp/offsets".to_owned(),
        dead_letters: None,
    };
    (Reporter::new(about, now), now)
}

fn later(now: Now, seconds: u64) -> Now {
    Now {
        monotonic: now.monotonic + Duration::from_secs(seconds),
        unix_us: now.unix_us + i64::try_from(seconds).unwrap() * 1_000_000,
    }
}

fn at(raw: u64) -> Progress {
    let lsn = Lsn::new(raw);
    Progress {
        received: lsn,
        delivered: lsn,
        stored: lsn,
        confirmed: lsn,
        ..Progress::default()
    }
}

fn retrying(seconds: u64) -> State {
    State::Retrying {
        error: "connect to db:5432".to_owned(),
        attempt: 3,
        next_in: Duration::from_secs(seconds),
    }
}

#[test]
fn kafka_or_postgres_being_away_is_live_but_not_ready() {
    let (reporter, now) = reporter();
    reporter.board().state(retrying(20), now);
    assert!(not_live(&reporter, later(now, 59)).is_empty());
    let reasons = not_ready(&reporter, later(now, 5));
    assert_eq!(reasons, ["waiting for attempt 3 after: connect to db:5432"]);
}

#[test]
fn a_loop_without_beat_is_not_live_and_a_long_wait_is_no_silence() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    assert!(not_live(&reporter, later(now, 60)).is_empty());
    assert_eq!(not_live(&reporter, later(now, 61)).len(), 1);
    reporter.board().state(retrying(300), now);
    assert!(not_live(&reporter, later(now, 300)).is_empty());
    assert_eq!(not_live(&reporter, later(now, 361)).len(), 1);
}

#[test]
fn starting_is_not_ready_streaming_and_standby_are_stopping_is_not() {
    let (reporter, now) = reporter();
    assert!(!not_ready(&reporter, now).is_empty());
    let standby = State::Standby {
        holder: "pid 7".to_owned(),
    };
    for state in [State::Streaming, State::Snapshotting, standby] {
        reporter.board().state(state, now);
        assert!(not_ready(&reporter, now).is_empty());
    }
    reporter.board().state(State::Stopping, now);
    assert_eq!(not_ready(&reporter, now), ["stopping"]);
}

#[test]
fn a_stop_on_an_error_is_live_not_ready_and_keeps_its_reason() {
    let (reporter, now) = reporter();
    let stopped = State::Stopped {
        class: Some(Class::Gap),
        error: Some("the slot is gone".to_owned()),
    };
    reporter.board().state(stopped, now);
    assert!(not_live(&reporter, later(now, 3_600)).is_empty());
    assert_eq!(not_ready(&reporter, now), ["stopped: the slot is gone"]);
    assert!(!finished(&reporter));
}

#[test]
fn records_that_kafka_does_not_acknowledge_make_it_unready_and_an_acknowledgement_ready() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    let mut progress = at(1_000);
    progress.undelivered_since_us = Some(now.unix_us);
    reporter.board().progress(&progress, 0, now);
    assert!(not_ready(&reporter, later(now, 30)).is_empty());
    let reasons = not_ready(&reporter, later(now, 31));
    assert!(reasons[0].contains("acknowledgement"), "{reasons:?}");
    reporter.board().progress(&progress, 1, later(now, 32));
    assert!(not_ready(&reporter, later(now, 33)).is_empty());
}

#[test]
fn idle_is_ready_for_ever() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    reporter.board().progress(&at(1_000), 0, now);
    for step in 1..=10 {
        let now = later(now, step * 5);
        reporter.board().server(sample(1_000, now), now);
        assert!(not_ready(&reporter, now).is_empty());
    }
}

#[test]
fn a_server_ahead_of_a_silent_stream_makes_it_unready() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    reporter.board().progress(&at(1_000), 0, now);
    for step in 1..=8 {
        let now = later(now, step * 5);
        reporter
            .board()
            .server(sample(1_000 + step * 100, now), now);
    }
    let reasons = not_ready(&reporter, later(now, 40));
    assert!(reasons[0].contains("nothing has arrived"), "{reasons:?}");
}

/// Inside a transaction whose first record waits for Kafka nothing is read: the reason is Kafka.
#[test]
fn a_record_of_an_unfinished_transaction_that_waits_is_the_reason() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    let waiting = Progress {
        in_flight: true,
        ..at(1_000)
    };
    reporter.board().progress(&waiting, 0, now);
    for step in 1..=8 {
        let now = later(now, step * 5);
        reporter.board().server(sample(2_000, now), now);
        let reasons = not_ready(&reporter, now);
        assert!(
            reasons.iter().all(|text| text.contains("acknowledgement")),
            "{reasons:?}"
        );
    }
    assert!(!not_ready(&reporter, later(now, 40)).is_empty());
}

#[test]
fn a_lost_slot_makes_it_unready() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    reporter.board().progress(&at(1_000), 0, now);
    let mut told = sample(1_000, now);
    if let Some(told) = &mut told {
        told.wal_status = Some("lost".to_owned());
    }
    reporter.board().server(told, now);
    assert_eq!(not_ready(&reporter, now).len(), 1);
}

#[test]
fn a_known_trouble_makes_it_unready_until_it_is_over_or_a_new_attempt_begins() {
    let (reporter, now) = reporter();
    let trouble = || Some("the publication does not publish inserts".to_owned());
    reporter.board().state(State::Streaming, now);
    reporter.board().trouble(Trouble::Publication, trouble());
    assert_eq!(not_ready(&reporter, now), Vec::from_iter(trouble()));
    reporter.board().trouble(Trouble::Publication, None);
    assert!(not_ready(&reporter, now).is_empty());
    reporter.board().trouble(Trouble::Publication, trouble());
    reporter.board().state(State::Starting, now);
    reporter.board().state(State::Streaming, now);
    assert!(not_ready(&reporter, now).is_empty());
}

#[test]
fn saying_the_same_state_again_does_not_make_a_stall_young() {
    let (reporter, now) = reporter();
    reporter.board().state(State::Streaming, now);
    let mut progress = at(1_000);
    progress.undelivered_since_us = Some(now.unix_us);
    reporter.board().progress(&progress, 0, now);
    reporter.board().state(State::Streaming, later(now, 20));
    assert!(!not_ready(&reporter, later(now, 31)).is_empty());
}

fn sample(position: u64, now: Now) -> Option<ServerSample> {
    Some(ServerSample {
        wal_position: Lsn::new(position).unwrap(),
        clock_us: None,
        wal_status: None,
        safe_wal_size: None,
        retained_bytes: None,
        invalidation_reason: None,
        inactive_seconds: None,
        seconds_to_limit: None,
        at: now.monotonic,
    })
}
