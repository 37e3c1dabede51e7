//! What comes twice, and in which order.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::QUIET;
use crate::support::postgres::Shutdown;
use crate::support::{Kafka, Postgres, Scene, random, wait};

/// After a reconnect the server sends an unconfirmed transaction from its beginning; a connector
/// that repeated more than that, or began in the middle, confused its consumers.
#[test]
fn only_unconfirmed_transactions_come_again_after_a_kill() {
    let mut scene = Scene::new("duplicates");
    scene.kafka.create_topic(&scene.topic("order"), 1, &[]);
    let mut walpost = scene.start();
    let mut rng = random::generator("duplicates");
    // For each transaction where it ended, and for each kill what was confirmed and read by then.
    let mut ends: Vec<i64> = Vec::new();
    let mut kills: Vec<(i64, i64)> = Vec::new();
    for _ in 0..12 {
        for _ in 0..rng.u32(2..6) {
            let rows = [1, 1, 10, 2_000][rng.usize(..4)];
            let number = ends.len();
            scene.sql(&format!(
                "insert into outbox (aggregatetype, aggregateid, payload)
                 select 'order', 'k', jsonb_build_object('n', {number}, 'row', r)
                 from generate_series(1, {rows}) r order by r"
            ));
            ends.push(scene.position());
        }
        let moment = Instant::now() + Duration::from_millis(rng.u64(0..300));
        wait::until("the moment to kill", wait::SOON, || {
            Instant::now() >= moment
        });
        walpost.kill();
        let confirmed = scene.confirmed().unwrap();
        let read = scene.records("order").len();
        kills.push((confirmed, i64::try_from(read).unwrap()));
        walpost = walpost.again();
        walpost.allow("active");
    }
    walpost.wait_streaming();
    let position = scene.position();
    scene.wait_confirmed(position);
    let records = scene.records("order");
    let mut ids = HashMap::new();
    let mut newest = (-1, 0);
    for record in &records {
        let value = record.json();
        let at = (value["n"].as_i64().unwrap(), value["row"].as_i64().unwrap());
        let id = record.header("id").unwrap();
        assert_eq!(*ids.entry(at).or_insert(id), id, "the id is the row's own");
        if at > newest {
            let follows = at == (newest.0, newest.1 + 1) || at == (newest.0 + 1, 1);
            assert!(follows, "{at:?} came first after {newest:?}");
            newest = at;
        }
        let end = ends[usize::try_from(at.0).unwrap()];
        for (confirmed, read) in &kills {
            assert!(
                record.kafka_offset < *read || end > *confirmed,
                "transaction {} was confirmed and came again",
                at.0
            );
        }
    }
    let rows: HashSet<_> = ids.values().collect();
    assert_eq!(
        i64::try_from(rows.len()).ok(),
        scene.number("select count(*) from outbox"),
        "every row arrived"
    );
}

/// A restart of Postgres before the first stored position: no offset was found, and all of the
/// outbox was published once more.
#[test]
fn a_restart_of_postgres_at_the_end_of_the_snapshot_does_not_repeat_it_in_silence() {
    const ROWS: usize = 10_000;
    let mut scene = Scene::on("duplicates", Postgres::private(&[]), Kafka::shared());
    scene.events("order", "old", 1, ROWS.try_into().unwrap());
    let mut walpost = scene.spawn();
    walpost.allow("");
    let mut tail = scene.tail("order");
    tail.at_least(ROWS);
    scene.postgres.restart(Shutdown::Immediate);
    scene.reconnect();
    walpost.wait_streaming();
    scene.event("new", 1);
    let repeated = tail.settled() > ROWS + 1;
    let said = walpost.log().contains("the snapshot");
    assert!(!repeated || said, "a repetition is announced");
    let ids: HashSet<_> = scene
        .records("order")
        .iter()
        .map(|record| record.header("id").map(str::to_owned))
        .collect();
    assert_eq!(ids.len(), ROWS + 1);
    // It is finished now, whatever restarts.
    let seen = tail.settled();
    scene.postgres.restart(Shutdown::Immediate);
    scene.reconnect();
    scene.event("new", 2);
    tail.exactly(seen + 1, QUIET);
}
