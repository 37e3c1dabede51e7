//! One line of `tests/golden/cases.jsonl`; its README explains the members.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::support::Record;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) setup: Vec<String>,
    pub(super) slot: bool,
    #[serde(default)]
    pub(super) before: Vec<Statement>,
    pub(super) partitions: i32,
    pub(super) topics: Vec<String>,
    pub(super) topics_regex: Option<String>,
    pub(super) config: BTreeMap<String, String>,
    pub(super) records_before_steps: Option<usize>,
    pub(super) steps: Vec<Step>,
    pub(super) outcome: Outcome,
    pub(super) records: Vec<Expected>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Ok,
    Failed,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Step {
    pub(super) sql: Vec<Statement>,
    pub(super) records_after: Option<usize>,
}

/// SQL on the case's own connection, or on a named one, or a COPY with its data.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Statement {
    Plain(String),
    Elsewhere {
        session: String,
        sql: String,
        copy: Option<String>,
    },
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Expected {
    topic: String,
    partition: i32,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(String, Option<Bytes>)>,
    timestamp: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Bytes {
    Utf8(String),
    Base64(String),
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Bytes::Utf8(text.to_owned()),
            _ => {
                use base64::Engine as _;
                Bytes::Base64(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
        }
    }
}

/// Stands for the random id of a run.
const RUN_ID: &str = "<run-id>";

impl Expected {
    /// The first difference, in words.
    pub(super) fn difference(&self, found: &Record) -> Option<String> {
        let place = (found.topic.as_str(), found.partition);
        if place != (self.topic.as_str(), self.partition) {
            return Some(format!(
                "topic, partition: {place:?}, not {:?}",
                (&self.topic, self.partition)
            ));
        }
        let bytes = |found: &Option<Vec<u8>>| found.as_deref().map(Bytes::of);
        if bytes(&found.key) != self.key {
            return Some(format!("key: {:?}, not {:?}", bytes(&found.key), self.key));
        }
        if bytes(&found.value) != self.value {
            return Some(format!(
                "value: {:?}, not {:?}",
                bytes(&found.value),
                self.value
            ));
        }
        let headers: Vec<_> = found
            .headers
            .iter()
            .zip(self.headers.iter().map(Some).chain(std::iter::repeat(None)))
            .map(|((name, value), expected)| {
                let masked = Some(Bytes::Utf8(RUN_ID.to_owned()));
                let is_run_id = expected.is_some_and(|(_, value)| *value == masked);
                (name.clone(), if is_run_id { masked } else { bytes(value) })
            })
            .collect();
        if headers != self.headers {
            return Some(format!("headers: {headers:?}, not {:?}", self.headers));
        }
        if self.timestamp.is_some() && found.timestamp != self.timestamp {
            return Some(format!(
                "timestamp: {:?}, not {:?}",
                found.timestamp, self.timestamp
            ));
        }
        None
    }
}
