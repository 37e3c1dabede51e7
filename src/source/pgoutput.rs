//! Messages of the output plugin pgoutput, protocol version 1: pure bytes to types.
//!
//! Nothing is copied but names of relations and columns: a tuple is a run of [`Span`]s appended to
//! a list that the caller reuses. Every count is checked before it is trusted, every offset of an
//! error is real, and no error shows content.

use std::ops::Range;

use super::cursor::{Cursor, Malformed};
use super::row::{Column, Relation, Span};

/// One message. Ranges named `..spans` index the caller's list of spans; other ranges index the
/// message's own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A transaction starts. All of it follows, up to its commit.
    Begin {
        /// Position of the commit record that is to come.
        final_lsn: u64,
        /// Commit time, microseconds since 2000-01-01.
        time: i64,
        /// Transaction id.
        xid: u32,
    },
    /// A transaction is complete.
    Commit {
        /// Position of the commit record.
        commit_lsn: u64,
        /// First position behind it.
        end_lsn: u64,
        /// Commit time, microseconds since 2000-01-01.
        time: i64,
    },
    /// The transaction was replicated to this server from elsewhere.
    Origin,
    /// A table is described.
    Relation(Relation),
    /// A type is described.
    Type,
    /// A row was inserted.
    Insert {
        /// Oid of the table.
        relation: u32,
        /// The row.
        new_spans: Range<usize>,
    },
    /// A row was updated.
    Update {
        /// Oid of the table.
        relation: u32,
        /// The old key or the old row, if sent.
        old_spans: Option<Range<usize>>,
        /// The new row.
        new_spans: Range<usize>,
    },
    /// A row was deleted.
    Delete {
        /// Oid of the table.
        relation: u32,
    },
    /// Tables were truncated together.
    Truncate {
        /// Oids of the tables.
        relations: Vec<u32>,
    },
    /// A logical message.
    Message {
        /// Belongs to the transaction that is open.
        transactional: bool,
        /// Its position.
        lsn: u64,
        /// Prefix, valid UTF-8.
        prefix: Range<usize>,
        /// Content.
        content: Range<usize>,
    },
}

/// Why a message was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A message that version 1 of the protocol does not have.
    #[error("unknown pgoutput message byte 0x{0:02x}")]
    Unknown(u8),
    /// A known message with a broken body.
    #[error("malformed pgoutput message: {0}")]
    Malformed(#[from] Malformed),
}

/// Parses one message; spans of its tuples are appended to `spans`.
///
/// # Errors
/// See [`ParseError`].
pub fn parse(bytes: &[u8], spans: &mut Vec<Span>) -> Result<Message, ParseError> {
    let mut cursor = Cursor::new(bytes);
    let tag = cursor.u8("a pgoutput message byte")?;
    let message = match tag {
        b'I' => insert(&mut cursor, spans)?,
        b'B' => Message::Begin {
            final_lsn: cursor.u64("the commit position of Begin")?,
            time: cursor.i64("the time of Begin")?,
            xid: cursor.u32("the transaction id of Begin")?,
        },
        b'C' => commit(&mut cursor)?,
        b'U' => update(&mut cursor, spans)?,
        b'D' => delete(&mut cursor, spans)?,
        b'R' => Message::Relation(relation(&mut cursor)?),
        b'T' => truncate(&mut cursor)?,
        b'M' => logical_message(&mut cursor, bytes)?,
        b'Y' => {
            cursor.u32("the oid of Type")?;
            cursor.text("the schema of Type")?;
            cursor.text("the name of Type")?;
            Message::Type
        }
        b'O' => {
            cursor.u64("the position of Origin")?;
            cursor.text("the name of Origin")?;
            Message::Origin
        }
        unknown => return Err(ParseError::Unknown(unknown)),
    };
    cursor.end()?;
    Ok(message)
}

fn commit(cursor: &mut Cursor<'_>) -> Result<Message, Malformed> {
    if cursor.u8("the flags of Commit")? != 0 {
        return Err(cursor.malformed("no flag of Commit before"));
    }
    Ok(Message::Commit {
        commit_lsn: cursor.u64("the commit position of Commit")?,
        end_lsn: cursor.u64("the end position of Commit")?,
        time: cursor.i64("the time of Commit")?,
    })
}

fn insert(cursor: &mut Cursor<'_>, spans: &mut Vec<Span>) -> Result<Message, Malformed> {
    let relation = cursor.u32("the relation of Insert")?;
    if cursor.u8("the new row of Insert")? != b'N' {
        return Err(cursor.malformed("'N' of Insert before"));
    }
    Ok(Message::Insert {
        relation,
        new_spans: tuple(cursor, spans)?,
    })
}

