//! What must never be missing.

use std::time::Duration;

use super::{numbers, stream};
use crate::support::{Kafka, Postgres, Scene, wait};

/// The new slot starts later than the stored position, and Postgres moves the start forward to it
/// without a word; a connector that only reconnects never looks.
#[test]
fn a_slot_made_anew_while_we_stream_is_a_gap() {
    let mut scene = Scene::new("loss");
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    let slot = scene.name.clone();
    walpost.allow("");
    wait::until("the slot is dropped under us", wait::SOON, || {
        let drop = format!(
            "select pg_terminate_backend(active_pid) from pg_replication_slots
             where slot_name = '{slot}' and active_pid is not null;
             select pg_drop_replication_slot('{slot}')"
        );
        scene.client().batch_execute(&drop).is_ok()
    });
    for n in 2..=4 {
        scene.event("k", n);
    }
    // It may have been noticed already that there is none.
    scene.sql(&format!(
        "select pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    ));
    walpost.expect_exit(3, &["missing", &slot]);
    assert_eq!(numbers(&scene.records("order")), [1]);
}

/// pgoutput looks the publication up as it was at each position: every reconnect failed although
/// the publication plainly existed, or rows before it were passed over.
#[test]
fn a_publication_younger_than_its_slot_is_explained_and_nothing_is_passed_over() {
    let mut scene = Scene::new("loss");
    let name = scene.name.clone();
    scene.sql(&format!(
        "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
    ));
    scene.event("k", 1);
    scene.sql(&format!("create publication {name} for table outbox"));
    scene.event("k", 2);
    let before = scene.confirmed();
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "disabled");
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]).allowing("");
    walpost.wait_log("publication that is newer than that position");
    wait::throughout("it waits", Duration::from_secs(3), || walpost.is_running());
    assert!(walpost.complaints().len() < 10, "it does not spin");
    assert_eq!(walpost.get("/health/ready").status, 503);
    assert_eq!(scene.confirmed(), before, "row 1 is still in the slot");
    assert!(scene.records("order").is_empty());
}

/// Begins and commits went on, rows did not, and all looked well.
#[test]
fn a_publication_dropped_under_the_stream_stops_before_the_row_it_would_hide() {
    let mut scene = Scene::new("loss");
    let name = scene.name.clone();
    scene.sql(&format!("create publication {name} for table outbox"));
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "disabled");
    let mut walpost = stream(&scene, &connector);
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    scene.sql(&format!("drop publication {name}"));
    scene.event("k", 2);
    let position = scene.position();
    walpost.expect_exit(2, &["create publication", &name]);
    assert!(
        scene.confirmed().unwrap() < position,
        "not confirmed past it"
    );
}

/// A row filter on row positions dropped rows; so did a test on the wrong end of a commit.
#[test]
fn back_to_back_commits_and_kills_lose_neither() {
    let mut scene = Scene::new("loss");
    let mut walpost = scene.start();
    let mut tail = scene.tail("order");
    for round in 0..5 {
        scene.event("k", 2 * round + 1);
        scene.event("k", 2 * round + 2);
        wait::until("the first of the two is in Kafka", wait::SOON, || {
            numbers(tail.now()).contains(&(2 * round + 1))
        });
        walpost.kill();
        walpost = walpost.again();
        walpost.allow("active");
    }
    wait::until("all arrive", wait::SOON, || {
        let mut found = numbers(tail.now());
        found.sort_unstable();
        found.dedup();
        found == (1..=10).collect::<Vec<_>>()
    });
}

/// Everything of a transaction carries its commit's end; a flush in the middle confirmed that end
/// while the tail was unsent.
#[test]
fn a_kill_inside_a_large_transaction_loses_none_of_it() {
    let relay_of = |scene: &Scene| crate::support::Relay::to(scene.postgres.port());
    let mut scene = Scene::on("loss", Postgres::private(&[]), Kafka::shared());
    let relay = relay_of(&scene);
    let connector = scene
        .connector()
        .set("database.port", &relay.port().to_string());
    let mut walpost = stream(&scene, &connector);
    scene.event("k", 0);
    scene.tail("order").at_least(1);
    let start = scene.position();
    scene.wait_confirmed(start);
    let carried = relay.carried();
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', jsonb_build_object('n', n, 'pad', repeat('x', 1000))
         from generate_series(1, 20000) n order by n",
    );
    let end = scene.position();
    wait::until("a third has come", wait::SOON, || {
        relay.carried() - carried > 7_000_000
    });
    relay.set(crate::support::relay::Weather::Stall);
    let mut tail = scene.tail("order");
    let seen = tail.settled();
    assert!(
        (1_000..20_000).contains(&seen),
        "{seen} rows: cut in the middle"
    );
    assert!(scene.confirmed().unwrap() < end);
    let slot = scene.name.clone();
    walpost.kill();
    relay.cut();
    relay.set(crate::support::relay::Weather::Fair);
    wait::until("the slot is free", wait::SOON, || {
        scene.number(&format!(
            "select count(*) from pg_replication_slots where slot_name = '{slot}' and active"
        )) == Some(0)
    });
    assert!(
        scene.confirmed().unwrap() < end,
        "never ahead of what was delivered whole"
    );
    let _second = walpost.again();
    wait::until("all of it arrives", wait::SOON, || {
        let mut found = numbers(tail.now());
        found.sort_unstable();
        found.dedup();
        found.len() == 20_001
    });
}
