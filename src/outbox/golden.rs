//! The golden cases, replayed from captured rows: what Debezium wrote, byte for byte.
//!
//! `tests/golden/waiting.txt` lists cases that cannot pass here and may only shrink;
//! `tests/golden/differences.txt` lists cases that need a property of ours to ask for Debezium's way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value as Json;

use super::{Outbox, Outcome};
use crate::config::{self, Connector};
use crate::lsn::{CommitInfo, Lsn};
use crate::record::Record;
use crate::sink::murmur2;
use crate::source::row::{
    Change, Column, ColumnFacts, LogicalMessage, Operation, PgType, PgTypeKind, Relation, Span,
    TableFacts, Tuple,
};

const CASES: &str = include_str!("../../tests/golden/cases.jsonl");
const ROWS: &str = include_str!("../../tests/golden/rows.jsonl");
const OWN_CASES: &str = include_str!("../../tests/golden/own.jsonl");
const OWN_ROWS: &str = include_str!("../../tests/golden/own-rows.jsonl");
const WAITING: &str = include_str!("../../tests/golden/waiting.txt");
const DIFFERENCES: &str = include_str!("../../tests/golden/differences.txt");

/// What no replay shows, since it happens between the services. These run on the real ones only.
const NEEDS_SERVICES: [&str; 2] = [
    "publication-missing-disabled",
    "snapshot-initial-existing-slot",
];

/// The wall clock of the replay.
const NOW_MS: i64 = 1_900_000_000_000;

/// A record as the file has it.
#[derive(Debug, PartialEq)]
struct Written {
    topic: String,
    partition: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: Option<i64>,
}

/// What a replay came to.
#[derive(Debug)]
struct Replay {
    records: Vec<Written>,
    /// Why it stopped, if it did.
    failure: Option<String>,
}

#[test]
fn every_case_is_reproduced_byte_for_byte() {
    let waiting = listed(WAITING);
    let differences = listed(DIFFERENCES);
    let rows: HashMap<String, Json> = ROWS
        .lines()
        .chain(OWN_ROWS.lines())
        .map(|line| {
            let case: Json = serde_json::from_str(line).unwrap();
            (text(&case["name"]).to_owned(), case)
        })
        .collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in CASES.lines().chain(OWN_CASES.lines()) {
        let case: Json = serde_json::from_str(line).unwrap();
        let name = text(&case["name"]);
        seen += 1;
        if NEEDS_SERVICES.contains(&name) {
            continue;
        }
        let judge = |more: &str| judge(&case, &rows[name], more);
        let verdict = match differences.get(name) {
            None => judge(""),
            Some(columns) => match judge("") {
                Ok(()) => Err("is listed as a difference and passes without".to_owned()),
                Err(_) => judge(columns.split('\t').next().unwrap()),
            },
        };
        match (verdict, waiting.contains_key(name)) {
            (Ok(()), false) | (Err(_), true) => {}
            (Ok(()), true) => wrong.push(format!("{name}: waits, and passes")),
            (Err(difference), false) => wrong.push(format!("{name}: {difference}")),
        }
    }
    assert_eq!(seen, rows.len(), "rows.jsonl must be captured anew");
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Name to what stands behind the first tab.
fn listed(file: &'static str) -> HashMap<&'static str, &'static str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap())
        .collect()
}

/// Compares a replay with the case.
fn judge(case: &Json, rows: &Json, more: &str) -> Result<(), String> {
    let expected: Vec<Written> = list(&case["records"]).iter().map(written).collect();
    let must_fail = case["outcome"] == "failed";
    let partitions = case["partitions"].as_u64().unwrap_or(1);
    let replay = match connector(case, more) {
        Ok(connector) => {
            let short = replay(&connector, rows, partitions, Way::Short);
            let long = replay(&connector, rows, partitions, Way::Long);
            if short.records != long.records || short.failure.is_some() != long.failure.is_some() {
                return Err(format!(
                    "the short way and the long way differ: {short:?} and {long:?}"
                ));
            }
            short
        }
        Err(problems) if must_fail && expected.is_empty() => {
            drop(problems);
            return Ok(());
        }
        Err(problems) => return Err(format!("the configuration was refused: {problems}")),
    };
    match (&replay.failure, must_fail) {
        (Some(failure), false) => return Err(failure.clone()),
        (None, true) => return Err("no failure".to_owned()),
        _ => {}
    }
    let mut records = replay.records;
    records.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    for (expected, found) in expected.iter().zip(&mut records) {
        if expected.timestamp.is_none() {
            found.timestamp = None;
        }
        if expected != found {
            return Err(format!(
                "\n    expected {}\n    found    {}",
                shown(expected),
                shown(found)
            ));
        }
    }
    if expected.len() != records.len() {
        return Err(format!(
            "{} records expected, {} found",
            expected.len(),
            records.len()
        ));
    }
    Ok(())
}

fn connector(case: &Json, more: &str) -> Result<Connector, String> {
    let pairs = case["config"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), text(value).to_owned()))
        .chain([("name".to_owned(), text(&case["name"]).to_owned())])
        .chain(
            more.split(' ')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
        .collect();
    config::connector_from_pairs("golden", pairs, &config::WorkerPairs::default()).map_err(
        |problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        },
    )
}

