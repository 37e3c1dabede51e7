//! Nothing leaks: no password, key or payload in any log, page, metric or message.
//!
//! Every process of every test is searched for the planted texts (see `support::process`); here
//! they are put where they would leak most easily, with every library talking at its loudest.

use std::time::Duration;

use crate::support::command::{PAYLOAD_MARKER, run_files};
use crate::support::connector::write_files;
use crate::support::{Connector, Scene, Walpost};

const LOUD: [(&str, &str); 1] = [("WALPOST_LOG", "trace")];

fn start_loud(scene: &Scene, connector: &Connector) -> Walpost {
    Walpost::start_files(write_files(&scene.worker(), &[connector]), &LOUD)
}

/// Passwords and row content alike, at a level that prints every call.
#[test]
fn events_that_arrive_leave_nothing_in_the_loudest_log() {
    let mut scene = Scene::new("secrets");
    let connector = scene.connector().router(
        "table.fields.additional.placement",
        "type:header:kind,type:envelope:kind",
    );
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, type, payload)
         values ('order', 'planted-key-1', 'planted-header', '{{\"at\": \"{PAYLOAD_MARKER}\"}}')"
    ));
    let mut walpost = start_loud(&scene, &connector);
    walpost.wait_ready();
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, type, payload)
         values ('order', 'planted-key-2', 'planted-header', '{{\"at\": \"{PAYLOAD_MARKER}\"}}')"
    ));
    scene.tail("order").exactly(2, Duration::from_millis(200));
    for page in ["/status", "/metrics", "/health/live", "/health/ready"] {
        walpost.get(page);
    }
    walpost.stop();
    assert!(walpost.log().len() > 1000, "it did talk");
}

#[test]
fn events_that_fail_leave_nothing_in_the_loudest_log() {
    let mut scene = Scene::new("secrets");
    let connector = scene
        .connector()
        .router("table.field.event.timestamp", "at")
        .set("errors.tolerance", "all");
    scene.sql("alter table outbox add at text");
    let mut walpost = start_loud(&scene, &connector).allowing("");
    walpost.wait_ready();
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, payload, at) values
         ('order', 'planted-key', '\"{PAYLOAD_MARKER}\"', 'planted-time'),
         ('not a topic', 'planted-key', '\"{PAYLOAD_MARKER}\"', null)"
    ));
    scene.sql("update outbox set type = 'planted-update'");
    let position = scene.position();
    scene.wait_confirmed(position);
    walpost.get("/status");
    walpost.metrics();
    walpost.stop();
}

#[test]
fn refused_logins_do_not_repeat_what_was_refused() {
    let scene = Scene::new("secrets");
    let wrong = scene
        .connector()
        .set("database.password", "planted-wrong-password");
    start_loud(&scene, &wrong).expect_exit(2, &["password"]);
    let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                username=\"walpost\" password=\"planted-kafka-secret\" planted-rest;";
    let worker = scene
        .worker()
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.jaas.config", jaas);
    run_files(&["validate"], &worker, &[&scene.connector()]);
    let secret = scene
        .connector()
        .set("producer.override.sasl.jaas.config", "planted-not-jaas")
        .set("database.pasword", "planted-misspelt-name");
    run_files(&["validate"], &scene.worker(), &[&secret])
        .expect(2)
        .says(&["database.password"]);
}
