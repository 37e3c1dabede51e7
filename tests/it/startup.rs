//! Each row of the start-up table, against real servers.

use std::time::Duration;

use crate::support::command::run_files;
use crate::support::postgres::Shutdown;
use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

const QUIET: Duration = Duration::from_millis(500);

/// Delivers `from..=to`, stops cleanly; the offset is stored.
fn deliver(scene: &mut Scene, from: i64, to: i64) {
    let mut walpost = scene.start();
    for n in from..=to {
        scene.event("k", n);
    }
    scene.tail("order").at_least(usize::try_from(to).unwrap());
    walpost.stop();
}

fn numbers(scene: &Scene) -> Vec<i64> {
    let records = scene.records("order");
    records
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect()
}

#[test]
fn nothing_there_makes_publication_slot_and_a_snapshot() {
    let mut scene = Scene::new("startup");
    scene.event("k", 1);
    let _walpost = scene.start();
    scene.event("k", 2);
    let mut tail = scene.tail("order");
    tail.exactly(2, QUIET);
    assert_eq!(
        numbers(&scene),
        [1, 2],
        "the row before the slot, then the one after it"
    );
    let name = scene.name.clone();
    let made = format!(
        "select count(*) from pg_replication_slots s join pg_publication p on p.pubname = s.slot_name
         where s.slot_name = '{name}'"
    );
    assert_eq!(scene.number(&made), Some(1));
    assert_eq!(
        scene.number("select count(*) from pg_publication_tables where tablename <> 'outbox'"),
        Some(0),
        "only the outbox is published"
    );
}

#[test]
fn a_slot_without_stored_position_is_adopted_from_where_it_is() {
    let mut scene = Scene::new("startup");
    scene.event("k", 1);
    scene.create_slot();
    scene.event("k", 2);
    let mut walpost = scene.start();
    scene.event("k", 3);
    scene.tail("order").exactly(2, QUIET);
    assert_eq!(numbers(&scene), [2, 3], "no snapshot over an existing slot");
    walpost.wait_log("no stored position");
}

#[test]
fn a_stored_position_at_or_past_the_slot_is_where_streaming_goes_on() {
    let mut scene = Scene::new("startup");
    deliver(&mut scene, 1, 3);
    for n in 4..=5 {
        scene.event("k", n);
    }
    let _walpost = scene.start();
    scene.tail("order").exactly(5, QUIET);
    assert_eq!(numbers(&scene), [1, 2, 3, 4, 5]);
}

/// Its rows would come at PREPARE, in messages of their own, and may still be rolled back.
#[test]
fn a_slot_for_two_phase_commits_is_refused() {
    let mut scene = Scene::new("startup");
    let name = scene.name.clone();
    scene.sql(&format!("create publication {name} for table outbox"));
    scene.sql(&format!(
        "select pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)"
    ));
    scene.spawn().expect_exit(2, &["two_phase"]);
    scene.drop_slot();
}

/// A slot that is gone, dropped or left behind by a failover, is not made anew.
#[test]
fn a_stored_position_without_slot_is_a_gap() {
    let mut scene = Scene::new("startup");
    deliver(&mut scene, 1, 1);
    scene.drop_slot();
    scene.event("k", 2);
    let mut walpost = scene.spawn();
    walpost.expect_exit(3, &[&scene.name.clone(), "offsets reset"]);
    let name = scene.name.clone();
    assert_eq!(
        scene.number(&format!(
            "select count(*) from pg_replication_slots where slot_name = '{name}'"
        )),
        Some(0),
        "no new slot behind the operator's back"
    );
    assert_eq!(numbers(&scene), [1]);
}

