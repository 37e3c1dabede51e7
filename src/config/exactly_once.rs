//! Exactly-once delivery: Connect's switch in worker and connector, and what must hold with it.

use std::time::Duration;

use super::problem::Findings;
use super::properties::{FRAMEWORK, OWN, WORKER};
use super::settings::Settings;
use super::validated::{Boundary, ExactlyOnce, KafkaProperties, OffsetStorage, Worker};

const WORKER_SWITCH: &str = "exactly.once.source.support";
/// Java's default of `transaction.timeout.ms`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the connector called `name`, which produces by `producer`, is to do.
pub(super) fn read(
    settings: &Settings,
    worker_settings: &Settings,
    (worker, name, producer): (&Worker, &str, &KafkaProperties),
    findings: &mut Findings,
) -> Option<ExactlyOnce> {
    let framework = settings.view("", &FRAMEWORK);
    if !worker.exactly_once {
        refuse_if_required(settings, worker_settings, findings);
        return None;
    }
    if matches!(worker.offsets, OffsetStorage::File(_))
        && framework.optional("offsets.storage.topic").is_none()
    {
        findings.problem(
            worker_settings.origin_of(WORKER_SWITCH),
            WORKER_SWITCH,
            "enabled needs the positions in a topic, since a file is no part of a Kafka \
             transaction; set offset.storage.topic instead of offset.storage.file.filename",
        );
    }
    let timeout = producer
        .get("transaction.timeout.ms")
        .and_then(|millis| millis.parse().ok())
        .map_or(TIMEOUT, Duration::from_millis);
    Some(ExactlyOnce {
        transactional_id: format!("{}-{name}-0", worker.group_id),
        boundary: match framework.choice("transaction.boundary") {
            "interval" => Boundary::Interval(
                settings
                    .get("transaction.boundary.interval.ms")
                    .and_then(|millis| millis.trim().parse().ok())
                    .map_or(worker.flush_interval, Duration::from_millis),
            ),
            "connector" => Boundary::Connector,
            _ => Boundary::Poll,
        },
        timeout,
        max_records: settings.view("", &OWN).number("transaction.max.records"),
    })
}

fn refuse_if_required(settings: &Settings, worker: &Settings, findings: &mut Findings) {
    const SUPPORT: &str = "exactly.once.support";
    if settings.view("", &FRAMEWORK).choice(SUPPORT) == "required" {
        findings.problem(
            settings.origin(),
            SUPPORT,
            format!(
                "required, but the worker has {WORKER_SWITCH}={}; set {WORKER_SWITCH}=enabled in \
                 the worker's properties, or {SUPPORT}=requested to accept at-least-once delivery",
                worker.view("", &WORKER).choice(WORKER_SWITCH)
            ),
        );
    }
}
