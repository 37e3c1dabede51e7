//! The WAL that a slot holds back: seen, warned about, and given up only when asked for.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::support::{Connector, Kafka, Postgres, Scene, Walpost, ports, wait};

/// Opens a transaction that keeps the slot's restart position where it is.
fn hold(scene: &Scene) -> Client {
    let mut client = scene.connect();
    client
        .batch_execute("begin; insert into other (note) values ('open')")
        .unwrap();
    client
}

/// Writes about two megabytes of WAL that no outbox row is in.
fn write_wal(scene: &mut Scene) {
    scene.sql("insert into other (note) select repeat('x', 1000) from generate_series(1, 1800)");
}

fn slots(scene: &mut Scene) -> Option<i64> {
    let name = scene.name.clone();
    scene.number(&format!(
        "select count(*) from pg_replication_slots where slot_name = '{name}'"
    ))
}

fn dropping(scene: &Scene, after_ms: &str) -> Connector {
    scene
        .connector()
        .set("slot.retained.wal.drop.bytes", "4000000")
        .set("slot.retained.wal.drop.after.ms", after_ms)
}

#[test]
fn retained_wal_is_warned_about_makes_unready_and_its_limit_is_foreseen() {
    let postgres = Postgres::private(&[("max_slot_wal_keep_size", "1GB")]);
    let mut scene = Scene::on("guard", postgres, Kafka::shared());
    let connector = scene
        .connector()
        .set("slot.retained.wal.warn.bytes", "1000000")
        .set("slot.retained.wal.unready.bytes", "4000000");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector])
        .allowing("slot.retained.wal.warn.bytes is 1000000");
    walpost.wait_streaming();
    let held = hold(&scene);
    write_wal(&mut scene);
    walpost.wait_log("slot.retained.wal.warn.bytes");
    assert_eq!(walpost.get("/health/ready").status, 200, "not so much yet");
    let name = scene.name.clone();
    let ours = [("connector", name.as_str())];
    wait::until("the limit is foreseen", wait::SOON, || {
        write_wal(&mut scene);
        let metrics = walpost.metrics();
        metrics.get("walpost_slot_safe_wal_bytes", &ours).is_some()
            && metrics
                .get("walpost_slot_seconds_to_limit", &ours)
                .is_some_and(|seconds| seconds > 0.0)
    });
    walpost.wait_readiness(503);
    let reasons = walpost.get("/health/ready").body;
    assert!(
        reasons.contains("slot.retained.wal.unready.bytes"),
        "{reasons}"
    );
    let status = walpost.get("/status").json();
    assert!(
        status["connectors"][0]["slot"]["retained_bytes"].as_u64() >= Some(4_000_000),
        "{status}"
    );
    drop(held);
    // The slot moves when the server next notes which transactions run: at a checkpoint, or soon.
    wait::until("ready again", wait::SOON, || {
        scene.sql("checkpoint");
        walpost.get("/health/ready").status == 200
    });
    assert_eq!(slots(&mut scene), Some(1), "nothing is dropped unasked");
}

#[test]
fn a_slot_above_the_limit_is_dropped_and_every_instance_stops() {
    let mut scene = Scene::on("guard", Postgres::private(&[]), Kafka::shared());
    let mut walpost = Walpost::start(&scene.worker(), &[&dropping(&scene, "1000")]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let mut standby = walpost.again();
    standby.wait_ready();
    let _held = hold(&scene);
    for _ in 0..3 {
        write_wal(&mut scene);
    }
    walpost.expect_exit(
        3,
        &[
            "dropped slot",
            "slot.retained.wal.drop.bytes is 4000000",
            "offsets reset",
        ],
    );
    assert_eq!(slots(&mut scene), Some(0));
    // The one that waited did not drop anything, and does not begin anew behind anybody's back.
    standby.expect_exit(3, &["is gone"]);
    assert!(!standby.log().contains("dropped slot"), "{}", standby.log());
    assert_eq!(slots(&mut scene), Some(0));
}

/// That is when WAL piles up.
#[test]
fn the_slot_is_dropped_although_kafka_never_answered() {
    let mut scene = Scene::on("guard", Postgres::private(&[]), Kafka::shared());
    scene.create_slot();
    for _ in 0..3 {
        write_wal(&mut scene);
    }
    let nobody = format!("127.0.0.1:{}", ports::free());
    let worker = scene.worker().set("bootstrap.servers", &nobody);
    let mut walpost = Walpost::start(&worker, &[&dropping(&scene, "2000")]);
    walpost.expect_exit(3, &["dropped slot"]);
    assert_eq!(slots(&mut scene), Some(0));
}

#[test]
fn a_backlog_that_is_worked_off_is_not_given_up() {
    let mut scene = Scene::on("guard", Postgres::private(&[]), Kafka::shared());
    scene.create_slot();
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', jsonb_build_object('n', n, 'pad', repeat('x', 500))
         from generate_series(1, 20000) n order by n",
    );
    let began = Instant::now();
    let mut walpost = Walpost::start(&scene.worker(), &[&dropping(&scene, "8000")]);
    walpost.wait_streaming();
    scene.tail("order").within(20_000, Duration::from_secs(60));
    let retained = "select (pg_current_wal_lsn() - restart_lsn)::bigint from pg_replication_slots";
    wait::until("the slot holds nothing back", wait::SOON, || {
        scene.sql("checkpoint");
        scene
            .number(retained)
            .is_some_and(|bytes| bytes < 4_000_000)
    });
    wait::until("the time is over", wait::SOON, || {
        assert!(walpost.is_running(), "{}", walpost.log());
        began.elapsed() > Duration::from_secs(11)
    });
    assert_eq!(slots(&mut scene), Some(1));
}
