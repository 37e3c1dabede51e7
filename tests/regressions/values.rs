//! Values at the edge of what their type can hold.

use super::{QUIET, stream};
use crate::support::{Record, Scene};

/// A parser of times that knows neither infinity nor eras ended the stream for ever.
#[test]
fn times_beyond_every_calendar_are_headers_and_no_stop() {
    let mut scene = Scene::new("values");
    scene.sql("alter table outbox add ts timestamptz, add d date");
    let connector = scene
        .connector()
        .router("table.fields.additional.placement", "ts:header,d:header");
    let _walpost = stream(&scene, &connector);
    // The text is Debezium's: ISO for an instant, days since 1970 for a date.
    let moments = [
        ("infinity", "infinity", "-2147472692"),
        ("-infinity", "-infinity", "-2147472691"),
        ("0044-03-15 BC", "-0043-03-15T00:00:00.000000Z", "-735160"),
        (
            "294276-01-01",
            "+294276-01-01T00:00:00.000000Z",
            "106762574",
        ),
    ];
    for (moment, ..) in moments {
        scene.sql(&format!(
            "insert into outbox (aggregatetype, aggregateid, payload, ts, d)
             values ('order', 'k', '{{}}', '{moment}', '{moment}')"
        ));
    }
    let mut tail = scene.tail("order");
    let records = tail.exactly(moments.len(), QUIET);
    for (record, (moment, instant, day)) in records.iter().zip(moments) {
        assert_eq!(record.header("ts"), Some(instant), "{moment}");
        assert_eq!(record.header("d"), Some(day), "{moment}");
    }
}

/// JSON has no NaN: the encoder's error took the rest of the batch along, or came again for ever.
#[test]
fn numbers_that_are_none_are_text_in_json() {
    let mut scene = Scene::new("values");
    scene.sql("alter table outbox add n numeric, add f float8");
    let connector = scene
        .connector()
        .set(
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        )
        .set("value.converter.schemas.enable", "false")
        .set("decimal.handling.mode", "string")
        .router("table.fields.additional.placement", "n:envelope,f:envelope");
    let _walpost = stream(&scene, &connector);
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload, n, f) values
         ('order', 'k', '{}', 1, 1), ('order', 'k', '{}', 'NaN', 'NaN'),
         ('order', 'k', '{}', 2, 2), ('order', 'k', '{}', 'Infinity', 'Infinity'),
         ('order', 'k', '{}', '-Infinity', '-Infinity'), ('order', 'k', '{}', 3, 3)",
    );
    let mut tail = scene.tail("order");
    let records = tail.exactly(6, QUIET);
    let values: Vec<_> = records.iter().map(Record::value_text).collect();
    let row = |n: &str, f: &str| format!(r#"{{"payload":"{{}}","n":"{n}","f":{f}}}"#);
    assert_eq!(
        values,
        [
            row("1", "1.0"),
            row("NAN", r#""NaN""#),
            row("2", "2.0"),
            row("POSITIVE_INFINITY", r#""Infinity""#),
            row("NEGATIVE_INFINITY", r#""-Infinity""#),
            row("3", "3.0"),
        ]
    );
}

/// In the mode that has no form for it, the row stops the stream; it is not passed over.
#[test]
fn a_number_without_a_form_stops_before_its_row_and_names_the_column() {
    let mut scene = Scene::new("values");
    scene.sql("alter table outbox add n numeric");
    let connector = scene
        .connector()
        .set(
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        )
        .set("value.converter.schemas.enable", "false")
        .router("table.fields.additional.placement", "n:envelope");
    let mut walpost = stream(&scene, &connector);
    scene.sql(
        "insert into outbox (id, aggregatetype, aggregateid, payload, n)
         values ('bad00000-0000-4000-8000-000000000bad', 'order', 'k', '{}', 'NaN')",
    );
    let position = scene.position();
    walpost.expect_exit(4, &["bad00000-0000-4000-8000-000000000bad", "\\\"n\\\""]);
    assert!(
        scene.confirmed().unwrap() < position,
        "not confirmed past it"
    );
    assert!(scene.records("order").is_empty());
}

/// The binary form of a uuid leaked into JSON; a domain was not known by its base type's name.
#[test]
fn domains_act_as_their_base_type_and_every_type_arrives() {
    let mut scene = Scene::new("values");
    scene.sql(
        "create extension citext; create extension hstore;
         create type st as enum ('a', 'b');
         create domain agg_id as uuid;
         create domain doc as jsonb check (jsonb_typeof(value) = 'object');
         drop table outbox;
         create table outbox (id uuid primary key, aggregatetype text, aggregateid agg_id, payload doc,
           u uuid, e st, c citext, h hstore, a text[], b bytea)",
    );
    let connector = scene.connector().router(
        "table.fields.additional.placement",
        "aggregateid:header:agg,u:header,e:header,c:header,h:header,a:header,b:header",
    );
    let _walpost = stream(&scene, &connector);
    scene.sql(
        r#"insert into outbox values ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'order',
           '{B0EEBC999C0B4EF8BB6D6BB9BD380A11}', '{"n": 1}', 'C0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
           'b', 'MiXed', 'k=>v', '{x,NULL,"y z"}', '\x00ff10')"#,
    );
    let mut tail = scene.tail("order");
    let record = &tail.exactly(1, QUIET)[0];
    assert_eq!(record.key_text(), "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    assert_eq!(record.value_text(), r#"{"n": 1}"#);
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            (name.as_str(), std::str::from_utf8(value).unwrap())
        })
        .collect();
    assert_eq!(
        headers,
        [
            ("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ("agg", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ("u", "c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ("e", "b"),
            ("c", "MiXed"),
            ("h", r#"{"k":"v"}"#),
            ("a", r#"["x",null,"y z"]"#),
            ("b", "AP8Q"),
        ]
    );
}
