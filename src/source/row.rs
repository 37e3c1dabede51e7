//! What the stream and the snapshot hand to the router: relations, rows and their catalog facts.
//!
//! Rows borrow the read buffer. A tuple is its raw bytes plus spans found once by the parser, so
//! looking at a column is an index and a slice.

use std::sync::Arc;

use crate::lsn::{CommitInfo, Lsn, ResumePoint};

/// A table as the stream last described it. Rows that follow are read with this and no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Postgres' oid of the table.
    pub oid: u32,
    /// Schema name.
    pub schema: String,
    /// Table name.
    pub table: String,
    /// Replica identity: `d`, `n`, `f` or `i`.
    pub replica_identity: u8,
    /// The published columns, in the order of the rows.
    pub columns: Vec<Column>,
}

/// A column as the stream describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Column name.
    pub name: String,
    /// Part of the replica identity key.
    pub key: bool,
    /// Type oid.
    pub type_oid: u32,
    /// Type modifier; -1 when the type has none.
    pub type_modifier: i32,
}

/// What the stream does not say of a table, read from the catalog when its relation arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Facts of each column of the relation, in the relation's order. A column that the catalog no
    /// longer has (dropped or renamed since) is nullable without a default.
    pub columns: Vec<ColumnFacts>,
}

/// Catalog facts of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFacts {
    /// Its type, domains and arrays resolved.
    pub pg_type: Arc<PgType>,
    /// Declared NOT NULL, or part of the primary key.
    pub not_null: bool,
    /// Place in the primary key or, in a table without one, in its first unique index; those of
    /// one key in order, whatever the first is. An UPDATE that changes such a column is a new event.
    pub key: Option<usize>,
    /// The default as `pg_get_expr` prints it, for example `'{}'::jsonb` or `now()`.
    pub default: Option<String>,
}

/// A Postgres type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgType {
    /// Oid.
    pub oid: u32,
    /// Schema, `pg_catalog` for built-in types.
    pub schema: String,
    /// Name as in `pg_type.typname`.
    pub name: String,
    /// What kind of type it is.
    pub kind: PgTypeKind,
}

/// `pg_type.typtype` and what hangs on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PgTypeKind {
    /// A base type.
    Base,
    /// A domain over another type, with the domain's own type modifier (-1 for none).
    Domain(Arc<PgType>, i32),
    /// An enum with its labels in order.
    Enum(Vec<String>),
    /// An array of another type.
    Array(Arc<PgType>),
    /// A row type.
    Composite,
    /// A range.
    Range,
    /// A multirange.
    Multirange,
    /// `unknown`, `void` and their like.
    Pseudo,
}

/// Where a cell's bytes stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// SQL NULL.
    Null,
    /// An out-of-line value that the UPDATE did not touch, so the server did not send it.
    Unchanged,
    /// Text from `start` to `end` in the tuple's bytes.
    Text {
        /// First byte.
        start: u32,
        /// One past the last byte.
        end: u32,
    },
}

/// A row's values in text form.
#[derive(Debug, Clone, Copy)]
pub struct Tuple<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    /// SQL NULL.
    Null,
    /// Not sent: see [`Span::Unchanged`].
    Unchanged,
    /// Postgres' text form under the session settings of [`crate::source`].
    Text(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// A tuple over `bytes`; every text span must lie inside them (a span that does not reads as
    /// NULL, so parsers check first).
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no column at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The value at `index`; NULL past the end.
    pub fn cell(&self, index: usize) -> Cell<'a> {
        match self.spans.get(index) {
            Some(Span::Unchanged) => Cell::Unchanged,
            Some(&Span::Text { start, end }) => self
                .bytes
                .get(start as usize..end as usize)
                .map_or(Cell::Null, Cell::Text),
            Some(Span::Null) | None => Cell::Null,
        }
    }
}

/// What happened to a row of an outbox table.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A committed INSERT.
    Insert {
        /// The row.
        new: Tuple<'a>,
    },
    /// A row found by the snapshot.
    Read {
        /// The row.
        new: Tuple<'a>,
    },
    /// A committed UPDATE.
    Update {
        /// The old key (or, with replica identity full, the old row), when the server sent it.
        old: Option<Tuple<'a>>,
        /// The new row.
        new: Tuple<'a>,
    },
    /// A committed DELETE.
    Delete,
    /// A TRUNCATE.
    Truncate,
}

/// One change of an outbox table.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The table's layout; [`Event::Relation`] announced it.
    pub relation: &'a Arc<Relation>,
    /// What happened.
    pub operation: Operation<'a>,
    /// WAL position of the change; for a snapshot row the slot's consistent point.
    pub lsn: Lsn,
    /// The transaction, known before its commit arrives; `None` in a snapshot.
    pub commit: Option<CommitInfo>,
}

/// A message written by `pg_logical_emit_message`.
#[derive(Debug, Clone, Copy)]
pub struct LogicalMessage<'a> {
    /// Part of a transaction; otherwise it arrives even if its transaction is rolled back.
    pub transactional: bool,
    /// Prefix given by the writer.
    pub prefix: &'a str,
    /// Content.
    pub content: &'a [u8],
    /// WAL position of the message.
    pub lsn: Lsn,
    /// The transaction, for a transactional message.
    pub commit: Option<CommitInfo>,
}

/// What a source yields, in commit order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A table of ours is described, for the first time or anew. Changes that follow refer to it.
    Relation(Arc<Relation>),
    /// A change of one of our tables.
    Change(Change<'a>),
    /// A logical message.
    Message(LogicalMessage<'a>),
    /// The transaction is complete; only here may a position be taken.
    Commit(ResumePoint),
    /// Nothing is open and everything up to here has been seen.
    Idle(ResumePoint),
}
