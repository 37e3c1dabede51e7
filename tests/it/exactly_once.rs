//! Events and stored position in one Kafka transaction: readers of committed records see each event
//! once, whatever happens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::restart::{Load, wait_delivered};
use crate::support::cleanup::Signal;
use crate::support::command::run_files;
use crate::support::connector::{Connector, Worker};
use crate::support::consumer::{self, Isolation, Record};
use crate::support::process::Walpost;
use crate::support::relay::Weather;
use crate::support::{Kafka, Postgres, Relay, Scene, kafka, random, wait};

fn worker(scene: &Scene) -> Worker {
    scene.worker_for(true)
}

fn connector(scene: &Scene) -> Connector {
    scene.connector().set("exactly.once.support", "required")
}

fn start(scene: &Scene) -> Walpost {
    start_with(scene, &connector(scene))
}

fn start_with(scene: &Scene, connector: &Connector) -> Walpost {
    let mut walpost = Walpost::start(&worker(scene), &[connector]);
    walpost.wait_streaming();
    walpost
}

fn role(walpost: &mut Walpost) -> String {
    let status = walpost.get("/status").json();
    let role = status["connectors"][0]["role"].as_str();
    role.unwrap_or_default().to_owned()
}

/// Each event of each key once, and in order.
fn check_once(records: &[Record], committed: &HashMap<String, i64>) {
    let mut newest: HashMap<&str, i64> = HashMap::new();
    for record in records {
        let value = record.json();
        assert_ne!(value["ghost"], true, "a rolled back event was delivered");
        let number = value["n"].as_i64().unwrap();
        let last = newest.entry(record.key_text()).or_insert(-1);
        assert_eq!(number, *last + 1, "event of key {}", record.key_text());
        *last = number;
    }
    for (key, last) in committed {
        assert_eq!(newest.get(key.as_str()), Some(last), "last event of {key}");
    }
}

fn numbers(records: &[Record]) -> Vec<i64> {
    let number = |record: &Record| record.json()["n"].as_i64().unwrap();
    records.iter().map(number).collect()
}

/// A producer as a Connect worker would have it for this connector.
fn rival(scene: &Scene) -> BaseProducer {
    let rival: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", scene.kafka.bootstrap())
        .set("transactional.id", format!("{0}-{0}-0", scene.name))
        .create()
        .unwrap();
    rival.init_transactions(wait::SOON).unwrap();
    rival
}

/// Ends the walsender that serves the scene's slot.
fn end_stream(scene: &Scene) -> String {
    format!(
        "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{}'",
        scene.name
    )
}

/// The newest position that a reader of committed records finds, as a number.
fn stored(scene: &Scene) -> Option<i64> {
    let records = consumer::read(&scene.kafka.bootstrap(), &[&scene.offset_topic()]);
    records.last()?.json()["lsn"].as_i64()
}

#[test]
fn events_come_once_over_stops_and_the_position_is_never_behind_them() {
    let mut scene = Scene::new("once");
    let mut walpost = start(&scene);
    for round in 0..3 {
        scene.events("order", "k", round * 250 + 1, round * 250 + 250);
        let mut tail = scene.tail("order");
        tail.at_least(usize::try_from(round * 250).unwrap() + 1);
        walpost.stop();
        // What is visible is stored: the position is in the same transaction.
        assert!(stored(&scene) >= scene.confirmed());
        walpost = walpost.again();
        walpost.wait_streaming();
    }
    let mut tail = scene.tail("order");
    let records = tail.exactly(750, Duration::from_millis(500));
    assert_eq!(numbers(records), (1..=750).collect::<Vec<_>>());
}

#[test]
fn kills_under_load_double_nothing() {
    let mut scene = Scene::new("once");
    let mut rng = random::generator("once-kills");
    let mut walpost = start(&scene);
    let end_stream = end_stream(&scene);
    let load = Load::start(&scene, 4);
    for _ in 0..16 {
        let moment = Instant::now() + Duration::from_millis(rng.u64(50..1200));
        wait::until("the moment to kill", wait::SOON, || {
            Instant::now() >= moment
        });
        if rng.bool() {
            // Only the stream ends, and what was open is given up.
            walpost.allow("");
            scene.sql(&end_stream);
            continue;
        }
        walpost.kill();
        assert!(
            stored(&scene) >= scene.confirmed(),
            "confirmed before stored"
        );
        walpost.allow("active");
        walpost = walpost.again();
    }
    walpost.wait_ready();
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    let records = scene.records("order");
    assert!(records.len() > 300, "the load was real");
    check_once(&records, &committed);
}

