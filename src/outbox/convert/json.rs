//! JsonConverter, with and without schemas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Refusal;
use crate::config::JsonConverter;
use crate::outbox::java::{self, put};
use crate::outbox::json::write_string;
use crate::outbox::schema::{Kind, Schema};
use crate::outbox::value::Value;

const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";
const DATE: &str = "org.apache.kafka.connect.data.Date";
const MILLIS_PER_DAY: i64 = 86_400_000;

/// The JSON text; `None` for a value that has neither content nor schema.
pub(super) fn write(
    options: JsonConverter,
    schema: Option<&Schema>,
    value: &Value<'_>,
) -> Result<Option<String>, Refusal> {
    if schema.is_none() && *value == Value::Null {
        return Ok(None);
    }
    let schema_text = match schema {
        Some(schema) if options.schemas => schema.json(options.decimal_numeric),
        _ => "null",
    };
    let mut out = String::with_capacity(schema_text.len() + size(value));
    if options.schemas {
        out.push_str("{\"schema\":");
        out.push_str(schema_text);
        out.push_str(",\"payload\":");
    }
    Writer { options }.value(&mut out, schema, value)?;
    if options.schemas {
        out.push('}');
    }
    Ok(Some(out))
}

/// About as many bytes as the value takes, so that the text need not grow while it is written.
fn size(value: &Value<'_>) -> usize {
    const OTHERS: usize = 24;
    const MEMBER: usize = 4;
    match value {
        // Quotes in it are escaped, and JSON has many.
        Value::String(text) => text.len() + text.len() / 4 + MEMBER,
        Value::Buffer(bytes) => bytes.len() / 3 * 4 + OTHERS,
        Value::Bytes(bytes) => bytes.len() / 3 * 4 + OTHERS,
        Value::List(items) => items.iter().map(size).sum::<usize>() + OTHERS,
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| key.len() + MEMBER + size(value))
            .sum::<usize>(),
        Value::Struct(members) => members
            .members()
            .map(|(name, _, value)| name.len() + MEMBER + size(value))
            .sum::<usize>(),
        _ => OTHERS,
    }
}

/// The text of a schema, without what marks it as a struct's member.
pub(in crate::outbox) fn schema_text(schema: &Schema, decimal_numeric: bool) -> String {
    let writer = Writer {
        options: JsonConverter {
            schemas: true,
            decimal_numeric,
            null_to_default: true,
        },
    };
    let mut out = String::new();
    writer.schema(&mut out, schema, None);
    out
}

struct Writer {
    options: JsonConverter,
}

