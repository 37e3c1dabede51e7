//! The Event Router: which columns make topic, key, value, headers, partition and timestamp.
//!
//! The order of the steps is Debezium's, so that of two mistakes the same one is reported.

use std::borrow::Cow;
use std::sync::Arc;

use super::columns::{Row, Table};
use super::draft::{Draft, DraftHeader, Part};
use super::envelope::Envelopes;
use super::expand::{self, Expansion, LastSchema};
use super::problem::Problem;
use super::schema::{Kind, Schema};
use super::topic::{Rewriter, Topics};
use super::value::{Struct, Value};
use super::{Replaced, event_time, trace};
use crate::config::{self, Place};

/// What a router looks up: columns of a table or members of a decoded message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'r, 'a> {
    Row(&'a Table, &'r Row<'a>),
    Document(&'r Struct<'static>),
}

impl<'a> Content<'_, 'a> {
    /// Position of a column.
    pub(super) fn position(self, name: &str) -> Option<usize> {
        match self {
            Content::Row(table, _) => table.position(name),
            Content::Document(members) => members.schema.position(name),
        }
    }

    pub(super) fn schema(self, at: usize) -> Option<Arc<Schema>> {
        match self {
            Content::Row(table, _) => table
                .columns
                .get(at)
                .map(|column| Arc::clone(&column.schema)),
            Content::Document(members) => members
                .schema
                .fields()
                .get(at)
                .map(|field| Arc::clone(&field.schema)),
        }
    }

    /// A column with its default in place of NULL.
    fn get(self, at: usize) -> Result<Part<'a>, Problem> {
        let value = match self {
            Content::Row(table, row) => match table.columns.get(at) {
                Some(column) => column.get(row)?,
                None => Value::Null,
            },
            Content::Document(members) => members.values.get(at).cloned().unwrap_or(Value::Null),
        };
        Ok(Part {
            schema: self.schema(at),
            value,
        })
    }

    /// A column of one type, NULL as it is.
    pub(super) fn read(self, at: usize, name: &str, kind: &Kind) -> Result<Value<'a>, Problem> {
        let found = self.schema(at);
        if found.is_none_or(|schema| schema.kind != *kind) {
            return Err(Problem::column(
                name,
                format!("the column is not of type {}", kind.label()),
            ));
        }
        match self {
            Content::Row(table, row) => match table.columns.get(at) {
                Some(column) => column.read(row),
                None => Ok(Value::Null),
            },
            Content::Document(members) => {
                Ok(members.values.get(at).cloned().unwrap_or(Value::Null))
            }
        }
    }

    /// The moment in a `timestamptz` or `date` column, in milliseconds; inside, `None` for NULL.
    pub(super) fn instant(self, at: usize) -> Option<Option<i64>> {
        match self {
            Content::Row(table, row) => table.columns.get(at)?.instant(row),
            Content::Document(_) => None,
        }
    }

    /// Remembers that the record goes out with another time than the column's.
    pub(super) fn replace_time(self, at: usize) {
        if let Content::Row(table, row) = self
            && let Some(column) = table.columns.get(at)
        {
            row.replaced(Replaced::Time, &column.name);
        }
    }

    fn row_schema_name(self) -> Option<&'a str> {
        match self {
            Content::Row(table, _) => Some(&table.schema_name),
            Content::Document(_) => None,
        }
    }
}

/// Where the columns that a router wants are.
#[derive(Debug)]
pub(super) struct Roles {
    pub(super) payload: Option<usize>,
    pub(super) id: Option<usize>,
    pub(super) key: Option<usize>,
    pub(super) route_by: Option<usize>,
    pub(super) timestamp: Option<usize>,
    version: Option<usize>,
    pub(super) tracing: Option<usize>,
    pub(super) placements: Vec<Option<usize>>,
}

