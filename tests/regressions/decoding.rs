//! From the bytes of the replication stream to a row.

use super::{QUIET, numbers, stream};
use crate::support::Scene;

const ID: &str = "bad00000-0000-4000-8000-000000000bad";

/// A value that is stored out of line and was not changed comes as a mark, which was read as null.
#[test]
fn an_update_beside_a_large_payload_is_no_event_and_no_tombstone() {
    let mut scene = Scene::new("decoding");
    scene.sql("alter table outbox alter payload set storage external");
    for behaviour in ["warn", "error"] {
        let connector = scene
            .connector()
            .router("route.tombstone.on.empty.payload", "true")
            .router("table.op.invalid.behavior", behaviour);
        let mut walpost = stream(&scene, &connector);
        walpost.allow("update");
        let before = scene.records("order").len();
        scene.sql(
            "insert into outbox (aggregatetype, aggregateid, payload)
             values ('order', 'k', jsonb_build_object('n', 1, 'pad', repeat('x', 6000)));
             update outbox set type = 't2'",
        );
        let position = scene.position();
        scene.wait_confirmed(position);
        let mut tail = scene.tail("order");
        let records = tail.exactly(before + 1, QUIET);
        assert!(
            records
                .iter()
                .all(|record| record.value_text().len() > 6000),
            "no tombstone"
        );
        assert!(!walpost.complaints().is_empty(), "the update is reported");
        walpost.stop();
    }
}

/// Rows of a backlog were read with today's catalog, or a new shape was taken without a word.
#[test]
fn a_backlog_is_read_with_the_shape_each_row_was_written_in() {
    let mut scene = Scene::new("decoding");
    let mut walpost = scene.start();
    walpost.stop();
    scene.event("k", 1);
    scene.sql("alter table outbox rename payload to body");
    let body = |scene: &mut Scene, table: &str, id: &str, n: i32| {
        scene.sql(&format!(
            "insert into {table} (id, aggregatetype, aggregateid, body)
             values ({id}, 'order', 'k', '{{\"n\": {n}}}')"
        ));
    };
    body(&mut scene, "outbox", &format!("'{ID}'"), 2);
    scene.sql("alter table outbox drop type; alter table outbox add extra int default 7");
    body(&mut scene, "outbox", "default", 3);
    scene.sql("alter table outbox rename to outbox_v2");
    body(&mut scene, "outbox_v2", "default", 4);

    // The first row that lacks a configured column is where the old file ends, and not before.
    let position = scene.position();
    walpost
        .again()
        .expect_exit(4, &[ID, "column \\\"payload\\\"", "at 0/"]);
    assert_eq!(numbers(&scene.records("order")), [1]);
    assert!(scene.confirmed().unwrap() < position, "unconfirmed");

    // With the new names the stream goes on there, through rows written under the old table name.
    let connector = scene
        .connector()
        .set("table.include.list", "public.outbox_v2")
        .router("table.field.event.payload", "body");
    let mut walpost = stream(&scene, &connector);
    let mut tail = scene.tail("order");
    assert_eq!(numbers(tail.exactly(4, QUIET)), [1, 2, 3, 4]);
    walpost.stop();

    // Renamed once more: what was written before arrives, then the file is out of date.
    body(&mut scene, "outbox_v2", "default", 5);
    scene.sql("alter table outbox_v2 rename to outbox_v3");
    let mut walpost = walpost.again();
    walpost.expect_exit(2, &["table.include.list"]);
    assert_eq!(numbers(tail.exactly(5, QUIET)), [1, 2, 3, 4, 5]);
}
