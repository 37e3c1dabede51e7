//! What consumers may rely on, judged record by record.
//!
//! Events carry their key and a number that rises by one per key in commit order. From these alone
//! it follows whether something is missing, out of order or repeated; nothing is remembered but
//! one counter a key, so a check costs the same after a million events.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::Record;

/// What is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Events may come again after a fault; first deliveries are in order.
    AtLeastOnce,
    /// Each event comes once, in order, to a consumer that reads committed records.
    ExactlyOnce,
}

/// How a promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Breach {
    /// Committed, confirmed, and not in Kafka.
    Lost,
    /// Came first after a later event of its key, or to another partition.
    Reordered,
    /// Came again without cause.
    Repeated,
    /// Never committed.
    Ghost,
    /// Not as it was written.
    Altered,
    /// Slot or stored position ahead of what Kafka holds, or the slot ahead of the stored one.
    Ahead,
    /// No progress, or an end that nobody asked for.
    Stuck,
}

/// One breach, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.breach, self.text)
    }
}

/// One key.
#[derive(Debug)]
struct Key {
    topic: String,
    partition: i32,
    /// The newest number that has come.
    newest: i64,
    /// Numbers below it that have not.
    missing: BTreeSet<i64>,
    /// Up to here nothing may come again.
    settled: i64,
}

/// The judge of one set of keys.
#[derive(Debug)]
pub(crate) struct Checker {
    promise: Promise,
    keys: HashMap<String, Key>,
    violations: Vec<Violation>,
    /// Events that came for the first time, and those that came again.
    pub(crate) events: u64,
    pub(crate) repeats: u64,
}

impl Checker {
    pub(crate) fn new(promise: Promise) -> Self {
        Self {
            promise,
            keys: HashMap::new(),
            violations: Vec::new(),
            events: 0,
            repeats: 0,
        }
    }

    /// Takes in a record. Records of one partition come in Kafka's order. While nothing goes wrong
    /// (`calm`), nothing may come again.
    pub(crate) fn take(&mut self, record: &Record, calm: bool) {
        let name = record.key_text();
        let value: serde_json::Value =
            serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default();
        let Some(number) = value["n"].as_i64() else {
            let text = format!("a record of {name} at {} has no number", place(record));
            return self.breach(Breach::Altered, text);
        };
        if value["ghost"] != false {
            let text = format!("event {number} of {name} at {}", place(record));
            return self.breach(Breach::Ghost, text);
        }
        if let Some(what) = altered(record, number, &value) {
            let text = format!("event {number} of {name} at {}: {what}", place(record));
            self.breach(Breach::Altered, text);
        }
        let key = self.keys.entry(name.to_owned()).or_insert_with(|| Key {
            topic: record.topic.clone(),
            partition: record.partition,
            newest: 0,
            missing: BTreeSet::new(),
            settled: 0,
        });
        if (record.partition, &record.topic) != (key.partition, &key.topic) {
            let text = format!(
                "event {number} of {name} at {}, the key belongs to {} {}",
                place(record),
                key.topic,
                key.partition
            );
            return self.breach(Breach::Reordered, text);
        }
        if number > key.newest {
            key.missing.extend(key.newest + 1..number);
            key.newest = number;
            self.events += 1;
        } else if key.missing.remove(&number) {
            self.events += 1;
            let text = format!(
                "event {number} of {name} at {} came first after event {}",
                place(record),
                key.newest
            );
            self.breach(Breach::Reordered, text);
        } else {
            self.repeats += 1;
            let settled = number <= key.settled;
            if calm || settled || self.promise == Promise::ExactlyOnce {
                let why = match (self.promise, settled) {
                    (Promise::ExactlyOnce, _) => "in exactly-once",
                    (_, true) => "although its position was stored and confirmed",
                    (_, false) => "although nothing had gone wrong",
                };
                let text = format!(
                    "event {number} of {name} at {} came again {why}",
                    place(record)
                );
                self.breach(Breach::Repeated, text);
            }
        }
    }

    /// Adds what something else than a record showed.
    pub(crate) fn breach(&mut self, breach: Breach, text: String) {
        self.violations.push(Violation { breach, text });
    }

    /// Whether every event of `key` up to `number` has come.
    pub(crate) fn has(&self, key: &str, number: i64) -> bool {
        number == 0
            || self.keys.get(key).is_some_and(|key| {
                key.newest >= number && key.missing.first().is_none_or(|first| *first > number)
            })
    }

    /// Which of the events up to the given number of each key have not come.
    pub(crate) fn missing(&self, committed: &[(String, i64)]) -> Vec<String> {
        let absent = |(name, number): &(String, i64)| {
            let Some(key) = self.keys.get(name) else {
                return Some(format!("events 1 to {number} of {name}"));
            };
            let mut parts = Vec::new();
            if let (Some(first), Some(last)) = (key.missing.first(), key.missing.last()) {
                let count = key.missing.len();
                parts.push(format!("{count} between {first} and {last}"));
            }
            if key.newest < *number {
                parts.push(format!("{} to {number}", key.newest + 1));
            }
            (!parts.is_empty()).then(|| format!("events {} of {name}", parts.join(", ")))
        };
        committed.iter().filter_map(absent).collect()
    }

    /// Everything up to the given number of each key is confirmed: whatever of it is not there is
    /// lost, and none of it may come again.
    pub(crate) fn settle(&mut self, committed: &[(String, i64)]) {
        for text in self.missing(committed) {
            self.breach(Breach::Lost, text);
        }
        for (name, number) in committed {
            let Some(key) = self.keys.get_mut(name) else {
                continue;
            };
            key.settled = *number;
            if key.newest > *number {
                let newest = key.newest;
                let text = format!("event {newest} of {name}, of which {number} were committed");
                self.breach(Breach::Ghost, text);
            }
        }
    }

    /// What was found since the last call.
    pub(crate) fn found(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// Whether nothing was found since the last [`Checker::found`].
    pub(crate) fn is_content(&self) -> bool {
        self.violations.is_empty()
    }
}

fn place(record: &Record) -> String {
    format!(
        "{} {} offset {}",
        record.topic, record.partition, record.kafka_offset
    )
}

/// What of the record does not fit its number.
fn altered(record: &Record, number: i64, value: &serde_json::Value) -> Option<String> {
    let id = format!("{}:{number}", record.key_text());
    if record.header("id") != Some(&id) {
        return Some(format!("the id header is {:?}", record.header("id")));
    }
    if let Some(size) = value["size"].as_u64() {
        let pad = value["pad"].as_str().unwrap_or_default();
        let letter = b'a' + (number % 26) as u8;
        if pad.len() as u64 != size || pad.bytes().any(|byte| byte != letter) {
            return Some("the payload is damaged".to_owned());
        }
    }
    None
}