/// Postgres would move the start forward to the new slot without a word.
#[test]
fn a_slot_made_anew_behind_our_back_is_a_gap_until_it_is_trusted() {
    let mut scene = Scene::new("startup");
    deliver(&mut scene, 1, 1);
    scene.drop_slot();
    for n in 2..=4 {
        scene.event("k", n);
    }
    let name = scene.name.clone();
    scene.sql(&format!(
        "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
    ));
    let mut walpost = scene.spawn();
    walpost.expect_exit(3, &["offset.mismatch.strategy"]);
    let lsn = |text: &str| text.matches('/').count();
    assert!(
        lsn(&walpost.complaints().join("")) >= 2,
        "both positions: {}",
        walpost.log()
    );
    scene.event("k", 5);
    let trusting = scene
        .connector()
        .set("offset.mismatch.strategy", "trust_slot");
    let mut walpost = Walpost::start(&scene.worker(), &[&trusting]).allowing("slot");
    walpost.wait_ready();
    scene.tail("order").exactly(2, QUIET);
    assert_eq!(numbers(&scene), [1, 5]);
}

/// The server will never serve such a slot again: trying again is no remedy.
#[test]
fn an_invalidated_slot_is_a_gap_with_the_servers_reason() {
    let postgres = Postgres::private(&[
        ("max_slot_wal_keep_size", "1MB"),
        ("max_wal_size", "64MB"),
        ("min_wal_size", "32MB"),
    ]);
    let mut scene = Scene::on("startup", postgres, Kafka::shared());
    deliver(&mut scene, 1, 1);
    for _ in 0..4 {
        scene.sql(
            "insert into other (note) select repeat('x', 1000) from generate_series(1, 20000)",
        );
        scene.sql("select pg_switch_wal()");
    }
    scene.sql("checkpoint");
    let name = scene.name.clone();
    assert_eq!(
        scene.number(&format!(
            "select count(*) from pg_replication_slots where slot_name = '{name}' and wal_status = 'lost'"
        )),
        Some(1)
    );
    let said = ["max_slot_wal_keep_size", "stored position"];
    scene.spawn().expect_exit(3, &said);
    // Without a stored position it is no better.
    let fresh = scene.connector().named(&format!("{name}_fresh"));
    Walpost::start(&scene.worker(), &[&fresh]).expect_exit(3, &["max_slot_wal_keep_size"]);
}

#[test]
fn a_position_of_another_cluster_is_a_gap() {
    let kafka = Kafka::shared();
    let mut scene = Scene::on("startup", Postgres::private(&[]), kafka);
    deliver(&mut scene, 1, 1);
    // Another cluster under the same names, its slot at its own, unrelated, positions.
    let other = Postgres::private(&[("shared_buffers", "32MB")]);
    let name = scene.name.clone();
    other
        .connect("postgres")
        .batch_execute(&format!("create database {name}"))
        .unwrap();
    other
        .connect(&name)
        .batch_execute(crate::support::scene::OUTBOX)
        .unwrap();
    other
        .connect(&name)
        .batch_execute(&format!("create publication {name} for table outbox"))
        .unwrap();
    other
        .connect(&name)
        .batch_execute(&format!(
            "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
        ))
        .unwrap();
    let connector = scene
        .connector()
        .set("database.port", &other.port().to_string());
    Walpost::start(&scene.worker(), &[&connector]).expect_exit(3, &[]);
}

#[test]
fn a_restored_backup_is_a_gap() {
    let mut scene = Scene::on("startup", Postgres::private(&[]), Kafka::shared());
    scene.create_slot();
    scene.postgres.stop(Shutdown::Fast);
    let backup = crate::support::cleanup::folder("backup");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let status = std::process::Command::new("cp")
            .arg("-aT")
            .arg(from)
            .arg(to)
            .status();
        assert!(status.unwrap().success());
    };
    copy(scene.postgres.folder(), &backup);
    scene.postgres.start();
    scene.reconnect();
    deliver(&mut scene, 1, 200);
    scene.postgres.stop(Shutdown::Fast);
    let folder = scene.postgres.folder().to_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    copy(&backup, &folder);
    scene.postgres.start();
    scene.spawn().expect_exit(3, &[]);
}

