//! From a committed row to a record.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Kafka, Postgres, Scene, Walpost, wait};

const QUIET: Duration = Duration::from_millis(300);

#[test]
fn a_committed_row_arrives_as_the_router_would_write_it() {
    let mut scene = Scene::new("delivery");
    let walpost = scene.start();
    scene.sql(
        r#"insert into outbox (id, aggregatetype, aggregateid, payload) values
           ('c1d2e3f4-0000-4000-8000-000000000001', 'order', 'order-1', '{"hello": "monde"}')"#,
    );
    let mut tail = scene.tail("order");
    let record = tail.exactly(1, QUIET)[0].clone();
    assert_eq!(record.key_text(), "order-1");
    assert_eq!(record.value_text(), r#"{"hello": "monde"}"#);
    assert_eq!(
        record.header("id"),
        Some("c1d2e3f4-0000-4000-8000-000000000001")
    );
    assert_eq!(
        record.headers.len(),
        1,
        "no context headers by default: {:?}",
        record.headers
    );
    drop(walpost);
}

#[test]
fn rolled_back_rows_never_arrive() {
    let mut scene = Scene::new("delivery");
    let _walpost = scene.start();
    scene.sql(
        "begin; insert into outbox (aggregatetype, aggregateid) values ('order', 'no'); rollback",
    );
    scene.sql(
        "begin; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '1');
         savepoint s; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '2');
         rollback to s; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '3');
         commit",
    );
    let mut tail = scene.tail("order");
    let values: Vec<_> = tail
        .exactly(2, QUIET)
        .iter()
        .map(|r| r.value_text().to_owned())
        .collect();
    assert_eq!(values, ["1", "3"]);
}

#[test]
fn events_of_one_key_stay_in_commit_order_and_keys_go_where_java_puts_them() {
    let mut scene = Scene::new("delivery");
    scene.kafka.create_topic(&scene.topic("order"), 12, &[]);
    let _walpost = scene.start();
    // Java's murmur2 over twelve partitions.
    let placed = [
        ("order-1", 10),
        ("order-2", 3),
        ("order-3", 3),
        ("1", 3),
        ("клиент-7", 3),
        ("00000000-0000-0000-0000-000000000001", 2),
    ];
    for n in 0..40 {
        for (key, _) in placed {
            scene.event(key, n);
        }
    }
    let mut tail = scene.tail("order");
    let records = tail.exactly(240, QUIET);
    for (key, partition) in placed {
        let of_key: Vec<_> = records.iter().filter(|r| r.key_text() == key).collect();
        assert!(of_key.iter().all(|r| r.partition == partition), "{key}");
        let numbers: Vec<_> = of_key
            .iter()
            .map(|r| r.json()["n"].as_i64().unwrap())
            .collect();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "{key}");
    }
}

/// Row positions do not rise across transactions.
#[test]
fn interleaved_transactions_arrive_in_commit_order() {
    let mut scene = Scene::new("delivery");
    let mut walpost = scene.start();
    let mut early = scene.connect();
    early
        .batch_execute("begin; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '\"early\"')")
        .unwrap();
    scene.sql("insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '\"late\"')");
    scene.tail("order").at_least(1);
    walpost.kill();
    early.batch_execute("commit").unwrap();
    let _second = walpost.again();
    let mut tail = scene.tail("order");
    let values = |records: &[crate::support::Record]| {
        let mut values: Vec<_> = records.iter().map(|r| r.value_text().to_owned()).collect();
        values.dedup();
        values
    };
    wait::until("both arrive", wait::SOON, || {
        values(tail.now()) == ["\"late\"", "\"early\""]
    });
}

