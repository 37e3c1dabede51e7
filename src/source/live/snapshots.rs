//! The snapshot, and its seam with the stream.

use super::connectors::connector;
use super::server::{Server, options, slot};
use crate::source::row::{Cell, Event, Operation};
use crate::source::{Replication, Snapshot};

/// Every row as `table:first cell`, after `table(column,column)` for its description.
async fn read(snapshot: &mut Snapshot) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        while let Some(event) = snapshot.next_event().unwrap() {
            match event {
                Event::Relation(relation) => {
                    let names: Vec<&str> =
                        relation.columns.iter().map(|c| c.name.as_str()).collect();
                    all.push(format!("{}({})", relation.table, names.join(",")));
                }
                Event::Change(change) => {
                    let Operation::Read { new } = change.operation else {
                        panic!("not a read")
                    };
                    assert_eq!(new.len(), change.relation.columns.len());
                    let Cell::Text(first) = new.cell(0) else {
                        panic!("no first cell")
                    };
                    let first = std::str::from_utf8(first).unwrap();
                    all.push(format!("{}:{first}", change.relation.table));
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        if !snapshot.ask().await.unwrap() {
            return all;
        }
        snapshot.fill().await.unwrap();
    }
}

#[tokio::test]
async fn rows_before_the_slot_are_read_once_and_later_ones_streamed() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(
        "CREATE TABLE outbox (id int PRIMARY KEY, secret text, payload text, \
         g text GENERATED ALWAYS AS (payload) STORED); \
         CREATE PUBLICATION p FOR TABLE outbox (id, payload); \
         INSERT INTO outbox VALUES (1, 's', E'a\\\\b\\n\\tc'), (2, 's', NULL)",
    )
    .await
    .unwrap();
    let mut replication = Replication::connect(&server.database()).await.unwrap();
    let created = replication.create_slot(&slot("s")).await.unwrap();
    sql.execute("INSERT INTO outbox VALUES (3, 's', 'later')")
        .await
        .unwrap();
    let connector = connector(server.database(), "public.outbox");
    let mut snapshot = Snapshot::open(
        &server.database(),
        &connector,
        Some(&created.snapshot_name),
        created.consistent_point,
    )
    .await
    .unwrap();
    assert_eq!(
        read(&mut snapshot).await,
        ["outbox(id,payload)", "outbox:1", "outbox:2"]
    );
    let progress = snapshot.progress();
    assert_eq!((progress.tables_done, progress.rows), (1, 2));
    snapshot.close().await;
    let at = created.consistent_point.lsn();
    let mut source = replication
        .start(options("public.outbox", at))
        .await
        .unwrap();
    let streamed = loop {
        source.fill().await.unwrap();
        let mut found = None;
        while let Some(event) = source.next_event().unwrap() {
            if let Event::Change(change) = event
                && let Operation::Insert { new } = change.operation
                && let Cell::Text(id) = new.cell(0)
            {
                found = Some(id.to_vec());
            }
        }
        if let Some(id) = found {
            break id;
        }
    };
    assert_eq!(streamed, b"3");
}

#[tokio::test]
async fn partitions_and_overrides_decide_what_is_read() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute(
        "CREATE TABLE outbox (id int, payload text) PARTITION BY RANGE (id); \
         CREATE TABLE leaf1 PARTITION OF outbox FOR VALUES FROM (0) TO (10); \
         CREATE TABLE leaf2 PARTITION OF outbox FOR VALUES FROM (10) TO (20); \
         CREATE PUBLICATION p FOR TABLE outbox; \
         INSERT INTO outbox VALUES (1, 'a'), (11, 'b')",
    )
    .await
    .unwrap();
    let mut replication = Replication::connect(&server.database()).await.unwrap();
    let created = replication.create_slot(&slot("s")).await.unwrap();
    let mut connector = connector(server.database(), "public.outbox");
    let open = async |connector: &crate::config::Connector| {
        let (name, at) = (&created.snapshot_name, created.consistent_point);
        let mut snapshot = Snapshot::open(&connector.database, connector, Some(name), at)
            .await
            .unwrap();
        read(&mut snapshot).await
    };
    assert_eq!(
        open(&connector).await,
        [
            "leaf1(id,payload)",
            "leaf1:1",
            "leaf2(id,payload)",
            "leaf2:11"
        ]
    );
    connector.snapshot.select_overrides.insert(
        "public.outbox".to_owned(),
        "SELECT * FROM outbox WHERE id > 5;".to_owned(),
    );
    assert_eq!(open(&connector).await, ["outbox(id,payload)", "outbox:11"]);
    connector.snapshot.select_overrides.clear();
    sql.execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
        .await
        .unwrap();
    assert_eq!(
        open(&connector).await,
        ["outbox(id,payload)", "outbox:1", "outbox:11"]
    );
}
