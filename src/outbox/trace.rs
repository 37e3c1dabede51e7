//! A row's W3C tracing context, carried on as headers.

use std::borrow::Cow;
use std::sync::Arc;

use super::draft::{DraftHeader, Part};
use super::schema::{Kind, Schema};
use super::value::Value;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";

/// Adds the context that a column holds as text of a properties file, in place of one that is
/// there. What is no valid context is left out: an event never fails over its tracing.
pub(super) fn carry_on(column: &Value<'_>, headers: &mut Vec<DraftHeader<'_>>) {
    let Value::String(text) = column else { return };
    let [mut parent, mut state, mut baggage] = [None, None, None];
    let mut properties =
        java_properties::PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8);
    let read = properties.read_into(|name, value| match name.as_str() {
        PARENT => parent = Some(value),
        STATE => state = Some(value),
        BAGGAGE => baggage = Some(value),
        _ => {}
    });
    if read.is_err() {
        return;
    }
    let parent = parent.filter(|parent| is_parent(parent));
    // A state says nothing without the parent that it belongs to.
    let state = state.filter(|state| parent.is_some() && !state.is_empty());
    let baggage = baggage.filter(|baggage| !baggage.is_empty());
    for (name, value) in [(PARENT, parent), (STATE, state), (BAGGAGE, baggage)] {
        let Some(value) = value else { continue };
        headers.retain(|(header, _)| header != name);
        let part = Part {
            schema: Some(Arc::new(Schema::new(Kind::String))),
            value: Value::String(Cow::Owned(value)),
        };
        headers.push((Cow::Borrowed(name), part));
    }
}

/// Version, trace id, parent id and flags in lower-case hex. Version 0 has no more than that, later
/// ones may; version ff and ids of zeros alone are not allowed.
fn is_parent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut part = |length: usize| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        parts
            .next()
            .filter(|part| part.len() == length && part.bytes().all(hex))
    };
    let (Some(version), Some(trace), Some(parent), Some(_flags)) =
        (part(2), part(32), part(16), part(2))
    else {
        return false;
    };
    let some = |id: &str| id.bytes().any(|byte| byte != b'0');
    version != "ff" && some(trace) && some(parent) && (version != "00" || parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn carried(text: &str) -> Vec<String> {
        let value = |text: &str| Part {
            schema: None,
            value: Value::String(Cow::Owned(text.to_owned())),
        };
        let mut headers = vec![
            (Cow::Borrowed("traceparent"), value("old")),
            (Cow::Borrowed("other"), value("x")),
        ];
        carry_on(&Value::String(Cow::Borrowed(text)), &mut headers);
        headers
            .iter()
            .map(|(name, part)| match &part.value {
                Value::String(text) => format!("{name}={text}"),
                value => panic!("{value:?}"),
            })
            .collect()
    }

    #[test]
    fn a_context_takes_the_place_of_an_older_one() {
        let text = format!(
            "#Tue Mar 03 2020\nbaggage: user=\\u00e9\ntracestate = a=1,b=2\nx=y\ntraceparent={VALID}\n"
        );
        assert_eq!(
            carried(&text),
            [
                "other=x".to_owned(),
                format!("traceparent={VALID}"),
                "tracestate=a=1,b=2".to_owned(),
                "baggage=user=é".to_owned(),
            ]
        );
    }

    #[test]
    fn what_is_no_context_is_left_out() {
        for text in [
            "",
            "x=y",
            "traceparent=",
            "tracestate=a=1",
            "traceparent=\\uZZZZ",
        ] {
            assert_eq!(carried(text), ["traceparent=old", "other=x"], "{text:?}");
        }
        let mut headers = Vec::new();
        carry_on(&Value::Null, &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn a_parent_is_valid_as_w3c_says() {
        assert!(is_parent(VALID));
        let replaced = |from: &str, to: &str| VALID.replacen(from, to, 1);
        assert!(is_parent(&(replaced("00", "01") + "-more")));
        for wrong in [
            VALID.to_owned() + "-more",
            VALID.to_uppercase(),
            replaced("00", "ff"),
            replaced("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            replaced("b7ad6b7169203331", &"0".repeat(16)),
            replaced("-01", "-1"),
            replaced("-01", ""),
            String::new(),
        ] {
            assert!(!is_parent(&wrong), "{wrong}");
        }
    }
}
