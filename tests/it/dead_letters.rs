//! Events that cannot become records, kept in a topic of their own, in order and until released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cleanup::Signal;
use crate::support::command::{Finished, PAYLOAD_MARKER, run_files, show_files};
use crate::support::{Connector, Record, Scene, Tail, Walpost, Worker, consumer, wait};

const ID: &str = "bad00000-0000-4000-8000-000000000bad";

fn topic(scene: &Scene) -> String {
    format!("{}.dead", scene.name)
}

fn tolerant(scene: &Scene) -> Connector {
    scene
        .connector()
        .set("errors.tolerance", "all")
        .set("errors.deadletterqueue.topic.name", &topic(scene))
}

fn ordered(scene: &Scene) -> Connector {
    tolerant(scene).set("errors.deadletterqueue.order", "aggregate")
}

fn start(scene: &Scene, connector: &Connector) -> Walpost {
    start_with(&scene.worker(), connector)
}

fn start_with(worker: &Worker, connector: &Connector) -> Walpost {
    let mut walpost = Walpost::start(worker, &[connector]);
    walpost.wait_streaming();
    walpost.allow("goes to the dead-letter topic");
    walpost
}

/// Inserts an event that no topic takes.
fn poison(scene: &mut Scene, key: &str, n: i64) {
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, payload)
         values ('not a topic', '{key}', '{{\"n\": {n}, \"secret\": \"{PAYLOAD_MARKER}\"}}')"
    ));
}

fn letters(scene: &Scene) -> Tail {
    Tail::new(&scene.kafka.bootstrap(), &[&topic(scene)])
}

fn numbers(records: &[Record]) -> Vec<i64> {
    let number = |record: &Record| record.json()["n"].as_i64().unwrap();
    records.iter().map(number).collect()
}

/// The payload's number inside each letter.
fn lettered(records: &[Record]) -> Vec<i64> {
    let number = |record: &Record| {
        let payload = record.json()["row"]["payload"].clone();
        let payload: Value = serde_json::from_str(payload.as_str().unwrap()).unwrap();
        payload["n"].as_i64().unwrap()
    };
    records.iter().map(number).collect()
}

#[test]
fn poison_between_good_events_goes_to_the_topic_and_the_rest_stays_in_order() {
    let mut scene = Scene::new("letters");
    let connector = tolerant(&scene).set("errors.deadletterqueue.context.headers.enable", "true");
    let mut walpost = start(&scene, &connector);
    scene.event("k", 1);
    scene.sql(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, payload)
         values ('{ID}', 'not a topic', 'planted-key', '{{\"n\": 2, \"secret\": \"{PAYLOAD_MARKER}\"}}')"
    ));
    scene.event("k", 3);
    let position = scene.position();
    scene.wait_confirmed(position);
    assert_eq!(numbers(&scene.records("order")), [1, 3]);
    let mut tail = letters(&scene);
    let letter = &tail.exactly(1, Duration::from_millis(200))[0];
    assert_eq!(letter.key_text(), "planted-key");
    let document = letter.json();
    assert_eq!(document["event_id"], ID);
    assert_eq!(document["row"]["aggregatetype"], "not a topic");
    assert_eq!(document["row"]["id"], ID);
    assert_eq!(lettered(std::slice::from_ref(letter)), [2]);
    let lsn = document["lsn"].as_str().unwrap();
    for (name, value) in [
        ("id", ID),
        ("__connect.errors.connector.name", &scene.name),
        ("__connect.errors.stage", "TRANSFORMATION"),
        (
            "__connect.errors.topic",
            &format!("{}.public.outbox", scene.name),
        ),
        ("__walpost.errors.lsn", lsn),
        ("__walpost.errors.table", "public.outbox"),
        ("__walpost.errors.event.id", ID),
    ] {
        assert_eq!(letter.header(name), Some(value), "{name}");
    }
    let message = letter.header("__connect.errors.exception.message").unwrap();
    assert!(message.contains("no legal topic name"), "{message}");
    let metrics = walpost.metrics();
    assert_eq!(
        metrics.sum("walpost_dead_letters_total", &[("cause", "poison")]),
        1.0
    );
    let status = walpost.get("/status").json();
    let shown = &status["connectors"][0]["dead_letters"];
    assert_eq!(shown["written"], json!({"poison": 1}));
    assert_eq!(shown["topic"], topic(&scene).as_str());
    let log = walpost.log();
    for part in [ID, "public.outbox", lsn] {
        assert!(log.contains(part), "{part} is not in:\n{log}");
    }
    walpost.stop();
}

