//! Servers and lines that fail and come back.

use std::time::{Duration, Instant};

use crate::restart::{Load, check, wait_delivered};
use crate::support::cleanup::Signal;
use crate::support::kafka::Options;
use crate::support::postgres::Shutdown;
use crate::support::relay::Weather;
use crate::support::{Kafka, Postgres, Relay, Scene, Walpost, ports, random, wait};

/// Kafka is away, then back; nothing is lost and the process stays.
#[test]
fn kafka_may_stop_freeze_and_be_killed() {
    let kafka = Kafka::start(&Options::default());
    let mut scene = Scene::on("outage", Postgres::shared(), kafka);
    let mut walpost = scene.start();
    walpost.allow("");
    let load = Load::start(&scene, 2);
    scene.tail("order").at_least(50);
    scene.kafka.freeze();
    walpost.wait_readiness(503);
    assert_eq!(
        walpost.get("/health/live").status,
        200,
        "waiting for Kafka is no reason to be killed"
    );
    let lag = |walpost: &mut Walpost| {
        walpost
            .metrics()
            .get("walpost_lag_seconds", &[("stage", "delivered")])
            .unwrap_or_default()
    };
    let first = lag(&mut walpost);
    wait::until("lag rises with the clock", wait::SOON, || {
        lag(&mut walpost) > first + 1.0
    });
    scene.kafka.thaw();
    walpost.wait_streaming();
    scene.kafka.kill_node(0);
    walpost.wait_readiness(503);
    scene.kafka.start_node(0);
    walpost.wait_streaming();
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    check(&scene.records("order"), &committed);
    assert!(walpost.is_running());
    let position = scene.position();
    scene.wait_confirmed(position);
}

/// A broker that the controller does not admit answers, and names no broker at all. The Kafka client
/// library believes it, forgets every address that it has, and falls silent.
#[test]
fn a_cluster_without_brokers_is_returned_to() {
    survives_a_cluster_without_brokers(false);
}

/// The same in transactions.
#[test]
fn a_cluster_without_brokers_is_returned_to_exactly_once() {
    survives_a_cluster_without_brokers(true);
}

fn survives_a_cluster_without_brokers(exactly_once: bool) {
    let kafka = Kafka::start(&Options {
        // The broker drops out between any two heartbeats, and keeps its connections.
        properties: &[
            ("broker.session.timeout.ms", "3000"),
            ("broker.heartbeat.interval.ms", "9000"),
        ],
        ..Options::default()
    });
    let mut scene = Scene::on("fenced", Postgres::shared(), kafka);
    let worker = scene.worker_for(exactly_once);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]).allowing("");
    walpost.wait_streaming();
    let mut tail = scene.tail("order");
    let end = Instant::now() + Duration::from_secs(25);
    let mut events = 0;
    while Instant::now() < end {
        events += 1;
        scene.event("k", events);
        let next = Instant::now() + Duration::from_millis(50);
        wait::until("the next event", wait::SOON, || Instant::now() >= next);
    }
    tail.at_least(usize::try_from(events).unwrap());
    assert!(walpost.log().contains("no broker"), "{}", walpost.log());
    let records = scene.records("order");
    let numbers = records.iter().map(|record| record.json()["n"].as_i64());
    if exactly_once {
        assert!(numbers.eq((1..=events).map(Some)), "each once, in order");
    }
    let position = scene.position();
    scene.wait_confirmed(position);
}

/// Postgres restarts under us, and walsenders are ended.
#[test]
fn postgres_may_restart_crash_and_end_our_session() {
    let mut scene = Scene::on("outage", Postgres::private(&[]), Kafka::shared());
    let mut walpost = scene.start();
    walpost.allow("");
    let mut n = 0;
    let mut more = |scene: &mut Scene| {
        for _ in 0..20 {
            n += 1;
            scene.event("k", n);
        }
    };
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        more(&mut scene);
        scene.postgres.restart(how);
        scene.reconnect();
        more(&mut scene);
    }
    wait::until("streaming again", wait::SOON, || {
        scene.number("select count(*) from pg_stat_replication where state = 'streaming'")
            == Some(1)
    });
    scene.sql("select pg_terminate_backend(pid) from pg_stat_replication");
    more(&mut scene);
    wait::until("all rows arrive", Duration::from_secs(60), || {
        let records = scene.records("order");
        let mut newest = 0;
        for number in records
            .iter()
            .map(|record| record.json()["n"].as_i64().unwrap())
        {
            assert!(number <= newest + 1, "a gap before {number}");
            newest = newest.max(number);
        }
        newest == n
    });
    assert!(walpost.is_running());
}

