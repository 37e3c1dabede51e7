//! What real Debezium wrote, and what the binary writes for the same SQL.
//!
//! `WALPOST_GOLDEN=types-,key-` runs the cases whose names contain one of the words;
//! `WALPOST_GOLDEN_JOBS` sets how many run side by side.

mod case;
mod run;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Kafka, Postgres};

use case::Case;
use run::{Failure, Stage};

/// The version that the cases were recorded on; an older one lacks MERGE, column lists and the like.
const RECORDED: u32 = 15;

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The second column of each case in a list of tab-separated columns.
fn list(name: &str) -> BTreeMap<String, String> {
    file(name)
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut columns = line.split('\t').map(str::trim);
            let mut next = || columns.next().unwrap_or_default().to_owned();
            (next(), next())
        })
        .collect()
}

fn cases() -> Vec<Case> {
    let filter = std::env::var("WALPOST_GOLDEN").unwrap_or_default();
    let words: Vec<&str> = filter.split(',').filter(|word| !word.is_empty()).collect();
    (file("cases.jsonl") + &file("own.jsonl"))
        .lines()
        .map(|line| serde_json::from_str::<Case>(line).expect("a case"))
        .filter(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word)))
        .collect()
}

/// Every case gives what Debezium gave, but for those that wait (`waiting.txt`); a listed case must
/// not pass. A case of `differences.txt`, or of `live-differences.txt` for what only shows between
/// servers, runs with the property that brings Debezium's behaviour back, and waits if there is
/// none.
#[test]
fn every_case_is_written_as_debezium_wrote_it() {
    let mut waiting = list("waiting.txt");
    let mut differences = list("differences.txt");
    for (name, properties) in list("live-differences.txt") {
        match properties.as_str() {
            "-" => waiting.insert(name, properties),
            _ => differences.insert(name, properties),
        };
    }
    let all = cases();
    let names: HashSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
    if std::env::var_os("WALPOST_GOLDEN").is_none() {
        for name in waiting.keys().chain(differences.keys()) {
            assert!(names.contains(name.as_str()), "{name} is no case");
        }
    }
    let postgres = Postgres::private(&[("max_connections", "200")]);
    let older = postgres.major() < RECORDED;
    let stage = Stage::new(postgres, Kafka::shared());
    let next = AtomicUsize::new(0);
    let failures: Mutex<BTreeMap<String, String>> = Mutex::default();
    let work = || {
        while let Some(case) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let properties = differences.get(&case.name).map_or("", String::as_str);
            let result = stage.play(case, properties);
            let failure = match (result, waiting.contains_key(&case.name)) {
                (Ok(()), true) => "passes: take it from the list".to_owned(),
                (Err(Failure::Sql(_)), _) if older => continue,
                (Err(Failure::Sql(text) | Failure::Different(text)), false) => text,
                (Ok(()), false) | (Err(_), true) => continue,
            };
            failures.lock().unwrap().insert(case.name.clone(), failure);
        }
    };
    let jobs = std::env::var("WALPOST_GOLDEN_JOBS").map_or(10, |jobs| jobs.parse().unwrap());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    let report: Vec<String> = failures
        .iter()
        .map(|(name, failure)| format!("{name}: {failure}\n"))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        all.len(),
        report.concat()
    );
}