#[test]
fn later_events_of_the_aggregate_follow_across_stops_and_kills() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene);
    let mut walpost = start(&scene, &connector);
    scene.event("a", 1);
    poison(&mut scene, "a", 2);
    scene.event("b", 100);
    scene.event("a", 3);
    let mut tail = letters(&scene);
    tail.at_least(2);
    walpost.kill();
    scene.event("a", 4);
    scene.event("b", 101);
    let mut walpost = walpost.again();
    walpost.allow("active");
    walpost.wait_ready();
    scene.event("a", 5);
    tail.at_least(4);
    walpost.stop();
    let mut walpost = walpost.again();
    walpost.wait_streaming();
    scene.event("a", 6);
    scene.event("c", 200);
    let position = scene.position();
    scene.wait_confirmed(position);
    let letters = tail.exactly(5, Duration::from_millis(300));
    assert_eq!(lettered(letters), [2, 3, 4, 5, 6], "once each, in order");
    let mut published = numbers(&scene.records("order"));
    published.sort_unstable();
    published.dedup();
    assert_eq!(published, [1, 100, 101, 200]);
    let metrics = walpost.metrics();
    assert_eq!(metrics.sum("walpost_blocked_aggregates", &[]), 1.0);
    assert_eq!(metrics.sum("walpost_blocking_dead_letters", &[]), 5.0);
    let status = walpost.get("/status").json();
    assert_eq!(
        status["connectors"][0]["dead_letters"]["blocked_aggregates"],
        1
    );
    walpost.stop();
}

/// Two would publish the same letters twice.
#[test]
fn only_one_replays_at_a_time() {
    let mut scene = Scene::new("dead");
    let connector = tolerant(&scene);
    let mut walpost = start(&scene, &connector);
    poison(&mut scene, "a", 1);
    letters(&scene).at_least(1);
    // As another replay has it.
    let name = scene.name.clone();
    let lock =
        |verb: &str| format!("select {verb}(hashtext('walpost dead letters'), hashtext('{name}'))");
    scene.sql(&lock("pg_advisory_lock"));
    let mended = connector.router("route.topic.regex", "(?<routedByValue>[a-z]+).*");
    let second = dlq(&scene, &mended, &["replay", "--all"]).expect(2);
    assert!(
        second.stderr.contains("another replay"),
        "{}",
        second.stderr
    );
    scene.sql(&lock("pg_advisory_unlock"));
    dlq(&scene, &mended, &["replay", "--all"]).expect(0);
    scene.tail("not").exactly(1, Duration::from_millis(500));
    walpost.stop();
}

/// Runs `walpost dlq` with the scene's files.
fn dlq(scene: &Scene, connector: &Connector, words: &[&str]) -> Finished {
    run_files(&[&["dlq"], words].concat(), &scene.worker(), &[connector])
}

/// The lines of `dlq list --format json`.
fn listed(scene: &Scene, connector: &Connector, words: &[&str]) -> Vec<Value> {
    let words = [&["list", "--format", "json"], words].concat();
    let list = dlq(scene, connector, &words).expect(0);
    let line = |line: &str| serde_json::from_str(line).unwrap();
    list.stdout.lines().map(line).collect()
}

#[test]
fn a_replay_beside_the_running_connector_publishes_in_order_and_releases() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene);
    let mut walpost = start(&scene, &connector);
    scene.event("a", 1);
    poison(&mut scene, "a", 2);
    scene.events("order", "a", 3, 6);
    letters(&scene).at_least(5);
    // The mistake was the configuration's: by the one of today the event has a topic.
    let fixed = connector
        .clone()
        .router("route.topic.replacement", &format!("{}.order", scene.name));
    let front = dlq(&scene, &connector, &["replay", "--aggregate", "a"]);
    front.expect(4).says(&["no legal topic name"]);
    let list = listed(&scene, &connector, &["--aggregate", "a"]);
    assert_eq!(list.len(), 5, "nothing was published");
    let last = list[4]["event_id"].as_str().unwrap();
    dlq(&scene, &fixed, &["replay", "--event", last])
        .expect(2)
        .says(&["behind an earlier one", "--aggregate"]);
    // Events arrive all the while.
    let load = Load::start(&scene, "a", 7);
    let replayed = dlq(&scene, &fixed, &["replay", "--aggregate", "a"]).expect(0);
    let last = load.finish();
    assert!(
        replayed.stdout.starts_with("replayed "),
        "{}",
        replayed.stdout
    );
    let mut tail = scene.tail("order");
    let count = usize::try_from(last).unwrap();
    let published = numbers(tail.exactly(count, Duration::from_millis(300)));
    assert_eq!(
        published,
        (1..=last).collect::<Vec<_>>(),
        "each once, in order"
    );
    assert_eq!(listed(&scene, &connector, &[]), [] as [Value; 0]);
    assert_eq!(
        walpost.metrics().sum("walpost_blocked_aggregates", &[]),
        0.0
    );
    let actions: Vec<String> = consumer::read(
        &scene.kafka.bootstrap(),
        &[&format!("{}.audit", topic(&scene))],
    )
    .iter()
    .map(|record| record.json()["action"].as_str().unwrap().to_owned())
    .collect();
    let count = |action: &str| actions.iter().filter(|found| *found == action).count();
    assert!(count("replayed") >= 5, "{actions:?}");
    assert_eq!(count("released"), 1, "{actions:?}");
    // Released for good.
    walpost.kill();
    let mut walpost = walpost.again();
    walpost.allow("active");
    walpost.wait_ready();
    scene.event("a", last + 1);
    let end = scene.position();
    scene.wait_confirmed(end);
    assert_eq!(numbers(&scene.records("order")).last(), Some(&(last + 1)));
    walpost.stop();
}

