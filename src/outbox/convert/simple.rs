//! SimpleHeaderConverter: text without schema, something like JSON inside lists and structs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::outbox::java::{self, put};
use crate::outbox::types::calendar;
use crate::outbox::value::Value;

/// The header text of a value that is not NULL.
pub(super) fn text(value: &Value<'_>) -> String {
    let mut out = String::new();
    write(&mut out, value, false);
    out
}
fn write(out: &mut String, value: &Value<'_>, embedded: bool) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int8(value) => put(out, format_args!("{value}")),
        Value::Int16(value) => put(out, format_args!("{value}")),
        Value::Int32(value) => put(out, format_args!("{value}")),
        Value::Int64(value) => put(out, format_args!("{value}")),
        Value::Float32(value) => java::write_f32(out, *value),
        Value::Float64(value) => java::write_f64(out, *value),
        Value::Decimal(value) => put(out, format_args!("{value}")),
        Value::Date(millis) => out.push_str(&calendar::header_date(*millis)),
        Value::String(text) if embedded => write_quoted(out, text),
        Value::String(text) => out.push_str(text),
        Value::Buffer(bytes) => write_base64(out, bytes, embedded),
        Value::Bytes(bytes) => write_base64(out, bytes, embedded),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(out, item, true);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_quoted(out, key);
                out.push(':');
                write(out, value, true);
            }
            out.push('}');
        }
        Value::Struct(members) => {
            out.push('{');
            for (at, (name, schema, value)) in members.members().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_quoted(out, name);
                out.push(':');
                match (value, &schema.default) {
                    (Value::Null, Some(default)) => write(out, default, true),
                    _ => write(out, value, true),
                }
            }
            out.push('}');
        }
    }
}

/// Escapes quotes and backslashes and nothing else.
fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

fn write_base64(out: &mut String, bytes: &[u8], embedded: bool) {
    let quote = if embedded { "\"" } else { "" };
    out.push_str(quote);
    BASE64.encode_string(bytes, out);
    out.push_str(quote);
}
