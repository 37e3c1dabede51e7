//! The stored position, in a topic and in a file.

use serde_json::Value;

use crate::support::command::{Finished, run_files};
use crate::support::{Scene, Walpost, Worker, cleanup, consumer, wait};

fn file_worker(scene: &Scene, path: &std::path::Path) -> Worker {
    scene
        .worker()
        .without("offset.storage.topic")
        .without("offset.storage.partitions")
        .without("offset.storage.replication.factor")
        .set("offset.storage.file.filename", path.to_str().unwrap())
}

/// The newest stored value of the scene's connector, as a Connect worker would find it.
fn stored(scene: &Scene) -> Option<Value> {
    let key = format!("[\"{0}\",{{\"server\":\"{0}\"}}]", scene.name);
    let records = consumer::read(&scene.kafka.bootstrap(), &[&scene.offset_topic()]);
    let newest = records
        .iter()
        .rev()
        .find(|record| record.key_text() == key)?;
    newest.value.is_some().then(|| newest.json())
}

#[test]
fn the_topic_holds_what_debezium_would_read() {
    let mut scene = Scene::new("offsets");
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let before = scene.position();
    scene.wait_confirmed(before);
    walpost.stop();
    let value = stored(&scene).expect("a stored position");
    let number = |name: &str| {
        value[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name} in {value}"))
    };
    let commit = number("lsn_commit");
    assert_eq!(
        (number("lsn"), number("lsn_proc")),
        (commit, commit),
        "{value}"
    );
    assert!(
        scene.confirmed().unwrap() <= commit,
        "never ahead of what is stored"
    );
    assert!(scene.kafka.topics().contains_key(&scene.offset_topic()));
}

#[test]
fn stored_is_never_behind_what_the_slot_was_told() {
    let mut scene = Scene::new("offsets");
    let mut walpost = scene.start();
    for n in 0..20 {
        scene.events("order", "k", n * 10, n * 10 + 9);
        let confirmed = scene.confirmed().unwrap();
        // A record of the snapshot's progress carries no position yet.
        let commit = stored(&scene).and_then(|value| value["lsn_commit"].as_i64());
        assert!(
            commit.is_none_or(|commit| commit >= confirmed),
            "{commit:?} < {confirmed}"
        );
    }
    walpost.stop();
}

#[test]
fn a_position_can_be_shown_set_and_reset() {
    let mut scene = Scene::new("offsets");
    let command = |scene: &Scene, words: &[&str]| -> Finished {
        run_files(words, &scene.worker(), &[&scene.connector()])
    };
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    let position = scene.position();
    scene.wait_confirmed(position);
    walpost.stop();
    let commit = stored(&scene).unwrap()["lsn_commit"].as_i64().unwrap();
    let text = format!("{:X}/{:X}", commit >> 32, commit & 0xffff_ffff);
    let slot = scene.name.clone();
    command(&scene, &["offsets", "show"])
        .expect(0)
        .says(&[&text, &slot]);

    let position = scene.position();
    let text = format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff);
    let files = crate::support::connector::write_files(&scene.worker(), &[&scene.connector()]);
    let mut arguments = vec!["offsets", "set"];
    arguments.extend(files.iter().map(String::as_str));
    arguments.push(&text);
    crate::support::command::run(&arguments).expect(0);
    assert_eq!(
        stored(&scene).unwrap()["lsn_commit"].as_i64(),
        Some(position)
    );

    command(&scene, &["offsets", "reset"]).expect(0);
    assert_eq!(stored(&scene), None, "a tombstone");
    // And on from the slot.
    scene.event("k", 2);
    let _walpost = scene.start();
    scene.tail("order").at_least(2);
}

/// Damage is a stop, never a first start.
#[test]
fn a_damaged_file_stops_and_is_not_taken_for_a_first_start() {
    let mut scene = Scene::new("offsets");
    let path = cleanup::folder("offsets").join("positions");
    let worker = file_worker(&scene, &path);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    walpost.stop();
    let good = std::fs::read(&path).unwrap();
    let flipped: Vec<u8> = good.iter().map(|byte| byte ^ 0x11).collect();
    let file = path.to_str().unwrap();
    for damage in [
        &b""[..],
        b"\xff\x00garbage",
        &good[..good.len() / 2],
        &flipped,
    ] {
        std::fs::write(&path, damage).unwrap();
        let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
        let status = walpost.wait_exit(wait::SOON);
        walpost.allow("");
        assert!(
            matches!(status.code(), Some(2 | 3)),
            "{:?} {}",
            status,
            walpost.log()
        );
        assert!(
            walpost.log().contains(file),
            "the file is named: {}",
            walpost.log()
        );
    }
    std::fs::write(&path, &good).unwrap();
    scene.event("k", 2);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_streaming();
    scene
        .tail("order")
        .exactly(2, std::time::Duration::from_millis(300));
}

#[test]
fn a_file_survives_kills_under_load() {
    let scene = Scene::new("offsets");
    let path = cleanup::folder("offsets").join("positions");
    let mut walpost = Walpost::start(&file_worker(&scene, &path), &[&scene.connector()]);
    walpost.wait_streaming();
    let load = crate::restart::Load::start(&scene, 2);
    for _ in 0..6 {
        walpost.allow("snapshot");
        walpost.wait_streaming();
        walpost.kill();
        walpost = walpost.again();
    }
    let committed = load.finish();
    crate::restart::wait_delivered(&scene, &committed);
    crate::restart::check(&scene.records("order"), &committed);
}

/// A position that Debezium left behind is taken up: what it has delivered does not come again.
#[test]
fn a_position_in_debezium_s_words_is_resumed_from() {
    let mut scene = Scene::new("offsets");
    scene.create_slot();
    scene.events("order", "k", 1, 3);
    let after_first = scene.position();
    scene.events("order", "k", 4, 5);
    let topic = scene.offset_topic();
    scene
        .kafka
        .create_topic(&topic, 1, &[("cleanup.policy", "compact")]);
    let key = format!("[\"{0}\",{{\"server\":\"{0}\"}}]", scene.name);
    let value = format!(
        "{{\"transaction_id\":null,\"lsn_proc\":{after_first},\"messageType\":\"COMMIT\",\
         \"lsn_commit\":{after_first},\"lsn\":{after_first},\"txId\":565,\"ts_usec\":1700000000123456}}"
    );
    consumer::write(&scene.kafka.bootstrap(), &topic, &key, &value);
    let _walpost = scene.start();
    let mut tail = scene.tail("order");
    let records = tail.exactly(2, std::time::Duration::from_millis(300));
    assert_eq!(
        (&records[0].json()["n"], &records[1].json()["n"]),
        (&4.into(), &5.into())
    );
}