/// A savepoint rolled back inside a transaction larger than the decoding memory.
#[test]
fn savepoints_of_a_spilled_transaction_are_honoured() {
    let mut scene = Scene::new("delivery");
    let name = scene.name.clone();
    scene.sql(&format!(
        "alter database {name} set logical_decoding_work_mem = '64kB'"
    ));
    let _walpost = scene.start();
    let rows = |from: i32, to: i32| {
        format!(
            "insert into outbox (aggregatetype, aggregateid, payload)
             select 'order', 'k', jsonb_build_object('n', n, 'pad', repeat('x', 400))
             from generate_series({from}, {to}) n order by n;"
        )
    };
    scene.sql(&format!(
        "begin; {} savepoint s; {} rollback to s; {} commit",
        rows(1, 500),
        rows(501, 1000),
        rows(1001, 1005)
    ));
    let mut tail = scene.tail("order");
    let numbers: Vec<_> = tail
        .exactly(505, QUIET)
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=500).chain(1001..=1005).collect::<Vec<_>>());
}

/// A transaction that is prepared today and committed tomorrow is published when it is committed,
/// although the stream has been stored far beyond its rows, and has begun anew.
#[test]
fn a_prepared_transaction_is_published_when_it_is_committed() {
    let postgres = Postgres::private(&[("max_prepared_transactions", "5")]);
    for exactly_once in [false, true] {
        let mut scene = Scene::on("prepared", Arc::clone(&postgres), Kafka::shared());
        let worker = scene.worker_for(exactly_once);
        let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
        walpost.wait_streaming();
        let name = scene.name.clone();
        for (n, suffix) in [(1, "kept"), (2, "given up")] {
            scene.sql("begin");
            scene.event("k", n);
            scene.sql(&format!("prepare transaction '{name} {suffix}'"));
        }
        scene.event("k", 3);
        let mut tail = scene.tail("order");
        tail.at_least(1);
        let position = scene.position();
        scene.wait_confirmed(position);
        walpost.stop();
        let mut walpost = walpost.again();
        walpost.wait_streaming();
        scene.event("k", 4);
        scene.sql(&format!("rollback prepared '{name} given up'"));
        scene.sql(&format!("commit prepared '{name} kept'"));
        scene.event("k", 5);
        let numbers: Vec<_> = tail
            .exactly(4, QUIET)
            .iter()
            .map(|record| record.json()["n"].as_i64().unwrap())
            .collect();
        assert_eq!(numbers, [3, 4, 1, 5], "in the order of commits");
        walpost.stop();
    }
}