/// The active process stands still until its standby has taken over, and then goes on.
#[test]
fn a_zombie_writes_nothing_and_waits_as_standby() {
    let mut scene = Scene::new("once");
    let mut active = start(&scene);
    let mut standby = active.again();
    standby.wait_ready();
    scene.events("order", "k", 1, 100);
    scene.tail("order").at_least(100);
    let load = Load::start(&scene, 2);
    scene.tail("order").at_least(200);
    active.signal(Signal::STOP);
    // The server gives up on it, as after wal_sender_timeout.
    let end_stream = end_stream(&scene);
    scene.sql(&end_stream);
    wait::until("the standby takes over", wait::SOON, || {
        role(&mut standby) == "active"
    });
    standby.wait_streaming();
    active.allow("");
    active.signal(Signal::CONT);
    wait::until("the zombie waits", wait::SOON, || {
        role(&mut active) == "standby"
    });
    active.wait_log("waiting as standby");
    assert_eq!(role(&mut standby), "active");
    let mut committed = load.finish();
    wait_delivered(&scene, &committed);
    committed.remove("k");
    let records = scene.records("order");
    let (ours, rest): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.key_text() == "k");
    assert_eq!(numbers(&ours), (1..=100).collect::<Vec<_>>());
    check_once(&rest, &committed);
}

#[test]
fn another_producer_with_the_same_transactional_id_fences_and_is_told_of() {
    let mut scene = Scene::new("once");
    let mut walpost = start(&scene);
    walpost.allow("fenced");
    walpost.allow("kafka:");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let rival = rival(&scene);
    rival.begin_transaction().unwrap();
    rival
        .send(
            BaseRecord::to(&scene.topic("order"))
                .key("k")
                .payload("{\"n\": 99}"),
        )
        .map_err(|(error, _)| error)
        .unwrap();
    rival.flush(wait::SOON).unwrap();
    scene.event("k", 2);
    let told = walpost.wait_log("transactional id");
    assert!(told.contains("letting go of the slot"), "{told}");
    // Nobody took the slot, so it goes on, and the rival's open transaction is aborted.
    scene.event("k", 3);
    let mut tail = scene.tail("order");
    let records = tail.exactly(3, Duration::from_millis(500));
    assert_eq!(numbers(records), [1, 2, 3]);
    assert!(rival.commit_transaction(Duration::from_secs(10)).is_err());
    tail.exactly(3, Duration::from_millis(200));
}

/// f10: frozen for longer than the transaction may be open, and thawed.
#[test]
fn a_transaction_that_timed_out_comes_again_and_once() {
    let mut scene = Scene::new("once");
    let connector = connector(&scene)
        .set("transaction.boundary", "interval")
        .set("transaction.boundary.interval.ms", "1500")
        .set("producer.override.transaction.timeout.ms", "3500");
    let mut walpost = start_with(&scene, &connector);
    walpost.allow("");
    scene.events("order", "k", 1, 300);
    let uncommitted = |scene: &Scene| {
        let topic = scene.topic("order");
        consumer::read_as(&scene.kafka.bootstrap(), &[&topic], Isolation::Uncommitted).len()
    };
    wait::until("the events are there, not committed", wait::SOON, || {
        uncommitted(&scene) == 300
    });
    walpost.signal(Signal::STOP);
    assert_eq!(scene.records("order").len(), 0, "the transaction was open");
    let before = stored(&scene);
    let frozen = Instant::now();
    wait::until("the transaction times out", wait::SOON, || {
        frozen.elapsed() > Duration::from_secs(6)
    });
    assert_eq!(
        stored(&scene),
        before,
        "the position is aborted with the events"
    );
    walpost.signal(Signal::CONT);
    scene.events("order", "k", 301, 310);
    let mut tail = scene.tail("order");
    let records = tail.exactly(310, Duration::from_millis(500));
    assert_eq!(numbers(records), (1..=310).collect::<Vec<_>>());
    assert!(uncommitted(&scene) >= 610, "the first ones were aborted");
    walpost.wait_log("fenced");
}

