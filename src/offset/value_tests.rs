use proptest::prelude::*;

use super::*;

fn lsn(raw: u64) -> Lsn {
    Lsn::new(raw).unwrap()
}

fn read(text: &str) -> StoredOffset {
    let value: Value = serde_json::from_str(text).unwrap();
    StoredOffset::decode(value.as_object().unwrap()).unwrap()
}

fn position(offset: &StoredOffset) -> u64 {
    offset.position.unwrap().lsn().as_u64()
}

#[test]
fn the_key_is_jacksons_byte_for_byte() {
    assert_eq!(
        key("conn", "préfix"),
        "[\"conn\",{\"server\":\"préfix\"}]".as_bytes()
    );
    assert_eq!(
        key("a\"\\/\u{1}\u{1f}\n\t\u{8}\u{c}\r\u{7f}\u{2028}", "😀"),
        "[\"a\\\"\\\\/\\u0001\\u001F\\n\\t\\b\\f\\r\u{7f}\u{2028}\",{\"server\":\"\\uD83D\\uDE00\"}]"
            .as_bytes()
    );
}

#[test]
fn keys_of_others_and_ill_formed_ones_are_told_apart() {
    let matched = |key: &[u8]| match_key(Some(key), "c", "p");
    assert_eq!(matched(br#"["c",{"server":"p"}]"#), KeyMatch::Ours);
    for other in [
        &br#"["d",{"server":"p"}]"#[..],
        br#"["c",{"server":"q"}]"#,
        br#"["c",{"server":"p","x":1}]"#,
        br#"["c",{}]"#,
    ] {
        assert_eq!(matched(other), KeyMatch::Other);
    }
    for ill in [
        &b"x"[..],
        b"{}",
        b"[]",
        br#"["c"]"#,
        br#"[1,{"server":"p"}]"#,
        br#"["c","p"]"#,
        br#"["c",{},1]"#,
    ] {
        assert_eq!(matched(ill), KeyMatch::IllFormed);
    }
    assert_eq!(match_key(None, "c", "p"), KeyMatch::IllFormed);
}

#[test]
fn the_value_is_what_debezium_stores_at_a_commit() {
    let at = ResumePoint::after_commit(
        lsn(22_275_400),
        CommitInfo {
            xid: 727,
            time_us: 1_700_000_000_123_456,
        },
    );
    let text = Value::Object(encode(at, None)).to_string();
    assert_eq!(
        text,
        r#"{"lsn_proc":22275400,"messageType":"COMMIT","lsn_commit":22275400,"lsn":22275400,"txId":727,"ts_usec":1700000000123456}"#
    );
}

#[test]
fn a_position_inside_a_transaction_keeps_what_was_delivered() {
    let offset = read(
        r#"{"transaction_id":null,"lsn_proc":22275736,"messageType":"INSERT","lsn_commit":22275400,"lsn":22275736,"txId":727,"ts_usec":1700000000123456}"#,
    );
    assert_eq!(position(&offset), 22_275_400);
    assert_eq!(
        offset.partial,
        Some(Partial {
            xid: Some(727),
            lsn: lsn(22_275_736),
            events: None
        })
    );
    assert_eq!(offset.identity, None);
    assert_eq!(offset.position.unwrap().commit(), None);
    let offset = read(
        r#"{"lsn_proc":50,"lsn_events_processed":3,"messageType":"INSERT","lsn_commit":40,"lsn":50,"txId":7,"ts_usec":1}"#,
    );
    assert_eq!(offset.partial.unwrap().events, Some(3));
    let offset = read(r#"{"lsn_proc":50,"messageType":"INSERT","lsn":50,"txId":7,"ts_usec":1}"#);
    assert_eq!(position(&offset), 50);
    assert_eq!(offset.partial.unwrap().lsn, lsn(50));
}

#[test]
fn where_nothing_of_a_transaction_was_delivered_all_of_it_comes() {
    for text in [
        r#"{"lsn_proc":50,"messageType":"COMMIT","lsn_commit":50,"lsn":50,"txId":7,"ts_usec":1}"#,
        r#"{"lsn_proc":60,"messageType":"BEGIN","lsn_commit":50,"lsn":60,"txId":7,"ts_usec":1}"#,
        r#"{"lsn_proc":50,"messageType":"MESSAGE","lsn_commit":50,"lsn":50,"ts_usec":1}"#,
        r#"{"lsn_proc":60,"lsn_commit":50,"lsn":60,"txId":7,"ts_usec":1}"#,
    ] {
        let offset = read(text);
        assert_eq!((position(&offset), offset.partial), (50, None), "{text}");
    }
}

#[test]
fn snapshots_in_each_state() {
    let offset = read(
        r#"{"last_snapshot_record":true,"lsn":3,"txId":2,"ts_usec":1,"snapshot":"INITIAL","snapshot_completed":true}"#,
    );
    assert_eq!(offset.snapshot, SnapshotState::LastRecord);
    assert_eq!((position(&offset), offset.partial), (3, None));
    for text in [
        r#"{"snapshot":true,"last_snapshot_record":false,"lsn":3}"#,
        r#"{"snapshot":"INITIAL","snapshot_completed":false,"lsn":3}"#,
        r#"{"snapshot":"INITIAL"}"#,
    ] {
        assert_eq!(read(text).snapshot, SnapshotState::Unfinished, "{text}");
    }
    let ours = StoredOffset::decode(&encode_unfinished(None)).unwrap();
    assert_eq!(ours.snapshot, SnapshotState::Unfinished);
    assert_eq!(ours.position, None);
}

#[test]
fn a_value_without_a_position_is_refused() {
    for text in [
        "{}",
        r#"{"lsn":"5"}"#,
        r#"{"lsn":0}"#,
        r#"{"lsn":5,"walpost_system_id":7}"#,
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(
            StoredOffset::decode(value.as_object().unwrap()).is_err(),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn what_we_store_we_read(raw in 1u64..i64::MAX as u64, xid: u32, time in 0i64.., slot in "[a-z]{1,9}") {
        let identity = OffsetIdentity {
            system_id: "7312345678901234567".to_owned(),
            timeline: 3,
            slot,
            database: "größe".to_owned(),
        };
        for at in [
            ResumePoint::after_commit(lsn(raw), CommitInfo { xid, time_us: time }),
            ResumePoint::idle(lsn(raw)),
        ] {
            let text = Value::Object(encode(at, Some(&identity))).to_string();
            let offset = read(&text);
            prop_assert_eq!(offset.position, Some(at));
            prop_assert_eq!(offset.partial, None);
            prop_assert_eq!(offset.identity.as_ref(), Some(&identity));
            prop_assert_eq!(offset.snapshot, SnapshotState::None);
        }
    }

    #[test]
    fn any_key_reads_back_as_ours(name in any::<String>(), prefix in any::<String>()) {
        let bytes = key(&name, &prefix);
        prop_assert_eq!(match_key(Some(&bytes), &name, &prefix), KeyMatch::Ours);
    }

    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        match_key(Some(&bytes), "c", "p");
        if let Ok(Value::Object(members)) = serde_json::from_slice(&bytes) {
            let _ = StoredOffset::decode(&members);
        }
    }
}
