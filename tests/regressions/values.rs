//! Values at the edge of what their type can hold.

use super::{QUIET, stream};
use crate::support::{Record, Scene, Tail};

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

/// Postgres prints `+00`, `+05:30` or, for old dates, an offset with seconds; a parser of RFC 3339
/// dropped the changes that had them.
#[test]
fn an_event_time_is_the_same_instant_whatever_the_zone() {
    let mut scene = Scene::new("values");
    scene.sql("alter table outbox add created_at timestamptz");
    let database = scene.name.clone();
    let placed = scene
        .connector()
        .router("table.field.event.timestamp", "created_at")
        .router("table.fields.additional.placement", "created_at:header");
    let zones = ["Asia/Kolkata", "Pacific/Marquesas", "Europe/Amsterdam"];
    for zone in zones {
        scene.sql(&format!(
            "alter database {database} set timezone = '{zone}'"
        ));
        let mut walpost = stream(&scene, &placed);
        scene.reconnect();
        // Amsterdam printed +00:19:32 then.
        walpost.allow("created_at");
        scene.sql(
            "insert into outbox (aggregatetype, aggregateid, payload, created_at) values
             ('order', 'k', '{}', '2026-01-02 03:04:05.678+00'),
             ('order', 'k', '{}', '1900-06-01 12:00:00+00')",
        );
        let mut tail = scene.tail("order");
        tail.at_least(2);
        walpost.stop();
    }
    let records = scene.records("order");
    let now = records[1].timestamp.unwrap();
    assert_eq!(records.len(), 2 * zones.len());
    for pair in records.chunks(2) {
        assert_eq!(pair[0].timestamp, Some(1_767_323_045_678));
        assert_eq!(
            pair[0].header("created_at"),
            Some("2026-01-02T03:04:05.678000Z")
        );
        // Kafka has no timestamps before 1970: the commit's stands for it.
        assert!(pair[1].timestamp.unwrap() >= now);
        assert_eq!(
            pair[1].header("created_at"),
            Some("1900-06-01T12:00:00.000000Z")
        );
    }
}

/// The same columns as a record's timestamp: the parser's error stopped the stream, or the value
/// wrapped around to some other year.
#[test]
fn a_moment_that_kafka_cannot_date_becomes_the_commits_once_reported() {
    let mut scene = Scene::new("values");
    scene.sql("alter table outbox add ts timestamptz, add d date, add p timestamp");
    let before = scene.number("select (extract(epoch from now()) * 1000)::bigint");
    for column in ["ts", "d", "p"] {
        let connector = scene
            .connector()
            .router("table.field.event.timestamp", column)
            .router(
                "route.topic.replacement",
                &format!("{}.{column}", scene.name),
            );
        let mut walpost = stream(&scene, &connector);
        walpost.allow("has no timestamp for an event's moment");
        scene.sql(&format!(
            "insert into outbox (aggregatetype, aggregateid, payload, {column})
             select 'order', t, '{{}}', t::timestamp from unnest(array['infinity', '-infinity',
               '0044-03-15 BC', '294276-01-01', '1969-07-20', '2020-02-29']) t"
        ));
        let mut tail = Tail::new(
            &scene.kafka.bootstrap(),
            &[&format!("{}.{column}", scene.name)],
        );
        for record in tail.exactly(6, QUIET) {
            match record.key_text() {
                "2020-02-29" => assert_eq!(record.timestamp, Some(1_582_934_400_000), "{column}"),
                key => assert!(record.timestamp >= before, "{column} {key}"),
            }
        }
        assert_eq!(walpost.complaints().len(), 1, "reported once");
        let counted = walpost
            .metrics()
            .get("walpost_replaced_values_total", &[("what", "timestamp")]);
        assert_eq!(counted, Some(5.0), "{column}");
        walpost.stop();
    }
    // Debezium's way is still there.
    let strict = scene
        .connector()
        .set("event.timestamp.strict", "true")
        .router("table.field.event.timestamp", "ts");
    let mut walpost = stream(&scene, &strict);
    scene.sql("insert into outbox (aggregatetype, ts) values ('order', '2020-02-29')");
    walpost.expect_exit(4, &["\\\"ts\\\""]);
}
