//! The doors of the module: what is borrowed, what is dropped, what an error says.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Dropped, Notices, Outbox, Outcome};
use crate::config::{self, InvalidOp};
use crate::error::{Class, Failure};
use crate::lsn::{CommitInfo, Lsn};
use crate::source::row::{
    Change, Column, ColumnFacts, LogicalMessage, Operation, PgType, PgTypeKind, Relation, Span,
    TableFacts, Tuple,
};

const COLUMNS: [(&str, &str); 6] = [
    ("id", "uuid"),
    ("aggregatetype", "varchar"),
    ("aggregateid", "varchar"),
    ("payload", "jsonb"),
    ("p", "int4"),
    ("n", "numeric"),
];

fn outbox(more: &[(&str, &str)]) -> Outbox {
    let base = [
        ("name", "orders"),
        (
            "connector.class",
            "io.debezium.connector.postgresql.PostgresConnector",
        ),
        ("plugin.name", "pgoutput"),
        ("database.hostname", "localhost"),
        ("database.dbname", "orders"),
        ("database.user", "orders"),
        ("database.password", "secret"),
        ("table.include.list", "public.outbox"),
        (
            "key.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        ),
        (
            "value.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        ),
        ("transforms", "outbox"),
        (
            "transforms.outbox.type",
            "io.debezium.transforms.outbox.EventRouter",
        ),
    ];
    let pairs = base
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let worker = config::WorkerPairs(vec![(
        "bootstrap.servers".to_owned(),
        "localhost:9092".to_owned(),
    )]);
    let connector = config::connector_from_pairs("test", pairs, &worker).unwrap();
    Outbox::new(&connector, "run")
}

fn relation() -> Arc<Relation> {
    Arc::new(Relation {
        oid: 7,
        schema: "public".to_owned(),
        table: "outbox".to_owned(),
        replica_identity: b'd',
        columns: COLUMNS
            .iter()
            .map(|(name, _)| Column {
                name: (*name).to_owned(),
                key: *name == "id",
                type_oid: 0,
                type_modifier: -1,
            })
            .collect(),
    })
}

fn facts() -> TableFacts {
    TableFacts {
        columns: COLUMNS
            .iter()
            .map(|(name, pg_type)| ColumnFacts {
                pg_type: Arc::new(PgType {
                    oid: 0,
                    schema: "pg_catalog".to_owned(),
                    name: (*pg_type).to_owned(),
                    kind: PgTypeKind::Base,
                }),
                not_null: *name == "id",
                key: (*name == "id").then_some(0),
                default: None,
            })
            .collect(),
    }
}

/// A row of the table; NULL for what is not given.
fn row(cells: &[&str]) -> (Vec<u8>, Vec<Span>) {
    let mut bytes = Vec::new();
    let mut spans = Vec::new();
    for cell in cells {
        let start = u32::try_from(bytes.len()).unwrap();
        bytes.extend(cell.as_bytes());
        let end = u32::try_from(bytes.len()).unwrap();
        spans.push(Span::Text { start, end });
    }
    spans.resize(COLUMNS.len(), Span::Null);
    (bytes, spans)
}

fn change<'a>(relation: &'a Arc<Relation>, operation: Operation<'a>) -> Change<'a> {
    Change {
        relation,
        operation,
        lsn: Lsn::new(0x10).unwrap(),
        commit: Some(CommitInfo {
            xid: 1,
            time_us: 1_700_000_000_123_456,
        }),
    }
}

const ROW: [&str; 4] = ["id-1", "Order", "key-1", "{\"n\": 1}"];

#[test]
fn a_plain_record_is_slices_of_the_row() {
    let mut outbox = outbox(&[(
        "transforms.outbox.table.fields.additional.placement",
        "aggregatetype:header:t",
    )]);
    let relation = relation();
    outbox.bind(&relation, &facts()).unwrap();
    let (bytes, spans) = row(&ROW);
    let new = Tuple::new(&bytes, &spans);
    let change = change(&relation, Operation::Insert { new });
    let Ok(Outcome::Record(record)) = outbox.route(&change, 5) else {
        panic!("a record was expected")
    };
    assert!(matches!(record.topic, Cow::Borrowed("outbox.event.Order")));
    assert!(matches!(record.key, Some(Cow::Borrowed(b"key-1"))));
    assert!(matches!(record.value, Some(Cow::Borrowed(b"{\"n\": 1}"))));
    assert!(!record.headers.spilled());
    assert!(record.headers.iter().all(|header| {
        matches!(
            (&header.name, &header.value),
            (Cow::Borrowed(_), Some(Cow::Borrowed(_)))
        )
    }));
    assert_eq!(record.timestamp_ms, Some(1_700_000_000_123));
}

#[test]
fn only_inserted_rows_are_events() {
    let mut outbox = outbox(&[("transforms.outbox.table.op.invalid.behavior", "error")]);
    let relation = relation();
    outbox.bind(&relation, &facts()).unwrap();
    let (bytes, spans) = row(&ROW);
    let new = Tuple::new(&bytes, &spans);
    for (operation, expected) in [
        (
            Operation::Update { old: None, new },
            Dropped::Update(InvalidOp::Error),
        ),
        (Operation::Delete, Dropped::Delete),
        (Operation::Truncate, Dropped::Truncate),
    ] {
        match outbox.route(&change(&relation, operation), 5) {
            Ok(Outcome::Dropped(dropped)) => assert_eq!(dropped, expected),
            other => panic!("{operation:?} became {other:?}"),
        }
    }
}

#[test]
fn an_update_of_the_key_is_a_new_event_that_names_the_old_key() {
    let mut outbox = outbox(&[]);
    let relation = relation();
    outbox.bind(&relation, &facts()).unwrap();
    let ((old_bytes, old_spans), (bytes, spans)) = (row(&["id-0"]), row(&ROW));
    let operation = Operation::Update {
        old: Some(Tuple::new(&old_bytes, &old_spans)),
        new: Tuple::new(&bytes, &spans),
    };
    let Ok(Outcome::Record(record)) = outbox.route(&change(&relation, operation), 5) else {
        panic!("a record was expected")
    };
    let names: Vec<&str> = record.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["__debezium.oldkey", "id"]);
    assert_eq!(
        record.headers[0].value.as_deref(),
        Some(&b"{\"id\":\"id-0\"}"[..])
    );
}

#[test]
fn poison_names_the_event_and_hides_its_content() {
    let mut outbox = outbox(&[(
        "transforms.outbox.table.fields.additional.placement",
        "p:partition",
    )]);
    let relation = relation();
    outbox.bind(&relation, &facts()).unwrap();
    let cells = ["id-1", "Order", "secret-key", "secret-payload", "-7"];
    let (bytes, spans) = row(&cells);
    let new = Tuple::new(&bytes, &spans);
    let poison = outbox
        .route(&change(&relation, Operation::Insert { new }), 5)
        .unwrap_err();
    let text = poison.to_string();
    assert!(text.starts_with("route event \"id-1\" of table public.outbox at 0/10: "));
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(Failure::from(poison).class(), Class::Poison);
}

#[test]
fn what_is_published_as_null_is_noticed() {
    let mut outbox = outbox(&[
        (
            "transforms.outbox.table.fields.additional.placement",
            "n:header",
        ),
        ("event.converting.failure.handling.mode", "warn"),
    ]);
    let relation = relation();
    outbox.bind(&relation, &facts()).unwrap();
    let (bytes, spans) = row(&["id-1", "Order", "key-1", "{}", "1", "NaN"]);
    let new = Tuple::new(&bytes, &spans);
    assert!(matches!(
        outbox.route(&change(&relation, Operation::Insert { new }), 5),
        Ok(Outcome::Record(_))
    ));
    let notices = outbox.take_notices();
    assert_eq!(notices.kept.len(), 1);
    assert_eq!(&*notices.kept[0].column, "n");
    assert_eq!(notices.kept[0].event_id.as_deref(), Some("id-1"));
    assert_eq!(outbox.take_notices(), Notices::default());
}

#[test]
fn a_table_is_read_as_it_was_last_described() {
    let mut outbox = outbox(&[]);
    outbox.bind(&relation(), &facts()).unwrap();
    let (mut changed, mut facts) = ((*relation()).clone(), facts());
    changed.columns.swap(2, 3);
    facts.columns.swap(2, 3);
    let relation = Arc::new(changed);
    outbox.bind(&relation, &facts).unwrap();
    let (bytes, spans) = row(&["id-1", "Order", "{}", "key-1"]);
    let new = Tuple::new(&bytes, &spans);
    let Ok(Outcome::Record(record)) =
        outbox.route(&change(&relation, Operation::Insert { new }), 5)
    else {
        panic!("a record was expected")
    };
    assert_eq!(record.key.as_deref(), Some(&b"key-1"[..]));
}

#[test]
fn rows_and_facts_that_do_not_belong_together_are_refused() {
    let mut outbox = outbox(&[]);
    let relation = relation();
    let short = TableFacts {
        columns: Vec::new(),
    };
    assert_eq!(
        outbox.bind(&relation, &short).unwrap_err().class(),
        Class::Internal
    );
    assert!(
        outbox
            .route(&change(&relation, Operation::Delete), 5)
            .is_err()
    );
}

#[test]
fn a_message_that_nobody_decodes_is_not_routed() {
    let mut outbox = outbox(&[("message.prefix.include.list", "outbox")]);
    let mut message = LogicalMessage {
        transactional: true,
        prefix: "other",
        content: b"{}",
        lsn: Lsn::new(1).unwrap(),
        commit: None,
    };
    for (prefix, expected) in [("other", Dropped::Prefix), ("outbox", Dropped::NotRouted)] {
        message.prefix = prefix;
        match outbox.message(&message, 5) {
            Ok(Outcome::Dropped(dropped)) => assert_eq!(dropped, expected),
            other => panic!("{prefix} became {other:?}"),
        }
    }
}
