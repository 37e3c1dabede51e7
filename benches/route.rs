//! Decoding and routing alone: nanoseconds and allocations a row, from the bytes of a pgoutput
//! message to the record that would go to Kafka. No socket, no broker, one thread.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends where it fails"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use walpost::config::{self, WorkerPairs};
use walpost::lsn::{CommitInfo, Lsn};
use walpost::outbox::{Outbox, Outcome};
use walpost::source::pgoutput::{self, Message};
use walpost::source::row::{
    Change, Column, ColumnFacts, Operation, PgType, PgTypeKind, Relation, Span, TableFacts, Tuple,
};

/// Different rows, so that no branch is learned by heart.
const ROWS: usize = 1000;

/// Passes over the rows in one sample, and samples.
const PASSES: usize = 20;
const SAMPLES: usize = 31;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(
    unsafe_code,
    reason = "the trait is unsafe; every call goes to the system's allocator unchanged"
)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Name, type name and type oid of a column.
type Type = (&'static str, &'static str, u32);

/// One way for a row to become a record.
struct Case {
    name: &'static str,
    properties: &'static [(&'static str, &'static str)],
    /// Columns behind the usual ones.
    further: &'static [Type],
    /// Their values.
    values: &'static [&'static str],
}

const USUAL: [Type; 5] = [
    ("id", "uuid", 2950),
    ("aggregatetype", "text", 25),
    ("aggregateid", "text", 25),
    ("type", "text", 25),
    ("payload", "jsonb", 3802),
];

const JSON: (&str, &str) = (
    "value.converter",
    "org.apache.kafka.connect.json.JsonConverter",
);

const CASES: [Case; 5] = [
    Case {
        name: "plain",
        properties: &[],
        further: &[],
        values: &[],
    },
    Case {
        name: "plain, two more headers",
        properties: &[(
            "transforms.outbox.table.fields.additional.placement",
            "type:header:eventType,aggregatetype:header:aggregate",
        )],
        further: &[],
        values: &[],
    },
    Case {
        name: "JsonConverter with schemas",
        properties: &[JSON, ("value.converter.schemas.enable", "true")],
        further: &[],
        values: &[],
    },
    Case {
        name: "expanded payload",
        properties: &[
            JSON,
            ("value.converter.schemas.enable", "false"),
            ("transforms.outbox.table.expand.json.payload", "true"),
        ],
        further: &[],
        values: &[],
    },
    Case {
        name: "20 mixed columns",
        properties: &[
            JSON,
            ("value.converter.schemas.enable", "true"),
            (
                "transforms.outbox.table.fields.additional.placement",
                "type:header:eventType,c1:envelope,c2:envelope,c3:envelope,c4:envelope,\
                 c5:envelope,c6:envelope,c7:envelope,c8:envelope,c9:envelope,c10:envelope,\
                 c11:envelope,c12:envelope,c13:envelope,c14:envelope,c15:envelope",
            ),
        ],
        further: &[
            ("c1", "int2", 21),
            ("c2", "int4", 23),
            ("c3", "int8", 20),
            ("c4", "numeric", 1700),
            ("c5", "bool", 16),
            ("c6", "text", 25),
            ("c7", "varchar", 1043),
            ("c8", "timestamptz", 1184),
            ("c9", "timestamp", 1114),
            ("c10", "date", 1082),
            ("c11", "time", 1083),
            ("c12", "uuid", 2950),
            ("c13", "jsonb", 3802),
            ("c14", "bytea", 17),
            ("c15", "float8", 701),
        ],
        values: &[
            "1234",
            "123456",
            "1234567890123",
            "1234.56",
            "t",
            "some text",
            "some more text",
            "2026-03-04 05:06:07.123456+00",
            "2026-03-04 05:06:07.123456",
            "2026-03-04",
            "05:06:07.123456",
            "00000000-0000-4000-8000-000000000001",
            "{\"a\": [1, 2, 3]}",
            "\\x0102030405",
            "1234.5",
        ],
    },
];

fn main() {
    println!(
        "{:<28} {:>10} {:>12} {:>12} {:>12}",
        "decode and route", "ns/row", "allocs/row", "row bytes", "record bytes"
    );
    for case in &CASES {
        case.run();
    }
}

/// What is measured.
struct Bench {
    outbox: Outbox,
    relation: Arc<Relation>,
    messages: Vec<Vec<u8>>,
    spans: Vec<Span>,
}

