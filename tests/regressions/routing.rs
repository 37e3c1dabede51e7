//! Routing and format: what a consumer finds in the record.

use std::time::Duration;

use super::{start, variant};
use crate::support::{Connector, Scene, Walpost};

const QUIET: Duration = Duration::from_millis(200);

/// Payloads that lose something when they are parsed and written again.
const DELICATE: [&str; 6] = [
    r#"{"hello":"monde"}"#,
    r#"{"rows":[{"tags":[]},{"tags":[{"k":"v"}]}]}"#,
    r#"{"p":[1,2.5,3], "q":[1,"a",null,{"x":1},[]], "r":[true,0]}"#,
    r#"{"a":null,"b":[],"c":{"d":null},"e":[null,null],"f":{}}"#,
    r#"{"i":9007199254740993,"u":18446744073709551616,"d":0.10000000000000000555,"m":1.10}"#,
    r#"  {"z":1,  "a":"\u00e9\/"}  "#,
];

/// A JSON writer between table and topic escaped texts a second time, put quotes around keys, took
/// numbers through 64-bit floats, dropped nulls and empty arrays.
#[test]
fn a_payload_that_is_not_expanded_arrives_as_postgres_writes_it() {
    let mut scene = Scene::new("routing");
    scene.sql(
        "create table outbox_json (like outbox including all);
         alter table outbox_json alter payload type json;
         create table outbox_text (like outbox including all);
         alter table outbox_text alter payload type text",
    );
    let connector = scene
        .connector()
        .set("table.include.list", "public\\.outbox.*")
        .router("route.by.field", "type");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    for table in ["outbox", "outbox_json", "outbox_text"] {
        for payload in DELICATE {
            scene.sql(&format!(
                "insert into {table} (aggregatetype, aggregateid, type, payload)
                 values ('order', '1', '{table}', '{payload}')"
            ));
        }
        let sent: Vec<String> = scene
            .client()
            .query(&format!("select payload::text from {table}"), &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        let mut tail = scene.tail(table);
        let records = tail.exactly(DELICATE.len(), QUIET);
        let values: Vec<&str> = records.iter().map(|record| record.value_text()).collect();
        assert_eq!(values, sent, "{table}");
        assert!(records.iter().all(|record| record.key_text() == "1"));
    }
}

/// The value of each record of `name`, by key; `None` is a tombstone.
fn values(scene: &Scene, name: &str, count: usize) -> Vec<Option<String>> {
    let mut tail = scene.tail(name);
    let mut records = tail.exactly(count, QUIET).to_vec();
    records.sort_by_key(|record| record.key_text().parse::<u32>().unwrap());
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    records.into_iter().map(|r| r.value.map(text)).collect()
}

fn expanded(connector: Connector) -> Connector {
    connector
        .set(
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        )
        .set("value.converter.schemas.enable", "false")
        .router("table.expand.json.payload", "true")
}

/// Schemas were guessed from the first element, or from a null: members vanished, tasks ended.
/// Expansion is Debezium's to the byte; what has no one schema stays the text it is, whole.
#[test]
fn an_expanded_payload_is_the_same_document_or_stays_text() {
    let mut scene = Scene::new("routing");
    scene.sql("alter table outbox alter payload type text");
    let kept = expanded(variant(&scene, "kept"))
        .router("table.json.payload.null.behavior", "optional_bytes")
        .router("table.json.payload.empty.array.behavior", "optional_string");
    let _walpost = start(&scene, &[expanded(variant(&scene, "plain")), kept]);
    let documents = [
        r#"{"rows":[{"tags":[]},{"tags":[{"k":"v"}]}]}"#,
        r#"{"p":[1,2.5,3],"s":"sibling"}"#,
        r#"{"p":[1,"a",null,{"x":1},[]]}"#,
        r#"{"p":[true,0]}"#,
        r#"{"a":null,"b":[],"c":{"d":null,"s":1},"e":[1,null],"s":"sibling"}"#,
        r#"{"i":9007199254740993,"j":-9223372036854775808,"d":0.25}"#,
    ];
    for (key, payload) in documents.iter().enumerate() {
        scene.sql(&format!(
            "insert into outbox (aggregatetype, aggregateid, payload) values ('order', '{key}', '{payload}')"
        ));
    }
    let text = |n: usize| Some(serde_json::to_string(documents[n]).unwrap());
    let same = |n: usize| Some(documents[n].to_owned());
    let plain = values(&scene, "plain", documents.len());
    let kept = values(&scene, "kept", documents.len());
    for values in [&plain, &kept] {
        assert_eq!(values[1..4], [text(1), text(2), text(3)]);
        assert_eq!((&values[0], &values[5]), (&same(0), &same(5)));
    }
    assert_eq!(kept[4], same(4));
    // Debezium's default: nulls and empty arrays are left out, their siblings stay.
    let siblings = r#"{"c":{"s":1},"e":[1,null],"s":"sibling"}"#;
    assert_eq!(plain[4].as_deref(), Some(siblings));
}

/// NULL was lumped in with whatever is no text: values became tombstones, and each one a warning.
#[test]
fn only_null_and_blank_text_are_tombstones() {
    let mut scene = Scene::new("routing");
    scene.sql("alter table outbox alter payload type text");
    let on = |connector: Connector| connector.router("route.tombstone.on.empty.payload", "true");
    let envelope = |name: &str| {
        variant(&scene, name).router("table.fields.additional.placement", "type:envelope:kind")
    };
    let connectors = [
        variant(&scene, "off"),
        on(variant(&scene, "on")),
        on(expanded(variant(&scene, "expanded"))),
        envelope("wrapped_off")
            .set(
                "value.converter",
                "org.apache.kafka.connect.json.JsonConverter",
            )
            .set("value.converter.schemas.enable", "false"),
        on(envelope("wrapped_on")),
    ];
    let _walpost = start(&scene, &connectors);
    let payloads = ["null", "''", "'   '", "'{}'", "'null'", "'\"\"'"];
    for (key, payload) in payloads.iter().enumerate() {
        scene.sql(&format!(
            "insert into outbox (aggregatetype, aggregateid, payload) values ('order', '{key}', {payload})"
        ));
    }
    let text = |text: &str| Some(text.to_owned());
    let json = |text: &str| Some(serde_json::to_string(text).unwrap());
    let given = ["", "   ", "{}", "null", "\"\""];
    let blank = [None, None, None];
    let found = |name: &str| values(&scene, name, payloads.len());
    let off = found("off");
    assert_eq!((&off[0], &off[1..]), (&None, &given.map(text)[..]));
    let on = found("on");
    assert_eq!((&on[..3], &on[3..]), (&blank[..], &given.map(text)[2..]));
    // Not an object, so not expanded: the text, as JSON writes a text.
    let tail = [text("{}"), json("null"), json("\"\"")];
    let expanded = found("expanded");
    assert_eq!((&expanded[..3], &expanded[3..]), (&blank[..], &tail[..]));
    let wrapped = found("wrapped_off");
    let envelope = |payload: Option<&str>| {
        let value = serde_json::json!({"payload": payload, "kind": "T"});
        Some(value.to_string())
    };
    assert_eq!(wrapped[0], envelope(None));
    assert_eq!(wrapped[1..], given.map(|payload| envelope(Some(payload))));
    let wrapped = found("wrapped_on");
    assert_eq!(wrapped[..3], blank);
    assert!(wrapped[3..].iter().all(Option::is_some));
}

/// A column's precision decided the unit, so that records came from the year 50,000.
#[test]
fn a_record_timestamp_is_in_milliseconds_whatever_the_column() {
    let mut scene = Scene::new("routing");
    let columns = [
        ("p0", "timestamp(0)"),
        ("p3", "timestamp(3)"),
        ("p6", "timestamp(6)"),
        ("zoned", "timestamptz"),
        ("day", "date"),
    ];
    for (name, kind) in columns {
        scene.sql(&format!(
            "create table outbox_{name} (like outbox including all);
             alter table outbox_{name} add at {kind}"
        ));
    }
    let connector = scene
        .connector()
        .set("table.include.list", "public\\.outbox_.*")
        .router("table.field.event.timestamp", "at");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    for (name, _) in columns {
        scene.sql(&format!(
            "insert into outbox_{name} (aggregatetype, aggregateid, at) values
             ('{name}', '0', '2026-01-02 03:04:05.678901Z'), ('{name}', '1', null)"
        ));
    }
    for (name, _) in columns {
        let mut tail = scene.tail(name);
        let mut records = tail.exactly(2, QUIET).to_vec();
        records.sort_by_key(|record| record.key_text().to_owned());
        let given: Vec<i64> = records
            .iter()
            .filter_map(|record| record.timestamp)
            .collect();
        let expected = match name {
            "p0" => 1_767_323_046_000,
            "day" => 1_767_312_000_000,
            _ => 1_767_323_045_678,
        };
        assert!(
            (0..=1).contains(&(given[0] - expected)),
            "{name}: {given:?}"
        );
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let age = i64::try_from(now).unwrap() - given[1];
        assert!(age.abs() < 600_000, "the commit's time, not {}", given[1]);
    }
    // A number could be seconds, milliseconds or anything: it is refused, not guessed at.
    walpost.stop();
    scene.sql(
        "create table numbered (like outbox including all); alter table numbered add at bigint",
    );
    let own = variant(&scene, "number")
        .set("table.include.list", "public.numbered")
        .router("table.field.event.timestamp", "at");
    scene.sql("insert into numbered (aggregatetype, aggregateid, at) values ('order', '1', 1)");
    Walpost::start(&scene.worker(), &[&own]).expect_exit(4, &["timestamp", "numbered"]);
}

/// A NULL in a header of a type that takes none ended the task.
#[test]
fn headers_carry_nulls_empty_texts_numbers_and_bytes() {
    let mut scene = Scene::new("routing");
    scene.sql(
        "alter table outbox add tenant text, add attempt int, add flag bool, add raw bytea,
         add weight numeric(38, 18), add count bigint",
    );
    let connector = scene.connector().router(
        "table.fields.additional.placement",
        "tenant:header,attempt:header:tries,flag:header,raw:header,count:header,weight:header",
    );
    let connector = connector.set("decimal.handling.mode", "string");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.wait_streaming();
    let long = "é".repeat(16_384);
    scene.sql(&format!(
        "insert into outbox (aggregatetype, aggregateid, tenant, attempt, flag, raw, count, weight) values
         ('order', '0', null, null, null, null, null, null),
         ('order', '1', '', 0, false, '\\x00ff', 9007199254740993, 1.10),
         ('order', '2', '{long}', -1, true, '', -9223372036854775808, 12345678901234567890.000000000000000001),
         ('order', '3', 'заказ', 1, true, '\\xc3', 1, 0)"
    ));
    let mut tail = scene.tail("order");
    let mut records = tail.exactly(4, QUIET).to_vec();
    records.sort_by_key(|record| record.key_text().to_owned());
    let headers = |n: usize| -> Vec<Option<String>> {
        let value = |name| {
            let mut headers = records[n].headers.iter();
            let (_, value) = headers.find(|(found, _)| found == name).unwrap();
            value.clone().map(|bytes| String::from_utf8(bytes).unwrap())
        };
        ["tenant", "tries", "flag", "raw", "count", "weight"]
            .map(value)
            .to_vec()
    };
    let names: Vec<&str> = records[0]
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        ["id", "tenant", "tries", "flag", "raw", "count", "weight"]
    );
    assert_eq!(headers(0), vec![None; 6]);
    // Bytes in Base64, as Connect's SimpleHeaderConverter writes them.
    let second = [
        "",
        "0",
        "false",
        "AP8=",
        "9007199254740993",
        "1.100000000000000000",
    ];
    assert_eq!(headers(1), second.map(|text| Some(text.to_owned())));
    assert_eq!(headers(2)[0].as_deref(), Some(long.as_str()));
    assert_eq!(headers(2)[3].as_deref(), Some(""));
    let digits = "12345678901234567890.000000000000000001";
    assert_eq!(headers(2)[5].as_deref(), Some(digits));
    assert_eq!(headers(3)[0].as_deref(), Some("заказ"));
}

