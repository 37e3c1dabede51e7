//! Connect's schemas: what JsonConverter prints beside a value, and what a struct checks its
//! fields against. Built once per relation and shared.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use super::convert;
use super::value::Value;

/// A schema. Equality and the JSON text ignore nothing but the cached text itself.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) kind: Kind,
    pub(super) optional: bool,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) version: Option<i32>,
    pub(super) doc: Option<&'static str>,
    pub(super) parameters: Vec<(Cow<'static, str>, String)>,
    pub(super) default: Option<Value<'static>>,
    text: OnceLock<Box<str>>,
    numeric_text: OnceLock<Box<str>>,
}

/// Connect's types, with what a composite one is made of.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    String,
    Bytes,
    Array(Arc<Schema>),
    Map(Arc<Schema>, Arc<Schema>),
    Struct(Vec<Field>),
}

impl Kind {
    /// Connect's name of the type, as error texts use it.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::Int8 => "INT8",
            Kind::Int16 => "INT16",
            Kind::Int32 => "INT32",
            Kind::Int64 => "INT64",
            Kind::Float32 => "FLOAT32",
            Kind::Float64 => "FLOAT64",
            Kind::String => "STRING",
            Kind::Bytes => "BYTES",
            Kind::Array(_) => "ARRAY",
            Kind::Map(..) => "MAP",
            Kind::Struct(_) => "STRUCT",
        }
    }
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: Arc<str>,
    pub(super) schema: Arc<Schema>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        self.kind == other.kind
            && self.optional == other.optional
            && self.name == other.name
            && self.version == other.version
            && self.doc == other.doc
            && self.parameters == other.parameters
            && self.default == other.default
    }
}

impl Schema {
    /// A required schema without a name.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: Vec::new(),
            default: None,
            text: OnceLock::new(),
            numeric_text: OnceLock::new(),
        }
    }

    /// An optional schema without a name.
    pub(super) fn optional(kind: Kind) -> Self {
        Self::new(kind).or_null()
    }

    /// A logical type: a name, version 1.
    pub(super) fn logical(kind: Kind, name: &'static str) -> Self {
        let mut schema = Self::new(kind);
        schema.name = Some(Cow::Borrowed(name));
        schema.version = Some(1);
        schema
    }

    /// The same, optional.
    #[must_use]
    pub(super) fn or_null(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The same with one parameter more.
    #[must_use]
    pub(super) fn with(mut self, parameter: &'static str, value: impl Into<String>) -> Self {
        self.parameters
            .push((Cow::Borrowed(parameter), value.into()));
        self
    }

    /// The same with a default.
    pub(super) fn defaulting_to(&self, default: Value<'static>) -> Self {
        let mut schema = Self::new(self.kind.clone());
        schema.optional = self.optional;
        schema.name.clone_from(&self.name);
        schema.version = self.version;
        schema.doc = self.doc;
        schema.parameters.clone_from(&self.parameters);
        schema.default = Some(default);
        schema
    }

    /// Members, of a struct.
    pub(super) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Struct(fields) => fields,
            _ => &[],
        }
    }

    /// Position of a member, of a struct.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.fields().iter().position(|field| *field.name == *name)
    }

    /// The schema as JsonConverter writes it. `numeric` is its `decimal.format`, which shows in
    /// defaults only. Also the schema's identity: equal texts are equal schemas.
    pub(super) fn json(&self, numeric: bool) -> &str {
        let cell = if numeric {
            &self.numeric_text
        } else {
            &self.text
        };
        cell.get_or_init(|| convert::schema_text(self, numeric).into_boxed_str())
    }
}
