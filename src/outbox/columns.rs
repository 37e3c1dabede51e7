//! A table as the router sees it: its columns with schemas, and how a cell becomes a value.
//!
//! Built when the stream describes the table; every row that follows is read with it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::problem::Problem;
use super::schema::{Field, Kind, Schema};
use super::types::{self, Codec, Measure, Origin, Unconvertible};
use super::value::{Struct, Value, fits};
use super::{Replaced, defaults, java, names};
use crate::config::{Connector, FailureMode, Pattern, ValueOptions};
use crate::source::row::{Cell, ColumnFacts, PgTypeKind, Relation, TableFacts, Tuple};

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    /// `schema.table`, for messages.
    pub(super) name: String,
    /// The topic its raw changes would go to, which predicates look at.
    pub(super) topic: String,
    /// Name of the row schema, to which envelopes owe theirs.
    pub(super) schema_name: String,
    /// What the router may see.
    pub(super) columns: Vec<Column>,
    /// For each column of the rows, whether `column.include.list` and `.exclude.list` let it out.
    shown: Vec<bool>,
    /// Key columns, whether or not the router may see them.
    key: Vec<Column>,
    key_schema: Arc<Schema>,
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    /// Position in the rows.
    pub(super) index: usize,
    /// Name, adjusted.
    pub(super) name: Arc<str>,
    pub(super) schema: Arc<Schema>,
    pub(super) codec: Codec,
    type_name: String,
    mapping: Mapping,
}

/// `column.mask.*` and `column.truncate.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mapping {
    None,
    Mask(String),
    Truncate(usize),
}

/// One row, and how to read it.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) new: Tuple<'a>,
    /// What the row was before, for values that the new one leaves out.
    pub(super) old: Option<Tuple<'a>>,
    pub(super) origin: Origin,
    pub(super) placeholder: &'a [u8],
    pub(super) failure: FailureMode,
    /// Columns whose value is published otherwise than it stands here.
    pub(super) replaced: RefCell<Vec<(Replaced, Arc<str>)>>,
}

impl Row<'_> {
    pub(super) fn replaced(&self, what: Replaced, column: &Arc<str>) {
        self.replaced.borrow_mut().push((what, Arc::clone(column)));
    }
}

impl Table {
    /// The table that `relation` describes.
    pub(super) fn new(relation: &Relation, facts: &TableFacts, connector: &Connector) -> Self {
        let prefix = names::table_prefix(
            &connector.topic_prefix,
            &connector.topic_delimiter,
            &relation.schema,
            &relation.table,
        );
        let name = format!("{}.{}", relation.schema, relation.table);
        let mut columns = Vec::new();
        let mut key = Vec::new();
        let mut shown = Vec::new();
        for (index, (described, facts)) in relation.columns.iter().zip(&facts.columns).enumerate() {
            let path = format!("{name}.{}", described.name);
            let source = Source {
                index,
                name: &described.name,
                modifier: described.type_modifier,
                facts,
            };
            if let Some(place) = facts.key {
                key.extend(source.column(connector, None).map(|column| (place, column)));
            }
            let takes = connector.columns.filter.takes(&path);
            shown.push(takes);
            if takes {
                columns.extend(source.column(connector, Some(&path)));
            }
        }
        key.sort_by_key(|(place, _)| *place);
        let key: Vec<Column> = key.into_iter().map(|(_, column)| column).collect();
        let schema_names = connector.values.schema_names;
        let mut key_schema = Schema::new(Kind::Struct(
            key.iter()
                .map(|column| Field {
                    name: Arc::clone(&column.name),
                    schema: Arc::clone(&column.schema),
                })
                .collect(),
        ));
        key_schema.name = Some(names::schema_name(schema_names, format!("{prefix}.Key")).into());
        Self {
            name,
            schema_name: names::schema_name(schema_names, format!("{prefix}.Value")),
            topic: prefix,
            columns,
            shown,
            key,
            key_schema: Arc::new(key_schema),
        }
    }

