use super::*;
use crate::error::Class;

fn lsn(raw: u64) -> Lsn {
    Lsn::new(raw).unwrap()
}

fn identity() -> OffsetIdentity {
    OffsetIdentity {
        system_id: "700".to_owned(),
        timeline: 2,
        slot: "orders".to_owned(),
        database: "shop".to_owned(),
    }
}

fn stored(raw: u64) -> StoredOffset {
    StoredOffset {
        position: Some(ResumePoint::restored(lsn(raw), None)),
        partial: None,
        identity: Some(identity()),
        snapshot: SnapshotState::None,
    }
}

fn slot(confirmed: u64) -> SlotFacts {
    SlotFacts {
        plugin: Some("pgoutput".to_owned()),
        database: Some("shop".to_owned()),
        holder: None,
        confirmed: Lsn::new(confirmed),
        wal_status: Some("reserved".to_owned()),
        invalidation_reason: None,
    }
}

fn server() -> ServerFacts {
    ServerFacts {
        system_id: "700".to_owned(),
        timeline: 2,
        database: "shop".to_owned(),
        wal_position: lsn(0x1000),
        past_timelines: Vec::new(),
    }
}

fn policy() -> Policy {
    Policy {
        connector: "c".to_owned(),
        slot: "orders".to_owned(),
        snapshot: SnapshotMode::Initial,
        over_existing_slot: false,
        mismatch: OffsetMismatch::Stop,
        starting: true,
    }
}

fn with_mode(snapshot: SnapshotMode) -> Policy {
    Policy {
        snapshot,
        ..policy()
    }
}

fn with_strategy(mismatch: OffsetMismatch) -> Policy {
    Policy {
        mismatch,
        ..policy()
    }
}

