//! Connect's values, borrowing the row where they can, and the check a Java `Struct` makes when a
//! member is set.

use std::borrow::Cow;
use std::sync::Arc;

use super::java::Decimal;
use super::schema::{Kind, Schema};

/// A value. Which schema it goes with is not known here; see [`fits`].
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Boolean(bool),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    String(Cow<'a, str>),
    /// A `ByteBuffer`, which Java prints by its limits.
    Buffer(Cow<'a, [u8]>),
    /// A `byte[]`, which Java prints by its address.
    Bytes(Vec<u8>),
    /// A `BigDecimal`.
    Decimal(Decimal),
    /// A `java.util.Date`: milliseconds since the epoch.
    Date(i64),
    List(Vec<Value<'a>>),
    /// Entries in the order in which Java walks them. Keys are strings in all that we map.
    Map(Vec<(String, Value<'a>)>),
    Struct(Struct<'a>),
}

/// A struct with its schema; values in the order of its fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Struct<'a> {
    pub(super) schema: Arc<Schema>,
    pub(super) values: Vec<Value<'a>>,
}

impl<'a> Struct<'a> {
    /// All members NULL.
    pub(super) fn new(schema: Arc<Schema>) -> Self {
        let values = vec![Value::Null; schema.fields().len()];
        Self { schema, values }
    }

    /// Sets a member. Fails where Java's `Struct.put` does.
    pub(super) fn put(&mut self, name: &str, value: Value<'a>) -> Result<(), Mismatch> {
        let at = self.schema.position(name).ok_or(Mismatch)?;
        let field = self.schema.fields().get(at).ok_or(Mismatch)?;
        if !fits(&field.schema, &value) {
            return Err(Mismatch);
        }
        if let Some(slot) = self.values.get_mut(at) {
            *slot = value;
        }
        Ok(())
    }

    /// Members with their schemas and values.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Arc<Schema>, &Value<'a>)> {
        self.schema
            .fields()
            .iter()
            .zip(&self.values)
            .map(|(field, value)| (&*field.name, &field.schema, value))
    }
}

/// The value is not one of the schema's, or there is no such member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mismatch;

impl Value<'_> {
    /// Cut loose from what it borrows.
    pub(super) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Boolean(value) => Value::Boolean(value),
            Value::Int8(value) => Value::Int8(value),
            Value::Int16(value) => Value::Int16(value),
            Value::Int32(value) => Value::Int32(value),
            Value::Int64(value) => Value::Int64(value),
            Value::Float32(value) => Value::Float32(value),
            Value::Float64(value) => Value::Float64(value),
            Value::String(text) => Value::String(Cow::Owned(text.into_owned())),
            Value::Buffer(bytes) => Value::Buffer(Cow::Owned(bytes.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(bytes),
            Value::Decimal(value) => Value::Decimal(value),
            Value::Date(value) => Value::Date(value),
            Value::List(items) => Value::List(items.into_iter().map(Value::into_owned).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, value.into_owned()))
                    .collect(),
            ),
            Value::Struct(members) => Value::Struct(Struct {
                schema: members.schema,
                values: members.values.into_iter().map(Value::into_owned).collect(),
            }),
        }
    }

    /// Whether the router takes it for an empty payload: NULL or blank text. Bytes never are.
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Value::Null => true,
            Value::String(text) => is_blank(text.as_bytes()),
            _ => false,
        }
    }
}

/// Whether Java's `trim` leaves nothing.
pub(super) fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|&byte| byte <= b' ')
}

/// Whether a struct member of this schema may hold the value.
pub(super) fn fits(schema: &Schema, value: &Value<'_>) -> bool {
    match (value, &schema.kind) {
        (Value::Null, _) => schema.optional,
        (Value::Boolean(_), Kind::Boolean)
        | (Value::Int8(_), Kind::Int8)
        | (Value::Int16(_), Kind::Int16)
        | (Value::Int32(_), Kind::Int32)
        | (Value::Int64(_), Kind::Int64)
        | (Value::Float32(_), Kind::Float32)
        | (Value::Float64(_), Kind::Float64)
        | (Value::String(_), Kind::String)
        | (Value::Buffer(_) | Value::Bytes(_) | Value::Decimal(_), Kind::Bytes)
        | (Value::Date(_), Kind::Int32 | Kind::Int64) => true,
        (Value::List(items), Kind::Array(item)) => items.iter().all(|value| fits(item, value)),
        (Value::Map(entries), Kind::Map(_, item)) => {
            entries.iter().all(|(_, value)| fits(item, value))
        }
        (Value::Struct(members), Kind::Struct(_)) => *members.schema == *schema,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_takes_only_what_its_schema_says() {
        let schema = Arc::new(Schema::new(Kind::Struct(vec![
            super::super::schema::Field {
                name: "n".into(),
                schema: Arc::new(Schema::new(Kind::Int32)),
            },
        ])));
        let mut members = Struct::new(schema);
        assert_eq!(members.put("n", Value::Int32(5)), Ok(()));
        assert_eq!(members.put("n", Value::Null), Err(Mismatch));
        assert_eq!(members.put("n", Value::Int64(5)), Err(Mismatch));
        assert_eq!(members.put("m", Value::Int32(5)), Err(Mismatch));
    }

    #[test]
    fn only_null_and_blank_text_is_empty() {
        assert!(Value::Null.is_blank());
        assert!(Value::String(" \t\n".into()).is_blank());
        assert!(!Value::String("\u{a0}".into()).is_blank());
        assert!(!Value::Buffer(Cow::Borrowed(b"")).is_blank());
    }
}