/// A publication that can never deliver our rows is refused with the statement that mends it.
#[test]
fn a_publication_that_cannot_deliver_is_refused() {
    for (how, remedy) in [
        ("", "alter publication"),
        (" for table other", "alter publication"),
        (
            " for table outbox with (publish = 'update, delete')",
            "publish",
        ),
    ] {
        let mut scene = Scene::new("startup");
        let name = scene.name.clone();
        scene.sql(&format!("create publication {name}{how}"));
        let connector = scene
            .connector()
            .set("publication.autocreate.mode", "disabled");
        Walpost::start(&scene.worker(), &[&connector]).expect_exit(2, &[&name, remedy]);
        assert_eq!(
            scene.number(&format!(
                "select count(*) from pg_replication_slots where slot_name = '{name}'"
            )),
            Some(0),
            "refused before a slot exists"
        );
    }
}

#[test]
fn a_missing_table_or_table_list_is_refused() {
    let scene = Scene::new("startup");
    let missing = scene
        .connector()
        .set("table.include.list", "public.nowhere");
    Walpost::start(&scene.worker(), &[&missing])
        .expect_exit(2, &["table.include.list", "public.outbox"]);
    let without = scene.connector().without("table.include.list");
    Walpost::start(&scene.worker(), &[&without]).expect_exit(2, &["table.include.list"]);
}

#[test]
fn wal_level_replica_is_refused() {
    let postgres = Postgres::private(&[("wal_level", "replica")]);
    let scene = Scene::on("startup", postgres, Kafka::shared());
    scene.spawn().expect_exit(2, &["wal_level"]);
}

#[test]
fn a_wrong_password_or_database_is_a_configuration_error() {
    let scene = Scene::new("startup");
    let wrong = scene
        .connector()
        .set("database.password", "planted-wrong-password");
    Walpost::start(&scene.worker(), &[&wrong]).expect_exit(2, &["password"]);
    let absent = scene.connector().set("database.dbname", "absent");
    Walpost::start(&scene.worker(), &[&absent]).expect_exit(2, &["absent"]);
}

/// Positions could be deleted from it.
#[test]
fn an_offsets_topic_that_is_not_only_compacted_is_refused() {
    let scene = Scene::new("startup");
    let policy = [("cleanup.policy", "compact,delete")];
    scene.kafka.create_topic(&scene.offset_topic(), 1, &policy);
    let topic = scene.offset_topic();
    let texts = [topic.as_str(), "cleanup.policy=compact"];
    run_files(&["check"], &scene.worker(), &[&scene.connector()])
        .expect(2)
        .says(&texts);
    scene.spawn().expect_exit(2, &texts);
}

/// `check` changes nothing and finds the same faults.
#[test]
fn check_changes_nothing_and_says_what_run_would() {
    let mut scene = Scene::new("startup");
    run_files(&["check"], &scene.worker(), &[&scene.connector()]).expect(0);
    let name = scene.name.clone();
    assert_eq!(
        scene.number(&format!(
            "select (select count(*) from pg_replication_slots where slot_name = '{name}')
                  + (select count(*) from pg_publication)"
        )),
        Some(0)
    );
    wait::throughout("no topic is made", Duration::from_millis(100), || {
        !scene.kafka.topics().contains_key(&scene.offset_topic())
    });
    let wrong = scene
        .connector()
        .set("database.password", "planted-wrong-password");
    run_files(&["check"], &scene.worker(), &[&wrong])
        .expect(2)
        .says(&["password"]);
}

/// The server looks a publication up as it was when a row was written. Up to 17 a missing one
/// is an error, from 18 on a remark beside rows that are left out.
#[test]
fn a_publication_younger_than_the_slot_is_never_passed_over() {
    for postgres in [Postgres::shared(), Postgres::at_least(18, &[])] {
        let mut scene = Scene::on("startup", postgres, Kafka::shared());
        let name = scene.name.clone();
        scene.sql(&format!(
            "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
        ));
        scene.event("k", 1);
        scene.sql(&format!("create publication {name} for table outbox"));
        scene.event("k", 2);
        let behind = scene.position();
        let mut walpost = scene.spawn().allowing("newer than that position");
        walpost.wait_log("newer than that position");
        walpost.wait_log("attempt\":2");
        assert_eq!(walpost.get("/health/ready").status, 503);
        assert!(scene.confirmed() < Some(behind), "nothing is given up");
        assert_eq!(numbers(&scene), [0; 0], "row 2 must not overtake row 1");
        walpost.stop();
    }
}