    /// Position of the column of this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column.name == *name)
    }

    /// What of a column's text may leave the database: nothing of an excluded one, of a masked or
    /// truncated one what the rule leaves.
    pub(super) fn shown<'a>(&'a self, index: usize, text: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if !self.shown.get(index).copied().unwrap_or_default() {
            return None;
        }
        let column = self.columns.iter().find(|column| column.index == index);
        Some(match column.map(|column| &column.mapping) {
            Some(Mapping::Mask(mask)) => Cow::Borrowed(mask.as_bytes()),
            Some(Mapping::Truncate(length)) => match String::from_utf8_lossy(text) {
                Cow::Borrowed(text) => match java::truncate_utf16(Cow::Borrowed(text), *length) {
                    Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                },
                Cow::Owned(_) => Cow::Borrowed(&text[..text.len().min(*length)]),
            },
            Some(Mapping::None) | None => Cow::Borrowed(text),
        })
    }

    /// Whether the key of `new` is another than that of `old`. A table without key, and an UPDATE
    /// for which the server sent no old key, say no.
    pub(super) fn key_changed(&self, old: Option<Tuple<'_>>, new: Tuple<'_>) -> bool {
        let Some(old) = old else { return false };
        self.key.iter().any(|column| {
            let cell = new.cell(column.index);
            cell != Cell::Unchanged && cell != old.cell(column.index)
        })
    }

    /// The key of a row, as the header `__debezium.oldkey` carries it.
    pub(super) fn key_of<'a>(&'a self, row: &Row<'a>) -> Result<(Arc<Schema>, Value<'a>), Problem> {
        let values = self
            .key
            .iter()
            .map(|column| column.read(row))
            .collect::<Result<_, _>>()?;
        let key = Struct {
            schema: Arc::clone(&self.key_schema),
            values,
        };
        Ok((Arc::clone(&self.key_schema), Value::Struct(key)))
    }
}

/// A column before it is known whether it can be read.
struct Source<'s> {
    index: usize,
    name: &'s str,
    modifier: i32,
    facts: &'s ColumnFacts,
}

impl Source<'_> {
    /// The column; rules of the connector apply where a `path` is given to match them.
    fn column(&self, connector: &Connector, path: Option<&str>) -> Option<Column> {
        let options: &ValueOptions = &connector.values;
        let pg_type = &*self.facts.pg_type;
        let measure = Measure::of(pg_type, self.modifier);
        let (mut schema, codec) = types::describe(pg_type, measure, options)?;
        let mapping = match path {
            Some(path) => self.map(&mut schema, measure, connector, path),
            None => Mapping::None,
        };
        schema.optional = !self.facts.not_null;
        let schema = Arc::new(schema);
        let default = self
            .facts
            .default
            .as_deref()
            .and_then(|expression| defaults::evaluate(pg_type, &codec, &schema, expression));
        let schema = match default {
            Some(default) => Arc::new(schema.defaulting_to(default)),
            None => schema,
        };
        Some(Column {
            index: self.index,
            name: names::field_name(options.field_names, self.name).into(),
            schema,
            codec,
            type_name: types::root(pg_type).name.clone(),
            mapping,
        })
    }

    /// The first rule that matches the column applies, and leaves its mark in the schema.
    fn map(
        &self,
        schema: &mut Schema,
        measure: Measure,
        connector: &Connector,
        path: &str,
    ) -> Mapping {
        let rules = &connector.columns;
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path));
        let mut parameter = |name: &'static str, value: String| {
            schema.parameters.push((Cow::Borrowed(name), value));
        };
        if let Some((length, _)) = rules.truncate.iter().find(|(_, columns)| matches(columns)) {
            let column_length = usize::try_from(measure.length);
            if column_length.is_ok_and(|column_length| column_length <= *length) {
                return Mapping::None;
            }
            parameter("truncateLength", length.to_string());
            return Mapping::Truncate(*length);
        }
        if let Some((length, _)) = rules.mask.iter().find(|(_, columns)| matches(columns)) {
            parameter("masked", "true".to_owned());
            return if self.is_character_type() {
                Mapping::Mask("*".repeat(*length))
            } else {
                Mapping::None
            };
        }
        if matches(&rules.propagate_source_type) {
            let type_name = self.facts.pg_type.name.to_uppercase();
            parameter("__debezium.source.column.type", type_name);
            let length = measure.length.to_string();
            parameter("__debezium.source.column.length", length);
            parameter("__debezium.source.column.scale", measure.scale.to_string());
            parameter("__debezium.source.column.name", self.name.to_owned());
        }
        Mapping::None
    }

    fn is_character_type(&self) -> bool {
        let pg_type = types::root(&self.facts.pg_type);
        match &pg_type.kind {
            PgTypeKind::Enum(_) => true,
            PgTypeKind::Base => {
                pg_type.schema == "pg_catalog"
                    && matches!(
                        pg_type.name.as_str(),
                        "text" | "varchar" | "bpchar" | "char" | "name"
                    )
            }
            _ => false,
        }
    }
}