#[test]
fn a_transaction_over_the_limit_goes_on_inside_after_a_kill() {
    let mut scene = Scene::new("once");
    // Slow enough to be killed three times inside it.
    let relay = Relay::to(scene.postgres.port());
    relay.set(Weather::Throttle(500_000));
    let connector = connector(&scene)
        .set("transaction.max.records", "700")
        .set("database.port", &relay.port().to_string());
    let mut walpost = start_with(&scene, &connector);
    walpost.allow("active");
    let total = 20_000;
    scene.events("order", "k", 1, total);
    let mut tail = scene.tail("order");
    for round in 1..4 {
        let seen = tail.at_least(round * 2_500).len();
        walpost.kill();
        assert!(seen < 20_000, "killed inside");
        let position = consumer::read(&scene.kafka.bootstrap(), &[&scene.offset_topic()]);
        let newest = position.last().unwrap().json();
        assert_eq!(
            newest["messageType"], "INSERT",
            "inside a transaction: {newest}"
        );
        walpost = walpost.again();
    }
    relay.set(Weather::Fair);
    walpost.wait_streaming();
    let records = tail.exactly(20_000, Duration::from_millis(500));
    assert_eq!(numbers(records), (1..=total).collect::<Vec<_>>());
}

#[test]
fn no_postgres_transaction_is_seen_in_part() {
    let scene = Scene::new("once");
    // Slow enough to be looked at in the middle of several megabytes.
    let relay = Relay::to(scene.postgres.port());
    let port = relay.port().to_string();
    let _walpost = start_with(&scene, &connector(&scene).set("database.port", &port));
    relay.set(Weather::Throttle(1_000_000));
    let mut writer = scene.connect();
    let name = scene.name.clone();
    let writing = std::thread::spawn(move || {
        for n in 0..60 {
            let sql = format!(
                "insert into outbox (aggregatetype, aggregateid, payload)
                 select 'order', 'k', jsonb_build_object('n', {n} * 400 + i) from generate_series(0, 399) i"
            );
            writer
                .batch_execute(&sql)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    });
    let mut tail = scene.tail("order");
    let mut looks = 0;
    wait::until("all arrive", wait::SOON, || {
        // Whatever a fresh reader finds ends with a whole transaction.
        let seen = scene.records("order").len();
        assert_eq!(seen % 400, 0, "{seen}");
        looks += 1;
        seen == 24_000
    });
    writing.join().unwrap();
    assert!(looks > 2, "it was looked at on the way");
    let records = tail.at_least(24_000);
    assert_eq!(numbers(records), (0..24_000).collect::<Vec<_>>());
}

#[test]
fn the_existing_rows_come_once_although_the_first_snapshot_was_killed() {
    let mut scene = Scene::new("once");
    scene.events("order", "k", 1, 30_000);
    // Slow enough to be killed in the middle of several megabytes.
    let relay = Relay::to(scene.postgres.port());
    relay.set(Weather::Throttle(200_000));
    let connector = connector(&scene)
        .set("snapshot.mode", "initial")
        .set("database.port", &relay.port().to_string());
    let mut walpost = Walpost::start(&worker(&scene), &[&connector]);
    let uncommitted = |scene: &Scene| {
        let topic = scene.topic("order");
        consumer::read_as(&scene.kafka.bootstrap(), &[&topic], Isolation::Uncommitted).len()
    };
    wait::until("some rows are produced", wait::SOON, || {
        uncommitted(&scene) > 0
    });
    walpost.kill();
    relay.set(Weather::Fair);
    assert_eq!(scene.records("order").len(), 0, "killed inside");
    let mut walpost = walpost.again().allowing("snapshot").allowing("active");
    walpost.wait_streaming();
    scene.event("k", 30_001);
    let mut tail = scene.tail("order");
    let records = tail.exactly(30_001, Duration::from_millis(500));
    assert_eq!(numbers(records), (1..=30_001).collect::<Vec<_>>());
}

#[test]
fn a_poison_event_holds_back_only_its_own_transaction() {
    let mut scene = Scene::new("once");
    let connector = connector(&scene)
        .set("transaction.boundary", "interval")
        .set("transaction.boundary.interval.ms", "20000");
    let mut walpost = start_with(&scene, &connector);
    for n in 1..=20 {
        scene.event("k", n);
    }
    // The router needs an aggregate id for the key, and a topic that Kafka accepts.
    scene.sql(
        "begin; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '{\"n\": 21}');
         insert into outbox (aggregatetype, aggregateid, payload) values ('not a topic', 'k', '{\"n\": 22}'); commit;",
    );
    walpost.expect_exit(4, &["topic"]);
    let records = scene.records("order");
    assert_eq!(numbers(&records), (1..=20).collect::<Vec<_>>());
}

#[test]
fn idle_positions_and_heartbeats_are_committed_too() {
    let mut scene = Scene::new("once");
    let connector = connector(&scene)
        .set("heartbeat.interval.ms", "300")
        .set("status.update.interval.ms", "300");
    let mut walpost = start_with(&scene, &connector);
    for _ in 0..2 {
        scene.sql("insert into other (note) select repeat('x', 500) from generate_series(1, 2000)");
        let position = scene.position();
        scene.wait_confirmed(position);
        assert!(stored(&scene).unwrap() >= position);
    }
    let topic = format!("__debezium-heartbeat.{}", scene.name);
    let bootstrap = scene.kafka.bootstrap();
    wait::until("heartbeats", wait::SOON, || {
        consumer::read(&bootstrap, &[&topic]).len() > 2
    });
    walpost.stop();
}

#[test]
fn each_boundary_works() {
    let mut scene = Scene::new("once");
    for (round, (boundary, interval)) in [("poll", "1"), ("interval", "300"), ("connector", "1")]
        .iter()
        .enumerate()
    {
        let connector = connector(&scene)
            .set("transaction.boundary", boundary)
            .set("transaction.boundary.interval.ms", interval);
        let mut walpost = start_with(&scene, &connector);
        let from = i64::try_from(round).unwrap() * 20 + 1;
        for n in from..from + 20 {
            scene.event("k", n);
        }
        scene.tail("order").at_least((round + 1) * 20);
        walpost.stop();
    }
    assert_eq!(
        numbers(&scene.records("order")),
        (1..=60).collect::<Vec<_>>()
    );
}

#[test]
fn what_cannot_be_exactly_once_is_refused_with_the_remedy() {
    let scene = Scene::new("once");
    let file = worker(&scene)
        .without("offset.storage.topic")
        .without("offset.storage.partitions")
        .without("offset.storage.replication.factor")
        .set("offset.storage.file.filename", "/tmp/offsets");
    run_files(&["validate"], &file, &[&connector(&scene)])
        .expect(2)
        .says(&["exactly.once.source.support", "offset.storage.topic"]);
    for support in ["disabled", "preparing"] {
        let worker = worker(&scene).set("exactly.once.source.support", support);
        run_files(&["validate"], &worker, &[&connector(&scene)])
            .expect(2)
            .says(&[
                "exactly.once.support",
                "exactly.once.source.support=enabled",
                support,
            ]);
        let requested = scene.connector().set("exactly.once.support", "requested");
        run_files(&["validate"], &worker, &[&requested]).expect(0);
    }
}

/// Three processes want the slot, and whoever has it loses it, again and again.
#[test]
fn a_crowd_of_standbys_doubles_nothing() {
    let mut scene = Scene::new("once");
    let mut crowd = vec![start(&scene)];
    for _ in 0..2 {
        let mut standby = crowd[0].again();
        standby.wait_ready();
        crowd.push(standby);
    }
    for walpost in &mut crowd {
        walpost.allow("");
    }
    let load = Load::start(&scene, 2);
    let end_stream = end_stream(&scene);
    for _ in 0..4 {
        let seen = scene.records("order").len();
        scene.tail("order").at_least(seen + 20);
        scene.sql(&end_stream);
    }
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    check_once(&scene.records("order"), &committed);
    for walpost in &mut crowd {
        assert!(walpost.is_running(), "all are still there");
    }
}

/// Also the answer to a commit may be lost with the broker.
#[test]
fn a_kafka_that_dies_and_comes_back_doubles_nothing() {
    let kafka = Kafka::start(&kafka::Options::default());
    let scene = Scene::on("once", Postgres::shared(), kafka);
    let mut walpost = start(&scene);
    walpost.allow("");
    let load = Load::start(&scene, 2);
    scene.tail("order").at_least(50);
    scene.kafka.kill_node(0);
    scene.kafka.start_node(0);
    let seen = scene.records("order").len();
    scene.tail("order").at_least(seen + 50);
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    check_once(&scene.records("order"), &committed);
}
