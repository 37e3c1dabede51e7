//! The configurations of the golden cases: what Debezium takes at creation is taken, what it calls
//! invalid is refused.

use std::collections::BTreeMap;

use super::*;

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    config: BTreeMap<String, String>,
    #[serde(default)]
    error: Option<Reason>,
}

#[derive(serde::Deserialize)]
struct Reason {
    class: String,
}

/// Refused although Debezium takes them, each with the reason.
const REFUSED_HERE: [(&str, &str); 8] = [
    (
        "placement-envelope-duplicate-alias",
        "fails at the first event there",
    ),
    (
        "placement-envelope-alias-payload",
        "fails at the first event there",
    ),
    ("placement-unknown-word", "fails at the first event there"),
    ("topic-unknown-group", "fails at the first event there"),
    ("topic-lone-dollar", "fails at the first event there"),
    (
        "options-unknown-property",
        "unknown.properties=warn accepts it",
    ),
    (
        "placement-missing-old-option-false",
        "unknown.properties=warn accepts it",
    ),
    (
        "placement-missing-old-option-true",
        "unknown.properties=warn accepts it",
    ),
];

fn cases() -> Vec<Case> {
    include_str!("../../tests/golden/cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn load_case(case: &Case, more: &[(&str, &str)]) -> Result<Connector, Vec<Problem>> {
    let own = [("name", case.name.as_str())];
    let pairs = own
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .chain(case.config.clone())
        .collect();
    connector_from_pairs(&case.name, pairs, &WorkerPairs::default())
}

#[test]
fn golden_configurations_are_judged_as_debezium_judges_them() {
    let mut wrong = Vec::new();
    for case in cases() {
        let invalid = case.error.as_ref().is_some_and(|error| {
            error.class == "rejected" || error.class.ends_with(".ConfigException")
        });
        let refused_here = REFUSED_HERE.iter().any(|(name, _)| *name == case.name);
        let expected = !invalid && !refused_here;
        let loaded = load_case(&case, &[]);
        if loaded.is_ok() != expected {
            let problems = loaded.err().unwrap_or_default();
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            wrong.push(format!(
                "{}: expected {expected}, got {problems:?}",
                case.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unknown_properties_may_be_ignored_as_connect_does() {
    for case in cases() {
        let reason = REFUSED_HERE.iter().find(|(name, _)| *name == case.name);
        if reason.is_some_and(|(_, reason)| reason.starts_with("unknown.properties")) {
            let loaded = load_case(&case, &[("unknown.properties", "warn")]);
            assert!(loaded.is_ok(), "{}: {loaded:?}", case.name);
        }
    }
}
