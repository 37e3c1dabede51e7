//! Kafka client properties: which client gets which, and what may not be said.

use std::collections::BTreeMap;

use super::problem::Findings;
use super::properties::{KAFKA, Kind, LIBRDKAFKA, OWN, Property, Status, WORKER};
use super::settings::{Setting, Settings};
use super::validated::KafkaProperties;
use super::value;

/// What counts as security when deciding whether a producer has settings of its own.
fn is_security(name: &str) -> bool {
    name == "security.protocol" || name.starts_with("sasl.") || name.starts_with("ssl.")
}

fn property(name: &str) -> Option<&'static Property> {
    [&KAFKA, &LIBRDKAFKA]
        .iter()
        .find_map(|family| family.find(name))
}

/// Whether a client property is to be handed on.
fn is_used(name: &str) -> bool {
    property(name).is_some_and(|property| property.status == Status::Works)
}

/// The value as Java would parse it: words in the table's spelling, nothing around numbers; text
/// and secrets untouched.
fn normal(name: &str, value: &str) -> String {
    match property(name).map(|property| property.kind) {
        None | Some(Kind::Text | Kind::Secret | Kind::Path) => value.to_owned(),
        Some(Kind::Choice(allowed)) => {
            value::choice(value, allowed).map_or_else(|_| value.to_owned(), str::to_owned)
        }
        Some(Kind::Flag) => value.trim().to_lowercase(),
        Some(_) => value.trim().to_owned(),
    }
}

/// The worker's own clients: top-level properties.
pub(super) fn client(worker: &Settings, findings: &mut Findings) -> KafkaProperties {
    let mut found: BTreeMap<&str, &Setting> = worker
        .iter()
        .filter(|setting| {
            let worker_only = WORKER.find(&setting.name).is_some();
            is_used(&setting.name) && (!worker_only || setting.name == "bootstrap.servers")
        })
        .map(|setting| (setting.name.as_str(), setting))
        .collect();
    refuse_java_stores(&found, findings);
    require_credentials(&found, findings);
    // Durability settings make no sense for these clients; Connect warns and ignores them too.
    for name in [
        "acks",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
    ] {
        if let Some(setting) = found.remove(name) {
            findings.notice(
                &setting.origin,
                name,
                format!("has no effect: producers read it below producer. (producer.{name})"),
            );
        }
    }
    let mut client = owned(&found);
    client
        .0
        .entry("bootstrap.servers".to_owned())
        .or_insert_with(|| "localhost:9092".to_owned());
    client
}

fn owned(found: &BTreeMap<&str, &Setting>) -> KafkaProperties {
    KafkaProperties(
        found
            .iter()
            .map(|(name, setting)| ((*name).to_owned(), normal(name, &setting.value)))
            .collect(),
    )
}