#[test]
fn letters_can_be_listed_shown_and_discarded_and_a_discard_releases() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene);
    let mut walpost = start(&scene, &connector);
    poison(&mut scene, "a", 1);
    // So that the two have not the same time.
    letters(&scene).at_least(1);
    poison(&mut scene, "b", 2);
    scene.event("b", 3);
    letters(&scene).at_least(3);
    let all = listed(&scene, &connector, &[]);
    let field = |letter: &Value, name: &str| letter[name].as_str().unwrap().to_owned();
    let causes: Vec<String> = all.iter().map(|letter| field(letter, "cause")).collect();
    assert_eq!(causes, ["poison", "poison", "order"]);
    let first = field(&all[0], "event_id");
    assert_eq!(listed(&scene, &connector, &["--aggregate", "b"]), all[1..]);
    assert_eq!(listed(&scene, &connector, &["--event", &first]), all[..1]);
    assert_eq!(listed(&scene, &connector, &["--since", "1h"]), all);
    assert_eq!(listed(&scene, &connector, &["--until", "1h"]), all[..0]);
    let since = field(&all[1], "time");
    assert_eq!(listed(&scene, &connector, &["--since", &since]), all[1..]);
    let text = dlq(&scene, &connector, &["list"]).expect(0);
    assert!(
        !text.text().contains(PAYLOAD_MARKER),
        "only `show` shows contents"
    );
    text.says(&[&first, "public.outbox", "waiting", "aggregate=a"]);
    let words = ["dlq", "show", "--event", &first];
    let shown = show_files(&words, &scene.worker(), &[&connector]).expect(0);
    assert!(shown.stdout.contains(PAYLOAD_MARKER), "asked for");
    assert!(!shown.stderr.contains(PAYLOAD_MARKER));
    dlq(&scene, &connector, &["discard", "--event", "nobody"]).expect(2);
    dlq(&scene, &connector, &["discard", "--aggregate", "a"])
        .expect(0)
        .says(&["discarded 1 dead letter", &first]);
    wait::until("the aggregate is released", wait::SOON, || {
        walpost.metrics().sum("walpost_blocked_aggregates", &[]) == 1.0
    });
    scene.event("a", 4);
    assert_eq!(
        numbers(scene.tail("order").exactly(1, Duration::from_millis(200))),
        [4]
    );
    let states: Vec<String> = listed(&scene, &connector, &["--all"])
        .iter()
        .map(|letter| field(letter, "state"))
        .collect();
    assert_eq!(states, ["discarded", "waiting", "waiting"]);
    walpost.stop();
    // Without anybody running, and after a start.
    dlq(&scene, &connector, &["discard", "--aggregate", "b"]).expect(0);
    let mut walpost = walpost.again();
    walpost.wait_streaming();
    scene.event("b", 5);
    scene.tail("order").at_least(2);
    walpost.stop();
}

/// Inserts one event after the other until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    writer: thread::JoinHandle<i64>,
}

impl Load {
    fn start(scene: &Scene, key: &'static str, from: i64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut client, until) = (scene.connect(), Arc::clone(&stop));
        let writer = thread::spawn(move || {
            let mut n = from;
            loop {
                let insert = format!(
                    "insert into outbox (aggregatetype, aggregateid, payload)
                     values ('order', '{key}', jsonb_build_object('n', {n}));
                     select pg_sleep(0.01)"
                );
                client.batch_execute(&insert).unwrap();
                if until.load(Ordering::Relaxed) {
                    return n;
                }
                n += 1;
            }
        });
        Self { stop, writer }
    }