#[track_caller]
fn gap(decision: Decision, words: &[&str]) {
    let Decision::Stop(failure) = decision else {
        panic!("went on: {decision:?}");
    };
    assert_eq!(failure.class(), Class::Gap, "{failure}");
    let text = failure.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[track_caller]
fn resumes(decision: Decision, at: u64, advance: Option<u64>) {
    match decision {
        Decision::Resume {
            at: point,
            advance_slot_to,
            ..
        } => {
            assert_eq!(point.lsn(), lsn(at));
            assert_eq!(advance_slot_to, advance.map(lsn));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_stored_and_no_slot_creates() {
    for (mode, expected) in [
        (SnapshotMode::Initial, true),
        (SnapshotMode::InitialOnly, true),
        (SnapshotMode::WhenNeeded, true),
        (SnapshotMode::NoData, false),
    ] {
        match decide(None, None, &server(), &with_mode(mode)) {
            Decision::Create { snapshot } => assert_eq!(snapshot, expected, "{mode:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_stored_passes_over_the_slot_when_asked_to() {
    for (mode, expected) in [
        (SnapshotMode::Initial, true),
        (SnapshotMode::WhenNeeded, true),
        (SnapshotMode::NoData, false),
    ] {
        let policy = Policy {
            over_existing_slot: true,
            ..with_mode(mode)
        };
        let decision = decide(None, Some(&slot(0x500)), &server(), &policy);
        let passes = matches!(
            decision,
            Decision::SnapshotAgain {
                slot: SlotFate::PassOver,
                ..
            }
        );
        assert_eq!(passes, expected, "{decision:?}");
    }
}

#[test]
fn in_mode_always_each_start_takes_the_existing_rows_first() {
    let always = with_mode(SnapshotMode::Always);
    for (stored, from) in [(None, 0x500), (Some(stored(0x600)), 0x600)] {
        match decide(stored.as_ref(), Some(&slot(0x500)), &server(), &always) {
            Decision::SnapshotAgain {
                slot: SlotFate::Keep(at),
                ..
            } => assert_eq!(at, lsn(from)),
            other => panic!("{other:?}"),
        }
    }
    let lost = decide(Some(&stored(0x600)), None, &server(), &always);
    assert!(matches!(lost, Decision::SnapshotAgain { .. }), "{lost:?}");
    // A connection that was lost is no start.
    let returning = Policy {
        starting: false,
        ..always
    };
    let decision = decide(
        Some(&stored(0x600)),
        Some(&slot(0x500)),
        &server(),
        &returning,
    );
    resumes(decision, 0x600, None);
    gap(
        decide(Some(&stored(0x600)), None, &server(), &returning),
        &["gone"],
    );
}

#[test]
fn nothing_stored_adopts_the_slot() {
    for mode in [
        SnapshotMode::Initial,
        SnapshotMode::NoData,
        SnapshotMode::WhenNeeded,
    ] {
        match decide(None, Some(&slot(0x500)), &server(), &with_mode(mode)) {
            Decision::Adopt { at } => assert_eq!(at, ResumePoint::slot_start(lsn(0x500))),
            other => panic!("{other:?}"),
        }
    }
    let only = with_mode(SnapshotMode::InitialOnly);
    assert!(matches!(
        decide(None, Some(&slot(0x500)), &server(), &only),
        Decision::Stop(failure) if failure.class() == Class::Config
    ));
}

#[test]
fn nothing_stored_and_an_invalidated_slot_is_a_gap() {
    let lost = SlotFacts {
        wal_status: Some("lost".to_owned()),
        ..slot(0x500)
    };
    gap(
        decide(None, Some(&lost), &server(), &policy()),
        &["invalidated", "no position", "0/1000"],
    );
}

#[test]
fn the_slot_is_gone() {
    gap(
        decide(Some(&stored(0x500)), None, &server(), &policy()),
        &["gone", "0/500", "0/1000", "2816 bytes", "when_needed"],
    );
}

#[test]
fn the_slot_is_at_or_before_the_position() {
    for confirmed in [0x500, 0x400] {
        let decision = decide(
            Some(&stored(0x500)),
            Some(&slot(confirmed)),
            &server(),
            &policy(),
        );
        resumes(decision, 0x500, None);
    }
}

#[test]
fn the_slot_is_ahead() {
    let ahead = |strategy| {
        decide(
            Some(&stored(0x500)),
            Some(&slot(0x600)),
            &server(),
            &with_strategy(strategy),
        )
    };
    gap(
        ahead(OffsetMismatch::Stop),
        &["0/500", "0/600", "256 bytes", "trust_slot"],
    );
    gap(ahead(OffsetMismatch::TrustOffset), &["0/500", "0/600"]);
    resumes(ahead(OffsetMismatch::NoValidation), 0x500, None);
    resumes(ahead(OffsetMismatch::TrustSlot), 0x600, None);
    resumes(ahead(OffsetMismatch::TrustGreaterLsn), 0x600, None);
}

#[test]
fn the_slot_is_behind_and_strategies_move_it() {
    let behind = |strategy| {
        decide(
            Some(&stored(0x500)),
            Some(&slot(0x400)),
            &server(),
            &with_strategy(strategy),
        )
    };
    resumes(behind(OffsetMismatch::Stop), 0x500, None);
    resumes(behind(OffsetMismatch::NoValidation), 0x500, None);
    resumes(behind(OffsetMismatch::TrustSlot), 0x500, None);
    resumes(behind(OffsetMismatch::TrustOffset), 0x500, Some(0x500));
    resumes(behind(OffsetMismatch::TrustGreaterLsn), 0x500, Some(0x500));
}

#[test]
fn the_slot_was_invalidated() {
    let lost = SlotFacts {
        wal_status: Some("lost".to_owned()),
        confirmed: None,
        ..slot(0x500)
    };
    let idle = SlotFacts {
        invalidation_reason: Some("idle_timeout".to_owned()),
        ..slot(0x500)
    };
    for strategy in [OffsetMismatch::Stop, OffsetMismatch::TrustSlot] {
        let policy = with_strategy(strategy);
        gap(
            decide(Some(&stored(0x500)), Some(&lost), &server(), &policy),
            &["lost", "max_slot_wal_keep_size"],
        );
        gap(
            decide(Some(&stored(0x500)), Some(&idle), &server(), &policy),
            &["idle_timeout"],
        );
    }
}

#[test]
fn the_position_lies_beyond_the_server() {
    gap(
        decide(
            Some(&stored(0x1001)),
            Some(&slot(0x500)),
            &server(),
            &policy(),
        ),
        &["0/1001", "0/1000", "1 bytes", "promoted"],
    );
}

#[test]
fn the_server_was_promoted_before_the_position() {
    let promoted = ServerFacts {
        timeline: 3,
        past_timelines: vec![(1, lsn(0x100)), (2, lsn(0x450))],
        ..server()
    };
    gap(
        decide(
            Some(&stored(0x500)),
            Some(&slot(0x400)),
            &promoted,
            &policy(),
        ),
        &["0/500", "0/450"],
    );
    let later = ServerFacts {
        past_timelines: vec![(1, lsn(0x100)), (2, lsn(0x600))],
        ..promoted
    };
    let decision = decide(Some(&stored(0x500)), Some(&slot(0x400)), &later, &policy());
    resumes(decision, 0x500, None);
}

#[test]
fn the_position_belongs_elsewhere() {
    let other = |change: fn(&mut OffsetIdentity)| {
        let mut stored = stored(0x500);
        change(stored.identity.as_mut().unwrap());
        // Even a snapshot on demand must not publish another database's rows unasked.
        let policy = with_mode(SnapshotMode::WhenNeeded);
        decide(Some(&stored), Some(&slot(0x500)), &server(), &policy)
    };
    gap(other(|id| id.system_id = "9".to_owned()), &["700", "9"]);
    gap(other(|id| id.database = "x".to_owned()), &["shop"]);
    gap(other(|id| id.slot = "x".to_owned()), &["orders"]);
    gap(other(|id| id.timeline = 3), &["timeline"]);
    // The slot went with the database that the file named before.
    let mut of_another = stored(0x500);
    of_another.identity.as_mut().unwrap().database = "x".to_owned();
    let there = SlotFacts {
        database: Some("x".to_owned()),
        ..slot(0x500)
    };
    let decision = decide(Some(&of_another), Some(&there), &server(), &policy());
    gap(decision, &["offsets reset", "shop"]);
}

#[test]
fn a_position_without_identity_is_taken() {
    let debezium = StoredOffset {
        identity: None,
        ..stored(0x500)
    };
    let decision = decide(Some(&debezium), Some(&slot(0x500)), &server(), &policy());
    resumes(decision, 0x500, None);
}

#[test]
fn a_slot_in_use_is_waited_for_whatever_is_stored() {
    let taken = SlotFacts {
        holder: Some("pid 42".to_owned()),
        ..slot(0x600)
    };
    for stored in [None, Some(stored(0x500)), Some(stored(0x2000))] {
        match decide(stored.as_ref(), Some(&taken), &server(), &policy()) {
            Decision::Wait { holder } => assert_eq!(holder, "pid 42"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_slot_of_another_kind_is_a_configuration_error() {
    for wrong in [
        SlotFacts {
            plugin: Some("wal2json".to_owned()),
            ..slot(0x500)
        },
        SlotFacts {
            plugin: None,
            database: None,
            ..slot(0x500)
        },
        SlotFacts {
            database: Some("other".to_owned()),
            ..slot(0x500)
        },
    ] {
        match decide(None, Some(&wrong), &server(), &policy()) {
            Decision::Stop(failure) => assert_eq!(failure.class(), Class::Config),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn when_needed_fills_a_gap_with_a_snapshot() {
    let policy = with_mode(SnapshotMode::WhenNeeded);
    let lost = SlotFacts {
        wal_status: Some("lost".to_owned()),
        ..slot(0x500)
    };
    let keep = |raw| SlotFate::Keep(lsn(raw));
    for (stored, slot, expected) in [
        (Some(stored(0x500)), None, SlotFate::Create),
        (Some(stored(0x500)), Some(slot(0x600)), keep(0x600)),
        (Some(stored(0x500)), Some(lost.clone()), SlotFate::Replace),
        (Some(stored(0x2000)), Some(slot(0x500)), keep(0x500)),
        (None, Some(lost), SlotFate::Replace),
    ] {
        match decide(stored.as_ref(), slot.as_ref(), &server(), &policy) {
            Decision::SnapshotAgain { slot, .. } => assert_eq!(slot, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_unfinished_snapshot_starts_again() {
    let unfinished = StoredOffset {
        position: None,
        snapshot: SnapshotState::Unfinished,
        ..stored(1)
    };
    let half_made = SlotFacts {
        confirmed: None,
        ..slot(0x500)
    };
    for (slot, expected) in [
        (None, SlotFate::Create),
        (Some(slot(0x500)), SlotFate::Keep(lsn(0x500))),
        (Some(half_made), SlotFate::Replace),
    ] {
        match decide(Some(&unfinished), slot.as_ref(), &server(), &policy()) {
            Decision::SnapshotAgain { slot, .. } => assert_eq!(slot, expected),
            other => panic!("{other:?}"),
        }
    }
    let none = with_mode(SnapshotMode::NoData);
    assert!(matches!(
        decide(Some(&unfinished), Some(&slot(0x500)), &server(), &none),
        Decision::Adopt { .. }
    ));
    assert!(matches!(
        decide(Some(&unfinished), None, &server(), &none),
        Decision::Create { snapshot: false }
    ));
}

#[test]
fn initial_only_is_done_once_its_snapshot_is() {
    let only = with_mode(SnapshotMode::InitialOnly);
    assert!(matches!(
        decide(Some(&stored(0x500)), Some(&slot(0x500)), &server(), &only),
        Decision::Done
    ));
}

#[test]
fn a_transaction_delivered_in_part_is_known_at_its_own_position_only() {
    let half = StoredOffset {
        partial: Some(Partial {
            xid: Some(7),
            lsn: lsn(0x520),
            events: None,
        }),
        ..stored(0x500)
    };
    let partial = |confirmed, strategy| match decide(
        Some(&half),
        Some(&slot(confirmed)),
        &server(),
        &with_strategy(strategy),
    ) {
        Decision::Resume { partial, .. } => partial,
        other => panic!("{other:?}"),
    };
    assert_eq!(partial(0x500, OffsetMismatch::Stop), half.partial);
    assert_eq!(partial(0x600, OffsetMismatch::TrustSlot), None);
}
