//! Streaming, from the slot's creation to a polite end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::server::{Server, options, slot};
use crate::error::{Class, Failure};
use crate::lsn::ResumePoint;
use crate::source::row::{Cell, Event, Operation, PgTypeKind, Tuple};
use crate::source::{PartialTransaction, Replication, Source};

const OUTBOX: &str = "CREATE TABLE outbox (id int PRIMARY KEY, payload text); \
    CREATE PUBLICATION p FOR TABLE outbox";

/// What a test looks at.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Relation(String),
    Insert(String, Vec<Option<String>>),
    Update(Option<String>),
    Delete,
    Truncate(String),
    Message(bool, String, String),
    Commit,
    Idle,
}

fn values(row: Tuple<'_>) -> Vec<Option<String>> {
    (0..row.len())
        .map(|index| match row.cell(index) {
            Cell::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
            _ => None,
        })
        .collect()
}

fn seen(event: Event<'_>) -> Seen {
    match event {
        Event::Relation(relation) => Seen::Relation(relation.table.clone()),
        Event::Change(change) => {
            assert!(change.commit.is_some());
            let table = change.relation.table.clone();
            match change.operation {
                Operation::Insert { new } | Operation::Read { new } => {
                    Seen::Insert(table, values(new))
                }
                Operation::Update { new, .. } => Seen::Update(values(new).pop().unwrap()),
                Operation::Delete => Seen::Delete,
                Operation::Truncate => Seen::Truncate(table),
            }
        }
        Event::Message(message) => {
            assert_eq!(message.commit.is_some(), message.transactional);
            let content = String::from_utf8(message.content.to_vec()).unwrap();
            Seen::Message(message.transactional, message.prefix.to_owned(), content)
        }
        Event::Commit(_) => Seen::Commit,
        Event::Idle(_) => Seen::Idle,
    }
}

/// Reads up to and including the `commits`-th commit. Idle positions are left out, and tables
/// described again as they were: the server does that when it likes.
async fn read(source: &mut Source, mut commits: usize) -> (Vec<Seen>, ResumePoint) {
    let mut all = Vec::new();
    let mut described = HashMap::new();
    loop {
        while let Some(event) = source.next_event().unwrap() {
            let point = match &event {
                Event::Commit(point) => Some(*point),
                _ => None,
            };
            let known = match &event {
                Event::Relation(relation) => {
                    described
                        .insert(relation.oid, Arc::clone(relation))
                        .as_ref()
                        == Some(relation)
                }
                _ => false,
            };
            let event = seen(event);
            if event != Seen::Idle && !known {
                all.push(event);
            }
            if let Some(point) = point {
                commits -= 1;
                if commits == 0 {
                    return (all, point);
                }
            }
        }
        tokio::time::timeout(Duration::from_secs(20), source.fill())
            .await
            .unwrap()
            .unwrap();
    }
}

fn row(table: &str, values: &[&str]) -> Seen {
    let values = values
        .iter()
        .map(|value| Some((*value).to_owned()))
        .collect();
    Seen::Insert(table.to_owned(), values)
}

fn relation(table: &str) -> Seen {
    Seen::Relation(table.to_owned())
}