/// A line that is cut again and again, also in the middle of transactions.
#[test]
fn a_cut_line_to_postgres_loses_nothing() {
    let scene = Scene::new("outage");
    let relay = Relay::to(scene.postgres.port());
    let connector = scene
        .connector()
        .set("database.port", &relay.port().to_string());
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]).allowing("");
    walpost.wait_streaming();
    let load = Load::start(&scene, 3);
    let mut rng = random::generator("cuts");
    for _ in 0..8 {
        let moment = Instant::now() + Duration::from_millis(rng.u64(100..900));
        wait::until("the moment to cut", wait::SOON, || Instant::now() >= moment);
        relay.cut();
    }
    relay.set(Weather::Trickle);
    let moment = Instant::now() + Duration::from_millis(300);
    wait::until("some bytes one by one", wait::SOON, || {
        Instant::now() >= moment
    });
    relay.set(Weather::Fair);
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    check(&scene.records("order"), &committed);
}

/// No reset arrives; the silence itself has to be noticed.
#[test]
fn a_half_open_line_is_noticed_and_replaced() {
    let postgres = Postgres::private(&[("wal_sender_timeout", "6s")]);
    let mut scene = Scene::on("outage", postgres, Kafka::shared());
    let relay = Relay::to(scene.postgres.port());
    let connector = scene
        .connector()
        .set("database.port", &relay.port().to_string())
        .set("status.update.interval.ms", "500");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]).allowing("");
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    relay.set(Weather::HalfOpen);
    scene.event("k", 2);
    // Long enough for whatever is sent now to vanish; then the way is free for new connections.
    let moment = Instant::now() + Duration::from_secs(1);
    wait::until("a second of silence", wait::SOON, || {
        Instant::now() >= moment
    });
    relay.set(Weather::Fair);
    scene.tail("order").within(2, Duration::from_secs(60));
}

/// A slow Kafka and a short `wal_sender_timeout`; one pass is enough.
#[test]
fn a_slow_kafka_does_not_cost_the_connection() {
    let port = ports::free();
    let relay = Relay::to(port);
    let kafka = Kafka::start(&Options {
        behind: Some((port, relay.port())),
        ..Options::default()
    });
    let postgres = Postgres::private(&[("wal_sender_timeout", "2s")]);
    let mut scene = Scene::on("outage", postgres, kafka);
    let worker = scene
        .worker()
        .set("bootstrap.servers", &format!("127.0.0.1:{port}"));
    let connector = scene.connector().set("status.update.interval.ms", "500");
    let mut walpost = Walpost::start(&worker, &[&connector]);
    walpost.wait_streaming();
    walpost.allow("");
    relay.set(Weather::Throttle(400_000));
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', jsonb_build_object('n', n, 'pad', md5(n::text) || md5((n * 7)::text))
         from generate_series(1, 30000) n order by n",
    );
    let backends = "select count(*) from pg_stat_replication";
    let pid = scene.number("select pid::bigint from pg_stat_replication");
    wait::throughout("the stream stays", Duration::from_secs(6), || {
        scene.number(backends) == Some(1)
    });
    assert_eq!(
        scene.number("select pid::bigint from pg_stat_replication"),
        pid
    );
    relay.set(Weather::Fair);
    scene.tail("order").within(30_000, Duration::from_secs(60));
    assert!(
        walpost.peak_memory() < 150_000_000,
        "{}",
        walpost.peak_memory()
    );
}

/// A machine that gives us a tenth of its time: the server is answered between the rows.
#[test]
fn a_process_that_hardly_runs_keeps_the_connection() {
    let postgres = Postgres::private(&[("wal_sender_timeout", "2s")]);
    let mut scene = Scene::on("starved", postgres, Kafka::shared());
    let connector = scene.connector().set("status.update.interval.ms", "300");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    let backend = "select pid::bigint from pg_stat_replication";
    let pid = scene.number(backend);
    assert!(pid.is_some(), "a walsender");
    scene.events("order", "k", 1, 20_000);
    let mut tail = scene.tail("order");
    let end = Instant::now() + Duration::from_secs(90);
    while tail.now().len() < 20_000 {
        assert!(Instant::now() < end, "{} rows", tail.now().len());
        walpost.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(90));
        walpost.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(scene.number(backend), pid, "one connection for all rows");
    walpost.stop();
}

/// Kafka's name does not resolve, or nobody listens, at start: wait and say so.
#[test]
fn a_start_without_kafka_waits_for_it() {
    let mut scene = Scene::new("outage");
    let port = ports::free();
    let worker = scene
        .worker()
        .set("bootstrap.servers", &format!("127.0.0.1:{port}"));
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]).allowing("");
    walpost.wait_readiness(503);
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(10), "{time:?}");
    scene.event("k", 1);
}
