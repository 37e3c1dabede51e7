//! A JSON document becomes a Connect struct: the schema is inferred from the document, with all of
//! Debezium's peculiarities, and the value is then built to that schema.

use std::borrow::Cow;
use std::sync::Arc;

use super::json::{self, Members, Node};
use super::names;
use super::schema::{Field, Kind, Schema};
use super::value::{Struct, Value, fits};
use crate::config::{Expand, NameAdjustment};

/// What became of a payload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expansion<'t> {
    /// A struct, with its schema.
    Expanded(Arc<Schema>, Value<'t>),
    /// The text stays, with its schema.
    Unchanged,
    /// Debezium replaces the schema first and then fails to build the value: the text stays, with
    /// a schema that is not its own (none at all for an empty array).
    SchemaOnly(Option<Arc<Schema>>),
}

impl Expansion<'_> {
    /// Cut loose from the text.
    pub(super) fn into_owned(self) -> Expansion<'static> {
        match self {
            Expansion::Expanded(schema, value) => Expansion::Expanded(schema, value.into_owned()),
            Expansion::Unchanged => Expansion::Unchanged,
            Expansion::SchemaOnly(schema) => Expansion::SchemaOnly(schema),
        }
    }
}

/// The schema of the document before: mostly the one of the next, which is then not made again.
/// To be kept for one column and one set of options.
#[derive(Debug, Default)]
pub(super) struct LastSchema(Option<Arc<Schema>>);

/// Expands the text of the column `name`.
pub(super) fn expand<'t>(
    options: &Expand,
    name: &str,
    last: &mut LastSchema,
    text: &'t str,
) -> Expansion<'t> {
    if !text.starts_with(['{', '[']) {
        return Expansion::Unchanged;
    }
    let Ok(node) = json::parse(text) else {
        return Expansion::Unchanged;
    };
    let inference = Inference::of(options);
    let known = last.0.as_ref();
    let schema = match known.filter(|schema| inference.would_give(&node, schema)) {
        Some(schema) => Arc::clone(schema),
        None => match inference.schema(Some(name), &node) {
            Err(NotInferable) => return Expansion::Unchanged,
            Ok(None) => return Expansion::SchemaOnly(None),
            Ok(Some(schema)) => Arc::clone(last.0.insert(schema)),
        },
    };
    match inference.document(node, &schema) {
        Ok(value) => Expansion::Expanded(schema, value),
        Err(DoesNotFit) => Expansion::SchemaOnly(Some(schema)),
    }
}

/// Decodes the content of a logical message; the root has no name. `None` where the connector
/// would fail.
pub(super) fn decode(include_nulls: bool, text: &str) -> Option<Struct<'static>> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let inference = Inference {
        keep_nulls: include_nulls,
        keep_empty_arrays: false,
        field_names: NameAdjustment::None,
    };
    let node = json::parse(text).ok()?;
    let schema = inference.schema(None, &node).ok()??;
    match inference.document(node, &schema).ok()?.into_owned() {
        Value::Struct(members) => Some(members),
        _ => None,
    }
}

/// The document has no Connect schema.
struct NotInferable;

/// The value is none of the schema's.
struct DoesNotFit;

struct Inference {
    keep_nulls: bool,
    keep_empty_arrays: bool,
    field_names: NameAdjustment,
}

impl Inference {
    fn of(options: &Expand) -> Self {
        Self {
            keep_nulls: options.keep_nulls,
            keep_empty_arrays: options.keep_empty_arrays,
            field_names: options.field_names,
        }
    }

