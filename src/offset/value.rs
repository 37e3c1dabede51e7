//! The stored position as Debezium writes and reads it: key and value of Connect's offsets topic.
//!
//! Ours adds four members, prefixed `walpost_`, that say which server and slot the position belongs
//! to; Debezium ignores them.

use serde_json::{Map, Value, json};

use crate::lsn::{CommitInfo, Lsn, ResumePoint};

/// Which server, database and slot a position belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetIdentity {
    /// System identifier of the cluster.
    pub system_id: String,
    /// Timeline when it was stored.
    pub timeline: u32,
    /// Replication slot.
    pub slot: String,
    /// Database.
    pub database: String,
}

/// A position inside a transaction, as Debezium stores it, and walpost where it commits a large
/// transaction in parts: the events up to `lsn` are delivered, the rest of the transaction is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// The transaction, when Debezium knew it.
    pub xid: Option<u32>,
    /// LSN of the last event that was delivered.
    pub lsn: Lsn,
    /// How many of the events that share this LSN are delivered; `None` when all of them are.
    pub events: Option<u64>,
}

/// What the stored position says of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotState {
    /// It was stored by the stream.
    #[default]
    None,
    /// A snapshot began and did not end.
    Unfinished,
    /// The snapshot's last record is delivered; the stream has not begun.
    LastRecord,
}

/// What is known of the position of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOffset {
    /// Where to go on. `None` only while [`SnapshotState::Unfinished`].
    pub position: Option<ResumePoint>,
    /// What of the next transaction is delivered already.
    pub partial: Option<Partial>,
    /// Whose position it is; `None` when Debezium wrote it.
    pub identity: Option<OffsetIdentity>,
    /// Snapshot state.
    pub snapshot: SnapshotState,
}

const SYSTEM_ID: &str = "walpost_system_id";
const TIMELINE: &str = "walpost_timeline";
const SLOT: &str = "walpost_slot";
const DATABASE: &str = "walpost_database";

/// The key's bytes: they decide the partition, and Connect compares them as they are.
pub(super) fn key(connector: &str, topic_prefix: &str) -> Vec<u8> {
    let mut text = String::from("[");
    push_string(&mut text, connector);
    text.push_str(",{\"server\":");
    push_string(&mut text, topic_prefix);
    text.push_str("}]");
    text.into_bytes()
}

/// A string as Jackson writes it to bytes: control characters and characters beyond the basic
/// plane escaped in upper-case hexadecimal, everything else as it is.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' | '\u{10000}'.. => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What a key of the offsets topic turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyMatch {
    Ours,
    Other,
    /// Not a key that Connect could have written.
    IllFormed,
}

/// Whether `bytes` is the key of this connector.
pub(super) fn match_key(bytes: Option<&[u8]>, connector: &str, topic_prefix: &str) -> KeyMatch {
    let parsed = bytes.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let Some(Value::Array(parts)) = parsed else {
        return KeyMatch::IllFormed;
    };
    match parts.as_slice() {
        [Value::String(name), Value::Object(partition)] => {
            let server = partition.get("server").and_then(Value::as_str);
            if name == connector && partition.len() == 1 && server == Some(topic_prefix) {
                KeyMatch::Ours
            } else {
                KeyMatch::Other
            }
        }
        _ => KeyMatch::IllFormed,
    }
}

/// The value for a position between transactions.
///
/// Debezium's three LSNs all carry it, with the message type it stores at a commit, so that its
/// search for the resume point ends at the first message it receives.
pub(super) fn encode(at: ResumePoint, identity: Option<&OffsetIdentity>) -> Map<String, Value> {
    let lsn = at.lsn().as_u64();
    let mut members = Map::new();
    members.insert("lsn_proc".to_owned(), json!(lsn));
    members.insert("messageType".to_owned(), json!("COMMIT"));
    members.insert("lsn_commit".to_owned(), json!(lsn));
    members.insert("lsn".to_owned(), json!(lsn));
    if let Some(commit) = at.commit() {
        members.insert("txId".to_owned(), json!(commit.xid));
        members.insert("ts_usec".to_owned(), json!(commit.time_us));
    }
    sign(&mut members, identity);
    members
}

/// The value for a position inside the transaction after `at`, as Debezium stores one.
pub(super) fn encode_partial(
    at: ResumePoint,
    partial: Partial,
    identity: Option<&OffsetIdentity>,
) -> Map<String, Value> {
    let lsn = partial.lsn.as_u64();
    let mut members = Map::new();
    members.insert("lsn_proc".to_owned(), json!(lsn));
    members.insert("messageType".to_owned(), json!("INSERT"));
    members.insert("lsn_commit".to_owned(), json!(at.lsn().as_u64()));
    members.insert("lsn".to_owned(), json!(lsn));
    if let Some(events) = partial.events {
        members.insert("lsn_events_processed".to_owned(), json!(events));
    }
    if let Some(xid) = partial.xid {
        members.insert("txId".to_owned(), json!(xid));
    }
    if let Some(commit) = at.commit() {
        members.insert("ts_usec".to_owned(), json!(commit.time_us));
    }
    sign(&mut members, identity);
    members
}

