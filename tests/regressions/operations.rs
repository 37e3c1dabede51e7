//! Running it: stops, stored positions, what is told.

use std::time::Duration;

use crate::support::cleanup::Signal;
use crate::support::command::run_files;
use crate::support::relay::Weather;
use crate::support::{Postgres, Relay, Scene, Walpost, cleanup, surroundings, wait};

/// Orchestrators send SIGTERM, then SIGKILL; only Ctrl-C was heard, or only while idle.
#[test]
fn sigterm_ends_it_inside_a_large_transaction_and_with_a_frozen_database() {
    let mut scene = Scene::new("sigterm");
    let mut walpost = scene.start();
    walpost.allow("transaction");
    walpost.allow("come again");
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', jsonb_build_object('n', n) from generate_series(1, 300000) n order by n",
    );
    scene.tail("order").at_least(1);
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(15), "{time:?}");

    let relay = Relay::to(scene.postgres.port());
    let port = relay.port().to_string();
    let connector = scene.connector().set("database.port", &port);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]).allowing("");
    walpost.wait_ready();
    relay.set(Weather::Stall);
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(15), "{time:?}");

    // While connecting to a server that accepts and says nothing.
    let mut walpost = walpost.again();
    walpost.wait_log("listening");
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(15), "{time:?}");
}

/// A container's first process has no default answer to signals.
#[test]
fn the_first_process_of_a_container_hears_its_signals() {
    if !surroundings::possible() {
        return;
    }
    let mut scene = Scene::new("first");
    for (round, signal) in [(1, Signal::TERM), (2, Signal::INT)] {
        let (worker, connector) = (scene.worker(), scene.connector());
        let mut walpost = Walpost::start_in(surroundings::alone(), &worker, &[&connector]);
        walpost.wait_streaming();
        let pid = surroundings::inside(walpost.pid());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
        assert_eq!(numbers.unwrap().split_whitespace().last(), Some("1"));
        scene.event("k", round);
        cleanup::signal(pid, signal);
        let ended = walpost.wait_exit(Duration::from_secs(15));
        assert_eq!(ended.code(), Some(0), "{}", walpost.log());
        let slot = format!(
            "select count(*) from pg_replication_slots where active and slot_name = '{}'",
            scene.name
        );
        wait::until("the slot is free", wait::SOON, || {
            scene.number(&slot) == Some(0)
        });
    }
    scene.event("k", 3);
    let _walpost = scene.start();
    let numbers = |record: &crate::support::Record| record.json()["n"].as_i64();
    let mut tail = scene.tail("order");
    let records = tail.exactly(3, Duration::from_millis(300));
    assert_eq!(
        records.iter().map(numbers).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
}

/// A position that could not be written was confirmed all the same.
#[test]
fn a_position_that_cannot_be_written_is_not_confirmed() {
    let mut scene = Scene::new("unwritable");
    let folder = cleanup::folder("offsets").join("volume");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("positions");
    let worker = ["topic", "partitions", "replication.factor"]
        .iter()
        .fold(scene.worker(), |worker, name| {
            worker.without(&format!("offset.storage.{name}"))
        })
        .set("offset.storage.file.filename", path.to_str().unwrap());
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    walpost.allow("");
    // The volume goes away, and comes back.
    let hidden = folder.with_extension("hidden");
    std::fs::rename(&folder, &hidden).unwrap();
    let before = scene.position();
    scene.event("k", 2);
    scene.tail("order").at_least(2);
    walpost.wait_complaint(&[path.to_str().unwrap()]);
    walpost.wait_readiness(503);
    assert!(scene.confirmed().unwrap() <= before + 64);
    std::fs::rename(&hidden, &folder).unwrap();
    let position = scene.position();
    scene.wait_confirmed(position);
    walpost.wait_ready();
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(left.len() <= 2, "no scraps: {left:?}");
}

/// Lag was computed only when an event was handled, so it kept its last good value.
#[test]
fn lag_is_never_a_good_value_that_froze() {
    let mut scene = Scene::on(
        "frozen",
        Postgres::private(&[("wal_sender_timeout", "6s")]),
        crate::support::Kafka::shared(),
    );
    let relay = Relay::to(scene.postgres.port());
    let port = relay.port().to_string();
    let connector = scene.connector().set("database.port", &port);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]).allowing("");
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    relay.set(Weather::Stall);
    scene.events("order", "k", 2, 1000);
    // What cannot be known is absent, and readiness says that nothing is heard.
    wait::until("the lag is unknown", wait::SOON, || {
        let labels = [("stage", "delivered")];
        walpost
            .metrics()
            .get("walpost_lag_bytes", &labels)
            .is_none()
    });
    walpost.wait_readiness(503);
    assert_eq!(walpost.get("/health/live").status, 200);
    relay.set(Weather::Fair);
    scene.tail("order").within(1000, Duration::from_secs(60));
    walpost.wait_ready();
}

/// Settings for TLS that pointed nowhere ended a run as a success.
#[test]
fn a_missing_certificate_and_an_option_not_offered_are_named() {
    let scene = Scene::new("offline");
    let bad = scene
        .connector()
        .set("database.sslmode", "verify-ca")
        .set("database.sslrootcert", "/nowhere/ca.pem")
        .set("signal.data.collection", "public.signals")
        .set("heartbeat.interval.ms", "10s");
    run_files(&["check"], &scene.worker(), &[&bad])
        .expect(2)
        .says(&["signal.data.collection", "heartbeat.interval.ms"]);
    let bad = bad
        .without("signal.data.collection")
        .without("heartbeat.interval.ms");
    run_files(&["check"], &scene.worker(), &[&bad])
        .expect(2)
        .says(&["/nowhere/ca.pem"]);
}
