//! Writers: transactions that share keys, roll back, spill, and change the table.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use postgres::{Client, SimpleQueryMessage};

use crate::plan::{Step, Work};
use crate::support::Postgres;

/// What an act's database holds. Each event has the next number of its key, drawn under the lock
/// of the key's row: numbers of one key are without gaps and rise in commit order, whoever writes.
pub(crate) const SCHEMA: &str = "
    create table outbox (
        id text primary key,
        aggregatetype text not null,
        aggregateid text not null,
        type text not null default 'T',
        payload jsonb
    );
    create table other (id bigint generated always as identity primary key, note text);
    create table counters (key text primary key, n bigint not null);
    create function emit(of text, rows int, size int, ghost bool, out key text, out n bigint)
    language plpgsql as $$
    declare last bigint;
    begin
        insert into counters as c values (of, rows)
            on conflict on constraint counters_pkey do update set n = c.n + rows
            returning c.n into last;
        insert into outbox (id, aggregatetype, aggregateid, payload)
            select of || ':' || i, split_part(of, '-', 1), of,
                   jsonb_build_object('n', i, 'ghost', ghost, 'size', size,
                                      'pad', repeat(chr(97 + (i % 26)::int), size))
            from generate_series(last - rows + 1, last) i order by i;
        key := of;
        n := last;
    end $$;";

/// A committed transaction: the newest number of each key it wrote, and a WAL position that lies
/// at or behind the end of its commit.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) position: i64,
    pub(crate) newest: Vec<(String, i64)>,
}

/// The key called `index`; even ones and odd ones go to different topics.
pub(crate) fn key(index: u8) -> String {
    let topic = if index.is_multiple_of(2) { "a" } else { "b" };
    format!("{topic}-{index}")
}

/// Runs the work of one writer. What a lost connection leaves undecided is not in `committed`.
pub(crate) fn write(
    server: &Postgres,
    database: &str,
    work: &[Work],
    committed: &Mutex<Vec<Committed>>,
) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut client: Option<Client> = None;
    for piece in work {
        let mut connection = match client.take() {
            Some(open) => open,
            None => loop {
                match server.try_connect(database) {
                    Ok(open) => break open,
                    Err(error) => {
                        assert!(Instant::now() < deadline, "a writer connects: {error}");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            },
        };
        match run(&mut connection, piece) {
            Ok(done) => committed.lock().unwrap().extend(done),
            Err(error) => {
                // A mistake in our SQL must not pass for a fault.
                let ours = error.as_db_error().is_some_and(|error| {
                    let class = &error.code().code()[..2];
                    !matches!(class, "57" | "53" | "40" | "55")
                });
                assert!(!ours, "{piece:?}: {error:?}");
            }
        }
        if !connection.is_closed() && connection.simple_query("select 1").is_ok() {
            client = Some(connection);
        }
    }
}

fn run(client: &mut Client, work: &Work) -> Result<Option<Committed>, postgres::Error> {
    let (steps, commit) = match work {
        Work::Ddl(sql) => {
            client.simple_query("set lock_timeout = '2s'")?;
            return client.simple_query(sql).map(|_| None);
        }
        Work::Transaction { steps, commit } => (steps, *commit),
    };
    let messages = client.simple_query(&script(steps, commit))?;
    if !commit {
        return Ok(None);
    }
    let mut done = Committed {
        position: 0,
        newest: Vec::new(),
    };
    for message in &messages {
        let SimpleQueryMessage::Row(row) = message else {
            continue;
        };
        let number = |column: &str| row.try_get(column).ok()??.parse().ok();
        if let (Ok(Some(key)), Some(n)) = (row.try_get("key"), number("n")) {
            done.newest.push((key.to_owned(), n));
        }
        if let Some(position) = number("position") {
            done.position = position;
        }
    }
    Ok(Some(done))
}

fn script(steps: &[Step], commit: bool) -> String {
    let mut sql = "begin;".to_owned();
    for step in steps {
        let written = match *step {
            Step::Emit {
                key: index,
                rows,
                size,
            } => write!(
                sql,
                "select key, n from emit('{}', {rows}, {size}, {});",
                key(index),
                !commit
            ),
            Step::Ghost { key: index, rows } => write!(
                sql,
                "savepoint s; select n ghost from emit('{}', {rows}, 10, true); rollback to s;",
                key(index)
            ),
            Step::Delete => write!(
                sql,
                "delete from outbox where xmin = pg_current_xact_id()::xid;"
            ),
            Step::Other => write!(
                sql,
                "insert into other (note) values ('x');
                 select pg_logical_emit_message(true, 'p', 'x');"
            ),
            Step::Sleep(time) => write!(sql, "select pg_sleep({});", time.as_secs_f64()),
        };
        written.expect("a string grows");
    }
    let end = if commit { "commit" } else { "rollback" };
    write!(
        sql,
        "{end}; select (pg_current_wal_insert_lsn() - '0/0')::bigint position;"
    )
    .expect("a string grows");
    sql
}
