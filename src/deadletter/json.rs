//! The value of a dead letter: one JSON document that holds the event without loss.
//!
//! `row` maps each column to its Postgres text, to `null`, to `{"base64": …}` for bytes that are not
//! UTF-8, or to `{"unchanged": true}` for a value that the server did not send. `columns` holds what
//! else the replication stream said of each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::letter::{Body, Cause, Kept, Letter, RowOperation, Stage};
use crate::lsn::{CommitInfo, Lsn};
use crate::source::row::{Cell, Column, Relation};

const VERSION: u64 = 1;

/// A record that is not a dead letter of ours. Says which member, never its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a dead letter that this version of walpost can read: member {0:?}")]
pub struct Unreadable(pub &'static str);

impl Letter {
    /// The document.
    pub fn encode(&self) -> Vec<u8> {
        let mut document = Map::new();
        let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
        put("version", json!(VERSION));
        put("letter", json!(self.id().to_string()));
        put("connector", json!(self.connector));
        put("cause", json!(self.cause.label()));
        put("stage", json!(self.stage.label()));
        put("reason", json!(self.reason));
        put("event_id", json!(self.event_id));
        put("aggregate", bytes(self.aggregate.as_deref()));
        put("lsn", json!(self.lsn.to_string()));
        put("after", json!(self.after.to_string()));
        let commit = |commit: CommitInfo| json!({"xid": commit.xid, "time_us": commit.time_us});
        put("commit", self.commit.map_or(Value::Null, commit));
        match &self.body {
            Body::Row {
                operation,
                relation,
                new,
                old,
            } => {
                put("operation", json!(operation.label()));
                put("schema", json!(relation.schema));
                put("table", json!(relation.table));
                put("oid", json!(relation.oid));
                put(
                    "replica_identity",
                    json!(char::from(relation.replica_identity).to_string()),
                );
                put(
                    "columns",
                    relation
                        .columns
                        .iter()
                        .map(column)
                        .collect::<Vec<_>>()
                        .into(),
                );
                let row = |row: &Option<Kept>| {
                    row.as_ref().map_or(Value::Null, |row| cells(relation, row))
                };
                put("row", row(new));
                put("old", row(old));
            }
            Body::Message {
                transactional,
                prefix,
                content,
            } => {
                put("operation", json!("message"));
                put("transactional", json!(transactional));
                put("prefix", json!(prefix));
                put("content", bytes(Some(content)));
            }
        }
        Value::Object(document).to_string().into_bytes()
    }

    /// Reads a document back.
    ///
    /// # Errors
    /// It is not one of ours, or from a later version.
    pub fn decode(document: &[u8]) -> Result<Self, Unreadable> {
        let Ok(Value::Object(document)) = serde_json::from_slice(document) else {
            return Err(Unreadable("version"));
        };
        let members = Members(&document);
        if members.number::<u64>("version")? != VERSION {
            return Err(Unreadable("version"));
        }
        let commit = match members.get("commit")? {
            Value::Null => None,
            Value::Object(commit) => Some(CommitInfo {
                xid: Members(commit).number("xid")?,
                time_us: Members(commit)
                    .get("time_us")?
                    .as_i64()
                    .ok_or(Unreadable("time_us"))?,
            }),
            _ => return Err(Unreadable("commit")),
        };
        Ok(Self {
            connector: members.text("connector")?.to_owned(),
            cause: match members.text("cause")? {
                "poison" => Cause::Poison,
                "order" => Cause::Order,
                _ => return Err(Unreadable("cause")),
            },
            stage: match members.text("stage")? {
                "TRANSFORMATION" => Stage::Transformation,
                "KAFKA_PRODUCE" => Stage::Produce,
                _ => return Err(Unreadable("stage")),
            },
            reason: members.text("reason")?.to_owned(),
            event_id: match members.get("event_id")? {
                Value::Null => None,
                Value::String(id) => Some(id.clone()),
                _ => return Err(Unreadable("event_id")),
            },
            aggregate: unbytes(members.get("aggregate")?, "aggregate")?,
            lsn: members.lsn("lsn")?,
            after: members.lsn("after")?,
            commit,
            body: members.body()?,
        })
    }
}

/// Bytes as text where they are text.
pub(super) fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!({"base64": STANDARD.encode(bytes)}),
    }
}