#[tokio::test]
async fn committed_changes_arrive_in_order_and_nothing_else() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    sql.execute("CREATE TABLE other (id int); ALTER PUBLICATION p ADD TABLE other")
        .await
        .unwrap();
    let mut source = server.stream("public.outbox").await;
    for statement in [
        "INSERT INTO outbox VALUES (1, 'a'); INSERT INTO outbox VALUES (2, 'b')",
        "BEGIN; INSERT INTO outbox VALUES (3, 'gone'); ROLLBACK",
        "INSERT INTO other VALUES (1)",
        "UPDATE outbox SET payload = 'c' WHERE id = 1",
        "DELETE FROM outbox WHERE id = 1",
        "TRUNCATE outbox, other",
        "SELECT pg_logical_emit_message(true, 'p', 'x')",
        "SELECT pg_logical_emit_message(false, 'q', 'y')",
        "ALTER TABLE outbox RENAME payload TO body; INSERT INTO outbox VALUES (4, 'd')",
    ] {
        sql.execute(statement).await.unwrap();
    }
    let (all, _) = read(&mut source, 7).await;
    let message = |inside, prefix: &str, content: &str| {
        Seen::Message(inside, prefix.to_owned(), content.to_owned())
    };
    assert_eq!(
        all,
        [
            relation("outbox"),
            row("outbox", &["1", "a"]),
            row("outbox", &["2", "b"]),
            Seen::Commit,
            Seen::Commit,
            Seen::Update(Some("c".to_owned())),
            Seen::Commit,
            Seen::Delete,
            Seen::Commit,
            Seen::Truncate("outbox".to_owned()),
            Seen::Commit,
            message(true, "p", "x"),
            Seen::Commit,
            message(false, "q", "y"),
            relation("outbox"),
            row("outbox", &["4", "d"]),
            Seen::Commit,
        ]
    );
    assert!(!source.in_transaction());
    source.stop().await.unwrap();
    let state = sql.slot("s").await.unwrap().unwrap();
    assert_eq!(state.active_pid, None, "the slot is free at once");
}

#[tokio::test]
async fn only_a_confirmed_position_is_skipped_after_a_restart() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut source = server.stream("public.outbox").await;
    sql.execute("INSERT INTO outbox VALUES (1, 'a')")
        .await
        .unwrap();
    let (_, first) = read(&mut source, 1).await;
    sql.execute("INSERT INTO outbox VALUES (2, 'b')")
        .await
        .unwrap();
    read(&mut source, 1).await;
    source.report().await.unwrap();
    source.confirm_at(first).await.unwrap();
    assert_eq!(source.confirmed(), Some(first.lsn()));
    assert!(source.received() > first.lsn());
    source.stop().await.unwrap();
    let state = sql.slot("s").await.unwrap().unwrap();
    assert_eq!(state.confirmed, Some(first.lsn()));
    assert_eq!(state.plugin.as_deref(), Some("pgoutput"));
    assert!(state.retained_bytes.is_some() && state.wal_status.is_some());

    let replication = Replication::connect(&server.database()).await.unwrap();
    let start = options("public.outbox", first.lsn());
    let mut source = replication.start(start).await.unwrap();
    let (all, _) = read(&mut source, 1).await;
    assert_eq!(
        all,
        [relation("outbox"), row("outbox", &["2", "b"]), Seen::Commit]
    );
}

#[tokio::test]
async fn a_position_that_debezium_left_inside_a_transaction_repeats_nothing_before_it() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut source = server.stream("public.outbox").await;
    let start = source.received();
    sql.execute(
        "BEGIN; INSERT INTO outbox VALUES (1, 'a'); INSERT INTO outbox VALUES (2, 'b'); \
         INSERT INTO outbox VALUES (3, 'c'); COMMIT; INSERT INTO outbox VALUES (4, 'd')",
    )
    .await
    .unwrap();
    let mut second = None;
    while second.is_none() {
        source.fill().await.unwrap();
        while let Some(event) = source.next_event().unwrap() {
            if let Event::Change(change) = event
                && let Operation::Insert { new } = change.operation
                && new.cell(0) == Cell::Text(b"2")
            {
                second = Some((change.lsn, change.commit.unwrap().xid));
            }
        }
    }
    let (lsn, xid) = second.unwrap();
    source.stop().await.unwrap();
    let mut start = options("public.outbox", start);
    start.skip = Some(PartialTransaction {
        xid,
        lsn,
        events: 1,
    });
    let replication = Replication::connect(&server.database()).await.unwrap();
    let mut source = replication.start(start).await.unwrap();
    let (all, _) = read(&mut source, 2).await;
    assert_eq!(
        all[1..],
        [
            row("outbox", &["3", "c"]),
            Seen::Commit,
            row("outbox", &["4", "d"]),
            Seen::Commit
        ]
    );
}

