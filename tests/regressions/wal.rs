//! The WAL that a slot keeps.

use super::stream;
use crate::support::kafka::Options;
use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

/// The server will never serve the slot again; a client that took this for a passing error tried
/// for ever, and one that looked only at its start did not notice while Kafka was away.
#[test]
fn a_slot_given_up_while_kafka_is_away_is_foretold_and_a_gap() {
    let postgres = Postgres::private(&[
        ("max_slot_wal_keep_size", "16MB"),
        ("max_wal_size", "256MB"),
        ("min_wal_size", "32MB"),
        ("wal_keep_size", "0"),
    ]);
    let mut scene = Scene::on("wal", postgres, Kafka::start(&Options::default()));
    let worker = scene
        .worker()
        .set("task.shutdown.graceful.timeout.ms", "1000");
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    wait::until("the slot's state is a metric", wait::SOON, || {
        let metrics = walpost.metrics();
        metrics.text().lines().any(|line| {
            line.starts_with("walpost_slot_wal_status")
                && line.contains("reserved")
                && line.ends_with(" 1")
        })
    });
    walpost.allow("");
    scene.kafka.freeze();
    scene.event("k", 2);
    let fill = |scene: &mut Scene| {
        for _ in 0..2 {
            scene.sql(
                "insert into other (note) select repeat('x', 1000) from generate_series(1, 20000)",
            );
            scene.sql("select pg_switch_wal()");
        }
    };
    fill(&mut scene);
    walpost.wait_log("wal_status of the slot is unreserved");
    scene.sql("checkpoint");
    walpost.expect_exit(3, &["max_slot_wal_keep_size", "stored position"]);
    let slot = scene.name.clone();
    let left = format!(
        "select count(*) from pg_replication_slots where slot_name = '{slot}' and wal_status = 'lost'"
    );
    assert_eq!(
        scene.number(&left),
        Some(1),
        "neither dropped nor made anew"
    );
    scene.kafka.thaw();
}

/// The consumer was retired, the slot stayed and filled the primary's disk.
#[test]
fn a_start_says_what_the_slot_holds_back_and_how_to_remove_it() {
    let mut scene = Scene::new("wal");
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
    scene.sql("insert into other (note) select repeat('x', 1000) from generate_series(1, 5000)");
    let mut walpost = walpost.again();
    let line = walpost.wait_log("pg_drop_replication_slot");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["slot"], scene.name.as_str());
    assert!(line["retained_bytes"].as_u64() > Some(5_000_000), "{line}");
    let message = line["message"].as_str().unwrap();
    let statement = &message[message.find("SELECT").unwrap()..];
    walpost.wait_streaming();
    walpost.stop();
    wait::until("the statement works as printed", wait::SOON, || {
        scene.client().batch_execute(statement).is_ok()
    });
    assert_eq!(scene.confirmed(), None);
    // Dropped at every stop only when asked for, and then loudly.
    let mut other = Scene::new("wal");
    let dropping = other.connector().set("slot.drop.on.stop", "true");
    let mut walpost = stream(&other, &dropping);
    walpost.allow("slot.drop.on.stop");
    let warned = walpost.complaints();
    assert!(
        warned.iter().any(|line| line.contains("slot.drop.on.stop")),
        "{warned:?}"
    );
    walpost.stop();
    assert_eq!(other.confirmed(), None);
}