fn update(cursor: &mut Cursor<'_>, spans: &mut Vec<Span>) -> Result<Message, Malformed> {
    let relation = cursor.u32("the relation of Update")?;
    let mut kind = cursor.u8("a row of Update")?;
    let mut old_spans = None;
    if matches!(kind, b'K' | b'O') {
        old_spans = Some(tuple(cursor, spans)?);
        kind = cursor.u8("the new row of Update")?;
    }
    if kind != b'N' {
        return Err(cursor.malformed("'N' of Update before"));
    }
    Ok(Message::Update {
        relation,
        old_spans,
        new_spans: tuple(cursor, spans)?,
    })
}

fn delete(cursor: &mut Cursor<'_>, spans: &mut Vec<Span>) -> Result<Message, Malformed> {
    let relation = cursor.u32("the relation of Delete")?;
    if !matches!(cursor.u8("the old row of Delete")?, b'K' | b'O') {
        return Err(cursor.malformed("'K' or 'O' of Delete before"));
    }
    let old = tuple(cursor, spans)?;
    spans.truncate(old.start);
    Ok(Message::Delete { relation })
}

fn truncate(cursor: &mut Cursor<'_>) -> Result<Message, Malformed> {
    let count = cursor.u32("the number of tables of Truncate")? as usize;
    cursor.u8("the options of Truncate")?;
    if cursor.remaining() / 4 < count {
        return Err(cursor.malformed("as many tables as Truncate announced"));
    }
    let relations = (0..count)
        .map(|_| cursor.u32("a table of Truncate"))
        .collect::<Result<_, _>>()?;
    Ok(Message::Truncate { relations })
}

fn logical_message(cursor: &mut Cursor<'_>, bytes: &[u8]) -> Result<Message, Malformed> {
    let transactional = cursor.u8("the flags of Message")? & 1 == 1;
    let lsn = cursor.u64("the position of Message")?;
    let from = bytes.len() - cursor.remaining();
    let length = cursor.text("the prefix of Message")?.len();
    let content = cursor.u32("the length of Message")? as usize;
    Ok(Message::Message {
        transactional,
        lsn,
        prefix: from..from + length,
        content: cursor.take(content, "as many bytes as Message announced")?,
    })
}

fn relation(cursor: &mut Cursor<'_>) -> Result<Relation, Malformed> {
    let oid = cursor.u32("the oid of Relation")?;
    let schema = cursor.text("the schema of Relation")?;
    let table = cursor.text("the name of Relation")?.to_owned();
    let replica_identity = cursor.u8("the replica identity of Relation")?;
    let count = cursor.u16("the number of columns of Relation")? as usize;
    // A column takes at least 10 bytes: flags, an empty name, oid, modifier.
    if cursor.remaining() / 10 < count {
        return Err(cursor.malformed("as many columns as Relation announced"));
    }
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(Column {
            key: cursor.u8("the flags of a column")? & 1 == 1,
            name: cursor.text("the name of a column")?.to_owned(),
            type_oid: cursor.u32("the type of a column")?,
            type_modifier: cursor.i32("the type modifier of a column")?,
        });
    }
    Ok(Relation {
        oid,
        // The server abbreviates its own catalog schema to nothing.
        schema: if schema.is_empty() {
            "pg_catalog"
        } else {
            schema
        }
        .to_owned(),
        table,
        replica_identity,
        columns,
    })
}

fn tuple(cursor: &mut Cursor<'_>, spans: &mut Vec<Span>) -> Result<Range<usize>, Malformed> {
    let count = cursor.u16("the number of columns of a row")? as usize;
    if cursor.remaining() < count {
        return Err(cursor.malformed("as many columns as the row announced"));
    }
    let first = spans.len();
    for _ in 0..count {
        spans.push(match cursor.u8("the kind of a value")? {
            b'n' => Span::Null,
            b'u' => Span::Unchanged,
            b't' => {
                let length = cursor.u32("the length of a value")? as usize;
                text_span(cursor, length)?
            }
            _ => return Err(cursor.malformed("'n', 'u' or 't' before")),
        });
    }
    Ok(first..spans.len())
}

/// The next `length` bytes as a span of the message.
pub(super) fn text_span(cursor: &mut Cursor<'_>, length: usize) -> Result<Span, Malformed> {
    let range = cursor.take(length, "as many bytes as the value announced")?;
    match (u32::try_from(range.start), u32::try_from(range.end)) {
        (Ok(start), Ok(end)) => Ok(Span::Text { start, end }),
        _ => Err(cursor.malformed("a message of less than 4 GiB")),
    }
}

#[cfg(test)]
mod tests;