impl Roles {
    /// Looks every column up once.
    pub(super) fn resolve(
        options: &config::Router,
        position: impl Fn(&str) -> Option<usize>,
    ) -> Self {
        let optional = |name: &Option<String>| name.as_deref().and_then(&position);
        Self {
            payload: position(&options.payload),
            id: position(&options.id),
            key: position(&options.key),
            route_by: position(&options.route_by),
            timestamp: optional(&options.timestamp),
            version: optional(&options.schema_version),
            tracing: optional(&options.tracing),
            placements: options
                .placements
                .iter()
                .map(|placement| position(&placement.column))
                .collect(),
        }
    }
}

/// What a router remembers from row to row.
#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) topics: Topics,
    envelopes: Envelopes,
    expanded: LastSchema,
}

impl RouterState {
    /// Nothing remembered yet.
    pub(super) fn new(options: &config::Router) -> Self {
        Self {
            topics: Topics::new(Rewriter::new(
                &options.route_regex,
                &options.route_replacement,
            )),
            envelopes: Envelopes::default(),
            expanded: LastSchema::default(),
        }
    }
}

/// One event on its way through a router.
pub(super) struct Event<'r, 'a> {
    pub(super) content: Content<'r, 'a>,
    /// Headers that the record had before the router.
    pub(super) headers: Vec<DraftHeader<'a>>,
    /// The timestamp when no column gives one.
    pub(super) time_ms: i64,
}

/// Routes one event.
pub(super) fn route<'a>(
    options: &'a config::Router,
    roles: &Roles,
    state: &mut RouterState,
    event: Event<'_, 'a>,
) -> Result<Draft<'a>, Problem> {
    let Event {
        content,
        mut headers,
        time_ms,
    } = event;
    let payload_at = require(roles.payload, &options.payload, "payload column")?;
    let timestamp_ms = event_time::of(options, roles, content, time_ms)?;
    let id_at = require(roles.id, &options.id, "event id column")?;
    let id = content.get(id_at)?;
    let payload = content.get(payload_at)?;
    if let (Some(name), Some(at)) = (&options.tracing, roles.tracing) {
        trace::carry_on(&content.read(at, name, &Kind::String)?, &mut headers);
    }
    headers.push((Cow::Borrowed("id"), id));
    let payload = expanded(options, &mut state.expanded, payload);
    let empty = payload.value.is_blank();

    let mut value = envelope(options, roles, state, content, payload)?;
    let partition = place(options, roles, content, &mut headers)?;
    if empty && options.tombstone_on_empty {
        value = Part {
            schema: None,
            value: Value::Null,
        };
    }
    let key_at = require(roles.key, &options.key, "event key column")?;
    let key = content.get(key_at)?;
    let topic = match routing_value(options, roles, content)? {
        Value::String(text) => state.topics.any(text.as_bytes()),
        _ => Err(Problem::column(
            &options.route_by,
            "the routing value is NULL, so the event has no topic",
        )),
    }?;
    Ok(Draft {
        topic: topic.to_owned(),
        partition,
        key,
        value,
        headers,
        timestamp_ms,
    })
}

pub(super) fn require(at: Option<usize>, name: &str, what: &str) -> Result<usize, Problem> {
    at.ok_or_else(|| {
        Problem::column(
            name,
            format!(
                "the event has no such column, which is its {what}; check the router's options, \
                 the column's type and the publication's column list"
            ),
        )
    })
}

fn routing_value<'a>(
    options: &config::Router,
    roles: &Roles,
    content: Content<'_, 'a>,
) -> Result<Value<'a>, Problem> {
    let at = require(roles.route_by, &options.route_by, "routing column")?;
    content.read(at, &options.route_by, &Kind::String)
}

fn expanded<'a>(options: &config::Router, last: &mut LastSchema, payload: Part<'a>) -> Part<'a> {
    let Some(wanted) = &options.expand else {
        return payload;
    };
    let column = &options.payload;
    let (expansion, text) = match payload.value {
        Value::String(Cow::Borrowed(text)) => {
            let expansion = expand::expand(wanted, column, last, text);
            (expansion, Cow::Borrowed(text))
        }
        Value::String(Cow::Owned(text)) => {
            let expansion = expand::expand(wanted, column, last, &text).into_owned();
            (expansion, Cow::Owned(text))
        }
        value => return Part { value, ..payload },
    };
    let (schema, value) = match expansion {
        Expansion::Unchanged => (payload.schema, Value::String(text)),
        Expansion::Expanded(schema, value) => (Some(schema), value),
        Expansion::SchemaOnly(schema) => (schema, Value::String(text)),
    };
    Part { schema, value }
}

