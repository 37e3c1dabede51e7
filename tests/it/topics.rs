//! Topics: created, missing, forbidden.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::kafka::{self, Options, Secure};
use crate::support::tls::Authority;
use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

#[test]
fn topics_are_created_as_the_groups_say() {
    let kafka = Kafka::start(&Options {
        properties: &[("auto.create.topics.enable", "false")],
        ..Options::default()
    });
    let mut scene = Scene::on("topics", Postgres::shared(), kafka);
    let connector = scene
        .connector()
        .set("topic.creation.default.partitions", "2")
        .set("topic.creation.default.replication.factor", "1")
        .set("topic.creation.groups", "wide")
        .set(
            "topic.creation.wide.include",
            &format!("{}\\.wide.*", scene.name),
        )
        .set("topic.creation.wide.partitions", "7");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    scene.events("order", "k", 1, 1);
    scene.events("wide", "k", 1, 1);
    scene.tail("wide").at_least(1);
    let topics = scene.kafka.topics();
    assert_eq!(topics.get(&scene.topic("order")), Some(&2));
    assert_eq!(topics.get(&scene.topic("wide")), Some(&7));
    assert_eq!(topics.get(&scene.offset_topic()), Some(&1));
}

/// Rows may name a partition that is younger than the producer's knowledge of the topic.
#[test]
fn a_topic_may_grow_and_rows_name_its_new_partitions() {
    let mut scene = Scene::new("topics");
    scene.sql("alter table outbox add place int");
    let topic = scene.topic("order");
    scene.kafka.create_topic(&topic, 1, &[]);
    let connector = scene
        .connector()
        .router("table.fields.additional.placement", "place:partition");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    let row = |place: i32| {
        format!(
            "insert into outbox (aggregatetype, payload, place) values ('order', '{{}}', {place})"
        )
    };
    scene.sql(&row(0));
    scene.tail("order").at_least(1);
    scene.kafka.grow_topic(&topic, 3);
    // Known for more than the second in which a topic is not looked at again.
    std::thread::sleep(Duration::from_millis(1100));
    scene.sql(&row(2));
    scene.sql(&row(1));
    let mut tail = scene.tail("order");
    let partitions: BTreeSet<i32> = tail.at_least(3).iter().map(|r| r.partition).collect();
    assert_eq!(partitions, BTreeSet::from([0, 1, 2]));
    walpost.allow("partition 3");
    scene.sql(&row(3));
    walpost.expect_exit(4, &["partition 3 does not exist, the topic has 3"]);
}

/// Late, not lost.
#[test]
fn a_missing_topic_is_waited_for_and_its_rows_arrive_when_it_appears() {
    let kafka = Kafka::start(&Options {
        properties: &[("auto.create.topics.enable", "false")],
        ..Options::default()
    });
    let mut scene = Scene::on("topics", Postgres::shared(), kafka);
    let mut walpost = scene.start();
    walpost.allow("");
    scene.events("order", "k", 1, 3);
    let topic = scene.topic("order");
    wait::until(
        "the missing topic is named",
        Duration::from_secs(60),
        || {
            walpost
                .complaints()
                .iter()
                .any(|line| line.contains(&topic))
        },
    );
    let complaints = walpost.complaints().len();
    assert!(complaints < 50, "said at a sane rate");
    // A stop is a clear answer too; then the operator creates the topic and starts again.
    let moment = Instant::now() + Duration::from_secs(3);
    wait::until("a decision", wait::SOON, || {
        !walpost.is_running() || Instant::now() > moment
    });
    if walpost.is_running() {
        scene.kafka.create_topic(&topic, 1, &[]);
    } else {
        assert_eq!(
            walpost.wait_exit(wait::SOON).code(),
            Some(2),
            "{}",
            walpost.log()
        );
        scene.kafka.create_topic(&topic, 1, &[]);
        walpost = walpost.again();
    }
    let mut tail = scene.tail("order");
    let records = tail.within(3, Duration::from_secs(60));
    assert_eq!(records[0].json()["n"], 1);
    drop(walpost);
}

/// A right that is missing is named, with topic; nothing is confirmed; the grant helps.
#[test]
fn a_missing_right_is_named_within_seconds() {
    let authority = Authority::new();
    let kafka = Kafka::start(&Options {
        secure: Some(Secure {
            protocol: "SASL_SSL",
            authority: &authority,
            client_certificates: false,
        }),
        acls: true,
        properties: &[("auto.create.topics.enable", "false")],
        ..Options::default()
    });
    let mut scene = Scene::on("topics", Postgres::shared(), kafka);
    let (open, closed, offsets) = (
        scene.topic("open"),
        scene.topic("closed"),
        scene.offset_topic(),
    );
    scene
        .kafka
        .create_topics(&[(open.clone(), 1), (closed.clone(), 1)], &[]);
    let rights = ["--operation", "Write", "--operation", "Describe", "--topic"];
    scene.kafka.allow(&[&rights[..], &[&open]].concat());
    scene
        .kafka
        .allow(&["--operation", "All", "--topic", &offsets]);
    let worker = scene
        .worker()
        .over_tls("SASL_SSL", &scene.kafka.secure_bootstrap(), &authority)
        .sasl("SCRAM-SHA-512", kafka::USER, kafka::PASSWORD);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_ready();
    walpost.allow("");
    scene.events("open", "k", 1, 1);
    scene.tail("open").at_least(1);
    let before = scene.position();
    scene.events("closed", "k", 1, 1);
    wait::until("the topic is named", Duration::from_secs(30), || {
        walpost
            .complaints()
            .iter()
            .any(|line| line.contains(&closed))
    });
    assert!(
        scene.confirmed().unwrap() <= before + 64,
        "not past the row that could not be sent"
    );
    scene.kafka.allow(&[&rights[..], &[&closed]].concat());
    assert!(walpost.is_running(), "{}", walpost.log());
    scene.tail("closed").within(1, Duration::from_secs(60));
    drop(walpost);
}

/// A topic deleted while nothing is sent, and one deleted under load: it comes back, and with it what
/// was committed afterwards.
#[test]
fn a_deleted_topic_comes_back() {
    deleted_topics_come_back(false);
}

/// The same in transactions.
#[test]
fn a_deleted_topic_comes_back_exactly_once() {
    deleted_topics_come_back(true);
}

fn deleted_topics_come_back(exactly_once: bool) {
    let mut scene = Scene::new("deleted");
    let worker = scene.worker_for(exactly_once);
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]).allowing("");
    walpost.wait_streaming();
    let topic = scene.topic("order");
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    for (first, last) in [(10, 10), (20, 40)] {
        scene.events("order", "k", first, last);
        scene.kafka.delete_topic(&topic);
        scene.event("k", last + 1);
        wait::until("what followed arrives", Duration::from_secs(120), || {
            let records = scene.records("order");
            records.iter().any(|record| record.json()["n"] == last + 1)
        });
        let position = scene.position();
        scene.wait_confirmed(position);
    }
    walpost.wait_ready();
}