    /// Whether [`Inference::schema`] would give this schema, which was inferred for a node of the
    /// same path; `false` also where that is not easily seen. A path gives the same names every time,
    /// so they need not be compared.
    fn would_give(&self, node: &Node<'_>, schema: &Schema) -> bool {
        schema.optional
            && match (node, &schema.kind) {
                (Node::String(_), Kind::String)
                | (Node::Boolean(_), Kind::Boolean)
                | (Node::Int(_), Kind::Int32)
                | (Node::Long(_), Kind::Int64)
                | (Node::Double(_) | Node::BigInteger, Kind::Float64) => true,
                (Node::Null, Kind::Bytes) => self.keep_nulls,
                (Node::Array(items), Kind::Array(item)) if items.is_empty() => {
                    self.keep_empty_arrays && item.kind == Kind::String
                }
                (Node::Array(items), Kind::Array(item)) => sample(items).is_ok_and(|sample| {
                    let objects = matches!(sample, Node::Object(_));
                    let alike = |node: &Node<'_>| {
                        objects && matches!(node, Node::Null) || self.would_give(node, item)
                    };
                    if objects {
                        items.iter().all(alike)
                    } else {
                        alike(sample)
                    }
                }),
                (Node::Object(members), Kind::Struct(fields)) => {
                    self.would_give_fields(members, fields)
                }
                _ => false,
            }
    }

    fn would_give_fields(&self, members: &[(Cow<'_, str>, Node<'_>)], fields: &[Field]) -> bool {
        let kept = |node: &Node<'_>| match node {
            Node::Null => self.keep_nulls,
            Node::Array(items) => self.keep_empty_arrays || !items.is_empty(),
            _ => true,
        };
        let mut fields = fields.iter();
        self.field_names == NameAdjustment::None
            && members
                .iter()
                .filter(|(_, node)| kept(node))
                .all(|(name, node)| {
                    fields.next().is_some_and(|field| {
                        **name == *field.name && self.would_give(node, &field.schema)
                    })
                })
            && fields.next().is_none()
    }

    /// `None` for what is left out: a null, an empty array.
    fn schema(
        &self,
        path: Option<&str>,
        node: &Node<'_>,
    ) -> Result<Option<Arc<Schema>>, NotInferable> {
        let scalar = |kind: Kind| Ok(Some(Arc::new(Schema::optional(kind))));
        match node {
            Node::String(_) => scalar(Kind::String),
            Node::Boolean(_) => scalar(Kind::Boolean),
            Node::Int(_) => scalar(Kind::Int32),
            Node::Long(_) => scalar(Kind::Int64),
            Node::Double(_) | Node::BigInteger => scalar(Kind::Float64),
            Node::Null if self.keep_nulls => scalar(Kind::Bytes),
            Node::Null => Ok(None),
            Node::Array(items) if items.is_empty() && self.keep_empty_arrays => {
                let item = Arc::new(Schema::optional(Kind::String));
                scalar(Kind::Array(item))
            }
            Node::Array(items) if items.is_empty() => Ok(None),
            Node::Array(items) => scalar(Kind::Array(self.item_schema(path, items)?)),
            Node::Object(members) => self.object_schema(path, members).map(Some),
        }
    }

    fn object_schema(
        &self,
        path: Option<&str>,
        members: &[(Cow<'_, str>, Node<'_>)],
    ) -> Result<Arc<Schema>, NotInferable> {
        let mut fields: Vec<Field> = Vec::with_capacity(members.len());
        for (name, node) in members {
            let name = names::field_name(self.field_names, name);
            let member_path = match path {
                Some(path) if !path.trim().is_empty() => format!("{path}.{name}"),
                _ => name.clone(),
            };
            let Some(schema) = self.schema(Some(&member_path), node)? else {
                continue;
            };
            if name.is_empty() {
                return Err(NotInferable);
            }
            if fields.iter().all(|field| *field.name != *name) {
                fields.push(Field {
                    name: name.into(),
                    schema,
                });
            }
        }
        let mut schema = Schema::optional(Kind::Struct(fields));
        schema.name = path.map(|path| path.to_owned().into());
        Ok(Arc::new(schema))
    }

    /// The schema that all items of an array share. Inside an array of arrays the path is lost.
    fn item_schema(
        &self,
        path: Option<&str>,
        items: &[Node<'_>],
    ) -> Result<Arc<Schema>, NotInferable> {
        let sample = sample(items)?;
        if !matches!(sample, Node::Object(_)) {
            return self.schema(None, sample)?.ok_or(NotInferable);
        }
        let mut distinct: Vec<Arc<Schema>> = Vec::new();
        for item in items {
            if let Node::Object(members) = item {
                let schema = self.object_schema(path, members)?;
                if !distinct.contains(&schema) {
                    distinct.push(schema);
                }
            }
        }
        // Java walks them in the order of their addresses; first seen is as good an order.
        distinct
            .into_iter()
            .reduce(|left, right| self.merge(&left, &right))
            .ok_or(NotInferable)
    }

    /// Fields of both; of two that differ the first stays, unless it only stands for a null or for
    /// an empty array. The result is required: Debezium forgets to copy that it is optional.
    fn merge(&self, left: &Arc<Schema>, right: &Arc<Schema>) -> Arc<Schema> {
        let mut fields = left.fields().to_vec();
        for field in right.fields() {
            match fields.iter_mut().find(|known| known.name == field.name) {
                None => fields.push(field.clone()),
                Some(known) => {
                    if self.stands_in(&known.schema.kind, &field.schema.kind) {
                        known.schema = Arc::clone(&field.schema);
                    }
                }
            }
        }
        let mut merged = Schema::new(Kind::Struct(fields));
        merged.name.clone_from(&left.name);
        Arc::new(merged)
    }

    /// Whether `known` says less than `other`: what a null and a kept empty array are taken for.
    fn stands_in(&self, known: &Kind, other: &Kind) -> bool {
        match (known, other) {
            (Kind::Bytes, other) => *other != Kind::Bytes,
            (Kind::Array(known), Kind::Array(other)) => {
                self.keep_empty_arrays && known.kind == Kind::String && other.kind != Kind::String
            }
            _ => false,
        }
    }

    fn document<'t>(&self, node: Node<'t>, schema: &Arc<Schema>) -> Result<Value<'t>, DoesNotFit> {
        match node {
            Node::Object(_) => self.value(node, schema),
            _ => Err(DoesNotFit),
        }
    }

    fn value<'t>(&self, node: Node<'t>, schema: &Arc<Schema>) -> Result<Value<'t>, DoesNotFit> {
        let value = match node {
            Node::Null => Value::Null,
            Node::Boolean(value) => Value::Boolean(value),
            Node::Int(value) => Value::Int32(value),
            Node::Long(value) => Value::Int64(value),
            Node::Double(value) => Value::Float64(value),
            Node::String(text) => Value::String(text),
            Node::BigInteger => return Err(DoesNotFit),
            Node::Array(items) => {
                let Kind::Array(item) = &schema.kind else {
                    return Err(DoesNotFit);
                };
                let items = items.into_iter().map(|node| self.value(node, item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Node::Object(members) => {
                return self.object(members, schema);
            }
        };
        if fits(schema, &value) {
            Ok(value)
        } else {
            Err(DoesNotFit)
        }
    }

    /// Looks members up by the schema's names, so those that were renamed are not found.
    fn object<'t>(
        &self,
        mut members: Members<'t>,
        schema: &Arc<Schema>,
    ) -> Result<Value<'t>, DoesNotFit> {
        let Kind::Struct(fields) = &schema.kind else {
            return Err(DoesNotFit);
        };
        let mut values = Vec::with_capacity(fields.len());
        let mut next = 0;
        for field in fields {
            // Fields come in the document's order, unless schemas were merged.
            let is_it = |(name, _): &(Cow<'t, str>, Node<'t>)| **name == *field.name;
            let found = (next..members.len())
                .chain(0..next)
                .find(|&at| members.get(at).is_some_and(is_it));
            values.push(
                match found.and_then(|at| members.get_mut(at).zip(Some(at))) {
                    Some(((_, node), at)) => {
                        next = at + 1;
                        // Names of fields are distinct, so nobody asks for it again.
                        self.value(std::mem::replace(node, Node::Null), &field.schema)?
                    }
                    None => Value::Null,
                },
            );
        }
        Ok(Value::Struct(Struct {
            schema: Arc::clone(schema),
            values,
        }))
    }
}

/// The first item that is not null. All others must be of its kind, numbers of its very type.
fn sample<'n, 't>(items: &'n [Node<'t>]) -> Result<&'n Node<'t>, NotInferable> {
    let mut sample = &Node::Null;
    for item in items {
        if matches!(item, Node::Null) {
            continue;
        }
        if matches!(sample, Node::Null) {
            sample = item;
        }
        let alike = match (sample, item) {
            (Node::Double(_) | Node::BigInteger, Node::Double(_) | Node::BigInteger) => true,
            _ => std::mem::discriminant(sample) == std::mem::discriminant(item),
        };
        if !alike {
            return Err(NotInferable);
        }
    }
    Ok(sample)
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
