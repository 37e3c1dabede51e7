//! The shapes a configuration file may have, read into pairs of text.
//!
//! Knows nothing of what the properties mean, and puts no value into a message.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use java_properties::PropertiesIter;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::problem::Findings;

/// Names and values in the order of the file.
pub(super) type Pairs = Vec<(String, String)>;

/// Reads a connector's file: JSON in Connect's shape or flat, or `.properties`.
///
/// A file that does not say the connector's name lends it its own.
pub(super) fn connector(path: &Path, findings: &mut Findings) -> Pairs {
    let origin = path.display().to_string();
    let Some(bytes) = read(path, &origin, findings) else {
        return Pairs::new();
    };
    let mut pairs = parse_connector(&origin, &bytes, findings);
    if !pairs.iter().any(|(name, _)| name == "name")
        && let Some(stem) = path.file_stem()
    {
        pairs.push(("name".to_owned(), stem.to_string_lossy().into_owned()));
    }
    pairs
}

/// Reads a worker file.
pub(super) fn worker(path: &Path, findings: &mut Findings) -> Pairs {
    let origin = path.display().to_string();
    match read(path, &origin, findings) {
        Some(bytes) => parse_properties(&origin, &bytes, findings),
        None => Pairs::new(),
    }
}

fn read(path: &Path, origin: &str, findings: &mut Findings) -> Option<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| findings.problem_of_file(origin, format!("cannot be read: {error}")))
        .ok()
}

/// Reads the content of a connector's file.
pub(super) fn parse_connector(origin: &str, bytes: &[u8], findings: &mut Findings) -> Pairs {
    let bytes = without_mark(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if !matches!(first, Some(b'{' | b'[')) {
        return parse_properties(origin, bytes, findings);
    }
    match serde_json::from_slice(bytes) {
        Ok(Node::Object(members)) => from_json(origin, members, findings),
        Ok(_) => {
            findings.problem_of_file(origin, "a JSON object is expected");
            Pairs::new()
        }
        Err(error) => {
            findings.problem_of_file(origin, format!("is not valid JSON: {error}"));
            Pairs::new()
        }
    }
}

/// Reads `.properties`. Connect reads them as Latin-1; a file that is valid UTF-8 means UTF-8.
pub(super) fn parse_properties(origin: &str, bytes: &[u8], findings: &mut Findings) -> Pairs {
    let mut pairs = Pairs::new();
    let read = properties(bytes, |name, value| {
        if pairs.iter().any(|(known, _)| *known == name) {
            findings.notice(origin, &name, "stands there twice; the last one counts");
            pairs.retain(|(known, _)| *known != name);
        }
        pairs.push((name, value));
    });
    if let Err(line) = read {
        findings.problem_of_file(origin, format!("is not a valid .properties file{line}"));
    }
    pairs
}

/// Calls `each` with every entry; an error names the line, where it is known.
pub(super) fn properties(bytes: &[u8], each: impl FnMut(String, String)) -> Result<(), String> {
    let bytes = without_mark(bytes);
    // Java takes a file that is not UTF-8 for Latin-1. Decoded here, since the decoder of the
    // library panics where a file ends within what may be a byte order mark.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    };
    PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8)
        .read_into(each)
        .map_err(|error| match error.line_number() {
            Some(line) => format!(" (line {line})"),
            None => String::new(),
        })
}

/// Editors on Windows put a byte order mark in front.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

/// A JSON value as far as a configuration needs it. Unlike a map it keeps doubled members.
enum Node {
    Null,
    Scalar(String),
    Array,
    Object(Vec<(String, Node)>),
}

