//! The worker's settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::kafka;
use super::problem::Findings;
use super::properties::WORKER;
use super::settings::Settings;
use super::validated::{Listener, OffsetStorage, OffsetTopic, Worker};
use super::value;

/// Reads the worker's settings, merged from connector files, worker file and environment.
pub(super) fn read(settings: &Settings, findings: &mut Findings) -> Worker {
    let view = settings.view("", &WORKER);
    Worker {
        group_id: view.text("group.id"),
        offsets: offsets(settings, findings),
        flush_interval: view.millis("offset.flush.interval.ms"),
        shutdown_timeout: view.millis("task.shutdown.graceful.timeout.ms"),
        listeners: listeners(settings),
        client: kafka::client(settings, findings),
        topic_creation: view.flag("topic.creation.enable"),
        exactly_once: view.choice("exactly.once.source.support") == "enabled",
    }
}

fn offsets(settings: &Settings, findings: &mut Findings) -> OffsetStorage {
    let view = settings.view("", &WORKER);
    if let Some(file) = view.optional("offset.storage.file.filename") {
        if settings.get("offset.storage.topic").is_some() {
            findings.problem(
                settings.origin_of("offset.storage.file.filename"),
                "offset.storage.file.filename",
                "contradicts offset.storage.topic: positions are kept in one place; remove one of \
                 the two",
            );
        }
        return OffsetStorage::File(PathBuf::from(file));
    }
    let own = ["topic", "partitions", "replication.factor", "file.filename"];
    let settings: BTreeMap<String, String> = settings
        .below("offset.storage.")
        .filter(|(name, _)| !own.contains(name) && *name != "cleanup.policy")
        .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
        .collect();
    OffsetStorage::Topic(OffsetTopic {
        name: view.text("offset.storage.topic"),
        partitions: view.number("offset.storage.partitions"),
        replication_factor: view.number("offset.storage.replication.factor"),
        settings,
    })
}

/// `listeners`, or its old form `rest.host.name` and `rest.port`.
fn listeners(settings: &Settings) -> Vec<Listener> {
    let view = settings.view("", &WORKER);
    let old = ["rest.host.name", "rest.port"]
        .iter()
        .any(|name| settings.get(name).is_some());
    if old && settings.get("listeners").is_none() {
        return vec![Listener {
            host: view.text("rest.host.name"),
            port: view.number("rest.port"),
        }];
    }
    value::listeners(&view.text("listeners")).unwrap_or_default()
}