#[tokio::test]
async fn an_idle_database_offers_positions_and_lets_the_server_stop() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut source = server.stream("public.outbox").await;
    let start = source.received();
    sql.execute("CREATE TABLE quiet AS SELECT generate_series(1, 1000)")
        .await
        .unwrap();
    let mut reached = start;
    let written = sql.identify().await.unwrap().wal_position;
    while reached < written {
        source.report().await.unwrap();
        source.fill().await.unwrap();
        while let Some(event) = source.next_event().unwrap() {
            match event {
                Event::Idle(point) | Event::Commit(point) => reached = point.lsn(),
                other => panic!("unexpected {other:?}"),
            }
        }
        source.confirm_at(ResumePoint::idle(reached)).await.unwrap();
    }
    // A stopping walsender waits for the confirmation of all it has sent.
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    let ended = async {
        loop {
            source.fill().await?;
            while let Some(event) = source.next_event()? {
                if let Event::Idle(point) = event {
                    source.confirm_at(point).await?;
                }
            }
            if source.status_due() <= tokio::time::Instant::now() {
                source.report().await?;
            }
        }
    };
    let ended: Result<(), Failure> = tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .unwrap();
    assert_eq!(ended.unwrap_err().class(), Class::Retriable);
    stopping.await.unwrap();
}

#[tokio::test]
async fn rows_of_partitions_are_ours_when_their_root_is() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(
        "CREATE TABLE outbox (id int, payload text) PARTITION BY RANGE (id); \
         CREATE TABLE leaf1 PARTITION OF outbox FOR VALUES FROM (0) TO (10); \
         CREATE TABLE other (id int); \
         CREATE PUBLICATION p FOR TABLE outbox, other",
    )
    .await
    .unwrap();
    let mut source = server.stream("public.outbox").await;
    sql.execute(
        "INSERT INTO outbox VALUES (1, 'a'); INSERT INTO other VALUES (1); \
         CREATE TABLE leaf2 PARTITION OF outbox FOR VALUES FROM (10) TO (20); \
         INSERT INTO outbox VALUES (11, 'b'); DROP TABLE leaf2",
    )
    .await
    .unwrap();
    let (all, _) = read(&mut source, 1).await;
    assert_eq!(
        all,
        [
            relation("leaf1"),
            row("leaf1", &["1", "a"]),
            relation("leaf2"),
            row("leaf2", &["11", "b"]),
            Seen::Commit
        ]
    );
}

#[tokio::test]
async fn settings_of_the_role_change_nothing() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    for setting in [
        "bytea_output = 'escape'",
        "DateStyle = 'SQL, DMY'",
        "TimeZone = 'Asia/Kolkata'",
        "IntervalStyle = 'sql_standard'",
        "extra_float_digits = -5",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
    ] {
        sql.execute(&format!("ALTER ROLE postgres SET {setting}"))
            .await
            .unwrap();
    }
    sql.execute(
        "CREATE TABLE outbox (b bytea, t timestamptz, i interval, f float8); \
         CREATE PUBLICATION p FOR TABLE outbox",
    )
    .await
    .unwrap();
    let mut source = server.stream("public.outbox").await;
    sql.execute(
        "INSERT INTO outbox VALUES ('\\x00ff10', '2026-01-02 03:04:05.678901+00', \
         '1 day 2 hours', 0.1)",
    )
    .await
    .unwrap();
    let (all, _) = read(&mut source, 1).await;
    assert_eq!(
        all[1],
        row(
            "outbox",
            &[
                "\\x00ff10",
                "2026-01-02 03:04:05.678901+00",
                "1 day 02:00:00",
                "0.1"
            ]
        )
    );
}

#[tokio::test]
async fn a_slot_in_use_is_retriable_and_says_by_whom() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let source = server.stream("public.outbox").await;
    let pid = sql.slot("s").await.unwrap().unwrap().active_pid.unwrap();
    let second = Replication::connect(&server.database()).await.unwrap();
    let refused = second
        .start(options("public.outbox", source.received()))
        .await
        .unwrap_err();
    assert_eq!(refused.class(), Class::Retriable);
    assert!(refused.to_string().contains(&pid.to_string()), "{refused}");
    let state = sql.slot("s").await.unwrap().unwrap();
    assert!(state.active_client.unwrap().starts_with("walpost stream"));
}

