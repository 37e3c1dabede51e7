//! Column defaults as the connector's schemas carry them, read from the catalog's expression.
//!
//! No expression is evaluated. A literal is taken as it stands between its first two quotes, the
//! call of a function leaves a placeholder, anything else leaves nothing.

use std::sync::Arc;

use super::java::Decimal;
use super::schema::{Kind, Schema};
use super::types::{Codec, Origin};
use super::value::{Value, fits};
use crate::source::row::{PgType, PgTypeKind};

/// The default of a column of exactly this type (a domain has none), as a value of its schema.
pub(super) fn evaluate(
    pg_type: &PgType,
    codec: &Codec,
    schema: &Arc<Schema>,
    expression: &str,
) -> Option<Value<'static>> {
    let value = match &pg_type.kind {
        PgTypeKind::Enum(_) => Value::String(enum_label(&pg_type.name, expression)?.into()),
        PgTypeKind::Base if pg_type.schema == "pg_catalog" => {
            built_in(&pg_type.name, codec, schema, expression)?
        }
        _ => return None,
    };
    fits(schema, &value).then_some(value)
}

fn built_in(
    name: &str,
    codec: &Codec,
    schema: &Arc<Schema>,
    expression: &str,
) -> Option<Value<'static>> {
    let placeholder = match name {
        "bit" => "00",
        "varbit" | "int2" | "int4" | "int8" => "0",
        "bool" => "false",
        "bpchar" | "varchar" | "text" | "xml" => "",
        "numeric" | "float4" | "float8" => "0.0",
        "json" | "jsonb" => "{}",
        "uuid" => "00000000-0000-0000-0000-000000000000",
        "date" => "1970-01-01",
        "time" => "00:00:00",
        "timestamp" => "1970-01-01 00:00:00",
        "timestamptz" => "1970-01-01 00:00:00+00",
        "interval" => "00:00:00",
        _ => return None,
    };
    let text = literal(expression.trim(), placeholder)?;
    let decoded = |text: &str| {
        let decoded = codec.decode(schema, text, Origin::Stream).ok()?;
        Some(decoded.value.into_owned())
    };
    match name {
        "bool" => Some(Value::Boolean(text.eq_ignore_ascii_case("true"))),
        // Only finite numbers are read here.
        "numeric" if Decimal::parse(text).is_none() => None,
        // A struct cannot be a default.
        "numeric" if matches!(schema.kind, Kind::Struct(_)) => None,
        "uuid" => Some(Value::String(text.to_lowercase().into())),
        "date" | "time" | "timestamp" | "timestamptz" => {
            codec.at_javas_limit(text).unwrap_or_else(|| decoded(text))
        }
        _ => decoded(text),
    }
}

/// The literal in `expression`, or `placeholder` where a function is called.
fn literal<'e>(expression: &'e str, placeholder: &'e str) -> Option<&'e str> {
    if calls_function(expression) || is_current_time(expression) {
        return Some(placeholder);
    }
    match expression.split_once('\'') {
        None => (!expression.starts_with("NULL::")).then_some(expression),
        Some((_, quoted)) => {
            let (text, _) = quoted.split_once('\'')?;
            (!text.contains('\n')).then_some(text)
        }
    }
}

/// `name(...)`, perhaps in parentheses.
fn calls_function(expression: &str) -> bool {
    let expression = expression.strip_prefix('(').unwrap_or(expression);
    let name = expression
        .find(|character: char| {
            !(character.is_ascii_alphanumeric() || matches!(character, '_' | '.'))
        })
        .unwrap_or(expression.len());
    let (name, rest) = expression.split_at(name);
    let call = rest.lines().next().unwrap_or_default();
    !name.is_empty() && call.starts_with('(') && call.contains(')')
}

fn is_current_time(expression: &str) -> bool {
    [
        "current_timestamp",
        "current_time",
        "current_date",
        "localtime",
        "localtimestamp",
    ]
    .iter()
    .any(|name| expression.eq_ignore_ascii_case(name))
}

/// `'label'::schema.type`, of this type and no other.
fn enum_label(type_name: &str, expression: &str) -> Option<String> {
    let (value, cast) = expression.rsplit_once("::")?;
    let cast = cast.rsplit_once('.').map_or(cast, |(_, name)| name);
    if cast.trim_matches('"') != type_name {
        return None;
    }
    let label = value.strip_prefix('\'')?.strip_suffix('\'')?;
    Some(label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_calls_are_told_apart() {
        let read = |expression| literal(expression, "?");
        assert_eq!(read("'{}'::jsonb"), Some("{}"));
        assert_eq!(read("'it''s'::text"), Some("it"));
        assert_eq!(read("1.50"), Some("1.50"));
        assert_eq!(read("'-1'::integer"), Some("-1"));
        assert_eq!(read("NULL::character varying"), None);
        assert_eq!(read("now()"), Some("?"));
        assert_eq!(read("nextval('s'::regclass)"), Some("?"));
        assert_eq!(read("timezone('utc'::text, now())"), Some("?"));
        assert_eq!(read("CURRENT_TIMESTAMP"), Some("?"));
        assert_eq!(read("(1 + 1)"), Some("(1 + 1)"));
    }

    #[test]
    fn an_enum_default_must_be_of_the_columns_type() {
        assert_eq!(enum_label("mood", "'sad'::mood").unwrap(), "sad");
        assert_eq!(enum_label("mood", "'sad'::s1.mood").unwrap(), "sad");
        assert_eq!(enum_label("Mood", "'sad'::\"Mood\"").unwrap(), "sad");
        assert_eq!(enum_label("mood", "'sad'::other"), None);
        assert_eq!(enum_label("mood", "lower('SAD')"), None);
    }
}
