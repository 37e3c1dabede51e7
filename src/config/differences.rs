//! Where an unchanged Debezium file behaves differently here, told when one is read.

use super::problem::Findings;
use super::settings::Settings;

/// Properties whose absence means something else in Debezium.
const DEFAULTS: [(&str, &str); 3] = [
    (
        "extended.headers.enabled",
        "context headers are off here and on in Debezium; `true` brings them back",
    ),
    (
        "event.converting.failure.handling.mode",
        "a value that cannot be converted stops the connector here and becomes NULL in Debezium; \
         `warn` brings that back",
    ),
    (
        "offset.mismatch.strategy",
        "a slot past the stored position stops the connector here and is not noticed in Debezium; \
         `no_validation` brings that back",
    ),
];

/// Says what changes meaning. Only a file that names Debezium's class was written for Debezium.
pub(super) fn tell(settings: &Settings, findings: &mut Findings) {
    if settings.get("connector.class").is_none() {
        return;
    }
    for (name, text) in DEFAULTS {
        if settings.get(name).is_none() {
            findings.notice(settings.origin(), name, text);
        }
    }
    let has_timestamp = settings
        .iter()
        .any(|setting| setting.name.ends_with(".table.field.event.timestamp"));
    if !has_timestamp && settings.get("record.timestamp").is_none() {
        findings.notice(
            settings.origin(),
            "record.timestamp",
            "the record timestamp is the commit's time here and the clock in Debezium; \
             `processing` brings that back",
        );
    }
    if settings
        .get("publication.autocreate.mode")
        .is_none_or(|mode| mode.trim().eq_ignore_ascii_case("all_tables"))
    {
        findings.notice(
            settings.origin(),
            "publication.autocreate.mode",
            "a missing publication is created for the outbox tables here and for all tables in \
             Debezium; create it beforehand to have another",
        );
    }
    if settings.get("transforms").is_none() {
        findings.notice(
            settings.origin(),
            "transforms",
            "the Event Router applies with its defaults; Debezium would publish raw change events",
        );
    }
}