    /// Ends it; the last number.
    fn finish(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.join().unwrap()
    }
}

#[test]
fn a_record_that_kafka_refuses_goes_to_the_topic_too() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene);
    let worker = scene.worker();
    let mut walpost = letters_of_a_refusal(&mut scene, &worker, &connector);
    let mut published = numbers(&scene.records("order"));
    published.sort_unstable();
    published.dedup();
    assert_eq!(published, [1, 3]);
    // The topic takes it now.
    scene
        .kafka
        .set_topic(&scene.topic("order"), "max.message.bytes", "10000000");
    wait::until("the broker knows", wait::SOON, || {
        dlq(&scene, &connector, &["replay", "--aggregate", "a"]).code == Some(0)
    });
    let published = scene.records("order");
    let bytes = published
        .iter()
        .map(|record| record.value_text().len())
        .max();
    assert!(bytes > Some(500_000), "{bytes:?}");
    assert_eq!(published.last().unwrap().json()["n"], 4);
    walpost.stop();
}

#[test]
fn with_exactly_once_delivery_a_record_that_kafka_refuses_is_a_letter_once() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene).set("exactly.once.support", "required");
    let worker = scene.worker_for(true);
    let mut walpost = letters_of_a_refusal(&mut scene, &worker, &connector);
    assert_eq!(numbers(&scene.records("order")), [1, 3]);
    walpost.stop();
}

/// Of four events in one burst Kafka refuses the second; it and the last are letters.
fn letters_of_a_refusal(scene: &mut Scene, worker: &Worker, connector: &Connector) -> Walpost {
    let limit = [("max.message.bytes", "100000")];
    scene.kafka.create_topic(&scene.topic("order"), 1, &limit);
    let mut walpost = start_with(worker, connector);
    walpost.allow("max.message.bytes");
    scene.event("a", 1);
    walpost.signal(Signal::STOP);
    scene.sql(&large(20_000));
    scene.event("b", 3);
    scene.event("a", 4);
    walpost.signal(Signal::CONT);
    let position = scene.position();
    scene.wait_confirmed(position);
    let mut tail = letters(scene);
    let found = tail.exactly(2, Duration::from_millis(200));
    assert_eq!(found[0].header("id"), Some(ID));
    assert_eq!(found[0].json()["stage"], "KAFKA_PRODUCE");
    assert_eq!(lettered(&found[1..]), [4]);
    walpost
}

/// An event of `parts` times 32 bytes.
fn large(parts: u32) -> String {
    format!(
        "insert into outbox (id, aggregatetype, aggregateid, payload)
         select '{ID}', 'order', 'a', jsonb_build_object('n', 2, 's', '{PAYLOAD_MARKER}' || string_agg(md5(n::text), ''))
         from generate_series(1, {parts}) n"
    )
}

#[test]
fn a_letter_too_large_for_its_own_topic_stops() {
    let mut scene = Scene::new("letters");
    for topic in [scene.topic("order"), topic(&scene)] {
        let limit = [("max.message.bytes", "100000")];
        scene.kafka.create_topic(&topic, 1, &limit);
    }
    let connector = tolerant(&scene);
    let mut walpost = start(&scene, &connector);
    walpost.allow("max.message.bytes");
    scene.sql(&large(20_000));
    walpost.expect_exit(
        4,
        &[ID, "public.outbox", &topic(&scene), "max.message.bytes"],
    );
}

#[test]
fn what_the_sink_cannot_send_goes_to_the_topic() {
    let mut scene = Scene::new("letters");
    scene.sql("alter table outbox add part int, add at timestamp");
    let connector = tolerant(&scene)
        .router("table.fields.additional.placement", "part:partition")
        .router("table.field.event.timestamp", "at")
        .set("event.timestamp.strict", "true");
    scene.kafka.create_topic(&scene.topic("order"), 2, &[]);
    let mut walpost = start(&scene, &connector);
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload, part, at) values
         ('order', 'a', '{\"n\": 1}', 7, '2026-01-01'),
         ('order', 'b', '{\"n\": 2}', 1, '2026-01-01'),
         ('order', 'c', '{\"n\": 3}', 1, '1950-01-01'),
         ('order', 'd', '{\"n\": 4}', 1, '2026-01-01')",
    );
    let position = scene.position();
    scene.wait_confirmed(position);
    assert_eq!(numbers(&scene.records("order")), [2, 4]);
    assert_eq!(
        lettered(letters(&scene).exactly(2, Duration::from_millis(200))),
        [1, 3]
    );
    walpost.stop();
}

