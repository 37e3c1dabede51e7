//! Several brokers, and the loss of one.

use std::time::Duration;

use crate::restart::{Load, check, wait_delivered};
use crate::support::kafka::Options;
use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

/// A leader dies under load: its followers take over and nothing is lost or out of order. A topic
/// that then has too few replicas is waited for, and is seen to be.
#[test]
fn a_lost_leader_costs_nothing_and_too_few_replicas_are_waited_for() {
    let kafka = Kafka::start(&Options {
        nodes: 3,
        properties: &[
            ("broker.session.timeout.ms", "3000"),
            ("broker.heartbeat.interval.ms", "500"),
        ],
        ..Options::default()
    });
    let mut scene = Scene::on("cluster", Postgres::shared(), kafka);
    let topic = scene.topic("order");
    scene
        .kafka
        .create_topic(&topic, 1, &[("min.insync.replicas", "2")]);
    let strict = scene.topic("strict");
    scene
        .kafka
        .create_topic(&strict, 1, &[("min.insync.replicas", "3")]);
    let worker = scene.worker().set("offset.storage.replication.factor", "3");
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]).allowing("kafka");
    walpost.wait_streaming();
    let load = Load::start(&scene, 2);
    let mut tail = scene.tail("order");
    tail.at_least(50);
    let leader = scene.kafka.leader(&topic);
    scene.kafka.kill_node(leader);
    let seen = tail.now().len();
    tail.at_least(seen + 50);
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    check(&scene.records("order"), &committed);
    assert_eq!(walpost.get("/health/ready").status, 200);

    scene.events("strict", "k", 1, 3);
    walpost.wait_readiness(503);
    let reasons = walpost.get("/health/ready").body;
    assert!(reasons.contains("without an acknowledgement"), "{reasons}");
    scene.kafka.start_node(leader);
    scene.tail("strict").within(3, Duration::from_secs(60));
    let records = scene.records("strict");
    let numbers = records.iter().map(|record| record.json()["n"].as_i64());
    assert_eq!(numbers.collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    wait::until("ready again", wait::SOON, || {
        walpost.get("/health/ready").status == 200
    });
}
