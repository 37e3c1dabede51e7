//! Names that schemas carry, made from the names of tables and columns.

use crate::config::NameAdjustment;

/// Kafka's longest topic name, which Debezium cuts schema prefixes to.
const NAME_MAX: usize = 249;

/// `prefix.schema.table` with everything that no topic name may hold replaced.
pub(super) fn table_prefix(prefix: &str, delimiter: &str, schema: &str, table: &str) -> String {
    let joined = [prefix, schema, table].join(delimiter);
    let sanitised = replace(&joined, |unit, _| is_topic_unit(unit), underscore);
    sanitised.chars().take(NAME_MAX).collect()
}

/// Whether Kafka takes `name` as a topic.
pub(super) fn is_topic(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.encode_utf16().all(is_topic_unit)
}

/// A schema's name under `schema.name.adjustment.mode`.
pub(super) fn schema_name(mode: NameAdjustment, name: String) -> String {
    match mode {
        NameAdjustment::None => name,
        NameAdjustment::Avro => avro(&name, true),
        NameAdjustment::AvroUnicode => avro_unicode(&name, true),
    }
}

/// A member's name under `field.name.adjustment.mode`.
pub(super) fn field_name(mode: NameAdjustment, name: &str) -> String {
    match mode {
        NameAdjustment::None => name.to_owned(),
        NameAdjustment::Avro => avro(name, false),
        NameAdjustment::AvroUnicode => avro_unicode(name, false),
    }
}

fn is_topic_unit(unit: u16) -> bool {
    ascii(unit).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn ascii(unit: u16) -> Option<u8> {
    u8::try_from(unit).ok().filter(u8::is_ascii)
}

fn underscore(_: u16) -> String {
    "_".to_owned()
}

/// Avro's names: letters, digits and underscores, dots in full names, no digit in front.
fn avro(name: &str, dots: bool) -> String {
    let replaced = replace(
        name,
        |unit, first| {
            ascii(unit).is_some_and(|byte| {
                byte.is_ascii_alphabetic()
                    || byte == b'_'
                    || !first && (byte.is_ascii_digit() || dots && byte == b'.')
            })
        },
        underscore,
    );
    match name.chars().next() {
        // So that `1a` and `2a` stay apart.
        Some(digit) if digit.is_ascii_digit() => format!("_{digit}{}", &replaced[1..]),
        _ => replaced,
    }
}

/// As [`avro`], but each replaced character, and the underscore itself, leaves its code.
fn avro_unicode(name: &str, dots: bool) -> String {
    replace(
        name,
        |unit, first| {
            ascii(unit).is_some_and(|byte| {
                byte.is_ascii_alphabetic()
                    || !first && (byte.is_ascii_digit() || dots && byte == b'.')
            })
        },
        |unit| match format!("{unit:x}") {
            code if code.len() <= 2 => format!("_u00{code}"),
            code => format!("_u{code}"),
        },
    )
}

/// Replaces what is not valid, UTF-16 unit by unit as Java does.
fn replace(
    name: &str,
    valid: impl Fn(u16, bool) -> bool,
    replacement: impl Fn(u16) -> String,
) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, unit) in name.encode_utf16().enumerate() {
        match ascii(unit) {
            Some(byte) if valid(unit, at == 0) => out.push(char::from(byte)),
            _ => out.push_str(&replacement(unit)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_prefixes_hold_what_a_topic_may_hold() {
        assert_eq!(
            table_prefix("a-b", ".", "public", "OutBox Événements"),
            "a-b.public.OutBox__v_nements"
        );
        assert_eq!(table_prefix("a", "_", "public", "😀"), "a_public___");
    }

    #[test]
    fn avro_names() {
        assert_eq!(field_name(NameAdjustment::Avro, "a-b"), "a_b");
        assert_eq!(field_name(NameAdjustment::Avro, "9x"), "_9x");
        assert_eq!(field_name(NameAdjustment::Avro, "a.b"), "a_b");
        assert_eq!(
            schema_name(NameAdjustment::Avro, "a-b.public.t.Value".to_owned()),
            "a_b.public.t.Value"
        );
        assert_eq!(
            field_name(NameAdjustment::AvroUnicode, "a-b_é"),
            "a_u002db_u005f_u00e9"
        );
    }

    #[test]
    fn topics_follow_kafkas_rules() {
        for name in ["a", "a.b_c-d", "...", &"x".repeat(249)] {
            assert!(is_topic(name), "{name:?} was refused");
        }
        for name in ["", ".", "..", "a b", "é", "a/b", &"x".repeat(250)] {
            assert!(!is_topic(name), "{name:?} was accepted");
        }
    }
}
