//! Rows with any text in columns of every type, through the router and both converters: a record,
//! or a verdict, never a panic.
#![no_main]

use std::sync::{Arc, LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use walpost::config::{self, Connector, WorkerPairs};
use walpost::lsn::{CommitInfo, Lsn};
use walpost::outbox::Outbox;
use walpost::source::row::{
    Change, Column, ColumnFacts, Operation, PgType, PgTypeKind, Relation, Span, TableFacts, Tuple,
};

/// Name, type and its oid; those after the payload go into the envelope.
const COLUMNS: [(&str, &str, u32); 22] = [
    ("id", "text", 25),
    ("aggregatetype", "text", 25),
    ("aggregateid", "text", 25),
    ("type", "text", 25),
    ("payload", "json", 114),
    ("c1", "numeric", 1700),
    ("c2", "timestamptz", 1184),
    ("c3", "timestamp", 1114),
    ("c4", "date", 1082),
    ("c5", "time", 1083),
    ("c6", "timetz", 1266),
    ("c7", "interval", 1186),
    ("c8", "bytea", 17),
    ("c9", "int8", 20),
    ("c10", "float8", 701),
    ("c11", "bool", 16),
    ("c12", "uuid", 2950),
    ("c13", "point", 600),
    ("c14", "bit", 1560),
    ("c15", "money", 790),
    ("c16", "int4", 23),
    ("c17", "jsonb", 3802),
];

/// One router for each way to write a value, bound to the table.
struct Bench {
    relation: Arc<Relation>,
    routers: Vec<Outbox>,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| {
    let columns = COLUMNS.iter().map(|(name, _, oid)| Column {
        name: (*name).to_owned(),
        key: *name == "id",
        type_oid: *oid,
        type_modifier: -1,
    });
    let relation = Arc::new(Relation {
        oid: 1,
        schema: "public".to_owned(),
        table: "outbox".to_owned(),
        replica_identity: b'd',
        columns: columns.collect(),
    });
    let facts = COLUMNS.iter().map(|(name, type_name, oid)| ColumnFacts {
        pg_type: Arc::new(PgType {
            oid: *oid,
            schema: "pg_catalog".to_owned(),
            name: (*type_name).to_owned(),
            kind: PgTypeKind::Base,
        }),
        key: (*name == "id").then_some(0),
        not_null: false,
        default: None,
    });
    let facts = TableFacts {
        columns: facts.collect(),
    };
    let routers = ["true", "false"].map(|schemas| {
        let mut outbox = Outbox::new(&connector(schemas), "run");
        outbox.bind(&relation, &facts).expect("a table that fits");
        outbox
    });
    Mutex::new(Bench {
        relation,
        routers: routers.into(),
    })
});

fn connector(schemas: &str) -> Connector {
    let placement: Vec<String> = COLUMNS[5..]
        .iter()
        .map(|(name, _, _)| format!("{name}:envelope"))
        .collect();
    let placement = placement.join(",");
    let pairs = [
        ("name", "fuzz"),
        ("database.hostname", "localhost"),
        ("database.user", "fuzz"),
        ("database.password", "fuzz"),
        ("database.dbname", "fuzz"),
        ("table.include.list", "public.outbox"),
        ("transforms", "outbox"),
        (
            "transforms.outbox.type",
            "io.debezium.transforms.outbox.EventRouter",
        ),
        ("transforms.outbox.table.expand.json.payload", "true"),
        (
            "transforms.outbox.table.fields.additional.placement",
            &placement,
        ),
        (
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        ),
        ("value.converter.schemas.enable", schemas),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let worker = WorkerPairs(vec![own(("bootstrap.servers", "localhost:9092"))]);
    config::connector_from_pairs("fuzz", pairs.map(own).into(), &worker).expect("a valid file")
}

// The input is the columns' texts, one after the other, with a zero byte between them; a column
// that holds one byte 0xff is NULL, and so are those that are missing.
fuzz_target!(|bytes: &[u8]| {
    let mut bench = BENCH.lock().expect("no earlier panic");
    let mut spans = Vec::new();
    let mut at = 0;
    for part in bytes.split(|byte| *byte == 0).take(COLUMNS.len()) {
        let start = at as u32;
        at += part.len();
        spans.push(match part {
            [0xff] => Span::Null,
            _ => Span::Text {
                start,
                end: at as u32,
            },
        });
        at += 1;
    }
    spans.resize(COLUMNS.len(), Span::Null);
    let Bench { relation, routers } = &mut *bench;
    for outbox in routers {
        let change = Change {
            relation,
            operation: Operation::Insert {
                new: Tuple::new(bytes, &spans),
            },
            lsn: Lsn::new(1).expect("a position"),
            commit: Some(CommitInfo {
                xid: 1,
                time_us: 1_790_000_000_000_000,
            }),
        };
        let _ = outbox.route(&change, 0);
    }
});