/// Route values are free text: Kafka refused the topic without a word about the row, or a clean-up
/// mapped two values to one topic.
#[test]
fn a_topic_name_that_kafka_does_not_accept_is_named_with_its_row() {
    let mut scene = Scene::new("routing");
    let connector = scene
        .connector()
        .set("errors.tolerance", "all")
        .router("route.topic.replacement", "${routedByValue}");
    let mut walpost = Walpost::start(&scene.worker(), &[&connector]);
    walpost.allow("skipping");
    walpost.wait_streaming();
    let long = "x".repeat(300);
    let values = [
        "",
        "a b",
        "заказ",
        "..",
        &long,
        "foo@bar",
        "foo$bar",
        "a/b",
        "order\n",
    ];
    for (n, value) in values.iter().enumerate() {
        scene
            .client()
            .execute(
                "insert into outbox (id, aggregatetype, aggregateid)
                 values (('00000000-0000-4000-8000-00000000000' || $1::text)::uuid, $2, 'planted-key')",
                &[&n.to_string(), value],
            )
            .unwrap();
    }
    let position = scene.position();
    scene.wait_confirmed(position);
    let complaints = walpost.complaints();
    assert_eq!(complaints.len(), values.len(), "one each: {complaints:#?}");
    for (n, complaint) in complaints.iter().enumerate() {
        let id = format!("00000000-0000-4000-8000-00000000000{n}");
        assert!(complaint.contains(&id), "{complaint}");
        assert!(complaint.contains("topic"), "{complaint}");
    }
    let made = scene.kafka.topics();
    for topic in ["foo_bar", "a_b", "order", "order_"] {
        assert!(!made.contains_key(topic), "nothing was mapped to {topic}");
    }
}

