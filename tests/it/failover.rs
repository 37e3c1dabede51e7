//! Several servers, and one that takes over from another.

use std::sync::Arc;
use std::time::Duration;

use crate::restart::{Load, check_complete};
use crate::support::command::run_files;
use crate::support::kafka::Options;
use crate::support::postgres::Shutdown;
use crate::support::{Connector, Kafka, Postgres, Scene, Walpost, ports, wait};

/// A primary of at least this version, its standby, and a scene on the primary.
fn pair(major: u32, standby_settings: &[(&str, &str)]) -> (Scene, Arc<Postgres>) {
    let primary = Postgres::primary(major, &[]);
    let standby = primary.standby(standby_settings);
    let mut scene = Scene::on("failover", primary, Kafka::shared());
    // The database too: a login to one that is not there is refused, and final.
    wait_replayed(&mut scene, &standby);
    (scene, standby)
}

/// The scene's connector, led to all of these servers.
fn to(scene: &Scene, servers: &[&Postgres]) -> Connector {
    let hosts: Vec<String> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port()))
        .collect();
    scene
        .connector()
        .without("database.port")
        .set("database.hostname", &hosts.join(","))
}

/// Waits until the standby has replayed all that the primary has written.
fn wait_replayed(scene: &mut Scene, standby: &Postgres) {
    let position = scene.position();
    let mut there = standby.connect("postgres");
    let replayed = "select (pg_last_wal_replay_lsn() - '0/0')::bigint";
    wait::until("the standby has replayed", wait::SOON, || {
        let row = there.query_one(replayed, &[]).unwrap();
        row.get::<_, Option<i64>>(0) >= Some(position)
    });
}

/// Patroni's case: the primary dies under load, its standby has the slot and is promoted.
#[test]
fn a_failover_slot_is_followed_to_the_promoted_standby() {
    let (mut scene, standby) = pair(17, &[("sync_replication_slots", "on")]);
    let connector = to(&scene, &[&scene.postgres, &standby]).set("slot.failover", "true");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    let name = scene.name.clone();
    let synced = format!(
        "select count(*) from pg_replication_slots
         where slot_name = '{name}' and synced and not temporary and invalidation_reason is null"
    );
    let mut there = standby.connect("postgres");
    wait::until("the standby has the slot", wait::SOON, || {
        scene.event("warm-up", 0);
        there.query_one(&synced, &[]).unwrap().get::<_, i64>(0) == 1
    });
    let load = Load::start(&scene, 2);
    scene.tail("order").at_least(100);
    let committed = load.finish();
    // What the standby does not have is lost with its primary, for everybody.
    wait_replayed(&mut scene, &standby);
    walpost.allow("");
    scene.postgres.stop(Shutdown::Immediate);
    walpost.wait_log("database.target.session.attrs asks for primary");
    standby.promote();
    let mut there = standby.connect(&name);
    there
        .batch_execute("insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'after', '{\"n\": 0, \"ghost\": false}')")
        .unwrap();
    walpost.wait_streaming();
    let arrived = |scene: &Scene| {
        let records = scene.records("order");
        records.iter().any(|record| record.key_text() == "after")
    };
    wait::until("what the new primary got arrives", wait::SOON, || {
        arrived(&scene)
    });
    let records: Vec<_> = scene
        .records("order")
        .into_iter()
        .filter(|record| record.key_text() != "warm-up")
        .collect();
    check_complete(&records, &committed);
    // The position now belongs to the new timeline; the next start knows it.
    walpost.stop();
    let mut next = walpost.again();
    next.wait_streaming();
}

#[test]
fn a_slot_that_would_stay_behind_is_told_of() {
    let postgres = Postgres::at_least(17, &[]);
    let mut scene = Scene::on("failover", postgres, Kafka::shared());
    scene.create_slot();
    let connector = scene.connector().set("slot.failover", "true");
    let mut walpost =
        Walpost::start(&scene.worker(), &[&connector]).allowing("the slot was created without it");
    walpost.wait_log("ALTER_REPLICATION_SLOT");
    walpost.wait_streaming();
}