/// The payload itself or, with envelope placements, a struct that holds it.
fn envelope<'a>(
    options: &config::Router,
    roles: &Roles,
    state: &mut RouterState,
    content: Content<'_, 'a>,
    payload: Part<'a>,
) -> Result<Part<'a>, Problem> {
    let members = || {
        options
            .placements
            .iter()
            .zip(&roles.placements)
            .filter(|(placement, _)| placement.place == Place::Envelope)
    };
    if members().next().is_none() {
        return Ok(payload);
    }
    let Some(payload_schema) = payload.schema else {
        return Err(Problem::column(
            &options.payload,
            "an empty JSON array cannot be expanded inside an envelope",
        ));
    };
    let version = version(options, roles, content)?;
    let schema = state.envelopes.schema(&payload_schema, version, || {
        let mut fields = vec![("payload", Arc::clone(&payload_schema))];
        for (placement, at) in members() {
            match at.and_then(|at| content.schema(at)) {
                Some(schema) => fields.push((&placement.alias, schema)),
                None if options.ignore_missing => {}
                None => {
                    require(None, &placement.column, "additional column")?;
                }
            }
        }
        let routing_value = routing_value(options, roles, content)?;
        Ok((envelope_name(content, &routing_value), fields))
    })?;
    let mut envelope = Struct::new(Arc::clone(&schema));
    envelope
        .put("payload", payload.value)
        .map_err(|_| does_not_fit(&options.payload))?;
    for (placement, at) in members() {
        if let Some(at) = at {
            let member = content.get(*at)?;
            envelope
                .put(&placement.alias, member.value)
                .map_err(|_| does_not_fit(&placement.column))?;
        } else if !options.ignore_missing {
            require(None, &placement.column, "additional column")?;
        }
    }
    Ok(Part {
        schema: Some(schema),
        value: Value::Struct(envelope),
    })
}

/// The schema version, where a column for it is configured.
fn version(
    options: &config::Router,
    roles: &Roles,
    content: Content<'_, '_>,
) -> Result<Option<Option<i32>>, Problem> {
    let Some(name) = &options.schema_version else {
        return Ok(None);
    };
    let at = require(roles.version, name, "schema version column")?;
    Ok(Some(match content.read(at, name, &Kind::Int32)? {
        Value::Int32(version) => Some(version),
        _ => None,
    }))
}

fn does_not_fit(column: &str) -> Problem {
    Problem::column(
        column,
        "the value does not fit the envelope's schema, which the first event with this payload \
         schema has fixed",
    )
}

/// The row's schema name with the routing value put before its last part.
fn envelope_name(content: Content<'_, '_>, routing_value: &Value<'_>) -> String {
    let route = match routing_value {
        Value::String(text) => text.as_ref(),
        _ => "null",
    };
    match content.row_schema_name() {
        None => route.to_owned(),
        Some(name) => match name.rsplit_once('.') {
            Some((front, last)) => format!("{front}.{route}.{last}"),
            None => format!("{route}.{name}"),
        },
    }
}

/// Header and partition placements; the last partition wins, even when it is NULL.
fn place<'a>(
    options: &'a config::Router,
    roles: &Roles,
    content: Content<'_, 'a>,
    headers: &mut Vec<DraftHeader<'a>>,
) -> Result<Option<i32>, Problem> {
    let mut partition = None;
    for (placement, at) in options.placements.iter().zip(&roles.placements) {
        if at.is_none() && options.ignore_missing || placement.place == Place::Envelope {
            continue;
        }
        let at = require(*at, &placement.column, "additional column")?;
        if placement.place == Place::Header {
            headers.push((Cow::Borrowed(&*placement.alias), content.get(at)?));
        } else {
            partition = match content.read(at, &placement.column, &Kind::Int32)? {
                Value::Int32(number) => Some(number),
                _ => None,
            };
        }
    }
    Ok(partition)
}
