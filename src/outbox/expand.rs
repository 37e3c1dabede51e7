//! A JSON document becomes a Connect struct: the schema is inferred from the document, with all of
//! Debezium's peculiarities, and the value is then built to that schema.

use std::sync::Arc;

use super::json::{self, Node};
use super::names;
use super::schema::{Field, Kind, Schema};
use super::value::{Struct, Value, fits};
use crate::config::{Expand, NameAdjustment};

/// What became of a payload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expansion {
    /// A struct, with its schema.
    Expanded(Arc<Schema>, Value<'static>),
    /// The text stays, with its schema.
    Unchanged,
    /// Debezium replaces the schema first and then fails to build the value: the text stays, with
    /// a schema that is not its own (none at all for an empty array).
    SchemaOnly(Option<Arc<Schema>>),
}

/// Expands the text of the column `name`.
pub(super) fn expand(options: &Expand, name: &str, text: &str) -> Expansion {
    if !text.starts_with(['{', '[']) {
        return Expansion::Unchanged;
    }
    let Ok(node) = json::parse(text) else {
        return Expansion::Unchanged;
    };
    let inference = Inference::of(options);
    match inference.schema(Some(name), &node) {
        Err(NotInferable) => Expansion::Unchanged,
        Ok(None) => Expansion::SchemaOnly(None),
        Ok(Some(schema)) => match inference.document(&node, &schema) {
            Ok(value) => Expansion::Expanded(schema, value),
            Err(DoesNotFit) => Expansion::SchemaOnly(Some(schema)),
        },
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
    match inference.document(&node, &schema).ok()? {
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

    /// `None` for what is left out: a null, an empty array.
    fn schema(&self, path: Option<&str>, node: &Node) -> Result<Option<Arc<Schema>>, NotInferable> {
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
        members: &[(String, Node)],
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
    fn item_schema(&self, path: Option<&str>, items: &[Node]) -> Result<Arc<Schema>, NotInferable> {
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

    fn document(&self, node: &Node, schema: &Arc<Schema>) -> Result<Value<'static>, DoesNotFit> {
        match node {
            Node::Object(_) => self.value(node, schema),
            _ => Err(DoesNotFit),
        }
    }

    fn value(&self, node: &Node, schema: &Arc<Schema>) -> Result<Value<'static>, DoesNotFit> {
        let value = match node {
            Node::Null => Value::Null,
            Node::Boolean(value) => Value::Boolean(*value),
            Node::Int(value) => Value::Int32(*value),
            Node::Long(value) => Value::Int64(*value),
            Node::Double(value) => Value::Float64(*value),
            Node::String(text) => Value::String(text.clone().into()),
            Node::BigInteger => return Err(DoesNotFit),
            Node::Array(items) => {
                let Kind::Array(item) = &schema.kind else {
                    return Err(DoesNotFit);
                };
                let items = items.iter().map(|node| self.value(node, item));
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
    fn object(
        &self,
        members: &[(String, Node)],
        schema: &Arc<Schema>,
    ) -> Result<Value<'static>, DoesNotFit> {
        let Kind::Struct(fields) = &schema.kind else {
            return Err(DoesNotFit);
        };
        let mut values = Vec::with_capacity(fields.len());
        let mut rest = members.iter();
        for field in fields {
            // Fields come in the document's order, unless schemas were merged.
            let found = rest
                .find(|(name, _)| **name == *field.name)
                .or_else(|| members.iter().find(|(name, _)| **name == *field.name));
            values.push(match found {
                Some((_, node)) => self.value(node, &field.schema)?,
                None => Value::Null,
            });
        }
        Ok(Value::Struct(Struct {
            schema: Arc::clone(schema),
            values,
        }))
    }
}

/// The first item that is not null. All others must be of its kind, numbers of its very type.
fn sample(items: &[Node]) -> Result<&Node, NotInferable> {
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
mod tests {
    use super::*;

    fn options() -> Expand {
        Expand {
            keep_nulls: false,
            keep_empty_arrays: false,
            field_names: NameAdjustment::None,
        }
    }

    fn schema_text(options: &Expand, text: &str) -> String {
        match expand(options, "payload", text) {
            Expansion::Expanded(schema, _) => schema.json(false).to_owned(),
            other => panic!("{text} became {other:?}"),
        }
    }

    #[test]
    fn structs_are_named_by_their_path() {
        let text = schema_text(&options(), "{\"a\": {\"b\": 1}, \"l\": [{\"c\": {}}]}");
        for name in ["payload", "payload.a", "payload.l", "payload.l.c"] {
            assert!(text.contains(&format!("\"name\":\"{name}\"")), "{text}");
        }
    }

    #[test]
    fn nulls_and_empty_arrays_are_left_out_unless_kept() {
        let document = "{\"a\": null, \"b\": []}";
        assert!(schema_text(&options(), document).contains("\"fields\":[]"));
        let kept = Expand {
            keep_nulls: true,
            keep_empty_arrays: true,
            ..options()
        };
        let text = schema_text(&kept, document);
        assert!(text.contains("{\"type\":\"bytes\",\"optional\":true,\"field\":\"a\"}"));
        assert!(text.contains("\"items\":{\"type\":\"string\",\"optional\":true}"));
    }

    #[test]
    fn a_kept_empty_array_takes_the_type_of_a_later_one() {
        let kept = Expand {
            keep_empty_arrays: true,
            ..options()
        };
        let document = "{\"rows\": [{\"tags\": []}, {\"tags\": [{\"k\": 1}]}, {\"tags\": []}]}";
        let text = schema_text(&kept, document);
        assert!(text.contains("\"name\":\"payload.rows.tags\""), "{text}");
    }

    #[test]
    fn documents_without_one_schema_stay_text() {
        for text in [
            "\"str\"",
            "12",
            "",
            " {\"a\": 1}",
            "{bad",
            "{\"\": 3}",
            "{\"a\": [1, \"x\"]}",
            "{\"a\": [1, 2.5]}",
            "{\"a\": [1, 3000000000]}",
            "{\"a\": [null, null]}",
            "{\"a\": [[], [1]]}",
        ] {
            assert_eq!(
                expand(&options(), "payload", text),
                Expansion::Unchanged,
                "{text}"
            );
        }
    }

    #[test]
    fn some_documents_change_their_schema_only() {
        for text in [
            "[1, 2]",
            "[{\"a\": 1}]",
            "{\"a\": 12345678901234567890}",
            "{\"a\": [[1], [\"x\"]]}",
        ] {
            assert!(
                matches!(
                    expand(&options(), "payload", text),
                    Expansion::SchemaOnly(Some(_))
                ),
                "{text}"
            );
        }
        assert_eq!(
            expand(&options(), "payload", "[]"),
            Expansion::SchemaOnly(None)
        );
    }

    #[test]
    fn messages_must_be_objects() {
        assert!(decode(false, "{}").is_some());
        for text in ["", "hello", "[]", "[1]", "{\"a\": 1"] {
            assert!(decode(false, text).is_none(), "{text}");
        }
    }
}