/// The reverse of [`bytes()`].
pub(super) fn unbytes(value: &Value, name: &'static str) -> Result<Option<Vec<u8>>, Unreadable> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone().into_bytes())),
        Value::Object(members) => members
            .get("base64")
            .and_then(Value::as_str)
            .and_then(|text| STANDARD.decode(text).ok())
            .map(Some)
            .ok_or(Unreadable(name)),
        _ => Err(Unreadable(name)),
    }
}

fn column(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type_oid": column.type_oid,
        "type_modifier": column.type_modifier,
        "key": column.key,
    })
}

fn cells(relation: &Relation, row: &Kept) -> Value {
    let tuple = row.tuple();
    let cell = |index| match tuple.cell(index) {
        Cell::Null => Value::Null,
        Cell::Unchanged => json!({"unchanged": true}),
        Cell::Text(text) => bytes(Some(text)),
    };
    relation
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| (column.name.clone(), cell(index)))
        .collect::<Map<_, _>>()
        .into()
}

/// The members of a document, each refused by name when it is not what it should be.
struct Members<'a>(&'a Map<String, Value>);

impl<'a> Members<'a> {
    fn get(&self, name: &'static str) -> Result<&'a Value, Unreadable> {
        self.0.get(name).ok_or(Unreadable(name))
    }

    fn text(&self, name: &'static str) -> Result<&'a str, Unreadable> {
        self.get(name)?.as_str().ok_or(Unreadable(name))
    }

    fn flag(&self, name: &'static str) -> Result<bool, Unreadable> {
        self.get(name)?.as_bool().ok_or(Unreadable(name))
    }

    fn number<N: TryFrom<u64>>(&self, name: &'static str) -> Result<N, Unreadable> {
        let number = self.get(name)?.as_u64().ok_or(Unreadable(name))?;
        N::try_from(number).map_err(|_| Unreadable(name))
    }

    fn lsn(&self, name: &'static str) -> Result<Lsn, Unreadable> {
        self.text(name)?.parse().map_err(|_| Unreadable(name))
    }

    fn body(&self) -> Result<Body, Unreadable> {
        let operation = match self.text("operation")? {
            "message" => {
                return Ok(Body::Message {
                    transactional: self.flag("transactional")?,
                    prefix: self.text("prefix")?.to_owned(),
                    content: unbytes(self.get("content")?, "content")?
                        .ok_or(Unreadable("content"))?,
                });
            }
            "insert" => RowOperation::Insert,
            "read" => RowOperation::Read,
            "update" => RowOperation::Update,
            "truncate" => RowOperation::Truncate,
            _ => return Err(Unreadable("operation")),
        };
        let relation = Relation {
            oid: self.number("oid")?,
            schema: self.text("schema")?.to_owned(),
            table: self.text("table")?.to_owned(),
            replica_identity: match self.text("replica_identity")?.as_bytes() {
                [identity] => *identity,
                _ => return Err(Unreadable("replica_identity")),
            },
            columns: self.columns()?,
        };
        let new = self.row("row", &relation)?;
        if new.is_none() && operation != RowOperation::Truncate {
            return Err(Unreadable("row"));
        }
        Ok(Body::Row {
            operation,
            old: self.row("old", &relation)?,
            new,
            relation,
        })
    }

    fn columns(&self) -> Result<Vec<Column>, Unreadable> {
        const NAME: &str = "columns";
        let columns = self.get(NAME)?.as_array().ok_or(Unreadable(NAME))?;
        columns
            .iter()
            .map(|column| {
                let column = Members(column.as_object().ok_or(Unreadable(NAME))?);
                Ok(Column {
                    name: column.text("name")?.to_owned(),
                    key: column.flag("key")?,
                    type_oid: column.number("type_oid")?,
                    type_modifier: column
                        .get("type_modifier")?
                        .as_i64()
                        .and_then(|modifier| i32::try_from(modifier).ok())
                        .ok_or(Unreadable("type_modifier"))?,
                })
            })
            .collect()
    }

    fn row(&self, name: &'static str, relation: &Relation) -> Result<Option<Kept>, Unreadable> {
        let cells = match self.get(name)? {
            Value::Null => return Ok(None),
            Value::Object(cells) => cells,
            _ => return Err(Unreadable(name)),
        };
        let mut row = Kept::default();
        for column in &relation.columns {
            let cell = cells.get(&column.name).ok_or(Unreadable(name))?;
            if cell.get("unchanged").is_some() {
                row.push(Cell::Unchanged);
                continue;
            }
            match unbytes(cell, name)? {
                Some(text) => row.push(Cell::Text(&text)),
                None => row.push(Cell::Null),
            }
        }
        Ok(Some(row))
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