#[test]
fn rows_of_the_snapshot_and_logical_messages_become_letters() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene).set("transforms", "decode,outbox").set(
        "transforms.decode.type",
        "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
    );
    poison(&mut scene, "a", 1);
    scene.event("a", 2);
    scene.event("b", 3);
    let mut walpost = start(&scene, &connector);
    let message = |scene: &mut Scene, topic: &str, n: i64| {
        scene.sql(&format!(
            "select pg_logical_emit_message(true, 'p', jsonb_build_object(
                'id', 'm{n}', 'aggregatetype', '{topic}', 'aggregateid', 'm',
                'type', 'T', 'payload', jsonb_build_object('n', {n}))::text)"
        ));
    };
    message(&mut scene, "no topic", 4);
    message(&mut scene, "order", 5);
    scene.event("a", 6);
    let position = scene.position();
    scene.wait_confirmed(position);
    let mut tail = letters(&scene);
    let found = tail.exactly(5, Duration::from_millis(200));
    let operations: Vec<String> = found
        .iter()
        .map(|letter| letter.json()["operation"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(operations, ["read", "read", "message", "message", "insert"]);
    assert_eq!(found[2].key_text(), "m");
    assert_eq!(found[2].header("id"), Some("m4"));
    assert_eq!(numbers(&scene.records("order")), [3]);
    dlq(&scene, &connector, &["discard", "--event", "m4"]).expect(0);
    dlq(&scene, &connector, &["replay", "--aggregate", "m"]).expect(0);
    assert_eq!(
        scene.tail("order").at_least(2)[1].value_text(),
        "Struct{n=5}"
    );
    walpost.stop();
}

#[test]
fn columns_that_may_not_leave_the_database_are_not_in_a_letter() {
    let mut scene = Scene::new("letters");
    scene.sql("alter table outbox add card text default 'planted-card'");
    let connector = tolerant(&scene)
        .set("column.exclude.list", "public.outbox.card")
        .set("column.mask.with.3.chars", "public.outbox.type");
    let mut walpost = start(&scene, &connector);
    poison(&mut scene, "a", 1);
    let mut tail = letters(&scene);
    let letter = tail.at_least(1)[0].json();
    assert!(letter["row"].get("card").is_none(), "{letter}");
    assert_eq!(letter["row"]["type"], "***");
    walpost.stop();
}

/// Kafka stays away for longer than the budget: exit code 5.
#[test]
fn the_time_for_retries_can_be_bounded() {
    let scene = Scene::new("letters");
    let worker = scene.worker();
    let connector = scene
        .connector()
        .set("database.port", "1")
        .set("errors.retry.timeout", "700")
        .set("errors.retry.delay.max.ms", "100");
    let mut walpost = Walpost::start(&worker, &[&connector]);
    walpost.allow("");
    assert_eq!(
        walpost.wait_exit(wait::SOON).code(),
        Some(5),
        "{}",
        walpost.log()
    );
    assert!(
        walpost.log().matches("will start again").count() >= 3,
        "{}",
        walpost.log()
    );
}

/// A letter belongs to the transaction of its neighbours: what a kill takes back, it takes back.
#[test]
fn with_exactly_once_delivery_each_letter_comes_once_in_order_over_a_kill() {
    let mut scene = Scene::new("letters");
    let connector = ordered(&scene);
    let worker = scene.worker_for(true);
    let mut walpost = start_with(&worker, &connector);
    scene.event("a", 1);
    poison(&mut scene, "a", 2);
    let load = Load::start(&scene, "a", 3);
    letters(&scene).at_least(20);
    walpost.kill();
    let mut walpost = walpost.again();
    walpost.allow("active");
    walpost.wait_ready();
    let last = load.finish();
    let end = scene.position();
    scene.wait_confirmed(end);
    let name = topic(&scene);
    let committed = consumer::Isolation::Committed;
    let found = consumer::read_as(&scene.kafka.bootstrap(), &[&name], committed);
    assert_eq!(lettered(&found), (2..=last).collect::<Vec<_>>());
    run_files(&["dlq", "discard", "--all"], &worker, &[&connector]).expect(0);
    wait::until("the aggregate is released", wait::SOON, || {
        walpost.metrics().sum("walpost_blocked_aggregates", &[]) == 0.0
    });
    scene.event("a", last + 1);
    assert_eq!(numbers(scene.tail("order").at_least(2)), [1, last + 1]);
    walpost.stop();
}
