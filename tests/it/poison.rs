//! One event that cannot become a record.

use std::time::Duration;

use crate::support::command::PAYLOAD_MARKER;
use crate::support::{Connector, Scene, Walpost, wait};

const ID: &str = "bad00000-0000-4000-8000-000000000bad";

/// Inserts a good event, a bad one with the payload marker, a good one.
fn insert_around(scene: &mut Scene, bad: &str) {
    scene.event("k", 1);
    scene.sql(bad);
    scene.event("k", 2);
}

/// The bad event stops the connector, named by id, table and position and nothing else; with
/// `errors.tolerance=all` it is skipped and counted.
fn stops_or_skips(scene: &mut Scene, connector: &Connector, bad: &str, said: &[&str]) {
    let mut walpost = Walpost::start(&scene.worker(), &[connector]);
    walpost.wait_streaming();
    // A batch may be refused first for one record in it.
    walpost.allow("max.message.bytes");
    insert_around(scene, bad);
    let mut expected = vec![ID, "public.outbox", "/", "errors.tolerance=all"];
    expected.extend(said);
    walpost.expect_exit(4, &expected);
    // What was on its way to Kafka beside the bad event may be there; the slot waits before it.
    let position = scene.position();
    assert!(
        scene.confirmed().unwrap() < position,
        "not confirmed past the bad event"
    );
    // Still there at the next start, and still a stop.
    walpost.again().expect_exit(4, &[ID]);

    let tolerant = connector.clone().set("errors.tolerance", "all");
    let mut walpost = Walpost::start(&scene.worker(), &[&tolerant]);
    walpost.wait_streaming();
    walpost.allow(ID);
    walpost.allow("max.message.bytes");
    let position = scene.position();
    scene.wait_confirmed(position);
    let mut numbers = numbers(scene);
    numbers.dedup();
    assert_eq!(numbers, [1, 2]);
    assert!(walpost.metrics().sum("walpost_dropped_events_total", &[]) >= 1.0);
    assert!(walpost.log().contains(ID), "skipped, but never in silence");
}

fn numbers(scene: &Scene) -> Vec<i64> {
    let records = scene.records("order");
    records
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect()
}

fn bad(columns: &str, values: &str) -> String {
    format!(
        "insert into outbox (id, aggregateid, payload, {columns})
         values ('{ID}', 'planted-key', '\"{PAYLOAD_MARKER}\"', {values})"
    )
}

/// Kafka would refuse the name.
#[test]
fn an_illegal_topic_name_names_event_table_and_position() {
    let mut scene = Scene::new("poison");
    let connector = scene.connector();
    stops_or_skips(
        &mut scene,
        &connector,
        &bad("aggregatetype", "'not a topic'"),
        &["topic"],
    );
}

#[test]
fn a_missing_routing_value_is_poison() {
    let mut scene = Scene::new("poison");
    scene.sql("alter table outbox alter aggregatetype drop not null");
    let connector = scene.connector();
    stops_or_skips(
        &mut scene,
        &connector,
        &bad("aggregatetype", "null"),
        &["aggregatetype"],
    );
}

/// Too large for the topic.
#[test]
fn a_record_too_large_for_its_topic_is_poison() {
    let mut scene = Scene::new("poison");
    scene
        .kafka
        .create_topic(&scene.topic("order"), 1, &[("max.message.bytes", "100000")]);
    let connector = scene.connector();
    let large = format!(
        "insert into outbox (id, aggregatetype, aggregateid, payload)
         select '{ID}', 'order', 'planted-key', to_jsonb('{PAYLOAD_MARKER}' || string_agg(md5(n::text), ''))
         from generate_series(1, 10000) n"
    );
    let topic = scene.topic("order");
    stops_or_skips(&mut scene, &connector, &large, &[&topic]);
}

/// Only the broker knows that it refuses; what is behind in the same partition waits all the same.
#[test]
fn nothing_overtakes_a_record_that_the_broker_refuses() {
    let mut scene = Scene::new("poison");
    scene
        .kafka
        .create_topic(&scene.topic("order"), 1, &[("max.message.bytes", "50000")]);
    let mut walpost = scene.start();
    walpost.stop();
    // A backlog, so that many batches are under way at once.
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', 'k', jsonb_build_object('n', n, 's',
                (select string_agg(md5((n * i)::text), '') from generate_series(1, case n when 300 then 5000 else 60 end) i))
         from generate_series(1, 3000) n order by n",
    );
    let mut walpost = walpost.again().allowing("max.message.bytes");
    walpost.expect_exit(4, &["max.message.bytes"]);
    let records = scene.records("order");
    let mut numbers: Vec<i64> = records
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..300).collect::<Vec<_>>());
}

/// The strict and the lenient reading of a column that is placed but not there.
#[test]
fn a_placed_column_that_is_missing_is_poison_or_left_out() {
    let mut scene = Scene::new("poison");
    let connector = scene
        .connector()
        .router("table.fields.additional.placement", "trace:header");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.allow("trace");
    scene.sql(&bad("aggregatetype", "'order'"));
    // Seen at the first look at the table, or at the row.
    let code = walpost.wait_exit(wait::SOON).code();
    assert!(matches!(code, Some(2 | 4)), "{}", walpost.log());
    let lenient = connector.router("table.field.additional.missing", "ignore");
    let mut walpost = Walpost::start(&scene.worker(), &[&lenient]);
    walpost.wait_streaming();
    let mut tail = scene.tail("order");
    assert_eq!(
        tail.exactly(1, Duration::from_millis(200))[0].header("trace"),
        None
    );
    scene.sql("alter table outbox add trace text");
    scene
        .sql("insert into outbox (aggregatetype, aggregateid, trace) values ('order', 'k', 'abc')");
    assert_eq!(tail.at_least(2)[1].header("trace"), Some("abc"));
}

/// Rows are read with the shape they were written in; the first that lacks a column stops.
#[test]
fn a_renamed_column_stops_at_the_first_row_without_it() {
    let mut scene = Scene::new("poison");
    let mut walpost = scene.start();
    walpost.stop();
    scene.event("k", 1);
    scene.sql(
        "alter table outbox rename payload to body; alter table outbox add extra int default 7",
    );
    scene.sql(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, body)
         values ('{ID}', 'order', 'k', '{{\"n\": 2}}')"
    ));
    let mut walpost = walpost.again();
    walpost.expect_exit(4, &[ID, "payload"]);
    assert_eq!(numbers(&scene), [1]);
    let changed = scene
        .connector()
        .router("table.field.event.payload", "body");
    let mut walpost = Walpost::start(&scene.worker(), &[&changed]);
    walpost.wait_streaming();
    scene.tail("order").exactly(2, Duration::from_millis(200));
    assert_eq!(numbers(&scene), [1, 2]);
}
