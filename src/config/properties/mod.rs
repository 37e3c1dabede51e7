//! The one table of properties: name, type, default, meaning and status of everything that a
//! connector file or a worker file may say.
//!
//! Validation, error texts, `walpost config` and `docs/configuration.md` are made from it; nothing
//! else knows what a property is called or worth.

mod connector;
mod framework;
mod kafka;
mod librdkafka;
mod own;
mod reference;
mod router;
mod transforms;
mod worker;

pub use reference::{json, markdown};

pub use super::value::Kind;

/// What walpost does with a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does what its documentation says.
    Works,
    /// It is accepted and changes nothing, because of this.
    NoEffect(&'static str),
    /// Any value but the default is refused, because of this.
    Refused(&'static str),
}

/// One property.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// Name below its family's prefix; `<word>` stands for a part the user chooses.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Default as text; empty when there is none.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What walpost does with it.
    pub status: Status,
    /// Single values that are refused although the property works, each with the reason.
    pub refused_values: &'static [(&'static str, &'static str)],
}

impl Property {
    /// Whether `value` is the default or asks for nothing.
    pub(super) fn is_harmless(&self, value: &str) -> bool {
        let value = value.trim();
        value.is_empty() || value.eq_ignore_ascii_case(self.default)
    }

    /// Refuses single values.
    const fn refusing(mut self, values: &'static [(&'static str, &'static str)]) -> Self {
        self.refused_values = values;
        self
    }
}

const fn works(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Property {
    Property {
        name,
        kind,
        default,
        doc,
        status: Status::Works,
        refused_values: &[],
    }
}

const fn no_effect(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
    because: &'static str,
) -> Property {
    Property {
        status: Status::NoEffect(because),
        ..works(name, kind, default, doc)
    }
}

const fn refused(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
    because: &'static str,
) -> Property {
    Property {
        status: Status::Refused(because),
        ..works(name, kind, default, doc)
    }
}

/// Properties that share a prefix and a purpose.
#[derive(Debug)]
pub struct Family {
    /// Heading of the documentation.
    pub title: &'static str,
    /// One paragraph under it.
    pub intro: &'static str,
    /// What stands before each name.
    pub prefix: &'static str,
    /// The properties.
    pub properties: &'static [Property],
}

impl Family {
    /// The property called `name` below the prefix.
    pub(super) fn find(&self, name: &str) -> Option<&'static Property> {
        self.properties
            .iter()
            .find(|property| property.name == name)
            .or_else(|| {
                self.properties
                    .iter()
                    .find(|property| property.name.contains('<') && fits(property.name, name))
            })
    }
}

/// Whether `name` is an instance of `template`: `<word>` is one part without dots, `<word…>` is
/// everything that is left.
fn fits(template: &str, name: &str) -> bool {
    let Some((before, rest)) = template.split_once('<') else {
        return template == name;
    };
    let (Some(name), Some((word, after))) = (name.strip_prefix(before), rest.split_once('>'))
    else {
        return false;
    };
    if word.ends_with('…') {
        return !name.is_empty();
    }
    let end = name.find('.').unwrap_or(name.len());
    let (part, name) = name.split_at(end);
    !part.is_empty() && fits(after, name)
}

pub(super) use connector::{CONNECTOR, DATABASE};
pub(super) use framework::{CONVERTER, FRAMEWORK, PREDICATE, TOPIC_GROUP};
pub(super) use kafka::KAFKA;
pub(super) use librdkafka::LIBRDKAFKA;
pub(super) use own::OWN;
pub(super) use router::ROUTER;
pub(super) use transforms::TRANSFORM;
pub(super) use transforms::{DECODE, DROP_HEADERS, HEADER_FROM, INSERT_HEADER, REGEX_ROUTER};
pub(super) use transforms::{EXTRACT_FIELD, FILTER, REPLACE_FIELD, TIMESTAMP_ROUTER};
pub(super) use worker::WORKER;

/// Every family, in the order of the documentation.
pub static FAMILIES: [&Family; 21] = [
    &DATABASE,
    &CONNECTOR,
    &ROUTER,
    &TRANSFORM,
    &REGEX_ROUTER,
    &INSERT_HEADER,
    &DROP_HEADERS,
    &HEADER_FROM,
    &FILTER,
    &REPLACE_FIELD,
    &EXTRACT_FIELD,
    &TIMESTAMP_ROUTER,
    &DECODE,
    &PREDICATE,
    &CONVERTER,
    &FRAMEWORK,
    &TOPIC_GROUP,
    &OWN,
    &WORKER,
    &KAFKA,
    &LIBRDKAFKA,
];

/// Old or mistaken names and what they are called now.
const RENAMED: &[(&str, &str)] = &[
    ("database.server.name", "topic.prefix"),
    ("table.whitelist", "table.include.list"),
    ("table.blacklist", "table.exclude.list"),
    ("schema.whitelist", "schema.include.list"),
    ("schema.blacklist", "schema.exclude.list"),
    ("column.whitelist", "column.include.list"),
    ("column.blacklist", "column.exclude.list"),
    ("toasted.value.placeholder", "unavailable.value.placeholder"),
    ("sanitize.field.names", "field.name.adjustment.mode"),
    ("slot.drop_on_stop", "slot.drop.on.stop"),
    (
        "table.fields.additional.error.on.missing",
        "table.field.additional.missing",
    ),
    ("route.topic.field", "route.by.field"),
    ("table.field.event.payload.id", "table.field.event.key"),
];

/// The known name that `unknown` most likely means, out of `candidates`.
pub(super) fn nearest(unknown: &str, candidates: &[String]) -> Option<String> {
    let renamed = RENAMED.iter().find(|(old, _)| unknown.ends_with(old));
    if let Some((old, new)) = renamed {
        return Some(format!("{}{new}", &unknown[..unknown.len() - old.len()]));
    }
    let length = unknown.chars().count();
    candidates
        .iter()
        .filter_map(|known| {
            let limit = (known.len() / 4).max(2);
            // Two names differ by at least what one is longer, and that is cheaper to see.
            if known.len().abs_diff(length) > limit {
                return None;
            }
            let distance = strsim::osa_distance(unknown, known);
            (distance <= limit).then_some((distance, known))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known.clone())
}
