//! What was done with dead letters: one record an action, in the audit topic.

use std::borrow::Cow;

use serde_json::{Value, json};
use smallvec::SmallVec;

use super::json::{Unreadable, bytes, unbytes};
use super::letter::{Letter, LetterId};
use crate::record::Record;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The letter was published: it waits no longer.
    Replayed,
    /// The letter was given up: it waits no longer.
    Discarded,
    /// Somebody replays the aggregate and asks the running connector to read no further until it is
    /// released.
    Hold,
    /// The running connector publishes the aggregate's events again.
    Released,
}

impl Action {
    /// The word in the document.
    pub fn label(self) -> &'static str {
        match self {
            Action::Replayed => "replayed",
            Action::Discarded => "discarded",
            Action::Hold => "hold",
            Action::Released => "released",
        }
    }

    /// Whether the letter waits no longer.
    pub fn settles(self) -> bool {
        matches!(self, Action::Replayed | Action::Discarded)
    }
}

/// One audit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The connector whose letter it is.
    pub connector: String,
    /// What was done.
    pub action: Action,
    /// The letter, where it was one.
    pub letter: Option<LetterId>,
    /// Its event id.
    pub event_id: Option<String>,
    /// Its table.
    pub table: Option<String>,
    /// The position of its event, as `X/Y`.
    pub lsn: Option<String>,
    /// The aggregate.
    pub aggregate: Option<Vec<u8>>,
    /// What came of it, for people: the topic it was published to.
    pub outcome: Option<String>,
    /// Who did it: a user of the operating system, or the connector itself.
    pub by: String,
    /// When, milliseconds since the Unix epoch.
    pub time_ms: i64,
}

impl Audit {
    /// That `action` was done with `letter`.
    pub fn of(letter: &Letter, action: Action, by: &str, time_ms: i64) -> Self {
        Self {
            connector: letter.connector.clone(),
            action,
            letter: Some(letter.id()),
            event_id: letter.event_id.clone(),
            table: letter.table(),
            lsn: Some(letter.lsn.to_string()),
            aggregate: letter.aggregate.clone(),
            outcome: None,
            by: by.to_owned(),
            time_ms,
        }
    }

    /// An action on an aggregate as a whole.
    pub fn on(connector: &str, aggregate: &[u8], action: Action, by: &str, time_ms: i64) -> Self {
        Self {
            connector: connector.to_owned(),
            action,
            letter: None,
            event_id: None,
            table: None,
            lsn: None,
            aggregate: Some(aggregate.to_vec()),
            outcome: None,
            by: by.to_owned(),
            time_ms,
        }
    }

    /// The record for the audit topic.
    pub fn record(&self, topic: &str) -> Record<'static> {
        Record {
            topic: Cow::Owned(topic.to_owned()),
            partition: None,
            key: self.aggregate.clone().map(Cow::Owned),
            value: Some(Cow::Owned(self.encode())),
            headers: SmallVec::new(),
            timestamp_ms: Some(self.time_ms.max(0)),
        }
    }

    fn encode(&self) -> Vec<u8> {
        json!({
            "version": 1,
            "action": self.action.label(),
            "connector": self.connector,
            "letter": self.letter.map(|letter| letter.to_string()),
            "event_id": self.event_id,
            "table": self.table,
            "lsn": self.lsn,
            "aggregate": bytes(self.aggregate.as_deref()),
            "outcome": self.outcome,
            "by": self.by,
            "time_ms": self.time_ms,
        })
        .to_string()
        .into_bytes()
    }

    /// Reads a record's value.
    ///
    /// # Errors
    /// It is not one of ours.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let document: Value = serde_json::from_slice(value).map_err(|_| Unreadable("version"))?;
        if document["version"] != 1 {
            return Err(Unreadable("version"));
        }
        let text = |name: &str| document[name].as_str().map(str::to_owned);
        let action = match document["action"].as_str() {
            Some("replayed") => Action::Replayed,
            Some("discarded") => Action::Discarded,
            Some("hold") => Action::Hold,
            Some("released") => Action::Released,
            _ => return Err(Unreadable("action")),
        };
        let letter = match &document["letter"] {
            Value::Null if !action.settles() => None,
            Value::String(id) => Some(id.parse().map_err(|_| Unreadable("letter"))?),
            _ => return Err(Unreadable("letter")),
        };
        Ok(Self {
            connector: text("connector").ok_or(Unreadable("connector"))?,
            action,
            letter,
            event_id: text("event_id"),
            table: text("table"),
            lsn: text("lsn"),
            aggregate: unbytes(&document["aggregate"], "aggregate")?,
            outcome: text("outcome"),
            by: text("by").unwrap_or_default(),
            time_ms: document["time_ms"].as_i64().unwrap_or_default(),
        })
    }
}