impl Writer {
    fn schema(&self, out: &mut String, schema: &Schema, member: Option<&str>) {
        out.push_str("{\"type\":");
        write_string(out, type_name(&schema.kind));
        self.parts(out, &schema.kind);
        out.push_str(",\"optional\":");
        out.push_str(if schema.optional { "true" } else { "false" });
        if let Some(name) = &schema.name {
            out.push_str(",\"name\":");
            write_string(out, name);
        }
        if let Some(version) = schema.version {
            put(out, format_args!(",\"version\":{version}"));
        }
        if let Some(doc) = schema.doc {
            out.push_str(",\"doc\":");
            write_string(out, doc);
        }
        if !schema.parameters.is_empty() {
            out.push_str(",\"parameters\":{");
            for (at, (name, value)) in schema.parameters.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_string(out, name);
                out.push(':');
                write_string(out, value);
            }
            out.push('}');
        }
        if let Some(default) = &schema.default {
            out.push_str(",\"default\":");
            // A default was checked against its schema when it was made.
            let _ = self.value(out, Some(schema), default);
        }
        if let Some(member) = member {
            out.push_str(",\"field\":");
            write_string(out, member);
        }
        out.push('}');
    }

    fn parts(&self, out: &mut String, kind: &Kind) {
        match kind {
            Kind::Array(item) => {
                out.push_str(",\"items\":");
                self.schema(out, item, None);
            }
            Kind::Map(key, value) => {
                out.push_str(",\"keys\":");
                self.schema(out, key, None);
                out.push_str(",\"values\":");
                self.schema(out, value, None);
            }
            Kind::Struct(fields) => {
                out.push_str(",\"fields\":[");
                for (at, field) in fields.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    self.schema(out, &field.schema, Some(&field.name));
                }
                out.push(']');
            }
            _ => {}
        }
    }

    fn value(
        &self,
        out: &mut String,
        schema: Option<&Schema>,
        value: &Value<'_>,
    ) -> Result<(), Refusal> {
        let Some(schema) = schema else {
            return self.bare(out, value);
        };
        if *value == Value::Null {
            return self.null(out, schema);
        }
        match (&schema.kind, value) {
            (Kind::Boolean, Value::Boolean(_))
            | (Kind::Int8, Value::Int8(_))
            | (Kind::Int16, Value::Int16(_))
            | (Kind::Int32, Value::Int32(_))
            | (Kind::Int64, Value::Int64(_))
            | (Kind::Float32, Value::Float32(_))
            | (Kind::Float64, Value::Float64(_))
            | (Kind::String, Value::String(_))
            | (Kind::Bytes, Value::Buffer(_) | Value::Bytes(_)) => self.bare(out, value),
            (Kind::Bytes, Value::Decimal(_)) if schema.name.as_deref() == Some(DECIMAL) => {
                self.bare(out, value)
            }
            (Kind::Int32, Value::Date(millis)) if schema.name.as_deref() == Some(DATE) => {
                put(out, format_args!("{}", millis.div_euclid(MILLIS_PER_DAY)));
                Ok(())
            }
            (Kind::Int32 | Kind::Int64, Value::Date(_)) => self.bare(out, value),
            (Kind::Array(item), Value::List(items)) => self.list(out, Some(item), items),
            (Kind::Map(_, item), Value::Map(entries)) => self.map(out, Some(item), entries),
            (Kind::Struct(_), Value::Struct(_)) => self.bare(out, value),
            (kind, _) => Err(Refusal(format!(
                "JsonConverter found a value that is not of its schema's type {}",
                kind.label()
            ))),
        }
    }

    fn null(&self, out: &mut String, schema: &Schema) -> Result<(), Refusal> {
        match &schema.default {
            Some(default) if self.options.null_to_default => self.value(out, Some(schema), default),
            _ if schema.optional => {
                out.push_str("null");
                Ok(())
            }
            _ => Err(Refusal(
                "JsonConverter found NULL where the schema requires a value".to_owned(),
            )),
        }
    }

    fn bare(&self, out: &mut String, value: &Value<'_>) -> Result<(), Refusal> {
        match value {
            Value::Null => out.push_str("null"),
            Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Int8(value) => put(out, format_args!("{value}")),
            Value::Int16(value) => put(out, format_args!("{value}")),
            Value::Int32(value) => put(out, format_args!("{value}")),
            Value::Int64(value) | Value::Date(value) => put(out, format_args!("{value}")),
            Value::Float32(value) => {
                let quote = if value.is_finite() { "" } else { "\"" };
                out.push_str(quote);
                java::write_f32(out, *value);
                out.push_str(quote);
            }
            Value::Float64(value) => {
                let quote = if value.is_finite() { "" } else { "\"" };
                out.push_str(quote);
                java::write_f64(out, *value);
                out.push_str(quote);
            }
            Value::String(text) => write_string(out, text),
            Value::Buffer(bytes) => write_base64(out, bytes),
            Value::Bytes(bytes) => write_base64(out, bytes),
            Value::Decimal(value) if self.options.decimal_numeric => {
                put(out, format_args!("{value}"))
            }
            Value::Decimal(value) => write_base64(out, &value.unscaled_bytes()),
            Value::List(items) => self.list(out, None, items)?,
            Value::Map(entries) => self.map(out, None, entries)?,
            Value::Struct(members) => {
                out.push('{');
                for (at, (name, schema, value)) in members.members().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    write_string(out, name);
                    out.push(':');
                    self.value(out, Some(schema), value)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    fn list(
        &self,
        out: &mut String,
        item_schema: Option<&Schema>,
        items: &[Value<'_>],
    ) -> Result<(), Refusal> {
        out.push('[');
        for (at, item) in items.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            self.value(out, item_schema, item)?;
        }
        out.push(']');
        Ok(())
    }

    fn map(
        &self,
        out: &mut String,
        item_schema: Option<&Schema>,
        entries: &[(String, Value<'_>)],
    ) -> Result<(), Refusal> {
        out.push('{');
        for (at, (key, value)) in entries.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            write_string(out, key);
            out.push(':');
            self.value(out, item_schema, value)?;
        }
        out.push('}');
        Ok(())
    }
}

fn write_base64(out: &mut String, bytes: &[u8]) {
    out.push('"');
    BASE64.encode_string(bytes, out);
    out.push('"');
}

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boolean => "boolean",
        Kind::Int8 => "int8",
        Kind::Int16 => "int16",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Float32 => "float",
        Kind::Float64 => "double",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Array(_) => "array",
        Kind::Map(..) => "map",
        Kind::Struct(_) => "struct",
    }
}
