//! Rows that existed before the slot, read under the slot's exported snapshot.
//!
//! Each table is one plain SELECT over our own connection, read as it arrives: the socket is the
//! only cursor, so memory does not depend on the table's size, and rows have the stream's layout
//! without being copied.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::connection::{Connection, Purpose, unexpected_tag};
use super::identifier;
use super::protocol::{parse_data_row, parse_row_description};
use super::qualified;
use super::relation::TableName;
use super::row::{Change, Event, Operation, Relation, Span, Tuple};
use super::sql::Session;
use super::sqlstate::Doing;
use super::tables::{PublishedTable, TableState};
use crate::config::{Connector, Database};
use crate::error::Failure;
use crate::lsn::ResumePoint;

/// The rows of all outbox tables at one moment.
pub struct Snapshot {
    connection: Connection,
    at: ResumePoint,
    waiting: VecDeque<TableToRead>,
    state: State,
    spans: Vec<Span>,
    progress: SnapshotProgress,
}

/// How far a snapshot has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotProgress {
    /// Tables to read.
    pub tables_total: usize,
    /// Tables read to their end.
    pub tables_done: usize,
    /// The table being read, `schema.table`.
    pub table: Option<String>,
    /// Rows handed out so far, of all tables.
    pub rows: u64,
    /// The planner's estimate of all rows, where it has one for every table.
    pub estimated_rows: Option<u64>,
}

#[derive(Debug)]
struct TableToRead {
    state: TableState,
    sql: String,
}

#[derive(Debug)]
enum State {
    /// No statement is running.
    Between,
    /// A statement was sent; its columns are not described yet.
    Asked(Box<TableState>),
    /// Rows arrive.
    Reading(Arc<Relation>),
}

enum Step {
    Relation(Arc<Relation>),
    Row(Range<usize>),
}

impl Snapshot {
    /// Opens a transaction under the exported snapshot and decides what to read.
    ///
    /// # Errors
    /// The server cannot be reached or refuses; the snapshot is gone because the connection that
    /// exported it is (both as their SQLSTATE says).
    pub async fn open(
        db: &Database,
        connector: &Connector,
        snapshot_name: Option<&str>,
        at: ResumePoint,
    ) -> Result<Snapshot, Failure> {
        let mut connection = Connection::open(db, Purpose::Snapshot).await?;
        for statement in &db.initial_statements {
            let attempt = "run a statement of database.initial.statements";
            connection
                .query(attempt, Doing::Anything, statement)
                .await?;
        }
        let import =
            snapshot_name.map(|name| format!("SET TRANSACTION SNAPSHOT {}", super::literal(name)));
        let begin = [
            // Big tables would otherwise be read from wherever another scan is, out of order.
            "SET synchronize_seqscans = off".to_owned(),
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned(),
        ];
        let attempt = "begin the snapshot";
        for statement in begin {
            connection
                .query(attempt, Doing::Anything, &statement)
                .await?;
        }
        if let Some(import) = import {
            connection
                .query(attempt, Doing::ImportingSnapshot, &import)
                .await?;
        }
        let waiting = tables_to_read(db, connector, connection.server_major()).await?;
        let progress = SnapshotProgress {
            tables_total: waiting.len(),
            estimated_rows: estimate(&waiting),
            ..SnapshotProgress::default()
        };
        Ok(Self {
            connection,
            at,
            waiting: waiting.into(),
            state: State::Between,
            spans: Vec::new(),
            progress,
        })
    }

    /// How far it has come.
    pub fn progress(&self) -> SnapshotProgress {
        self.progress.clone()
    }

