use proptest::prelude::*;

use super::*;
use crate::source::row::Tuple;

fn relation(columns: usize) -> Relation {
    Relation {
        oid: 16_384,
        schema: "public".to_owned(),
        table: "outbox".to_owned(),
        replica_identity: b'd',
        columns: (0..columns)
            .map(|at| Column {
                name: format!("c{at}"),
                key: at == 0,
                type_oid: 25,
                type_modifier: -1,
            })
            .collect(),
    }
}

fn letter(body: Body) -> Letter {
    Letter {
        connector: "orders".to_owned(),
        cause: Cause::Poison,
        stage: Stage::Transformation,
        reason: "column \"aggregatetype\": the routing value is NULL".to_owned(),
        event_id: Some("4711".to_owned()),
        aggregate: Some(b"k".to_vec()),
        lsn: "16/B374D848".parse().unwrap(),
        after: "16/B374D000".parse().unwrap(),
        commit: Some(CommitInfo {
            xid: 7,
            time_us: -1,
        }),
        body,
    }
}

fn kept(cells: &[Option<Option<Vec<u8>>>]) -> Kept {
    let mut row = Kept::default();
    for cell in cells {
        row.push(match cell {
            None => Cell::Unchanged,
            Some(None) => Cell::Null,
            Some(Some(text)) => Cell::Text(text),
        });
    }
    row
}

fn all_cells(row: Tuple<'_>) -> Vec<Cell<'_>> {
    (0..row.len()).map(|at| row.cell(at)).collect()
}

#[test]
fn a_row_reads_as_json_and_back() {
    let cells = [
        Some(Some(b"{\"n\": 1}".to_vec())),
        Some(None),
        Some(Some(vec![0xff, 0])),
        None,
    ];
    let letter = letter(Body::Row {
        operation: RowOperation::Insert,
        relation: relation(4),
        new: Some(kept(&cells)),
        old: None,
    });
    let document = letter.encode();
    let seen: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(
        seen["row"],
        json!({"c0": "{\"n\": 1}", "c1": null, "c2": {"base64": "/wA="}, "c3": {"unchanged": true}})
    );
    assert_eq!(seen["lsn"], "16/B374D848");
    assert_eq!(seen["columns"][0]["type_oid"], 25);
    assert_eq!(Letter::decode(&document), Ok(letter));
}

#[test]
fn the_same_event_has_the_same_name_and_another_has_another() {
    let row = |lsn: &str, operation, text: &[u8]| {
        let mut letter = letter(Body::Row {
            operation,
            relation: relation(1),
            new: Some(kept(&[Some(Some(text.to_vec()))])),
            old: None,
        });
        letter.lsn = lsn.parse().unwrap();
        letter.id()
    };
    let one = row("0/10", RowOperation::Insert, b"a");
    assert_eq!(row("0/10", RowOperation::Insert, b"a"), one);
    assert_ne!(row("0/11", RowOperation::Insert, b"a"), one);
    assert_ne!(row("0/10", RowOperation::Insert, b"b"), one);
    assert_eq!(
        row("0/10", RowOperation::Read, b"a"),
        row("0/11", RowOperation::Read, b"a"),
        "a snapshot taken again"
    );
    assert_eq!(one.to_string().parse(), Ok(one));
}

#[test]
fn headers_name_event_table_position_and_error_in_connects_words() {
    let letter = letter(Body::Row {
        operation: RowOperation::Insert,
        relation: relation(1),
        new: Some(kept(&[Some(Some(b"planted".to_vec()))])),
        old: None,
    });
    let record = letter.record("dlq", Some("orders.public.outbox"), 5);
    let header = |name: &str| {
        let header = record.headers.iter().find(|header| header.name == name)?;
        Some(String::from_utf8(header.value.clone()?.into_owned()).unwrap())
    };
    for (name, value) in [
        ("id", "4711"),
        ("__connect.errors.topic", "orders.public.outbox"),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "97500059720"),
        ("__connect.errors.connector.name", "orders"),
        ("__connect.errors.task.id", "0"),
        ("__connect.errors.stage", "TRANSFORMATION"),
        (
            "__connect.errors.class.name",
            "io.debezium.transforms.outbox.EventRouter",
        ),
        (
            "__connect.errors.exception.class.name",
            "org.apache.kafka.connect.errors.DataException",
        ),
        ("__connect.errors.exception.message", &letter.reason),
        ("__walpost.errors.lsn", "16/B374D848"),
        ("__walpost.errors.event.id", "4711"),
        ("__walpost.errors.table", "public.outbox"),
        ("__walpost.errors.cause", "poison"),
    ] {
        assert_eq!(header(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(record.key.as_deref(), Some(b"k".as_slice()));
    assert!(header("__connect.errors.exception.stacktrace").is_some());
    let bare = letter.record("dlq", None, 5);
    let connects = |record: &crate::record::Record<'_>| {
        let mut names = record.headers.iter().map(|header| header.name.clone());
        names.any(|name| name.starts_with("__connect."))
    };
    assert!(connects(&record) && !connects(&bare));
}

#[test]
fn what_is_no_letter_is_refused_by_member() {
    assert_eq!(Letter::decode(b"[]"), Err(Unreadable("version")));
    assert_eq!(
        Letter::decode(b"{\"version\": 2}"),
        Err(Unreadable("version"))
    );
    assert_eq!(
        Letter::decode(b"{\"version\": 1}"),
        Err(Unreadable("commit"))
    );
}

proptest! {
    #[test]
    fn every_row_survives(
        cells in proptest::collection::vec(
            proptest::option::weighted(0.9, proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 0..40))),
            0..8,
        ),
        old in any::<bool>(),
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
        reason in ".*",
    ) {
        let row = kept(&cells);
        let mut letter = letter(Body::Row {
            operation: RowOperation::Update,
            relation: relation(cells.len()),
            old: old.then(|| row.clone()),
            new: Some(row.clone()),
        });
        letter.aggregate = key;
        letter.reason = reason;
        let read = Letter::decode(&letter.encode()).unwrap();
        prop_assert_eq!(read.id(), letter.id());
        prop_assert_eq!(&read, &letter);
        let Body::Row { new: Some(new), .. } = &read.body else { panic!("a row") };
        prop_assert_eq!(all_cells(new.tuple()), all_cells(row.tuple()));
    }

    #[test]
    fn every_message_survives(content in proptest::collection::vec(any::<u8>(), 0..60), prefix in ".*") {
        let letter = letter(Body::Message { transactional: true, prefix, content });
        prop_assert_eq!(Letter::decode(&letter.encode()).unwrap(), letter);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Letter::decode(&bytes);
    }
}
