//! `transforms` and `predicates`, resolved.

use fancy_regex::Regex;

use super::classes::{PredicateClass, TransformClass};
use super::date_pattern::DatePattern;
use super::java;
use super::problem::Findings;
use super::properties::{
    DECODE, DROP_HEADERS, EXTRACT_FIELD, HEADER_FROM, INSERT_HEADER, OWN, PREDICATE, REGEX_ROUTER,
    REPLACE_FIELD, ROUTER, TIMESTAMP_ROUTER, TRANSFORM,
};
use super::settings::{Settings, View};
use super::validated::{
    Expand, InvalidOp, MemberAction, NameAdjustment, Place, Placement, Predicate, PredicateTest,
    Router, Transform, TransformKind,
};
use super::value;

/// Alias of the router that applies when there is no `transforms`.
const DEFAULT_ALIAS: &str = "outbox";

/// The transforms of a connector, in order.
pub(super) fn read(settings: &Settings, findings: &mut Findings) -> Vec<Transform> {
    let aliases = value::list(settings.get("transforms").unwrap_or_default());
    if aliases.is_empty() {
        let kind = router(settings, DEFAULT_ALIAS, findings)
            .map(|router| TransformKind::EventRouter(Box::new(router)));
        return kind
            .map(|kind| Transform {
                alias: DEFAULT_ALIAS.to_owned(),
                predicate: None,
                kind,
            })
            .into_iter()
            .collect();
    }
    unique(settings, "transforms", &aliases, findings);
    let predicates = value::list(settings.get("predicates").unwrap_or_default());
    unique(settings, "predicates", &predicates, findings);
    for alias in &predicates {
        // Unused ones are validated too, as Connect does.
        let _ = predicate_test(settings, alias, findings);
    }
    let mut routers = 0;
    let mut transforms = Vec::new();
    for alias in &aliases {
        let type_name = format!("transforms.{alias}.type");
        match TransformClass::of(settings.get(&type_name).unwrap_or_default()) {
            Ok(class) => {
                routers += usize::from(class == TransformClass::EventRouter);
                let predicate = predicate(settings, alias, &predicates, findings);
                if let Some(kind) = kind(settings, alias, class, findings) {
                    transforms.push(Transform {
                        alias: alias.clone(),
                        predicate,
                        kind,
                    });
                }
            }
            Err(refusal) => {
                routers += 1; // unknown, so nothing is said about a missing router
                findings.problem(settings.origin(), &type_name, refusal);
            }
        }
    }
    if routers == 0 {
        findings.problem(
            settings.origin(),
            "transforms",
            "has no Event Router, so raw change events would be published, which walpost does not \
             do; add io.debezium.transforms.outbox.EventRouter, or leave transforms out for the \
             default router",
        );
    }
    transforms
}

fn unique(settings: &Settings, name: &str, aliases: &[String], findings: &mut Findings) {
    for (index, alias) in aliases.iter().enumerate() {
        if aliases[..index].contains(alias) {
            findings.problem(settings.origin(), name, format!("names {alias} twice"));
        }
    }
}

fn predicate(
    settings: &Settings,
    alias: &str,
    predicates: &[String],
    findings: &mut Findings,
) -> Option<Predicate> {
    let view = settings.view(&format!("transforms.{alias}."), &TRANSFORM);
    let negate = view.flag("negate");
    let Some(name) = view.optional("predicate") else {
        if view.configured("negate").is_some() {
            findings.problem(
                settings.origin(),
                &view.full("negate"),
                "has nothing to negate; name a predicate",
            );
        }
        return None;
    };
    let name = name.trim();
    if !predicates.iter().any(|known| known == name) {
        findings.problem(
            settings.origin(),
            &view.full("predicate"),
            format!("no predicate is called {name:?}; list it in predicates"),
        );
        return None;
    }
    // Its own problems were found when all predicates were read.
    let test = predicate_test(settings, name, &mut Findings::default())?;
    Some(Predicate { negate, test })
}

fn predicate_test(
    settings: &Settings,
    alias: &str,
    findings: &mut Findings,
) -> Option<PredicateTest> {
    let view = settings.view(&format!("predicates.{alias}."), &PREDICATE);
    let class = match PredicateClass::of(&view.text("type")) {
        Ok(class) => class,
        Err(refusal) => {
            findings.problem(settings.origin(), &view.full("type"), refusal);
            return None;
        }
    };
    match class {
        PredicateClass::TopicNameMatches => {
            let pattern = required(settings, &view, "pattern", findings)?;
            java::whole(&pattern)
                .ok()
                .map(PredicateTest::TopicNameMatches)
        }
        PredicateClass::HasHeaderKey => {
            required(settings, &view, "name", findings).map(PredicateTest::HasHeaderKey)
        }
        PredicateClass::RecordIsTombstone => Some(PredicateTest::RecordIsTombstone),
    }
}

