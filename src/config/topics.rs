//! `topic.creation.*`.

use std::collections::BTreeMap;

use fancy_regex::Regex;

use super::java;
use super::problem::Findings;
use super::properties::TOPIC_GROUP;
use super::settings::{Settings, View};
use super::validated::{TopicCreation, TopicGroup};
use super::value;

/// Reads the groups; `None` when there are none, or the worker forbids creation.
pub(super) fn read(
    settings: &Settings,
    enabled: bool,
    findings: &mut Findings,
) -> Option<TopicCreation> {
    let asked = settings
        .below("topic.creation.")
        .any(|(name, _)| name != "enable");
    if !asked {
        return None;
    }
    if !enabled {
        findings.notice(
            settings.origin(),
            "topic.creation.groups",
            "has no effect: the worker says topic.creation.enable=false",
        );
        return None;
    }
    let default = group(settings, "default", None);
    let mut groups: Vec<TopicGroup> =
        value::list(settings.get("topic.creation.groups").unwrap_or_default())
            .iter()
            .filter(|name| *name != "default")
            .map(|name| {
                let group = group(settings, name, Some(&default));
                if group.include.is_empty() {
                    findings.problem(
                        settings.origin(),
                        &format!("topic.creation.{name}.include"),
                        "is required: the topics of the group",
                    );
                }
                group
            })
            .collect();
    groups.push(default);
    Some(TopicCreation { groups })
}

fn group(settings: &Settings, name: &str, default: Option<&TopicGroup>) -> TopicGroup {
    let prefix = format!("topic.creation.{name}.");
    let view = settings.view(&prefix, &TOPIC_GROUP);
    let own = ["include", "exclude", "partitions", "replication.factor"];
    let settings: BTreeMap<String, String> = settings
        .below(&prefix)
        .filter(|(name, _)| !own.contains(name))
        .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
        .collect();
    let inherited = |name: &str, of: fn(&TopicGroup) -> i32| match default {
        Some(default) if view.configured(name).is_none() => of(default),
        _ => view.number(name),
    };
    TopicGroup {
        name: name.to_owned(),
        include: default.map_or_else(Vec::new, |_| expressions(&view, "include")),
        exclude: default.map_or_else(Vec::new, |_| expressions(&view, "exclude")),
        partitions: inherited("partitions", |group| group.partitions),
        replication_factor: inherited("replication.factor", |group| group.replication_factor),
        settings,
    }
}

/// Topic names are matched with regard to case.
fn expressions(view: &View<'_>, name: &str) -> Vec<Regex> {
    value::expressions(&view.text(name))
        .iter()
        .filter_map(|text| java::whole(text).ok())
        .collect()
}
