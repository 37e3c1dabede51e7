//! The property reference, written from the table.

use std::fmt::Write as _;

use super::{FAMILIES, Family, Property, Status};

const HEAD: &str = "\
# Configuration

Written by `walpost config --format md`; do not edit.

walpost reads the configuration that Kafka Connect and Debezium read. A connector's file is `{\"name\": …, \"config\": {…}}`, a flat
JSON object, or `.properties`; the worker file is `.properties`. Placeholders `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}`
stand for values kept elsewhere; one that cannot be resolved is an error. A property that stands on this page as *refused* may be
present with its default value. One that is not on this page is refused, unless `unknown.properties=warn`.

Worker properties come from the connector's file, the worker file (`-w`) and `CONNECT_*` variables; the first that has one wins.
";

/// The reference in Markdown: the content of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for family in FAMILIES {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {}\n\n{}\n", family.title, family.intro);
        if family.properties.is_empty() {
            continue;
        }
        page.push_str(
            "\n| property | type | default | meaning | status |\n|---|---|---|---|---|\n",
        );
        for property in family.properties {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                code(&full_name(family, property)),
                escape(&property.kind.describe()),
                code(property.default),
                escape(property.doc),
                escape(&status(property)),
            );
        }
    }
    page
}

/// The reference in JSON: an array of families with their properties.
pub fn json() -> serde_json::Value {
    let families = FAMILIES.iter().map(|family| {
        let properties: Vec<_> = family
            .properties
            .iter()
            .map(|property| {
                serde_json::json!({
                    "name": full_name(family, property),
                    "type": property.kind.describe(),
                    "default": (!property.default.is_empty()).then_some(property.default),
                    "documentation": property.doc,
                    "status": match property.status {
                        Status::Works => "works",
                        Status::NoEffect(_) => "no effect",
                        Status::Refused(_) => "refused",
                    },
                    "reason": match property.status {
                        Status::Works => None,
                        Status::NoEffect(reason) | Status::Refused(reason) => Some(reason),
                    },
                    "refused_values": property
                        .refused_values
                        .iter()
                        .map(|(value, reason)| ((*value).to_owned(), (*reason).into()))
                        .collect::<serde_json::Map<_, _>>(),
                })
            })
            .collect();
        serde_json::json!({
            "title": family.title,
            "documentation": family.intro,
            "properties": properties,
        })
    });
    families.collect()
}

fn full_name(family: &Family, property: &Property) -> String {
    format!("{}{}", family.prefix, property.name)
}

fn status(property: &Property) -> String {
    let mut text = match property.status {
        Status::Works => "works".to_owned(),
        Status::NoEffect(because) => format!("no effect: {because}"),
        Status::Refused(because) => format!("refused: {because}"),
    };
    for (value, because) in property.refused_values {
        let _ = write!(text, "; `{value}` is refused: {because}");
    }
    text
}

fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("`{}`", escape(text))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