/// Whether rows may take the short way of `plain`.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Short,
    Long,
}

fn replay(connector: &Connector, rows: &Json, partitions: u64, way: Way) -> Replay {
    let mut outbox = Outbox::new(connector, "<run-id>");
    let mut relations: HashMap<u64, Arc<Relation>> = HashMap::new();
    let mut commit = None;
    let mut replay = Replay {
        records: Vec::new(),
        failure: None,
    };
    for event in list(&rows["events"]) {
        let (kind, content) = event.as_object().unwrap().iter().next().unwrap();
        let outcome = match kind.as_str() {
            "relation" => {
                let schema = text(&content["schema"]);
                if connector.tables.takes(schema, text(&content["table"])) {
                    let (relation, facts) = relation(content);
                    let relation = Arc::new(relation);
                    outbox.bind(&relation, &facts).unwrap();
                    for table in &mut outbox.tables {
                        table.plain = table.plain.take().filter(|_| way == Way::Short);
                    }
                    relations.insert(content["oid"].as_u64().unwrap(), relation);
                }
                continue;
            }
            "begin" => {
                commit = Some(CommitInfo {
                    xid: 1,
                    time_us: content[1].as_i64().unwrap(),
                });
                continue;
            }
            "message" => own(message(&mut outbox, content, commit), partitions),
            kind => {
                let mut outcome = None;
                for (oid, change) in changes(kind, content) {
                    if let Some(relation) = relations.get(&oid) {
                        let old = change.1.as_ref().map(Cells::tuple);
                        let new = change.0.as_ref().map(Cells::tuple);
                        let change = Change {
                            relation,
                            operation: operation(kind, old, new),
                            lsn: Lsn::new(1).unwrap(),
                            commit,
                        };
                        outcome = own(outbox.route(&change, NOW_MS), partitions);
                    }
                }
                outcome
            }
        };
        match outcome {
            None => {}
            Some(Ok(record)) => replay.records.push(record),
            Some(Err(_)) if connector.errors.tolerate => {}
            Some(Err(poison)) => {
                replay.failure = Some(poison);
                break;
            }
        }
    }
    replay
}

fn message<'a>(
    outbox: &'a mut Outbox,
    content: &Json,
    commit: Option<CommitInfo>,
) -> Result<Outcome<'a>, super::Poison> {
    let bytes = BASE64.decode(text(&content[2])).unwrap().leak();
    let transactional = content[0].as_bool().unwrap();
    let message = LogicalMessage {
        transactional,
        prefix: text(&content[1]).to_owned().leak(),
        content: bytes,
        lsn: Lsn::new(1).unwrap(),
        commit: commit.filter(|_| transactional),
    };
    outbox.message(&message, NOW_MS)
}

/// Cut loose from the router; `None` for what is dropped.
fn own(
    outcome: Result<Outcome<'_>, super::Poison>,
    partitions: u64,
) -> Option<Result<Written, String>> {
    match outcome {
        Ok(Outcome::Dropped(_)) => None,
        Ok(Outcome::Record(record)) => Some(Ok(finished(&record, partitions))),
        Err(poison) => Some(Err(poison.to_string())),
    }
}

fn finished(record: &Record<'_>, partitions: u64) -> Written {
    let owned = |bytes: &Option<std::borrow::Cow<'_, [u8]>>| bytes.as_deref().map(<[u8]>::to_vec);
    let hashed = |key: &[u8]| i64::from(murmur2(key) & 0x7fff_ffff) % partitions.cast_signed();
    let partition = match (record.partition, &record.key) {
        (Some(partition), _) => i64::from(partition),
        (None, Some(key)) => hashed(key),
        (None, None) => 0,
    };
    Written {
        topic: record.topic.clone().into_owned(),
        partition,
        key: owned(&record.key),
        value: owned(&record.value),
        headers: record
            .headers
            .iter()
            .map(|header| (header.name.clone().into_owned(), owned(&header.value)))
            .collect(),
        timestamp: record.timestamp_ms,
    }
}

/// A row's text and spans.
struct Cells {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Cells {
    fn new(row: &Json) -> Self {
        let mut cells = Cells {
            bytes: Vec::new(),
            spans: Vec::new(),
        };
        for cell in list(row) {
            cells.spans.push(match cell {
                Json::Null => Span::Null,
                Json::Bool(_) => Span::Unchanged,
                cell => {
                    let start = u32::try_from(cells.bytes.len()).unwrap();
                    cells.bytes.extend(text(cell).as_bytes());
                    let end = u32::try_from(cells.bytes.len()).unwrap();
                    Span::Text { start, end }
                }
            });
        }
        cells
    }