/// The value while a snapshot is under way.
pub(super) fn encode_unfinished(identity: Option<&OffsetIdentity>) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("last_snapshot_record".to_owned(), json!(false));
    members.insert("snapshot".to_owned(), json!("INITIAL"));
    members.insert("snapshot_completed".to_owned(), json!(false));
    sign(&mut members, identity);
    members
}

fn sign(members: &mut Map<String, Value>, identity: Option<&OffsetIdentity>) {
    if let Some(identity) = identity {
        members.insert(SYSTEM_ID.to_owned(), json!(identity.system_id));
        members.insert(TIMELINE.to_owned(), json!(identity.timeline));
        members.insert(SLOT.to_owned(), json!(identity.slot));
        members.insert(DATABASE.to_owned(), json!(identity.database));
    }
}

impl StoredOffset {
    /// Reads the value that is stored for a connector, by walpost or by Debezium.
    ///
    /// # Errors
    /// Which member is wrong.
    pub fn decode(members: &Map<String, Value>) -> Result<Self, String> {
        let lsn = |name: &str| -> Result<Option<Lsn>, String> {
            Ok(whole(members, name)?.and_then(Lsn::new))
        };
        let identity = identity(members)?;
        let processed = match lsn("lsn_proc")? {
            Some(processed) => Some(processed),
            None => lsn("lsn")?,
        };
        let snapshot = snapshot(members);
        if snapshot == SnapshotState::Unfinished {
            return Ok(Self {
                position: processed.map(|lsn| ResumePoint::restored(lsn, None)),
                partial: None,
                identity,
                snapshot,
            });
        }
        let processed = processed.ok_or("it has neither lsn_proc nor lsn")?;
        let commit_lsn = lsn("lsn_commit")?.unwrap_or(processed);
        let xid = whole(members, "txId")?.map(|xid| xid as u32);
        let message_type = members.get("messageType").and_then(Value::as_str);
        let whole_transaction = match message_type {
            // Written at a commit, or before anything of the next transaction was delivered.
            Some("COMMIT" | "BEGIN") => true,
            // A message outside transactions, at its own position.
            Some("MESSAGE") => xid.is_none() && commit_lsn == processed,
            // Very old versions do not say. Repeating a transaction is safe, skipping is not.
            None => true,
            Some(_) => snapshot == SnapshotState::LastRecord,
        };
        let events = whole(members, "lsn_events_processed")?.filter(|&count| count > 1);
        let partial = (!whole_transaction).then_some(Partial {
            xid,
            lsn: processed,
            events,
        });
        let position = match snapshot {
            SnapshotState::LastRecord => processed,
            _ => commit_lsn,
        };
        // The transaction belongs to the position only where it ended there.
        let commit = match (message_type, xid, whole(members, "ts_usec")?) {
            (Some("COMMIT"), Some(xid), Some(time)) => Some(CommitInfo {
                xid,
                time_us: i64::try_from(time).unwrap_or(i64::MAX),
            }),
            _ => None,
        };
        Ok(Self {
            position: Some(ResumePoint::restored(position, commit)),
            partial,
            identity,
            snapshot,
        })
    }
}

fn whole(members: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match (value.as_u64(), value.as_i64()) {
            (Some(number), _) => Ok(Some(number)),
            // Java has no unsigned numbers; a time before 1970 does not matter here.
            (None, Some(negative)) => Ok(Some(if name == "ts_usec" {
                0
            } else {
                negative as u64
            })),
            (None, None) => Err(format!("{name} is not a whole number")),
        },
    }
}

fn snapshot(members: &Map<String, Value>) -> SnapshotState {
    let is_true = |name: &str| members.get(name).and_then(Value::as_bool) == Some(true);
    match members.get("snapshot") {
        None | Some(Value::Null | Value::Bool(false)) => SnapshotState::None,
        // Both go on while the stream runs and say nothing about rows before the slot.
        Some(Value::String(kind)) if kind == "INCREMENTAL" || kind == "BLOCKING" => {
            SnapshotState::None
        }
        Some(_) if is_true("last_snapshot_record") || is_true("snapshot_completed") => {
            SnapshotState::LastRecord
        }
        Some(_) => SnapshotState::Unfinished,
    }
}

fn identity(members: &Map<String, Value>) -> Result<Option<OffsetIdentity>, String> {
    let Some(system_id) = members.get(SYSTEM_ID) else {
        return Ok(None);
    };
    let text = |name: &str, value: Option<&Value>| -> Result<String, String> {
        value
            .and_then(Value::as_str)
            .map(str::to_owned)
            .ok_or_else(|| format!("{name} is not a text"))
    };
    Ok(Some(OffsetIdentity {
        system_id: text(SYSTEM_ID, Some(system_id))?,
        timeline: whole(members, TIMELINE)?
            .and_then(|timeline| u32::try_from(timeline).ok())
            .ok_or_else(|| format!("{TIMELINE} is not a timeline"))?,
        slot: text(SLOT, members.get(SLOT))?,
        database: text(DATABASE, members.get(DATABASE))?,
    }))
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
