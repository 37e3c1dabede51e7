use proptest::prelude::*;

use super::*;

fn limits(records: usize, bytes: usize) -> Limits {
    Limits {
        in_flight_records: records,
        in_flight_bytes: bytes,
    }
}

fn lsn(raw: u64) -> Lsn {
    Lsn::new(raw).unwrap()
}

fn origin(raw: u64) -> Origin {
    Origin {
        lsn: lsn(raw),
        table: TableIndex(7),
    }
}

fn end(raw: u64) -> ResumePoint {
    ResumePoint::idle(lsn(raw))
}

fn enter(tracker: &mut Tracker, raw: u64) -> usize {
    let mark = tracker.mark(origin(raw));
    tracker.entered(10);
    mark
}

#[test]
fn a_position_waits_for_its_batch_and_those_before() {
    let mut tracker = Tracker::new(limits(1000, 100_000));
    let acks = tracker.acks().clone();
    let first = enter(&mut tracker, 10);
    tracker.seal(Some(end(20)));
    let second = enter(&mut tracker, 25);
    tracker.seal(Some(end(30)));
    acks.acknowledge(second);
    assert_eq!(tracker.advance(), None);
    acks.acknowledge(first);
    assert_eq!(tracker.advance(), Some(end(30)));
    assert_eq!(tracker.advance(), None);
    assert_eq!(tracker.in_flight(), InFlight::default());
}

#[test]
fn an_idle_position_travels_behind_what_is_in_flight() {
    let mut tracker = Tracker::new(limits(1000, 100_000));
    let acks = tracker.acks().clone();
    tracker.seal(Some(end(5)));
    assert_eq!(tracker.advance(), Some(end(5)));
    let mark = enter(&mut tracker, 10);
    tracker.seal(None);
    tracker.seal(Some(end(40)));
    assert_eq!(tracker.in_flight().oldest, Some(end(40)));
    assert_eq!(tracker.advance(), None);
    acks.acknowledge(mark);
    assert_eq!(tracker.advance(), Some(end(40)));
}

#[test]
fn an_unsealed_batch_is_never_finished() {
    let mut tracker = Tracker::new(limits(1000, 100_000));
    let acks = tracker.acks().clone();
    let mark = enter(&mut tracker, 10);
    acks.acknowledge(mark);
    assert_eq!(tracker.advance(), None);
    tracker.seal(Some(end(11)));
    assert_eq!(tracker.advance(), Some(end(11)));
}

#[test]
fn a_record_that_never_entered_is_not_waited_for() {
    let mut tracker = Tracker::new(limits(1000, 100_000));
    tracker.mark(origin(10));
    tracker.seal(Some(end(11)));
    assert_eq!(tracker.advance(), Some(end(11)));
}

#[test]
fn limits_hold_and_long_batches_are_cut_so_that_room_comes_back() {
    let mut tracker = Tracker::new(limits(16, 1_000_000));
    let acks = tracker.acks().clone();
    let marks: Vec<usize> = (0..16).map(|i| enter(&mut tracker, 100 + i)).collect();
    assert!(!tracker.has_room());
    acks.acknowledge(marks[0]);
    acks.acknowledge(marks[1]);
    assert!(tracker.has_room(), "the first cut of 2 records is released");
    assert_eq!(tracker.advance(), None, "no position ended there");
}

#[test]
fn a_full_ring_loses_no_position() {
    let mut tracker = Tracker::new(limits(1_000_000, 1_000_000_000));
    let acks = tracker.acks().clone();
    let count = SLOTS as u64 + 100;
    let marks: Vec<usize> = (1..=count)
        .map(|i| {
            let mark = enter(&mut tracker, i * 10);
            tracker.seal(Some(end(i * 10 + 5)));
            mark
        })
        .collect();
    assert!(!tracker.has_room());
    for mark in marks {
        acks.acknowledge(mark);
    }
    assert_eq!(tracker.advance(), Some(end(count * 10 + 5)));
    assert_eq!(tracker.in_flight().records, 0);
}

#[test]
fn the_opaque_names_the_row() {
    let mut tracker = Tracker::new(limits(1000, 100_000));
    let acks = tracker.acks().clone();
    for raw in [1 << 40, (1 << 40) - 77, 1 << 62, 5] {
        let mark = enter(&mut tracker, raw);
        assert_eq!(acks.place(mark).unwrap().origin, origin(raw));
    }
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Enter,
    Seal(bool),
    Acknowledge(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Enter),
        2 => any::<bool>().prop_map(Step::Seal),
        4 => any::<prop::sample::Index>().prop_map(Step::Acknowledge),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// Against a model that remembers every record: never past one that waits, and to the end.
    #[test]
    fn never_passes_a_waiting_record_and_reaches_the_end(steps in steps(), cap in 1usize..64) {
        let mut tracker = Tracker::new(limits(cap, 1 << 30));
        let acks = tracker.acks().clone();
        let mut waiting: Vec<(u64, usize)> = Vec::new();
        let mut clock = 1;
        let mut last_end = None;
        let mut reached = None;
        for step in steps {
            clock += 1;
            match step {
                Step::Enter => waiting.push((clock, enter(&mut tracker, clock))),
                Step::Seal(false) => tracker.seal(None),
                Step::Seal(true) => {
                    tracker.seal(Some(end(clock)));
                    last_end = Some(end(clock));
                }
                Step::Acknowledge(index) if !waiting.is_empty() => {
                    let (_, mark) = waiting.remove(index.index(waiting.len()));
                    acks.acknowledge(mark);
                }
                Step::Acknowledge(_) => {}
            }
            if let Some(at) = tracker.advance() {
                let oldest = waiting.iter().map(|&(raw, _)| raw).min();
                prop_assert!(oldest.is_none_or(|raw| at.lsn().as_u64() < raw));
                prop_assert!(reached.is_none_or(|before: ResumePoint| before.lsn() < at.lsn()));
                reached = Some(at);
            }
        }
        for (_, mark) in waiting.drain(..) {
            acks.acknowledge(mark);
        }
        tracker.seal(None);
        reached = tracker.advance().or(reached);
        prop_assert_eq!(reached, last_end);
        prop_assert_eq!(tracker.in_flight().records, 0);
    }
}
