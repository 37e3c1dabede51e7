//! Faults that people who run this kind of software have reported, each done to walpost.
//!
//! A test here does what the report did, on real servers, and asks what should have happened
//! instead. `docs/known-faults.md` lists all of them, with the tests elsewhere that answer one.

mod connections;
mod decoding;
mod duplicates;
mod kafka;
mod loss;
mod operations;
mod routing;
mod tables;
mod values;
mod wal;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Connector, Record, Scene, Walpost, wait};

/// How long nothing more may come.
const QUIET: Duration = Duration::from_millis(300);

/// Starts walpost with this connector and waits until it streams.
fn stream(scene: &Scene, connector: &Connector) -> Walpost {
    let mut walpost = Walpost::start(&scene.worker(), &[connector]);
    walpost.wait_streaming();
    walpost
}

/// The payloads' `n`.
fn numbers(records: &[Record]) -> Vec<i64> {
    let number = |record: &Record| record.json()["n"].as_i64().unwrap();
    records.iter().map(number).collect()
}

/// The groups of the list that are answered, and how many faults each has; labels run from 1.
const COMPLETE: [(char, usize); 8] = [
    ('a', 10),
    ('b', 5),
    ('c', 3),
    ('d', 14),
    ('e', 11),
    ('f', 10),
    ('g', 9),
    ('h', 10),
];

/// Label and named tests of each row of the page's tables.
fn rows(page: &str) -> Vec<(String, Vec<String>)> {
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| O-"))
        .map(|line| line.split('|').collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [label, behaviour, tests, ""] = cells[..] else {
                panic!("not label, behaviour and tests: {cells:?}");
            };
            assert!(behaviour.trim().len() > 20, "O-{label} tells what happens");
            let named = tests.split('`').skip(1).step_by(2).map(str::to_owned);
            (format!("O-{}", label.trim()), named.collect())
        })
        .collect()
}

/// The tests of this binary, as it lists them itself.
fn own_tests() -> BTreeSet<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("--list")
        .output()
        .unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(|name| format!("it::{name}"))
        .collect()
}

#[test]
fn every_known_fault_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/known-faults.md")).unwrap();
    let unit_tests = crate::docs::sources(&root.join("src"));
    let own = own_tests();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (label, tests) in rows(&page) {
        assert!(!tests.is_empty(), "{label} names no test");
        for name in tests {
            let exists = if name.starts_with("it::") {
                own.contains(&name)
            } else {
                let function = name.rsplit("::").next().unwrap_or_default();
                unit_tests.contains(&format!("fn {function}("))
            };
            assert!(exists, "{label} names {name}, which is no test");
        }
        *found.entry(label).or_default() += 1;
    }
    for (group, count) in COMPLETE {
        for number in 1..=count {
            let label = format!("O-{group}{number}");
            assert_eq!(found.get(&label), Some(&1), "rows for {label}");
        }
    }
}

/// One of several connectors of one process over the same outbox: its topics carry `name`.
fn variant(scene: &Scene, name: &str) -> Connector {
    let own = format!("{}_{name}", scene.name);
    scene
        .connector()
        .named(&own)
        .set("slot.name", &own)
        .set("publication.name", &own)
        .set("topic.prefix", &own)
        .router("route.topic.replacement", &format!("{}.{name}", scene.name))
}

/// Starts one process for `connectors` and waits until all of them stream.
fn start(scene: &Scene, connectors: &[Connector]) -> Walpost {
    let files: Vec<&Connector> = connectors.iter().collect();
    let mut walpost = Walpost::start(&scene.worker(), &files);
    wait::until("all connectors stream", wait::SOON, || {
        let status = walpost.get("/status").json();
        let states = status["connectors"].as_array().cloned().unwrap_or_default();
        states.len() == connectors.len() && states.iter().all(|c| c["state"] == "streaming")
    });
    walpost
}
