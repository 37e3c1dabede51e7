//! Where one transaction ends and the next begins.

use std::time::Duration;

use super::server::{Server, options};
use crate::source::row::{Cell, Event, Operation};
use crate::source::{Replication, Source};

/// The first cell of the next row, and the end of its transaction.
async fn next_row(source: &mut Source) -> (String, crate::lsn::ResumePoint) {
    let mut found = None;
    loop {
        while let Some(event) = source.next_event().unwrap() {
            match event {
                Event::Change(change) => {
                    if let Operation::Insert { new } = change.operation
                        && let Cell::Text(text) = new.cell(0)
                    {
                        found = Some(String::from_utf8(text.to_vec()).unwrap());
                    }
                }
                Event::Commit(point) => {
                    if let Some(found) = found.take() {
                        return (found, point);
                    }
                }
                _ => {}
            }
        }
        let filled = tokio::time::timeout(Duration::from_secs(20), source.fill());
        filled.await.unwrap().unwrap();
    }
}

/// On a quiet server a commit is sent with the position of the next transaction's first row: a test
/// on the wrong side swallowed that one. The end of the commit is what is stored, and it is where
/// the next one may begin.
#[tokio::test]
async fn a_start_at_any_of_two_hundred_commit_ends_skips_nothing() {
    let server = Server::start(&[]);
    let sql = server.session().await;
    sql.execute("CREATE TABLE outbox (id int); CREATE PUBLICATION p FOR TABLE outbox")
        .await
        .unwrap();
    let mut source = server.stream("public.outbox").await;
    for n in 0..=200 {
        let insert = format!("INSERT INTO outbox VALUES ({n})");
        sql.execute(&insert).await.unwrap();
    }
    let mut ends = Vec::new();
    for n in 0..=200 {
        let (row, end) = next_row(&mut source).await;
        assert_eq!(row, n.to_string());
        ends.push(end.lsn());
    }
    source.stop().await.unwrap();
    for (n, end) in ends.iter().take(200).enumerate() {
        let replication = Replication::connect(&server.database()).await.unwrap();
        let mut source = replication
            .start(options("public.outbox", *end))
            .await
            .unwrap();
        assert_eq!(next_row(&mut source).await.0, (n + 1).to_string());
        source.stop().await.unwrap();
    }
}
