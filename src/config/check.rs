//! Each property on its own: is it known here, is its value of the right type, does it ask for
//! something that is refused. What properties mean together is checked where they are read.

use super::classes::{self, PredicateClass, TransformClass};
use super::problem::Findings;
use super::properties::{
    CONNECTOR, CONVERTER, DATABASE, FRAMEWORK, Family, KAFKA, LIBRDKAFKA, OWN, PREDICATE, Property,
    Status, TOPIC_GROUP, TRANSFORM, WORKER, nearest,
};
use super::settings::{Setting, Settings};
use super::value;

/// The three converter properties.
pub(super) const CONVERTERS: [&str; 3] = ["key.converter", "value.converter", "header.converter"];

/// `unknown.properties`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    Refuse,
    Warn,
}

impl Unknown {
    /// What the first of these settings that speaks of it says.
    pub(super) fn of(settings: &[&Settings]) -> Self {
        let asked = settings
            .iter()
            .find_map(|settings| settings.get("unknown.properties"));
        match asked {
            Some(word) if word.trim().eq_ignore_ascii_case("warn") => Unknown::Warn,
            _ => Unknown::Refuse,
        }
    }
}

/// Where a name belongs.
enum Scope {
    /// To the first of these families that knows the rest of it.
    Families(String, Vec<&'static Family>),
    /// To something that is refused as a whole, or not read at all; say no more about it.
    Nothing,
    /// To an alias that nobody declared.
    Undeclared(String),
}

/// Whether a property of a connector's file belongs to the worker.
pub(super) fn belongs_to_worker(name: &str) -> bool {
    if name.starts_with("producer.override.") {
        return false;
    }
    let connector: [&Family; 4] = [&DATABASE, &CONNECTOR, &FRAMEWORK, &OWN];
    name.starts_with("producer.")
        || (connector.iter().all(|family| family.find(name).is_none())
            && [&WORKER, &KAFKA, &LIBRDKAFKA]
                .iter()
                .any(|family| family.find(name).is_some()))
}

/// Checks a connector's file.
pub(super) fn connector(settings: &Settings, unknown: Unknown, findings: &mut Findings) {
    for setting in settings.iter() {
        let scope = connector_scope(settings, &setting.name);
        judge(setting, scope, unknown, findings);
    }
}

/// Checks worker properties from a worker file or the environment.
pub(super) fn worker(settings: &Settings, unknown: Unknown, findings: &mut Findings) {
    for setting in settings.iter() {
        let scope = worker_scope(settings, &setting.name);
        judge(setting, scope, unknown, findings);
    }
}

fn connector_scope(settings: &Settings, name: &str) -> Scope {
    for kind in ["transforms", "predicates"] {
        if let Some(rest) = name.strip_prefix(&format!("{kind}.")) {
            return alias_scope(settings, kind, rest);
        }
    }
    if let Some(rest) = name.strip_prefix("topic.creation.")
        && !matches!(rest, "groups" | "enable")
    {
        return topic_group_scope(settings, rest);
    }
    if let Some(scope) = converter_scope(settings, name) {
        return scope;
    }
    for prefix in ["producer.override.", "producer."] {
        if name.starts_with(prefix) {
            return Scope::Families(prefix.to_owned(), vec![&KAFKA, &LIBRDKAFKA]);
        }
    }
    Scope::Families(
        String::new(),
        vec![
            &DATABASE,
            &CONNECTOR,
            &FRAMEWORK,
            &OWN,
            &WORKER,
            &KAFKA,
            &LIBRDKAFKA,
        ],
    )
}

fn worker_scope(settings: &Settings, name: &str) -> Scope {
    if let Some(scope) = converter_scope(settings, name) {
        return scope;
    }
    if name.starts_with("producer.") {
        return Scope::Families("producer.".to_owned(), vec![&KAFKA, &LIBRDKAFKA]);
    }
    Scope::Families(String::new(), vec![&WORKER, &KAFKA, &LIBRDKAFKA, &OWN])
}

/// `transforms.<alias>.…` and `predicates.<alias>.…`.
fn alias_scope(settings: &Settings, kind: &str, rest: &str) -> Scope {
    let aliases = value::list(settings.get(kind).unwrap_or_default());
    let alias = aliases
        .iter()
        .filter(|alias| rest.starts_with(&format!("{alias}.")))
        .max_by_key(|alias| alias.len());
    let Some(alias) = alias else {
        return Scope::Undeclared(format!(
            "{kind} does not name it; it names {}",
            if aliases.is_empty() {
                "nothing".to_owned()
            } else {
                aliases.join(", ")
            }
        ));
    };
    let prefix = format!("{kind}.{alias}.");
    let class = settings.get(&format!("{prefix}type")).unwrap_or_default();
    if kind == "predicates" {
        return match PredicateClass::of(class) {
            Ok(_) => Scope::Families(prefix, vec![&PREDICATE]),
            Err(_) => Scope::Nothing,
        };
    }
    match TransformClass::of(class) {
        Ok(class) => Scope::Families(prefix, vec![&TRANSFORM, class.family()]),
        Err(_) => Scope::Nothing,
    }
}

fn topic_group_scope(settings: &Settings, rest: &str) -> Scope {
    let mut groups = value::list(settings.get("topic.creation.groups").unwrap_or_default());
    groups.push("default".to_owned());
    let group = groups
        .iter()
        .find(|group| rest.starts_with(&format!("{group}.")));
    match group {
        Some(group) => Scope::Families(format!("topic.creation.{group}."), vec![&TOPIC_GROUP]),
        None => Scope::Undeclared(format!(
            "topic.creation.groups does not name it; known groups are {}",
            groups.join(", ")
        )),
    }
}

/// `<key|value|header>.converter.…`, with any depth of delegates.
fn converter_scope(settings: &Settings, name: &str) -> Option<Scope> {
    let converter = CONVERTERS
        .iter()
        .find(|converter| name.starts_with(&format!("{converter}.")))?;
    let mut prefix = format!("{converter}.");
    if FRAMEWORK.find(name).is_some() {
        return None;
    }
    let delegate = "delegate.converter.type.";
    while name[prefix.len()..].starts_with(delegate) {
        prefix.push_str(delegate);
    }
    let class = settings.get(prefix.trim_end_matches('.'));
    if class.is_some_and(|class| classes::converter(class).is_err()) {
        return Some(Scope::Nothing);
    }
    Some(Scope::Families(prefix, vec![&CONVERTER]))
}

fn judge(setting: &Setting, scope: Scope, unknown: Unknown, findings: &mut Findings) {
    let (origin, name) = (setting.origin.as_str(), setting.name.as_str());
    match scope {
        Scope::Nothing => {}
        Scope::Undeclared(text) => report_unknown(setting, &text, unknown, findings),
        Scope::Families(prefix, families) => {
            let rest = &name[prefix.len()..];
            match families.iter().find_map(|family| family.find(rest)) {
                Some(property) => judge_value(setting, property, origin, findings),
                None => {
                    let candidates: Vec<String> = families
                        .iter()
                        .flat_map(|family| family.properties)
                        .filter(|property| !property.name.contains('<'))
                        .map(|property| format!("{prefix}{}", property.name))
                        .collect();
                    let text = match nearest(name, &candidates) {
                        Some(known) => format!("no such property; did you mean {known}?"),
                        None => "no such property; `walpost config` lists them".to_owned(),
                    };
                    report_unknown(setting, &text, unknown, findings);
                }
            }
        }
    }
}

/// The value is never quoted: under a mistyped name it may be a password.
fn report_unknown(setting: &Setting, text: &str, unknown: Unknown, findings: &mut Findings) {
    let (origin, name) = (&setting.origin, &setting.name);
    match unknown {
        Unknown::Refuse => findings.problem(origin, name, text),
        Unknown::Warn => findings.notice(origin, name, format!("ignored: {text}")),
    }
}

fn judge_value(setting: &Setting, property: &Property, origin: &str, findings: &mut Findings) {
    let name = &setting.name;
    let shown = setting.shown(property);
    if let Status::Refused(because) = property.status {
        if !property.is_harmless(&setting.value) {
            findings.problem(origin, name, format!("{shown} is refused: {because}"));
        }
        return;
    }
    if let Err(expected) = property.kind.check(&setting.value) {
        findings.problem(origin, name, format!("{shown} is not valid: {expected}"));
        return;
    }
    let refused = property
        .refused_values
        .iter()
        .find(|(value, _)| value.eq_ignore_ascii_case(setting.value.trim()));
    if let Some((_, because)) = refused {
        findings.problem(origin, name, format!("{shown} is refused: {because}"));
    }
    if let Status::NoEffect(because) = property.status
        && !property.is_harmless(&setting.value)
    {
        findings.notice(origin, name, format!("has no effect: {because}"));
    }
}