/// Messages that carry no row do not end the stream, now or after a restart.
#[test]
fn truncate_types_origins_and_messages_pass_by() {
    let mut scene = Scene::new("delivery");
    let mut walpost = scene.start();
    let origin = scene.name.clone();
    scene.event("k", 1);
    scene.sql("create type colour as enum ('red', 'blue'); alter table outbox add colour colour default 'red'");
    scene.event("k", 2);
    scene.sql(&format!("select pg_replication_origin_create('{origin}')"));
    scene.sql(&format!(
        "select pg_replication_origin_session_setup('{origin}')"
    ));
    scene.event("k", 3);
    scene.sql("select pg_replication_origin_session_reset()");
    scene.sql(
        "select pg_logical_emit_message(true, 'p', 'x'), pg_logical_emit_message(false, 'p', 'y')",
    );
    scene.sql("truncate outbox");
    scene.event("k", 4);
    let mut tail = scene.tail("order");
    let numbers: Vec<_> = tail
        .exactly(4, QUIET)
        .iter()
        .map(|r| r.json()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let position = scene.position();
    scene.wait_confirmed(position);
    let truncated: Vec<String> = walpost
        .log()
        .lines()
        .filter(|line| line.contains("was truncated"))
        .map(str::to_owned)
        .collect();
    assert_eq!(truncated.len(), 1, "said once: {truncated:?}");
    assert!(truncated[0].contains("INFO"), "{truncated:?}");
    walpost.stop();
    scene.sql(&format!("select pg_replication_origin_drop('{origin}')"));
}

/// What the role's settings do to the text form.
#[test]
fn session_settings_of_the_role_change_nothing() {
    let mut scene = Scene::new("delivery");
    let database = scene.name.clone();
    scene.sql(&format!(
        "alter database {database} set bytea_output = 'escape';
         alter database {database} set datestyle = 'SQL, DMY';
         alter database {database} set timezone = 'Asia/Kolkata';
         alter database {database} set intervalstyle = 'sql_standard';
         alter database {database} set extra_float_digits = -5;
         alter database {database} set statement_timeout = '2s';
         alter database {database} set lock_timeout = '1s';
         alter database {database} set idle_in_transaction_session_timeout = '500ms';
         alter table outbox alter payload type bytea using null;
         alter table outbox add at timestamptz default '2026-01-02 03:04:05.678901+00'"
    ));
    let connector = scene
        .connector()
        .set(
            "value.converter",
            "org.apache.kafka.connect.converters.ByteArrayConverter",
        )
        .router("table.fields.additional.placement", "at:header");
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    scene.sql(r"insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '\x00ff10')");
    let mut tail = scene.tail("order");
    let record = &tail.exactly(1, QUIET)[0];
    assert_eq!(record.value.as_deref(), Some(&[0x00, 0xff, 0x10][..]));
    assert_eq!(record.header("at"), Some("2026-01-02T03:04:05.678901Z"));
}

/// Only an empty payload is a tombstone.
#[test]
fn a_null_payload_is_a_tombstone_and_json_null_is_not() {
    let mut scene = Scene::new("delivery");
    let _walpost = scene.start();
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload) values
         ('order', 'a', null), ('order', 'b', 'null'), ('order', 'c', '{}')",
    );
    let mut tail = scene.tail("order");
    let records = tail.exactly(3, QUIET);
    let value = |key: &str| {
        let record = records
            .iter()
            .find(|record| record.key_text() == key)
            .unwrap();
        record
            .value
            .as_deref()
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    assert_eq!(value("a"), None);
    assert_eq!(value("b").as_deref(), Some("null"));
    assert_eq!(value("c").as_deref(), Some("{}"));
}

/// One record per insert; updates are reported and dropped, deletes pass in silence.
#[test]
fn updates_are_reported_and_deletes_are_silent() {
    let mut scene = Scene::new("delivery");
    let mut walpost = scene.start();
    walpost.allow("update");
    scene.sql(
        "begin; insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '1');
         delete from outbox; commit",
    );
    scene
        .sql("insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '2')");
    scene.sql("update outbox set type = 'changed'");
    scene.sql("delete from outbox");
    scene
        .sql("insert into outbox (aggregatetype, aggregateid, payload) values ('order', 'k', '3')");
    let mut tail = scene.tail("order");
    let values: Vec<_> = tail
        .exactly(3, QUIET)
        .iter()
        .map(|r| r.value_text().to_owned())
        .collect();
    assert_eq!(values, ["1", "2", "3"]);
    assert!(!walpost.complaints().is_empty(), "the update is reported");
}

/// Several outbox tables, names that need quoting.
#[test]
fn several_tables_with_awkward_names_are_followed() {
    let mut scene = Scene::new("delivery");
    scene.sql(
        r#"create schema "Sales-EU";
           create table "Sales-EU"."OutBox Événements" (like outbox including all);
           create table "Sales-EU"."OutBox Événement" (like outbox including all)"#,
    );
    let connector = scene.connector().set(
        "table.include.list",
        "public\\.outbox,Sales-EU\\.OutBox Événements",
    );
    let mut walpost = crate::support::Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    scene.event("a", 1);
    scene.sql(
        r#"insert into "Sales-EU"."OutBox Événement" (aggregatetype, aggregateid, payload) values ('order', 'no', '0');
           insert into "Sales-EU"."OutBox Événements" (aggregatetype, aggregateid, payload) values ('order', 'b', '2')"#,
    );
    let mut tail = scene.tail("order");
    let mut keys: Vec<_> = tail
        .exactly(2, QUIET)
        .iter()
        .map(|r| r.key_text().to_owned())
        .collect();
    keys.sort();
    assert_eq!(keys, ["a", "b"]);
}