fn required(
    settings: &Settings,
    view: &View<'_>,
    name: &str,
    findings: &mut Findings,
) -> Option<String> {
    let text = view.optional(name);
    if text.is_none() {
        findings.problem(settings.origin(), &view.full(name), "is required");
    }
    text
}

fn kind(
    settings: &Settings,
    alias: &str,
    class: TransformClass,
    findings: &mut Findings,
) -> Option<TransformKind> {
    let prefix = format!("transforms.{alias}.");
    match class {
        TransformClass::EventRouter => router(settings, alias, findings)
            .map(|router| TransformKind::EventRouter(Box::new(router))),
        TransformClass::DecodeMessage => Some(TransformKind::DecodeMessage {
            include_nulls: settings.view(&prefix, &DECODE).flag("fields.null.include"),
        }),
        TransformClass::RegexRouter => {
            let view = settings.view(&prefix, &REGEX_ROUTER);
            let regex = required(settings, &view, "regex", findings);
            let replacement = required(settings, &view, "replacement", findings)?;
            let regex = java::topic_pattern(&regex?).ok()?;
            replaceable(
                settings,
                &view,
                "replacement",
                &regex.first,
                &replacement,
                findings,
            );
            Some(TransformKind::RegexRouter { regex, replacement })
        }
        TransformClass::InsertHeader => {
            let view = settings.view(&prefix, &INSERT_HEADER);
            let name = required(settings, &view, "header", findings);
            let value = required(settings, &view, "value.literal", findings)?;
            Some(TransformKind::InsertHeader { name: name?, value })
        }
        TransformClass::DropHeaders => {
            let view = settings.view(&prefix, &DROP_HEADERS);
            required(settings, &view, "headers", findings)?;
            Some(TransformKind::DropHeaders {
                names: view.list("headers"),
            })
        }
        TransformClass::HeaderFromValue | TransformClass::HeaderFromKey => {
            let view = settings.view(&prefix, &HEADER_FROM);
            let action = header_from(settings, &view, findings)?;
            let of_key = class == TransformClass::HeaderFromKey;
            Some(members(&view, of_key, action))
        }
        TransformClass::Filter => {
            filter(settings, &prefix, findings);
            Some(TransformKind::Filter)
        }
        TransformClass::ReplaceFieldValue | TransformClass::ReplaceFieldKey => {
            let view = settings.view(&prefix, &REPLACE_FIELD);
            let action = MemberAction::ReplaceField {
                include: view.list("include"),
                exclude: view.list("exclude"),
                renames: renames(settings, &view, findings),
            };
            let of_key = class == TransformClass::ReplaceFieldKey;
            Some(members(&view, of_key, action))
        }
        TransformClass::ExtractFieldValue | TransformClass::ExtractFieldKey => {
            let view = settings.view(&prefix, &EXTRACT_FIELD);
            let field = required(settings, &view, "field", findings)?;
            let of_key = class == TransformClass::ExtractFieldKey;
            Some(members(&view, of_key, MemberAction::ExtractField(field)))
        }
        TransformClass::TimestampRouter => {
            let view = settings.view(&prefix, &TIMESTAMP_ROUTER);
            Some(TransformKind::TimestampRouter {
                topic_format: view.text("topic.format"),
                // An invalid one was found when the property was checked.
                timestamp_format: DatePattern::new(&view.text("timestamp.format")).ok()?,
            })
        }
    }
}

fn members(view: &View<'_>, of_key: bool, action: MemberAction) -> TransformKind {
    TransformKind::Members {
        of_key,
        null_to_default: view.flag("replace.null.with.default"),
        action,
    }
}

/// A filter for all records is legal, and hardly what anybody wants.
fn filter(settings: &Settings, prefix: &str, findings: &mut Findings) {
    let view = settings.view(prefix, &TRANSFORM);
    if view.optional("predicate").is_none() {
        findings.notice(
            settings.origin(),
            &view.full("type"),
            "a Filter without a predicate drops every record",
        );
    }
}