#[tokio::test]
async fn the_catalog_tells_types_nullability_and_defaults() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN key AS uuid NOT NULL; \
         CREATE TABLE outbox (id int, k key, m mood[] NOT NULL DEFAULT '{}', \
         p jsonb DEFAULT '{}', PRIMARY KEY (id)); CREATE PUBLICATION p FOR TABLE outbox",
    )
    .await
    .unwrap();
    let mut source = server.stream("public.outbox").await;
    sql.execute("INSERT INTO outbox VALUES (1, '00000000-0000-4000-8000-000000000001')")
        .await
        .unwrap();
    let found = loop {
        source.fill().await.unwrap();
        if let Some(Event::Relation(relation)) = source.next_event().unwrap() {
            break relation;
        }
    };
    let facts = sql.facts(&found).await.unwrap().columns;
    assert_eq!(facts.len(), 4);
    assert!(facts[0].not_null && facts[1].not_null && facts[2].not_null && !facts[3].not_null);
    assert_eq!(facts[3].default.as_deref(), Some("'{}'::jsonb"));
    assert_eq!(facts[2].default.as_deref(), Some("'{}'::mood[]"));
    let PgTypeKind::Domain(base, -1) = &facts[1].pg_type.kind else {
        panic!("not a domain: {:?}", facts[1])
    };
    assert_eq!(
        (base.name.as_str(), base.kind.clone()),
        ("uuid", PgTypeKind::Base)
    );
    let PgTypeKind::Array(element) = &facts[2].pg_type.kind else {
        panic!("not an array: {:?}", facts[2])
    };
    assert_eq!(
        element.kind,
        PgTypeKind::Enum(vec!["sad".to_owned(), "ok".to_owned()])
    );
}

#[tokio::test]
async fn a_snapshot_exported_with_the_slot_meets_the_stream_without_gap() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    let mut replication = Replication::connect(&server.database()).await.unwrap();
    let created = replication.create_slot(&slot("s")).await.unwrap();
    assert!(!created.snapshot_name.is_empty());
    let identity = sql.identify().await.unwrap();
    assert!(identity.wal_position >= created.consistent_point.lsn());
    assert_eq!(identity.timeline, 1);
    assert_eq!(identity.wal_sender_timeout, Some(Duration::from_secs(60)));
    let again = replication.create_slot(&slot("s")).await.unwrap_err();
    assert_eq!(again.class(), Class::Retriable);
    drop(replication);
    sql.drop_slot("s").await.unwrap();
    assert_eq!(sql.slot("s").await.unwrap(), None);
    assert_eq!(sql.sample("s").await.unwrap().slot, None);
}

#[tokio::test]
async fn a_server_that_stops_answering_is_noticed() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(OUTBOX).await.unwrap();
    sql.execute("ALTER ROLE postgres SET wal_sender_timeout = '3s'")
        .await
        .unwrap();
    let mut replication = Replication::connect(&server.database()).await.unwrap();
    let created = replication.create_slot(&slot("s")).await.unwrap();
    let mut start = options("public.outbox", created.consistent_point.lsn());
    start.status_interval = Duration::from_millis(200);
    let mut source = replication.start(start).await.unwrap();
    let pid = sql.slot("s").await.unwrap().unwrap().active_pid.unwrap();
    let signal = |name: &str| {
        let status = std::process::Command::new("kill")
            .args([name, &pid.to_string()])
            .status();
        assert!(status.unwrap().success());
    };
    signal("-STOP");
    let noticed: Result<(), Failure> = async {
        loop {
            let due = source.status_due();
            match tokio::time::timeout_at(due, source.fill()).await {
                Ok(filled) => filled?,
                Err(_) => source.report().await?,
            }
            while source.next_event()?.is_some() {}
        }
    }
    .await;
    signal("-CONT");
    let failure = noticed.unwrap_err();
    assert_eq!(failure.class(), Class::Retriable);
    assert!(
        failure.to_string().contains("has not answered for 3 s"),
        "{failure}"
    );
}
