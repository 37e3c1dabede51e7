//! Tables and publications that are not the plain case.

use super::{QUIET, numbers, stream};
use crate::support::{Kafka, Postgres, Scene, Walpost};

/// The stream describes the published columns only; code that counted by the catalog panicked.
#[test]
fn columns_are_matched_by_name_when_the_publication_lists_some() {
    // Column lists came with 15.
    let mut scene = Scene::on("tables", Postgres::at_least(15, &[]), Kafka::shared());
    let name = scene.name.clone();
    scene.sql(&format!(
        "drop table outbox;
         create table outbox (id uuid primary key default gen_random_uuid(), aggregatetype text,
           secret text, aggregateid text, note text, payload jsonb);
         create publication {name} for table outbox (id, aggregatetype, aggregateid, payload)"
    ));
    let connector = scene
        .connector()
        .set("publication.autocreate.mode", "disabled");
    let mut walpost = stream(&scene, &connector);
    scene.sql(
        "insert into outbox (aggregatetype, secret, aggregateid, payload)
         values ('order', 'planted-secret', 'k', '{\"n\": 1}')",
    );
    // The list changes under the stream: wider, then in another order.
    scene.sql(&format!(
        "alter publication {name} set table outbox (id, aggregatetype, note, aggregateid, payload)"
    ));
    scene.event("k", 2);
    let mut tail = scene.tail("order");
    let records = tail.exactly(2, QUIET);
    assert_eq!(numbers(records), [1, 2]);
    assert!(records.iter().all(|record| record.key_text() == "k"));
    walpost.stop();
    // A list without a column that we need is refused by the column's name.
    scene.sql(&format!(
        "alter publication {name} set table outbox (id, aggregatetype, payload)"
    ));
    walpost.again().expect_exit(2, &["aggregateid", &name]);
}

/// Rows carry the leaf's name or the root's, as the publication says; a filter by name dropped them.
#[test]
fn rows_of_every_partition_arrive_in_both_modes() {
    for root in [false, true] {
        let mut scene = Scene::new("tables");
        let name = scene.name.clone();
        scene.sql(&format!(
            "drop table outbox;
             create table outbox (id uuid default gen_random_uuid(), aggregatetype text,
               aggregateid text, payload jsonb, day date) partition by range (day);
             create table outbox_1 partition of outbox for values from ('2026-01-01') to ('2026-01-02');
             create publication {name} for table outbox with (publish_via_partition_root = {root})"
        ));
        let connector = scene
            .connector()
            .set("publication.autocreate.mode", "disabled");
        let mut walpost = stream(&scene, &connector);
        let insert = |scene: &mut Scene, n: i32, day: i32| {
            scene.sql(&format!(
                "insert into outbox (aggregatetype, aggregateid, payload, day)
                 values ('order', 'k', '{{\"n\": {n}}}', '2026-01-0{day}')"
            ));
        };
        insert(&mut scene, 1, 1);
        // Made later, one as a partition and one attached with other places for its columns.
        scene.sql(
            "create table outbox_2 partition of outbox for values from ('2026-01-02') to ('2026-01-03');
             create table outbox_3 (day date, payload jsonb, aggregateid text, aggregatetype text,
               gone int, id uuid default gen_random_uuid());
             alter table outbox_3 drop gone;
             alter table outbox attach partition outbox_3 for values from ('2026-01-03') to ('2026-01-04')",
        );
        insert(&mut scene, 2, 2);
        insert(&mut scene, 3, 3);
        scene.sql("alter table outbox detach partition outbox_1; drop table outbox_1");
        insert(&mut scene, 4, 2);
        let mut tail = scene.tail("order");
        assert_eq!(numbers(tail.exactly(4, QUIET)), [1, 2, 3, 4], "root {root}");
        let position = scene.position();
        scene.wait_confirmed(position);
        walpost.stop();
    }
}

/// Names were pasted into SQL unquoted, folded, or split at the first dot.
#[test]
fn names_are_taken_exactly_as_the_catalog_has_them() {
    let mut scene = Scene::new("tables");
    let database = format!("My-Db {}", scene.name);
    scene.sql(&format!("create database \"{database}\""));
    let mut client = scene.postgres.connect(&database);
    client
        .batch_execute(
            r#"create schema "Sales-EU";
               create table "Sales-EU"."OutBox.Événements" ("Id" uuid default gen_random_uuid(),
                 "aggregateType" text, "Aggregate""Id" text, "полезная" jsonb);
               create table "Sales-EU"."OutBox_Événements" (like "Sales-EU"."OutBox.Événements");"#,
        )
        .unwrap();
    let connector = scene
        .connector()
        .set("database.dbname", &database)
        .set("table.include.list", r"Sales-EU\.OutBox\.Événements")
        .router("table.field.event.id", "Id")
        .router("route.by.field", "aggregateType")
        .router("table.field.event.key", "Aggregate\"Id")
        .router("table.field.event.payload", "полезная");
    let mut walpost = stream(&scene, &connector);
    let mut insert = |table: &str, n: i32| {
        client
            .batch_execute(&format!(
                r#"insert into "Sales-EU"."{table}" ("aggregateType", "Aggregate""Id", "полезная")
                   values ('order', '{table}', '{{"n": {n}}}')"#
            ))
            .unwrap();
    };
    insert("OutBox_Événements", 1);
    insert("OutBox.Événements", 2);
    let mut tail = scene.tail("order");
    assert_eq!(numbers(tail.exactly(1, QUIET)), [2]);
    walpost.stop();
    // An unescaped dot takes any character, as in Debezium: then the lookalike is ours too.
    let loose = connector.set("table.include.list", "Sales-EU.OutBox.Événements");
    let mut walpost = stream(&scene, &loose).allowing("changed the publication");
    insert("OutBox_Événements", 3);
    insert("OutBox.Événements", 4);
    assert_eq!(numbers(tail.exactly(3, QUIET)), [2, 3, 4]);
    walpost.stop();
    client
        .batch_execute(&format!(
            "select pg_drop_replication_slot('{}')",
            scene.name
        ))
        .unwrap();
}

/// Up to Postgres 17 the stream has no generated columns: a check against the catalog failed for
/// one that nobody reads, or a null was invented for one that is the key.
#[test]
fn a_generated_column_matters_only_where_it_is_read() {
    let mut scene = Scene::new("tables");
    scene.sql(
        "alter table outbox add size int generated always as (length(payload::text)) stored,
         add twice text generated always as (aggregateid || aggregateid) stored",
    );
    let mut walpost = scene.start();
    scene.event("k", 1);
    let mut tail = scene.tail("order");
    assert_eq!(numbers(tail.exactly(1, QUIET)), [1]);
    walpost.stop();
    for option in [
        "table.field.event.key",
        "table.field.event.id",
        "table.field.event.payload",
        "route.by.field",
    ] {
        let connector = scene.connector().router(option, "twice");
        Walpost::start(&scene.worker(), &[&connector]).expect_exit(
            2,
            &[
                option,
                "generated column",
                "plain column",
                "publish_generated_columns",
            ],
        );
    }
    assert_eq!(scene.records("order").len(), 1);
}
