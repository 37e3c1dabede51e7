//! StringConverter: whatever Java's `toString` says.

use super::Refusal;
use crate::outbox::java::{self, put};
use crate::outbox::types::calendar;
use crate::outbox::value::Value;

/// The value's `toString`. A `byte[]` prints its address in Java, so it has no text of its own.
pub(super) fn java_text(value: &Value<'_>) -> Result<String, Refusal> {
    let mut out = String::new();
    write(&mut out, value)?;
    Ok(out)
}
fn write(out: &mut String, value: &Value<'_>) -> Result<(), Refusal> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int8(value) => put(out, format_args!("{value}")),
        Value::Int16(value) => put(out, format_args!("{value}")),
        Value::Int32(value) => put(out, format_args!("{value}")),
        Value::Int64(value) => put(out, format_args!("{value}")),
        Value::Float32(value) => java::write_f32(out, *value),
        Value::Float64(value) => java::write_f64(out, *value),
        Value::String(text) => out.push_str(text),
        Value::Decimal(value) => put(out, format_args!("{value}")),
        Value::Date(millis) => out.push_str(&calendar::java_date(*millis)),
        Value::Buffer(bytes) => {
            let length = bytes.len();
            put(
                out,
                format_args!("java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]"),
            );
        }
        Value::Bytes(_) => {
            return Err(Refusal(
                "StringConverter has no text for raw bytes (Java prints their address); choose \
                 another converter or, for numeric, decimal.handling.mode=string"
                    .to_owned(),
            ));
        }
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write(out, item)?;
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                out.push_str(key);
                out.push('=');
                write(out, value)?;
            }
            out.push('}');
        }
        Value::Struct(members) => {
            out.push_str("Struct{");
            let mut first = true;
            for (name, _, value) in members.members() {
                if *value == Value::Null {
                    continue;
                }
                out.push_str(if first { "" } else { "," });
                first = false;
                out.push_str(name);
                out.push('=');
                write(out, value)?;
            }
            out.push('}');
        }
    }
    Ok(())
}