fn from_json(origin: &str, members: Vec<(String, Node)>, findings: &mut Findings) -> Pairs {
    refuse_doubles(origin, &members, findings);
    let wrapped = members
        .iter()
        .any(|(name, node)| name == "config" && matches!(node, Node::Object(_)));
    if !wrapped {
        return scalars(origin, members, findings);
    }
    let (mut pairs, mut outer_name) = (Pairs::new(), None);
    for (name, node) in members {
        match (name.as_str(), node) {
            ("config", Node::Object(config)) => {
                refuse_doubles(origin, &config, findings);
                pairs = scalars(origin, config, findings);
            }
            ("name", Node::Scalar(name)) => outer_name = Some(name),
            // What GET /connectors/<name> adds.
            ("tasks" | "type", _) => {}
            ("initial_state", Node::Scalar(state)) if state.eq_ignore_ascii_case("running") => {}
            ("initial_state", _) => findings.problem(
                origin,
                "initial_state",
                "only RUNNING is possible; leave the file out to keep the connector stopped",
            ),
            (name, _) => findings.problem(
                origin,
                name,
                "stands beside \"config\", where only \"name\" does; move it inside",
            ),
        }
    }
    let inner_name = pairs.iter().find(|(name, _)| name == "name");
    match (outer_name, inner_name) {
        (Some(outer), Some((_, inner))) if outer != *inner => {
            findings.problem(origin, "name", "differs inside and outside of \"config\"");
        }
        (Some(outer), None) => pairs.push(("name".to_owned(), outer)),
        _ => {}
    }
    pairs
}

fn refuse_doubles(origin: &str, members: &[(String, Node)], findings: &mut Findings) {
    let mut seen = std::collections::HashSet::new();
    for (name, _) in members {
        if !seen.insert(name.as_str()) {
            findings.problem(origin, name, "stands there twice; keep one");
        }
    }
}

/// Text, numbers and booleans as their text; null is as good as absent, as in Connect.
fn scalars(origin: &str, members: Vec<(String, Node)>, findings: &mut Findings) -> Pairs {
    let mut pairs = Pairs::new();
    for (name, node) in members {
        match node {
            Node::Scalar(text) => pairs.push((name, text)),
            Node::Null => {}
            Node::Array => findings.problem(
                origin,
                &name,
                "is an array; a list is written as text with commas",
            ),
            Node::Object(_) => findings.problem(
                origin,
                &name,
                "is an object; write one property for each member, with a dot between the names",
            ),
        }
    }
    pairs
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        let number = serde_json::Number::from_f64(value);
        Ok(Node::Scalar(
            number.map_or_else(String::new, |number| number.to_string()),
        ))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Node, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Node::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Pairs, Vec<String>) {
        let mut findings = Findings::default();
        let pairs = parse_connector("f", text.as_bytes(), &mut findings);
        let problems = findings.problems.iter().map(ToString::to_string).collect();
        (pairs, problems)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_three_shapes_read_alike() {
        let expected = vec![pair("a.b", "true"), pair("n", "5"), pair("name", "x")];
        for text in [
            r#"{"name":"x","config":{"a.b":true,"n":5,"gone":null},"tasks":[],"type":"source"}"#,
            r#"{"a.b":"true","n":5,"name":"x"}"#,
            "\u{feff}a.b=true\nn: 5\n! comment\nname = x",
        ] {
            let (mut pairs, problems) = parse(text);
            pairs.sort();
            assert_eq!((pairs, problems), (expected.clone(), vec![]), "{text}");
        }
    }

    #[test]
    fn doubled_members_and_nested_values_are_refused() {
        let (_, problems) = parse(r#"{"a":"1","a":"2","b":[1],"c":{"d":1}}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let (_, problems) = parse(r#"{"name":"x","config":{"name":"y"},"slot.name":"s"}"#);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn properties_follow_java() {
        let text = "pass=  a b \\u00e9é \\\n   c  \nempty\n";
        let (pairs, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(pairs, [pair("pass", "a b éé c  "), pair("empty", "")]);
        let mut findings = Findings::default();
        let latin = parse_properties("f", b"a=\xe9", &mut findings);
        assert_eq!(latin, [pair("a", "é")]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, json in "[\\[{}\\]\":,a1 ]*") {
            let mut findings = Findings::default();
            parse_connector("f", &bytes, &mut findings);
            parse_connector("f", json.as_bytes(), &mut findings);
            parse_properties("f", &bytes, &mut findings);
        }
    }
}
