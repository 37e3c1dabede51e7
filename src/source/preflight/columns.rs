//! Which columns the routers want of every outbox table.

use crate::config::{Connector, NameAdjustment, Place, Router, TransformKind};
use crate::source::tables::ColumnState;

/// The property that names a column, and the column, for all routers.
pub(super) fn wanted_columns(connector: &Connector) -> Vec<(String, String)> {
    let mut wanted = Vec::new();
    // The routers then look for adjusted names, which the catalog does not know.
    if connector.values.field_names != NameAdjustment::None {
        return wanted;
    }
    for transform in &connector.transforms {
        let TransformKind::EventRouter(router) = &transform.kind else {
            continue;
        };
        // A router behind a predicate need not see every table.
        if transform.predicate.is_none() {
            let prefix = format!("transforms.{}", transform.alias);
            wanted.extend(
                router_columns(router)
                    .into_iter()
                    .map(|(name, column)| (format!("{prefix}.{name}"), column.to_owned())),
            );
        }
    }
    wanted
}

fn router_columns(router: &Router) -> Vec<(&'static str, &str)> {
    let mut wanted = vec![
        ("table.field.event.id", router.id.as_str()),
        ("table.field.event.key", &router.key),
        ("table.field.event.payload", &router.payload),
        ("route.by.field", &router.route_by),
    ];
    let has_envelope = router
        .placements
        .iter()
        .any(|placement| placement.place == Place::Envelope);
    let optional = [
        ("table.field.event.timestamp", &router.timestamp),
        (
            "table.field.event.schema.version",
            // Read only where there is an envelope to give the version to.
            if has_envelope {
                &router.schema_version
            } else {
                &None
            },
        ),
    ];
    wanted.extend(
        optional
            .into_iter()
            .filter_map(|(name, column)| Some((name, column.as_deref()?))),
    );
    if !router.ignore_missing {
        wanted.extend(router.placements.iter().map(|placement| {
            (
                "table.fields.additional.placement",
                placement.column.as_str(),
            )
        }));
    }
    wanted
}

/// ` (did you mean "x"?)` for a column of nearly that name.
pub(super) fn close_to(wanted: &str, columns: &[ColumnState]) -> String {
    let plain = |name: &str| name.to_lowercase().replace('_', "");
    columns
        .iter()
        .find(|column| {
            plain(&column.name) == plain(wanted)
                || strsim::damerau_levenshtein(&column.name, wanted) <= 2
        })
        .map_or_else(String::new, |column| {
            format!(" (did you mean \"{}\"?)", column.name)
        })
}