/// Rows went out that the new primary does not have: what it commits instead may lie below the
/// stored position.
#[test]
fn a_promoted_standby_behind_the_stored_position_is_a_gap() {
    let (mut scene, standby) = pair(15, &[]);
    let connector = to(&scene, &[&scene.postgres, &standby]);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    wait_replayed(&mut scene, &standby);
    standby.stop(Shutdown::Fast);
    scene.events("order", "k", 1, 100);
    scene.tail("order").at_least(100);
    let position = scene.position();
    scene.wait_confirmed(position);
    walpost.allow("");
    scene.postgres.stop(Shutdown::Immediate);
    standby.start();
    standby.promote();
    walpost.expect_exit(3, &["lagged behind was promoted"]);
    let all = walpost.log();
    assert!(all.contains("bytes of its past differ"), "{all}");
}

#[test]
fn a_promoted_standby_without_the_slot_is_a_gap() {
    let (mut scene, standby) = pair(15, &[]);
    let connector = to(&scene, &[&scene.postgres, &standby]);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    wait_replayed(&mut scene, &standby);
    walpost.allow("");
    scene.postgres.stop(Shutdown::Immediate);
    standby.promote();
    walpost.expect_exit(3, &["is gone", "bytes of changes may be missing"]);
    run_files(&["check"], &scene.worker(), &[&connector])
        .expect(3)
        .says(&["is gone"]);
}

#[test]
fn the_server_that_will_do_is_found_among_several_and_check_names_it() {
    let (scene, standby) = pair(15, &[]);
    let nobody = format!("127.0.0.1:{}", ports::free());
    let (primary_at, standby_at) = (
        format!("127.0.0.1:{}", scene.postgres.port()),
        format!("127.0.0.1:{}", standby.port()),
    );
    let connector = scene
        .connector()
        .set("database.hostname", "127.0.0.1,127.0.0.1,127.0.0.1")
        .set(
            "database.port",
            &format!(
                "{},{},{}",
                ports::free(),
                standby.port(),
                scene.postgres.port()
            ),
        );
    let found = run_files(&["check"], &scene.worker(), &[&connector]);
    found.expect(0).says(&[&format!("primary {primary_at}")]);
    let hosts = format!("{nobody},{primary_at},{standby_at}");
    let connector = scene
        .connector()
        .set("database.hostname", &hosts)
        .set("database.target.session.attrs", "prefer-standby");
    run_files(&["check"], &scene.worker(), &[&connector]).says(&[&format!("standby {standby_at}")]);
    let connector = scene
        .connector()
        .set("database.hostname", &standby_at)
        .set("database.target.session.attrs", "read-write");
    run_files(&["check"], &scene.worker(), &[&connector])
        .expect(5)
        .says(&["asks for read-write"]);
}

/// Another cluster under the same name, with the same database, slot and publication.
#[test]
fn a_cluster_that_is_not_ours_is_a_gap() {
    let mut scene = Scene::on("failover", Postgres::private(&[]), Kafka::shared());
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
    let mut stranger = Scene::on("failover", Postgres::stranger(), Kafka::shared());
    let name = scene.name.clone();
    let other = stranger.name.clone();
    stranger.reconnect_to("postgres");
    stranger.sql(&format!("alter database {other} rename to {name}"));
    stranger.reconnect_to(&name);
    stranger.sql(&format!("create publication {name} for table outbox"));
    stranger.sql(&format!(
        "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
    ));
    let connector = to(&scene, &[&stranger.postgres]);
    Walpost::start(&scene.worker(), &[&connector]).expect_exit(3, &["system identifier"]);
}

/// A server that shuts down waits for its walsenders, and these for us. With rows that Kafka does
/// not take we can never have them all: let go, so that a switch-over is not held up.
#[test]
fn a_server_can_stop_while_kafka_takes_nothing() {
    let kafka = Kafka::start(&Options::default());
    let mut scene = Scene::on("failover", Postgres::private(&[]), kafka);
    let worker = scene
        .worker()
        .set("task.shutdown.graceful.timeout.ms", "2000");
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    let mut tail = scene.tail("order");
    tail.at_least(1);
    walpost.allow("");
    scene.kafka.freeze();
    scene.event("k", 2);
    let took = scene.postgres.stop(Shutdown::Fast);
    assert!(took < Duration::from_secs(15), "{took:?}");
    scene.postgres.start();
    scene.kafka.thaw();
    tail.within(2, Duration::from_secs(60));
    assert!(walpost.is_running());
}
