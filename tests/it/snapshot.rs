//! Rows that were there before the slot.

use std::collections::HashSet;
use std::time::Duration;

use crate::restart::{Load, check_complete, wait_delivered};
use crate::support::relay::Weather;
use crate::support::{Kafka, Postgres, Relay, Scene, Walpost, wait};

fn fill(scene: &mut Scene, rows: u32) {
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'old', jsonb_build_object('n', n, 'pad', repeat('x', 200))
         from generate_series(1, {rows}) n order by n"
    ));
}

/// Writers at work, transactions open across the seam; nothing is lost, nothing doubled.
#[test]
fn the_seam_between_snapshot_and_stream_has_no_gap_and_no_duplicate() {
    let mut scene = Scene::on("snapshot", Postgres::private(&[]), Kafka::shared());
    let load = Load::start(&scene, 6);
    wait::until("some rows", wait::SOON, || {
        scene.number("select count(*) from outbox") > Some(100)
    });
    let open = (0..20).map(|n| {
        let mut client = scene.connect();
        let insert = format!(
            "begin; insert into outbox (aggregatetype, aggregateid, payload)
             values ('order', 'long-{n}', '{{\"n\": 0, \"ghost\": false}}')"
        );
        client.batch_execute(&insert).unwrap();
        client
    });
    let open: Vec<_> = open.collect();
    let mut walpost = scene.spawn();
    // The slot waits for what was open when it was asked for; they end one by one meanwhile.
    let mut moment = std::time::Instant::now();
    for mut client in open {
        moment += Duration::from_millis(100);
        wait::until("the slot waits", wait::SOON, || {
            std::time::Instant::now() >= moment
        });
        client.batch_execute("commit").unwrap();
    }
    walpost.wait_ready();
    scene.tail("order").at_least(500);
    let mut committed = load.finish();
    committed.extend((0..20).map(|n| (format!("long-{n}"), 0)));
    wait_delivered(&scene, &committed);
    let records = scene.records("order");
    check_complete(&records, &committed);
    let ids: HashSet<_> = records.iter().map(|record| record.header("id")).collect();
    assert_eq!(ids.len(), records.len(), "no duplicate at the seam");
}

#[test]
fn a_crash_during_the_snapshot_starts_it_again_and_says_so() {
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 60_000);
    // Slow enough to be killed in the middle of some twenty megabytes.
    let relay = Relay::to(scene.postgres.port());
    relay.set(Weather::Throttle(1_000_000));
    let port = relay.port().to_string();
    let connector = scene.connector().set("database.port", &port);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    let mut tail = scene.tail("order");
    let seen = tail.at_least(500).len();
    walpost.kill();
    relay.set(Weather::Fair);
    assert!(seen < 60_000, "killed in the middle");
    let mut walpost = walpost.again();
    walpost.allow("snapshot");
    walpost.wait_ready();
    wait::until("every row arrives", Duration::from_secs(60), || {
        let numbers: HashSet<_> = tail
            .now()
            .iter()
            .map(|r| r.header("id").map(str::to_owned))
            .collect();
        numbers.len() == 60_000
    });
    assert!(
        walpost.log().to_lowercase().contains("snapshot"),
        "{}",
        walpost.log()
    );
    scene.event("new", 1);
    tail.within(60_001, Duration::from_secs(60));
}

/// A finished snapshot is never taken again.
#[test]
fn a_finished_snapshot_is_not_repeated() {
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 1_000);
    let mut walpost = scene.start();
    let mut tail = scene.tail("order");
    tail.at_least(1_000);
    walpost.wait_ready();
    walpost.stop();
    let mut walpost = walpost.again();
    walpost.wait_ready();
    tail.exactly(1_000, Duration::from_millis(500));
    walpost.kill();
    let mut walpost = walpost.again();
    walpost.wait_ready();
    tail.exactly(1_000, Duration::from_millis(500));
}

#[test]
fn modes_do_what_they_say() {
    // no_data: only what commits from now on.
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 10);
    let connector = scene.connector().set("snapshot.mode", "no_data");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    scene.event("new", 77);
    let mut tail = scene.tail("order");
    assert_eq!(
        tail.exactly(1, Duration::from_millis(300))[0].json()["n"],
        77
    );
    walpost.stop();
    // initial_only: the rows, then the end.
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 10);
    let connector = scene.connector().set("snapshot.mode", "initial_only");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    assert_eq!(
        walpost.wait_exit(wait::SOON).code(),
        Some(0),
        "{}",
        walpost.log()
    );
    scene.tail("order").exactly(10, Duration::from_millis(300));
}

/// Once a start, not once a connection; nothing that commits meanwhile is passed over.
#[test]
fn mode_always_reads_the_existing_rows_at_each_start() {
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 3);
    let connector = scene.connector().set("snapshot.mode", "always");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    let mut tail = scene.tail("order");
    tail.at_least(3);
    walpost.stop();
    scene.event("down", 77);
    let mut walpost = walpost.again();
    walpost.wait_streaming();
    // Three and the new one from the table, the new one from the stream.
    let numbers: Vec<i64> = tail.exactly(8, Duration::from_millis(500))[3..]
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers.iter().filter(|n| **n == 77).count(), 2);
    // Back after a loss.
    walpost.allow("interrupted");
    let name = scene.name.clone();
    scene.sql(&format!(
        "select pg_terminate_backend(active_pid) from pg_replication_slots
         where slot_name = '{name}'"
    ));
    walpost.wait_log("interrupted");
    scene.event("back", 78);
    tail.exactly(9, Duration::from_millis(500));
    walpost.stop();
}

#[test]
fn a_large_snapshot_needs_little_memory() {
    let mut scene = Scene::new("snapshot");
    fill(&mut scene, 200_000);
    let mut walpost = scene.spawn();
    scene
        .tail("order")
        .within(200_000, Duration::from_secs(120));
    let peak = walpost.peak_memory();
    assert!(peak < 150_000_000, "{peak}");
    walpost.wait_ready();
    walpost.stop();
}