    /// Waits until [`Snapshot::next_event`] has something to read; returns at once while no
    /// statement is running. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn fill(&mut self) -> Result<(), Failure> {
        match self.state {
            State::Between => Ok(()),
            State::Asked(_) | State::Reading(_) => self.connection.fill().await,
        }
    }

    /// Asks for the next table unless a statement is running; `false` when all rows of all tables
    /// were handed out. Not to be cancelled: a statement may be half sent.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn ask(&mut self) -> Result<bool, Failure> {
        if !matches!(self.state, State::Between) {
            return Ok(true);
        }
        let Some(next) = self.waiting.pop_front() else {
            self.progress.table = None;
            return Ok(false);
        };
        self.progress.table = Some(next.state.label());
        self.state = State::Asked(Box::new(next.state));
        self.connection.send_query(&next.sql).await?;
        Ok(true)
    }

    /// The next event among the bytes received; `None` asks for [`Snapshot::fill`].
    ///
    /// # Errors
    /// The server reported an error, or what it sent cannot be understood.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Failure> {
        let Some(step) = self.step()? else {
            return Ok(None);
        };
        Ok(Some(match step {
            Step::Relation(relation) => Event::Relation(relation),
            Step::Row(row) => Event::Change(Change {
                relation: self.reading()?,
                operation: Operation::Read {
                    new: Tuple::new(self.connection.buffer.bytes(row), &self.spans),
                },
                lsn: self.at.lsn(),
                commit: None,
            }),
        }))
    }

    /// Ends the transaction and the connection.
    pub async fn close(self) {
        self.connection.terminate().await;
    }

    fn reading(&self) -> Result<&Arc<Relation>, Failure> {
        match &self.state {
            State::Reading(relation) => Ok(relation),
            State::Between | State::Asked(_) => {
                Err(Failure::internal("a snapshot row came before its columns"))
            }
        }
    }

    fn step(&mut self) -> Result<Option<Step>, Failure> {
        while let Some(frame) = self.connection.peek()? {
            self.connection.buffer.consume(&frame);
            match frame.tag {
                b'D' => {
                    self.row(frame.body.clone())?;
                    return Ok(Some(Step::Row(frame.body)));
                }
                b'T' => return self.describe(frame.body).map(Some),
                b'E' => {
                    let error = self.connection.error(&frame)?;
                    return Err(error.into_failure(&self.attempt(), Doing::Anything));
                }
                b'Z' => {
                    self.state = State::Between;
                    self.progress.tables_done += 1;
                    return Ok(None);
                }
                b'C' | b'N' | b'S' => {}
                tag => return Err(unexpected_tag(&self.attempt(), tag)),
            }
        }
        Ok(None)
    }

    fn attempt(&self) -> String {
        let table = self.progress.table.as_deref().unwrap_or("the tables");
        format!("read {table} for the snapshot")
    }

    fn row(&mut self, body: Range<usize>) -> Result<(), Failure> {
        let columns = self.reading()?.columns.len();
        self.spans.clear();
        let bytes = self.connection.buffer.bytes(body);
        let parsed = parse_data_row(bytes, &mut self.spans);
        parsed.map_err(|error| Failure::internal(self.attempt()).caused_by(error))?;
        if self.spans.len() != columns {
            return Err(Failure::internal(format!(
                "{}: a row of {} columns where {columns} were described",
                self.attempt(),
                self.spans.len()
            )));
        }
        self.progress.rows += 1;
        Ok(())
    }

    fn describe(&mut self, body: Range<usize>) -> Result<Step, Failure> {
        let bytes = self.connection.buffer.bytes(body);
        let mut columns = parse_row_description(bytes)
            .map_err(|error| Failure::internal(self.attempt()).caused_by(error))?;
        let State::Asked(table) = &self.state else {
            return Err(Failure::internal(format!(
                "{}: columns were described twice",
                self.attempt()
            )));
        };
        for column in &mut columns {
            column.key = table
                .columns
                .iter()
                .any(|known| known.key && known.name == column.name);
        }
        let relation = Arc::new(Relation {
            oid: table.oid,
            schema: table.schema.clone(),
            table: table.table.clone(),
            replica_identity: table.identity.bytes().next().unwrap_or(b'd'),
            columns,
        });
        self.state = State::Reading(Arc::clone(&relation));
        Ok(Step::Relation(relation))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("at", &self.at)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

/// The tables under the names that the stream will use: of a partitioned table the root if the
/// publication publishes by root, else its leaves.
async fn tables_to_read(
    db: &Database,
    connector: &Connector,
    server_major: u32,
) -> Result<Vec<TableToRead>, Failure> {
    let session = Session::connect(db, "snapshot catalog").await?;
    let publication = session.publication(&connector.publication.name).await?;
    let via_root = publication.map_or(connector.publication.via_partition_root, |p| p.via_root);
    let published = session.published(&connector.publication.name).await?;
    let overrides = &connector.snapshot.select_overrides;
    let mut found = Vec::new();
    for name in session.own_tables(connector).await? {
        let Some(table) = session.table(&name).await? else {
            continue;
        };
        let whole = !table.partitioned || via_root || overrides.contains_key(&table.label());
        let leaves: Vec<TableName> = table.leaves.clone().unwrap_or_default();
        if whole {
            found.push(table);
            continue;
        }
        let takes = |(schema, leaf): &&TableName| connector.tables.takes_leaf(schema, leaf);
        for leaf in leaves.iter().filter(takes) {
            found.extend(session.table(leaf).await?);
        }
    }
    Ok(found
        .into_iter()
        .map(|state| {
            let sql = match overrides.get(&state.label()) {
                Some(sql) => sql.trim().trim_end_matches(';').to_owned(),
                None => select(&state, &published, server_major),
            };
            TableToRead { state, sql }
        })
        .collect())
}

/// Reads the columns that the stream has, in its order.
fn select(table: &TableState, published: &[PublishedTable], server_major: u32) -> String {
    let entry = published
        .iter()
        .find(|entry| entry.is(&table.schema, &table.table));
    let columns: Vec<String> = table
        .columns
        .iter()
        .filter(|column| match entry {
            Some(entry) => entry.has(column, server_major),
            None => !column.generated,
        })
        .map(|column| identifier(&column.name))
        .collect();
    // Tables that inherit from it are streamed under their own names.
    let only = if table.partitioned { "" } else { "ONLY " };
    format!(
        "SELECT {} FROM {only}{}",
        columns.join(", "),
        qualified(&table.schema, &table.table)
    )
}

fn estimate(tables: &[TableToRead]) -> Option<u64> {
    let mut sum = 0.0;
    for table in tables {
        if table.state.rows < 0.0 {
            return None;
        }
        sum += table.state.rows;
    }
    // An estimate: whole rows, and far below 2^53.
    format!("{sum:.0}").parse().ok()
}
