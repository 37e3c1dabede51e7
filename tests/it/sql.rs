//! Each file of `sql/`, run as its head says, and used.

use std::time::Duration;

use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

fn file(name: &str) -> String {
    let path = format!("{}/sql/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn scene() -> Scene {
    // Roles belong to the whole server: one of our own.
    Scene::bare("sql", Postgres::private(&[]), Kafka::shared())
}

/// With the role of `role.sql`, which owns nothing.
fn start(scene: &mut Scene, table: &str) -> Walpost {
    scene.sql("alter role walpost password 'planted-role-password'");
    let connector = scene
        .connector()
        .set("database.user", "walpost")
        .set("database.password", "planted-role-password")
        .set("publication.name", "dbz_publication")
        .set("publication.autocreate.mode", "disabled")
        .set("table.include.list", table);
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    walpost
}

#[test]
fn the_outbox_its_publication_and_its_role_are_all_that_is_needed() {
    let mut scene = scene();
    for _ in 0..2 {
        for name in ["outbox.sql", "publication.sql", "role.sql", "cleanup.sql"] {
            scene.sql(&file(name));
        }
    }
    scene.sql(&file("monitoring.sql"));
    scene.sql("insert into outbox (aggregatetype, aggregateid, type, payload) values ('order', '1', 'T', '1')");
    let mut walpost = start(&mut scene, "public.outbox");
    scene.sql("insert into outbox (aggregatetype, aggregateid, type, payload) values ('order', '2', 'T', '2')");
    scene.tail("order").exactly(2, Duration::from_millis(300));
    scene.sql(&file("monitoring.sql"));
    walpost.stop();
    for _ in 0..2 {
        let text = file("decommission.sql").replace("'debezium'", &format!("'{}'", scene.name));
        scene.sql(&text);
    }
    let slots = "select count(*) from pg_replication_slots";
    wait::until("the slot is gone", wait::SOON, || {
        scene.number(slots) == Some(0)
    });
}

#[test]
fn the_partitioned_outbox_arrives_under_its_own_name() {
    let mut scene = scene();
    for name in ["outbox_partitioned.sql", "publication.sql", "role.sql"] {
        scene.sql(&file(name));
    }
    let mut walpost = start(&mut scene, "public.outbox");
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, type, payload)
         select 'order', n::text, 'T', '1' from generate_series(1, 5) n",
    );
    scene.tail("order").exactly(5, Duration::from_millis(300));
    walpost.stop();
}

#[test]
fn an_outbox_without_a_table_is_emitted_into_the_log() {
    let mut scene = scene();
    scene.sql(&file("message.sql"));
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "no_tables")
        .set("snapshot.mode", "no_data")
        .set("transforms", "decode,outbox")
        .set(
            "transforms.decode.type",
            "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        );
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_ready();
    scene.sql("begin; select walpost_emit('order', '1', 'T', '{\"n\": 1}'); rollback");
    scene.sql("select walpost_emit('order', '2', 'T', '{\"n\": 2}')");
    let mut tail = scene.tail("order");
    assert_eq!(
        tail.exactly(1, Duration::from_millis(300))[0].key_text(),
        "2"
    );
    walpost.stop();
}