/// The producer of a connector: worker `producer.*`, then `producer.override.*`; the worker's own
/// security settings where neither has any.
pub(super) fn producer(
    connector: &Settings,
    worker: &Settings,
    client: &KafkaProperties,
    findings: &mut Findings,
) -> KafkaProperties {
    const OVERRIDE: &str = "producer.override.";
    obey_override_policy(connector, worker, findings);
    let found: BTreeMap<&str, &Setting> = worker
        .below("producer.")
        .filter(|(_, setting)| !setting.name.starts_with(OVERRIDE))
        .chain(connector.below(OVERRIDE))
        .filter(|(name, _)| is_used(name))
        .collect();
    refuse_reordering(connector, &found, findings);
    refuse_java_stores(&found, findings);
    require_credentials(&found, findings);
    let mut producer = owned(&found);
    let fallback: Vec<_> = client
        .0
        .iter()
        .filter(|(name, _)| is_security(name))
        .collect();
    if !producer.0.keys().any(|name| is_security(name)) && !fallback.is_empty() {
        findings.notice(
            connector.origin(),
            "producer.override.security.protocol",
            "the producer uses the worker's own security settings; Connect would not, and would \
             need them once more below producer.",
        );
        producer.0.extend(
            fallback
                .into_iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
    if let Some(brokers) = client.get("bootstrap.servers") {
        producer
            .0
            .entry("bootstrap.servers".to_owned())
            .or_insert_with(|| brokers.to_owned());
    }
    producer
}

fn obey_override_policy(connector: &Settings, worker: &Settings, findings: &mut Findings) {
    const PRINCIPAL: [&str; 3] = ["sasl.jaas.config", "sasl.mechanism", "security.protocol"];
    let policy = worker
        .get("connector.client.config.override.policy")
        .unwrap_or("All")
        .trim();
    for (name, setting) in connector.below("producer.override.") {
        let allowed = match policy {
            "None" => false,
            "Principal" => PRINCIPAL.contains(&name),
            _ => true,
        };
        if !allowed {
            findings.problem(
                connector.origin(),
                &setting.name,
                format!("connector.client.config.override.policy={policy} does not allow it"),
            );
        }
    }
}

fn refuse_reordering(
    connector: &Settings,
    found: &BTreeMap<&str, &Setting>,
    findings: &mut Findings,
) {
    if connector.view("", &OWN).flag("allow.reordering") {
        return;
    }
    let mut refuse = |name: &str, is_bad: &dyn Fn(&str) -> bool, harm: &str| {
        if let Some(setting) = found
            .get(name)
            .filter(|setting| is_bad(setting.value.trim()))
        {
            findings.problem(
                &setting.origin,
                &setting.name,
                format!(
                    "{:?} is refused: {harm}; remove it, or accept that with \
                     allow.reordering=true",
                    setting.written
                ),
            );
        }
    };
    refuse(
        "acks",
        &|value| matches!(value, "0" | "1"),
        "an event could be lost when a broker fails",
    );
    refuse(
        "enable.idempotence",
        &|value| value::flag(value) == Ok(false),
        "a repeated request could double or reorder events",
    );
    refuse(
        "max.in.flight.requests.per.connection",
        &|value| value.parse().is_ok_and(|requests: i64| requests > 5),
        "idempotence keeps the order of at most 5 requests",
    );
}

/// A SASL connection needs a mechanism that is built in, and something to log in with.
fn require_credentials(found: &BTreeMap<&str, &Setting>, findings: &mut Findings) {
    let Some(protocol) = found.get("security.protocol") else {
        return;
    };
    if !protocol.value.trim().to_uppercase().starts_with("SASL_") {
        return;
    }
    let beside = |name: &str| {
        let stem = protocol.name.strip_suffix("security.protocol");
        format!("{}{name}", stem.unwrap_or_default())
    };
    let origin = &protocol.origin;
    match found
        .get("sasl.mechanism")
        .map(|setting| setting.value.trim())
    {
        None => findings.problem(
            origin,
            &beside("sasl.mechanism"),
            "is required: Java's default is GSSAPI, which is not built in; use SCRAM-SHA-512, \
             PLAIN or OAUTHBEARER",
        ),
        Some(mechanism) if !mechanism.eq_ignore_ascii_case("OAUTHBEARER") => {
            let given = ["sasl.jaas.config", "sasl.username"]
                .iter()
                .any(|name| found.contains_key(name));
            if !given {
                findings.problem(
                    origin,
                    &beside("sasl.jaas.config"),
                    format!("is required: {mechanism} needs a user and a password"),
                );
            }
        }
        Some(_) => {}
    }
}

/// Java's key stores cannot be read; PEM can.
fn refuse_java_stores(found: &BTreeMap<&str, &Setting>, findings: &mut Findings) {
    let stores = [
        (
            "ssl.truststore.location",
            "ssl.truststore.type",
            "keytool -exportcert -rfc -keystore STORE -alias ALIAS -file ca.pem",
        ),
        (
            "ssl.keystore.location",
            "ssl.keystore.type",
            "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype \
             PKCS12 && openssl pkcs12 -in store.p12 -nodes -out client.pem",
        ),
    ];
    for (location, kind, convert) in stores {
        let pem = found
            .get(kind)
            .is_some_and(|setting| setting.value.trim().eq_ignore_ascii_case("PEM"));
        let Some(setting) = found.get(location).filter(|_| !pem) else {
            continue;
        };
        findings.problem(
            &setting.origin,
            &setting.name,
            format!(
                "{:?} is a Java key store unless {kind}=PEM says otherwise, and only PEM is read; \
                 convert it with `{convert}`, name the result here and set {kind}=PEM",
                setting.written
            ),
        );
    }
}