/// `renames`: what stands behind a second colon must be empty, as in Java.
fn renames(settings: &Settings, view: &View<'_>, findings: &mut Findings) -> Vec<(String, String)> {
    let mut renames: Vec<(String, String)> = Vec::new();
    for entry in view.list("renames") {
        let Some((old, new)) = entry
            .trim_end_matches(':')
            .split_once(':')
            .filter(|(_, new)| !new.contains(':'))
        else {
            findings.problem(
                settings.origin(),
                &view.full("renames"),
                format!("{entry:?} is not of the form old:new"),
            );
            continue;
        };
        renames.retain(|(known, _)| known != old);
        if renames.iter().any(|(_, known)| known == new) {
            findings.problem(
                settings.origin(),
                &view.full("renames"),
                format!("gives the name {new:?} to two fields"),
            );
        }
        renames.push((old.to_owned(), new.to_owned()));
    }
    renames
}

fn header_from(
    settings: &Settings,
    view: &View<'_>,
    findings: &mut Findings,
) -> Option<MemberAction> {
    for name in ["fields", "headers", "operation"] {
        required(settings, view, name, findings);
    }
    let (fields, headers) = (view.list("fields"), view.list("headers"));
    if fields.len() != headers.len() {
        findings.problem(
            settings.origin(),
            &view.full("headers"),
            format!(
                "names {} headers for {} fields; one for each is needed",
                headers.len(),
                fields.len()
            ),
        );
        return None;
    }
    Some(MemberAction::HeaderFrom {
        fields,
        headers,
        remove: view.choice("operation") == "move",
    })
}

fn replaceable(
    settings: &Settings,
    view: &View<'_>,
    name: &str,
    regex: &Regex,
    replacement: &str,
    findings: &mut Findings,
) {
    if let Err(error) = java::check_replacement(regex, replacement) {
        findings.problem(
            settings.origin(),
            &view.full(name),
            format!("{replacement:?} is not valid: {error}"),
        );
    }
}

fn router(settings: &Settings, alias: &str, findings: &mut Findings) -> Option<Router> {
    let view = settings.view(&format!("transforms.{alias}."), &ROUTER);
    let ignore_missing = view.choice("table.field.additional.missing") == "ignore";
    let placements = match view.configured("table.fields.additional.placement") {
        Some(text) => value::placements(text).unwrap_or_default(),
        None => Vec::new(),
    };
    if !ignore_missing && let Some(alias) = doubled_member(&placements) {
        findings.problem(
            settings.origin(),
            &view.full("table.fields.additional.placement"),
            format!(
                "puts two values into the envelope as {alias:?} (the payload is called \
                 \"payload\"); give one another alias"
            ),
        );
    }
    let route_regex = java::topic_pattern(&view.text("route.topic.regex")).ok()?;
    let route_replacement = view.text("route.topic.replacement");
    replaceable(
        settings,
        &view,
        "route.topic.replacement",
        &route_regex.first,
        &route_replacement,
        findings,
    );
    Some(Router {
        id: view.text("table.field.event.id"),
        key: view.text("table.field.event.key"),
        payload: view.text("table.field.event.payload"),
        timestamp: view.optional("table.field.event.timestamp"),
        timestamp_strict: settings.view("", &OWN).flag("event.timestamp.strict"),
        schema_version: view.optional("table.field.event.schema.version"),
        route_by: view.text("route.by.field"),
        route_regex,
        route_replacement,
        placements,
        ignore_missing,
        tombstone_on_empty: view.flag("route.tombstone.on.empty.payload"),
        invalid_op: match view.choice("table.op.invalid.behavior") {
            "fatal" => InvalidOp::Fatal,
            "error" => InvalidOp::Error,
            _ => InvalidOp::Warn,
        },
        expand: view.flag("table.expand.json.payload").then(|| Expand {
            keep_nulls: view.choice("table.json.payload.null.behavior") == "optional_bytes",
            keep_empty_arrays: view.choice("table.json.payload.empty.array.behavior")
                == "optional_string",
            field_names: adjustment(view.choice("field.name.adjustment.mode")),
        }),
        tracing: settings
            .view("", &OWN)
            .flag("tracing.propagate")
            .then(|| view.text("tracing.span.context.field")),
    })
}

/// A name that the envelope would hold twice.
fn doubled_member(placements: &[Placement]) -> Option<&str> {
    let members: Vec<&str> = std::iter::once("payload")
        .chain(
            placements
                .iter()
                .filter(|placement| placement.place == Place::Envelope)
                .map(|placement| placement.alias.as_str()),
        )
        .collect();
    (1..members.len())
        .find(|&index| members[..index].contains(&members[index]))
        .map(|index| members[index])
}

/// `*.name.adjustment.mode`.
pub(super) fn adjustment(word: &str) -> NameAdjustment {
    match word {
        "avro" => NameAdjustment::Avro,
        "avro_unicode" => NameAdjustment::AvroUnicode,
        _ => NameAdjustment::None,
    }
}
