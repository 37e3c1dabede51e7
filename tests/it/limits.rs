//! Memory does not depend on the size of a transaction.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::support::{Kafka, Postgres, Scene, wait};

fn wait_confirmed(scene: &mut Scene, limit: Duration) {
    let position = scene.position();
    wait::until("the slot is confirmed", limit, || {
        scene.confirmed() >= Some(position)
    });
}

/// `WALPOST_TEST_ROWS=5000000` runs the full size.
#[test]
fn one_large_transaction_passes_through_in_little_memory() {
    let rows: i64 =
        std::env::var("WALPOST_TEST_ROWS").map_or(500_000, |rows| rows.parse().unwrap());
    let mut scene = Scene::on("limits", Postgres::private(&[]), Kafka::shared());
    let topic = scene.topic("order");
    scene.kafka.create_topic(&topic, 1, &[]);
    // The other table is published too, and not ours.
    let name = scene.name.clone();
    scene.sql(&format!(
        "create publication {name} for table outbox, other"
    ));
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "disabled");
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    // In full size the backlog is larger than that, for a while.
    walpost.allow("max_wal_size");
    let limit = Duration::from_secs(900);
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, payload)
         select 'order', n::text, jsonb_build_object('n', n, 'pad', repeat('x', 100))
         from generate_series(1, {rows}) n order by n"
    ));
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", scene.kafka.bootstrap())
        .create()
        .unwrap();
    wait::until("all rows are in Kafka", limit, || {
        let marks = consumer.fetch_watermarks(&topic, 0, Duration::from_secs(5));
        marks.is_ok_and(|(_, high)| high >= rows)
    });
    wait_confirmed(&mut scene, limit);
    scene.sql(&format!(
        "insert into other (note) select repeat('x', 100) from generate_series(1, {rows})"
    ));
    wait_confirmed(&mut scene, limit);
    let peak = walpost.peak_memory();
    println!("{rows} rows, peak {peak} bytes");
    assert!(peak < 150_000_000, "{peak} bytes");
    let (_, high) = consumer
        .fetch_watermarks(&topic, 0, Duration::from_secs(5))
        .unwrap();
    assert_eq!(high, rows, "one pass");
    walpost.stop();
}

/// A slow Kafka and large rows; what waits is bounded in bytes.
#[test]
fn large_rows_are_bounded_in_bytes_not_in_number() {
    let mut scene = Scene::new("limits");
    scene.kafka.create_topic(
        &scene.topic("order"),
        1,
        &[("max.message.bytes", "20000000")],
    );
    let connector = scene
        .connector()
        .set("producer.override.max.request.size", "20000000");
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    for _ in 0..3 {
        scene.sql(
            "insert into outbox (aggregatetype, aggregateid, payload)
             select 'order', 'k', to_jsonb(repeat(md5(n::text), 150000)) from generate_series(1, 12) n",
        );
    }
    scene.tail("order").within(36, Duration::from_secs(120));
    let peak = walpost.peak_memory();
    assert!(peak < 250_000_000, "{peak} bytes for rows of 5 MB");
}