/// A column is placed before the migration has run, or old rows lack it.
#[test]
fn a_backlog_from_before_the_column_follows_the_same_rule() {
    let mut scene = Scene::new("routing");
    let mut walpost = scene.start();
    walpost.stop();
    scene.event("k", 1);
    scene.sql("alter table outbox add trace text");
    scene.sql(
        "insert into outbox (aggregatetype, aggregateid, payload, trace)
         values ('order', 'k', '{\"n\": 2}', 'abc')",
    );
    let strict = scene
        .connector()
        .router("table.fields.additional.placement", "trace:header");
    Walpost::start(&scene.worker(), &[&strict]).expect_exit(4, &["trace", "public.outbox"]);
    let lenient = strict.router("table.field.additional.missing", "ignore");
    let mut walpost = Walpost::start(&scene.worker(), &[&lenient]);
    walpost.wait_streaming();
    let mut tail = scene.tail("order");
    let traces: Vec<Option<&str>> = tail
        .exactly(2, QUIET)
        .iter()
        .map(|record| record.header("trace"))
        .collect();
    assert_eq!(traces, [None, Some("abc")]);
}

/// Tools tidy the outbox: a purge of it is no event, and must not hold the slot back.
#[test]
fn a_purge_passes_in_silence_and_many_updates_are_told_in_few_lines() {
    let mut scene = Scene::new("routing");
    let name = scene.name.clone();
    scene.sql(&format!("create publication {name} for table outbox"));
    let mut walpost = scene.start();
    scene.events("order", "k", 1, 100_000);
    scene.sql("delete from outbox");
    let position = scene.position();
    scene.wait_confirmed(position);
    assert_eq!(scene.tail("order").settled(), 100_000);
    assert!(walpost.complaints().is_empty(), "deletes are no news");

    walpost.allow("update");
    scene.events("order", "k", 1, 2_000);
    scene.sql("update outbox set type = 'changed'");
    let position = scene.position();
    scene.wait_confirmed(position);
    assert_eq!(scene.tail("order").settled(), 102_000);
    let told = walpost.complaints().len();
    assert!((1..10).contains(&told), "{told} lines for 2,000 updates");
    walpost.stop();

    scene.sql("delete from outbox");
    let fatal = scene
        .connector()
        .router("table.op.invalid.behavior", "fatal");
    let mut walpost = Walpost::start(&scene.worker(), &[&fatal]);
    walpost.wait_streaming();
    scene.event("k", 7);
    let before = scene.position();
    scene.sql("update outbox set type = 'changed'");
    walpost.expect_exit(4, &["update", "public.outbox"]);
    assert!(scene.confirmed().unwrap() <= before + 64, "unconfirmed");
}