impl Column {
    /// Whether a StringConverter writes the bytes of the cell unchanged.
    pub(super) fn is_plain(&self) -> bool {
        self.codec.is_plain() && self.mapping == Mapping::None
    }

    /// The moment in a `timestamptz` or `date` column, in milliseconds; inside, `None` for NULL.
    pub(super) fn instant(&self, row: &Row<'_>) -> Option<Option<i64>> {
        if !matches!(self.codec, Codec::TimestampZoned { .. } | Codec::Date(_))
            || self.mapping != Mapping::None
        {
            return None;
        }
        match row.new.cell(self.index) {
            Cell::Null => Some(None),
            Cell::Text(text) => Some(Some(self.codec.millis(std::str::from_utf8(text).ok()?)?)),
            Cell::Unchanged => None,
        }
    }

    /// The value as Connect's `Struct.get` gives it: a NULL reads as the column's default.
    pub(super) fn get<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>, Problem> {
        match (self.read(row)?, &self.schema.default) {
            (Value::Null, Some(default)) => Ok(default.clone()),
            (value, _) => Ok(value),
        }
    }

    /// The value as it is stored; a NULL stays one.
    pub(super) fn read<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>, Problem> {
        let value = match &self.mapping {
            Mapping::Mask(mask) => return Ok(Value::String(Cow::Borrowed(mask))),
            Mapping::None | Mapping::Truncate(_) => self.convert(row),
        };
        let value = match value {
            Ok((value, false)) => value,
            Ok((value, true)) => self.lose(row, value)?,
            Err(Unconvertible) => self.lose(row, Value::Null)?,
        };
        Ok(match (&self.mapping, value) {
            (Mapping::Truncate(length), Value::String(text)) => {
                Value::String(java::truncate_utf16(text, *length))
            }
            (Mapping::Truncate(length), Value::Buffer(bytes)) => Value::Buffer(match bytes {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..bytes.len().min(*length)]),
                Cow::Owned(mut bytes) => {
                    bytes.truncate(*length);
                    Cow::Owned(bytes)
                }
            }),
            (_, value) => value,
        })
    }

    fn convert<'a>(&'a self, row: &Row<'a>) -> Result<(Value<'a>, bool), Unconvertible> {
        let cell = match row.new.cell(self.index) {
            Cell::Unchanged => match row.old.map(|old| old.cell(self.index)) {
                Some(Cell::Text(text)) => Cell::Text(text),
                _ => {
                    let value = self.codec.unavailable(&self.type_name, row.placeholder)?;
                    return self.checked(value, false);
                }
            },
            cell => cell,
        };
        match cell {
            Cell::Null | Cell::Unchanged if self.schema.optional => Ok((Value::Null, false)),
            Cell::Null | Cell::Unchanged => {
                let default = self.schema.default.clone();
                let value = default.unwrap_or_else(|| self.codec.fallback(&self.schema));
                self.checked(value, false)
            }
            Cell::Text(bytes) => {
                let text = std::str::from_utf8(bytes).map_err(|_| Unconvertible)?;
                let decoded = self.codec.decode(&self.schema, text, row.origin)?;
                match (decoded.value, &self.codec) {
                    // Debezium hands the empty text on for a value it cannot read.
                    (Value::Null, Codec::Void) if !self.schema.optional => {
                        Ok((self.codec.fallback(&self.schema), true))
                    }
                    (value, _) => self.checked(value, decoded.lost),
                }
            }
        }
    }

    fn checked<'a>(
        &self,
        value: Value<'a>,
        lost: bool,
    ) -> Result<(Value<'a>, bool), Unconvertible> {
        if fits(&self.schema, &value) {
            Ok((value, lost))
        } else {
            Err(Unconvertible)
        }
    }

    /// `event.converting.failure.handling.mode` decides about a value that has no Connect form.
    fn lose<'a>(&self, row: &Row<'a>, value: Value<'a>) -> Result<Value<'a>, Problem> {
        match row.failure {
            FailureMode::Fail => Err(Problem::column(
                &self.name,
                format!(
                    "the value of type {} has no form in the column's Connect schema; \
                     event.converting.failure.handling.mode=warn would publish it as null",
                    self.type_name
                ),
            )),
            FailureMode::Warn => {
                row.replaced(Replaced::Value, &self.name);
                Ok(value)
            }
            FailureMode::Skip => Ok(value),
        }
    }
}
