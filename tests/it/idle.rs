//! What moves while the outbox is quiet, and what must not.

use std::time::Duration;

use crate::support::kafka::Options;
use crate::support::postgres::Shutdown;
use crate::support::{Kafka, Postgres, Scene, wait};

/// Neighbours write, the outbox does not.
#[test]
fn the_slot_follows_while_only_other_tables_are_written() {
    let mut scene = Scene::new("idle");
    let mut walpost = scene.start();
    for _ in 0..3 {
        scene
            .sql("insert into other (note) select repeat('x', 500) from generate_series(1, 20000)");
        let position = scene.position();
        scene.wait_confirmed(position);
    }
    let metrics = walpost.metrics();
    let retained = metrics.get("walpost_slot_retained_bytes", &[]);
    assert!(retained.is_none_or(|bytes| bytes < 100e6), "{retained:?}");
    // Quiet for a moment: no lag.
    wait::until("lag is about zero", wait::SOON, || {
        let metrics = walpost.metrics();
        metrics
            .get("walpost_lag_bytes", &[("stage", "confirmed")])
            .is_some_and(|bytes| bytes < 5e6)
            && metrics
                .get("walpost_lag_seconds", &[("stage", "delivered")])
                .is_some_and(|age| age == 0.0)
    });
}

/// A keepalive's position confirms nothing that still waits for Kafka.
#[test]
fn a_frozen_kafka_holds_the_slot_before_the_waiting_row() {
    let kafka = Kafka::start(&Options::default());
    let mut scene = Scene::on("idle", Postgres::shared(), kafka);
    let connector = scene.connector().set("status.update.interval.ms", "200");
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    walpost.allow("");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    scene.kafka.freeze();
    let before = scene.position();
    scene.event("k", 2);
    let mut beats = 0;
    wait::throughout(
        "the slot stays before the row",
        Duration::from_secs(3),
        || {
            beats += 1;
            scene.sql("insert into other (note) values ('beat')");
            scene.confirmed().unwrap() <= before + 64
        },
    );
    assert!(beats > 20);
    wait::until(
        "what came and what is confirmed show apart",
        wait::SOON,
        || {
            let metrics = walpost.metrics();
            let lag = |stage| metrics.get("walpost_lag_bytes", &[("stage", stage)]);
            lag("received") < lag("confirmed")
        },
    );
    walpost.kill();
    scene.kafka.thaw();
    let mut walpost = walpost.again();
    walpost.wait_streaming();
    wait::until("the row arrives after all", wait::SOON, || {
        scene
            .records("order")
            .iter()
            .any(|record| record.json()["n"] == 2)
    });
}

/// A server that stops waits for its walsenders.
#[test]
fn an_idle_connector_does_not_hold_up_a_server_that_stops() {
    let mut scene = Scene::on("idle", Postgres::private(&[]), Kafka::shared());
    let mut walpost = scene.start();
    walpost.allow("");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    scene.sql("insert into other (note) values ('something to confirm')");
    let took = scene.postgres.stop(Shutdown::Fast);
    // Held up, it would last until `wal_sender_timeout`, a minute.
    assert!(took < Duration::from_secs(15), "{took:?}");
    scene.postgres.start();
    scene.reconnect();
    scene.event("k", 2);
    scene.tail("order").at_least(2);
}

#[test]
fn heartbeats_are_sent_and_their_query_is_run() {
    let mut scene = Scene::new("idle");
    let connector = scene.connector().set("heartbeat.interval.ms", "100").set(
        "heartbeat.action.query",
        "insert into other (note) values ('heartbeat')",
    );
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    wait::until("the query is run", wait::SOON, || {
        scene.number("select count(*) from other where note = 'heartbeat'") >= Some(3)
    });
    let topic = format!("__debezium-heartbeat.{}", scene.name);
    let mut tail = crate::support::Tail::new(&scene.kafka.bootstrap(), &[&topic]);
    tail.at_least(3);
    assert!(scene.records("order").is_empty());
}