    fn tuple(&self) -> Tuple<'_> {
        Tuple::new(&self.bytes, &self.spans)
    }
}

/// A table's oid, and the new and the old row of a change.
type Rows = (u64, (Option<Cells>, Option<Cells>));

/// The changes that an event holds.
fn changes(kind: &str, content: &Json) -> Vec<Rows> {
    let oid = |json: &Json| json.as_u64().unwrap();
    match kind {
        "insert" | "read" => vec![(oid(&content[0]), (Some(Cells::new(&content[1])), None))],
        "update" => {
            let old = (!content[1].is_null()).then(|| Cells::new(&content[1]));
            vec![(oid(&content[0]), (Some(Cells::new(&content[2])), old))]
        }
        "delete" => vec![(oid(content), (None, None))],
        _ => list(content)
            .iter()
            .map(|table| (oid(table), (None, None)))
            .collect(),
    }
}

fn operation<'a>(kind: &str, old: Option<Tuple<'a>>, new: Option<Tuple<'a>>) -> Operation<'a> {
    match (kind, new) {
        ("insert", Some(new)) => Operation::Insert { new },
        ("read", Some(new)) => Operation::Read { new },
        ("update", Some(new)) => Operation::Update { old, new },
        ("delete", _) => Operation::Delete,
        _ => Operation::Truncate,
    }
}

fn relation(json: &Json) -> (Relation, TableFacts) {
    let int = |json: &Json| i32::try_from(json.as_i64().unwrap()).unwrap();
    let relation = Relation {
        oid: u32::try_from(json["oid"].as_u64().unwrap()).unwrap(),
        schema: text(&json["schema"]).to_owned(),
        table: text(&json["table"]).to_owned(),
        replica_identity: text(&json["identity"]).as_bytes()[0],
        columns: list(&json["columns"])
            .iter()
            .map(|column| Column {
                name: text(&column[0]).to_owned(),
                key: column[1].as_bool().unwrap(),
                type_oid: u32::try_from(column[2].as_u64().unwrap()).unwrap(),
                type_modifier: int(&column[3]),
            })
            .collect(),
    };
    let facts = TableFacts {
        columns: list(&json["facts"])
            .iter()
            .zip(0..)
            .map(|(facts, at)| ColumnFacts {
                pg_type: Arc::new(pg_type(&facts[0])),
                not_null: facts[1].as_bool().unwrap(),
                // Either only whether it is part of the key, or where.
                key: match facts[2].as_bool() {
                    Some(part) => part.then_some(at),
                    None => facts[2]
                        .as_u64()
                        .map(|place| usize::try_from(place).unwrap()),
                },
                default: facts[3].as_str().map(str::to_owned),
            })
            .collect(),
    };
    (relation, facts)
}

fn pg_type(json: &Json) -> PgType {
    PgType {
        oid: u32::try_from(json[0].as_u64().unwrap()).unwrap(),
        schema: text(&json[1]).to_owned(),
        name: text(&json[2]).to_owned(),
        kind: match text(&json[3]) {
            "base" => PgTypeKind::Base,
            "domain" => PgTypeKind::Domain(
                Arc::new(pg_type(&json[4])),
                i32::try_from(json[5].as_i64().unwrap()).unwrap(),
            ),
            "enum" => PgTypeKind::Enum(
                list(&json[4])
                    .iter()
                    .map(|label| text(label).to_owned())
                    .collect(),
            ),
            "array" => PgTypeKind::Array(Arc::new(pg_type(&json[4]))),
            "composite" => PgTypeKind::Composite,
            "range" => PgTypeKind::Range,
            "multirange" => PgTypeKind::Multirange,
            _ => PgTypeKind::Pseudo,
        },
    }
}

fn written(json: &Json) -> Written {
    let bytes = |json: &Json| match (json.get("utf8"), json.get("base64")) {
        (Some(utf8), _) => Some(text(utf8).as_bytes().to_vec()),
        (_, Some(base64)) => Some(BASE64.decode(text(base64)).unwrap()),
        _ => None,
    };
    Written {
        topic: text(&json["topic"]).to_owned(),
        partition: json["partition"].as_i64().unwrap(),
        key: bytes(&json["key"]),
        value: bytes(&json["value"]),
        headers: list(&json["headers"])
            .iter()
            .map(|header| (text(&header[0]).to_owned(), bytes(&header[1])))
            .collect(),
        timestamp: json["timestamp"].as_i64(),
    }
}

fn shown(record: &Written) -> String {
    let shown = |bytes: &Option<Vec<u8>>| match bytes {
        None => "NULL".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).chars().take(1500).collect(),
    };
    let headers: BTreeMap<usize, String> = record
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={}", shown(value)))
        .enumerate()
        .collect();
    format!(
        "{}-{} key {} value {} headers {headers:?} at {:?}",
        record.topic,
        record.partition,
        shown(&record.key),
        shown(&record.value),
        record.timestamp
    )
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap()
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}