impl Case {
    fn run(&self) {
        let mut bench = self.prepare();
        let record_bytes = bench.pass() / ROWS;
        let row_bytes: usize = bench.messages.iter().map(Vec::len).sum::<usize>() / ROWS;
        let mut samples = Vec::with_capacity(SAMPLES);
        let allocated = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            for _ in 0..PASSES {
                black_box(bench.pass());
            }
            samples.push(begun.elapsed());
        }
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocated;
        samples.sort();
        let per_row = |time: Duration| time.as_secs_f64() * 1e9 / (PASSES * ROWS) as f64;
        println!(
            "{:<28} {:>10.0} {:>12.2} {row_bytes:>12} {record_bytes:>12}",
            self.name,
            per_row(samples[SAMPLES / 2]),
            allocated as f64 / (SAMPLES * PASSES * ROWS) as f64,
        );
    }

    fn prepare(&self) -> Bench {
        let columns: Vec<&Type> = USUAL.iter().chain(self.further).collect();
        let relation = Arc::new(Relation {
            oid: 16_384,
            schema: "public".to_owned(),
            table: "outbox".to_owned(),
            replica_identity: b'd',
            columns: columns
                .iter()
                .map(|(name, _, oid)| Column {
                    name: (*name).to_owned(),
                    key: *name == "id",
                    type_oid: *oid,
                    type_modifier: if *oid == 1700 { (12 << 16 | 2) + 4 } else { -1 },
                })
                .collect(),
        });
        let facts = TableFacts {
            columns: columns.iter().map(|column| facts(column)).collect(),
        };
        let mut outbox = Outbox::new(&self.connector(), "run");
        outbox.bind(&relation, &facts).unwrap();
        Bench {
            outbox,
            relation,
            messages: (0..ROWS).map(|n| self.message(n)).collect(),
            spans: Vec::new(),
        }
    }

    fn connector(&self) -> config::Connector {
        let usual = [
            ("name", "bench"),
            (
                "connector.class",
                "io.debezium.connector.postgresql.PostgresConnector",
            ),
            ("database.hostname", "localhost"),
            ("database.user", "postgres"),
            ("database.password", "secret"),
            ("database.dbname", "shop"),
            ("topic.prefix", "shop"),
            ("table.include.list", "public.outbox"),
            ("transforms", "outbox"),
            (
                "transforms.outbox.type",
                "io.debezium.transforms.outbox.EventRouter",
            ),
            (
                "key.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
        ];
        let string = [(
            "value.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        )];
        let own = self.properties.iter().any(|(name, _)| *name == string[0].0);
        let value: &[_] = if own { &[] } else { &string };
        let pairs = usual.iter().chain(value).chain(self.properties);
        let pairs = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let worker = WorkerPairs(vec![(
            "bootstrap.servers".to_owned(),
            "localhost:9092".to_owned(),
        )]);
        config::connector_from_pairs("bench", pairs, &worker).unwrap()
    }

    /// An Insert message as the server would send it.
    fn message(&self, n: usize) -> Vec<u8> {
        let note = "an ordinary note, ".repeat(7);
        let usual = [
            format!("00000000-0000-4000-8000-{n:012}"),
            "order".to_owned(),
            format!("k{n}"),
            "OrderPlaced".to_owned(),
            format!(
                "{{\"n\": {n}, \"sku\": \"A-{n}\", \"note\": \"{note}\", \"total\": 129.90, \
                 \"status\": \"placed\", \"currency\": \"EUR\", \"customer\": \"c-{n}\"}}"
            ),
        ];
        let further = self.values.iter().copied();
        let values: Vec<&str> = usual.iter().map(String::as_str).chain(further).collect();
        let mut message = vec![b'I'];
        message.extend(16_384_u32.to_be_bytes());
        message.push(b'N');
        message.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
        for value in values {
            message.push(b't');
            message.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            message.extend(value.as_bytes());
        }
        message
    }
}

fn facts((name, type_name, oid): &Type) -> ColumnFacts {
    ColumnFacts {
        pg_type: Arc::new(PgType {
            oid: *oid,
            schema: "pg_catalog".to_owned(),
            name: (*type_name).to_owned(),
            kind: PgTypeKind::Base,
        }),
        key: (*name == "id").then_some(0),
        not_null: *name == "id",
        default: None,
    }
}

impl Bench {
    /// Every row once; the bytes of all records.
    fn pass(&mut self) -> usize {
        let commit = CommitInfo {
            xid: 1,
            time_us: 1_790_000_000_000_000,
        };
        let lsn = Lsn::new(0x16_0000_0000).unwrap();
        let mut bytes = 0;
        for message in &self.messages {
            self.spans.clear();
            let Message::Insert { new_spans, .. } =
                pgoutput::parse(black_box(message), &mut self.spans).unwrap()
            else {
                unreachable!("an Insert was encoded");
            };
            let new = Tuple::new(message, &self.spans[new_spans]);
            let change = Change {
                relation: &self.relation,
                operation: Operation::Insert { new },
                lsn,
                commit: Some(commit),
            };
            let Ok(Outcome::Record(record)) = self.outbox.route(&change, 0) else {
                panic!("the row becomes a record");
            };
            bytes += record.size();
            black_box(&record);
        }
        bytes
    }
}
