//! Bodies of the server's messages on the hot paths, pure bytes to types: what the walsender and
//! its client say to each other inside CopyData, and rows of a query.

use super::cursor::{Cursor, Malformed};
use super::pgoutput::text_span;
use super::row::{Column, Span};

/// Microseconds between the Unix epoch and Postgres' own, 2000-01-01.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// Bytes of XLogData before the payload.
const XLOG_HEADER: usize = 25;

/// Tag and length, in front of every message of the server.
pub(super) const MESSAGE_HEADER: usize = 5;

/// Postgres cannot send a longer message than 1 GiB.
const LONGEST_MESSAGE: usize = 1 << 30;

/// One CopyData body from the walsender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A message of the output plugin.
    XLogData {
        /// WAL position of the message; 0 for messages that have none.
        start: u64,
        /// The server's position when it was sent.
        end: u64,
        /// Where the payload starts in the body.
        payload: usize,
    },
    /// A sign of life.
    Keepalive {
        /// Everything before this position was decoded and sent.
        wal_end: u64,
        /// The server wants a status update now.
        reply_requested: bool,
    },
}

/// Tag and whole length, header included, of the message at the front of `bytes`; `None` while its
/// header is incomplete.
///
/// # Errors
/// The length is impossible.
pub fn split_message(bytes: &[u8]) -> Result<Option<(u8, usize)>, Malformed> {
    if bytes.len() < MESSAGE_HEADER {
        return Ok(None);
    }
    let mut cursor = Cursor::new(bytes);
    let tag = cursor.u8("a message tag")?;
    let length = cursor.u32("a message length")? as usize;
    if (4..=LONGEST_MESSAGE).contains(&length) {
        Ok(Some((tag, length + 1)))
    } else {
        Err(Malformed {
            offset: 1,
            expected: "a message length between 4 bytes and 1 GiB",
        })
    }
}

/// Parses the body of one CopyData message.
///
/// # Errors
/// The body is neither XLogData nor a keepalive, or is cut short.
pub fn parse_frame(body: &[u8]) -> Result<Frame, Malformed> {
    let mut cursor = Cursor::new(body);
    match cursor.u8("a replication message type")? {
        b'w' => {
            let start = cursor.u64("the start position of XLogData")?;
            let end = cursor.u64("the end position of XLogData")?;
            cursor.i64("the send time of XLogData")?;
            Ok(Frame::XLogData {
                start,
                end,
                payload: XLOG_HEADER,
            })
        }
        b'k' => {
            let wal_end = cursor.u64("the position of a keepalive")?;
            cursor.i64("the send time of a keepalive")?;
            let reply_requested = cursor.u8("the reply flag of a keepalive")? == 1;
            cursor.end()?;
            Ok(Frame::Keepalive {
                wal_end,
                reply_requested,
            })
        }
        _ => Err(Malformed {
            offset: 0,
            expected: "XLogData or a keepalive",
        }),
    }
}

/// Parses the body of a DataRow; one span for each column is appended to `spans`.
///
/// # Errors
/// The body is cut short, or goes on behind its last column.
pub fn parse_data_row(body: &[u8], spans: &mut Vec<Span>) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(body);
    let count = cursor.u16("the number of columns of a row")? as usize;
    // A column takes at least the 4 bytes of its length.
    if cursor.remaining() / 4 < count {
        return Err(cursor.malformed("as many columns as the row announced"));
    }
    for _ in 0..count {
        let length = cursor.i32("the length of a value")?;
        spans.push(match usize::try_from(length) {
            Ok(length) => text_span(&mut cursor, length)?,
            Err(_) if length == -1 => Span::Null,
            Err(_) => return Err(cursor.malformed("a length of -1 or more before")),
        });
    }
    cursor.end()
}

/// Parses the body of a RowDescription.
///
/// # Errors
/// The body is cut short, or goes on behind its last column.
pub fn parse_row_description(body: &[u8]) -> Result<Vec<Column>, Malformed> {
    let mut cursor = Cursor::new(body);
    let count = cursor.u16("the number of columns")? as usize;
    // A column takes at least 19 bytes: an empty name and 18 bytes of numbers.
    if cursor.remaining() / 19 < count {
        return Err(cursor.malformed("as many columns as announced"));
    }
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let name = cursor.text("the name of a column")?.to_owned();
        cursor.take(6, "the table and number of a column")?;
        let type_oid = cursor.u32("the type of a column")?;
        cursor.take(2, "the size of a column")?;
        let type_modifier = cursor.i32("the type modifier of a column")?;
        cursor.take(2, "the format of a column")?;
        columns.push(Column {
            name,
            key: false,
            type_oid,
            type_modifier,
        });
    }
    cursor.end()?;
    Ok(columns)
}

/// A standby status update as one whole CopyData message. `flushed` is what the slot may forget;
/// 0 means "nothing yet".
pub(super) fn status_update(
    written: u64,
    flushed: u64,
    unix_time_us: i64,
    ask_reply: bool,
) -> [u8; 39] {
    let mut message = [0; 39];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        message[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"d");
    put(&38u32.to_be_bytes());
    put(b"r");
    put(&written.to_be_bytes());
    put(&flushed.to_be_bytes());
    put(&flushed.to_be_bytes());
    put(&unix_time_us.saturating_sub(POSTGRES_EPOCH_US).to_be_bytes());
    put(&[u8::from(ask_reply)]);
    message
}

/// A Postgres timestamp as microseconds since the Unix epoch.
pub(super) fn unix_time_us(postgres_time_us: i64) -> i64 {
    postgres_time_us.saturating_add(POSTGRES_EPOCH_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_xlog_data_and_keepalive() {
        let mut body = vec![b'w'];
        body.extend(7u64.to_be_bytes());
        body.extend(9u64.to_be_bytes());
        body.extend(1i64.to_be_bytes());
        body.extend(b"B...");
        assert_eq!(
            parse_frame(&body),
            Ok(Frame::XLogData {
                start: 7,
                end: 9,
                payload: 25
            })
        );
        let mut body = vec![b'k'];
        body.extend(9u64.to_be_bytes());
        body.extend(1i64.to_be_bytes());
        body.push(1);
        assert_eq!(
            parse_frame(&body),
            Ok(Frame::Keepalive {
                wal_end: 9,
                reply_requested: true
            })
        );
        body.pop();
        assert_eq!(parse_frame(&body).unwrap_err().offset, 17);
        assert!(parse_frame(b"x").is_err());
        assert!(parse_frame(b"").is_err());
    }

    #[test]
    fn a_status_update_has_the_layout_of_the_manual() {
        let message = status_update(0x10, 0x0f, POSTGRES_EPOCH_US + 5, true);
        assert_eq!(&message[..6], b"d\0\0\0\x26r");
        assert_eq!(message[13], 0x10);
        assert_eq!(message[21], 0x0f);
        assert_eq!(message[29], 0x0f);
        assert_eq!(message[37], 5);
        assert_eq!(message[38], 1);
    }

    #[test]
    fn reads_rows_of_a_query() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        let mut spans = Vec::new();
        parse_data_row(body, &mut spans).unwrap();
        let text = |start, end| Span::Text { start, end };
        assert_eq!(spans, [text(6, 8), Span::Null, text(16, 16)]);
        assert!(parse_data_row(b"\xff\xff", &mut spans).is_err());
        assert!(parse_data_row(b"\0\x01\xff\xff\xff\xfe", &mut spans).is_err());
    }

    #[test]
    fn reads_the_columns_of_a_query() {
        let body = b"\0\x01id\0\0\0\x40\0\0\x01\0\0\x0b\x86\0\x10\xff\xff\xff\xff\0\0";
        let columns = parse_row_description(body).unwrap();
        assert_eq!(columns[0].name, "id");
        assert_eq!((columns[0].type_oid, columns[0].type_modifier), (2950, -1));
        assert!(parse_row_description(b"\xff\xff").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_row_or_an_error(body: Vec<u8>) {
            let mut spans = Vec::new();
            if parse_data_row(&body, &mut spans).is_ok() {
                for span in spans {
                    if let Span::Text { end, .. } = span {
                        proptest::prop_assert!(end as usize <= body.len());
                    }
                }
            }
            let _ = parse_row_description(&body);
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(body: Vec<u8>) {
            if let Ok(Frame::XLogData { payload, .. }) = parse_frame(&body) {
                proptest::prop_assert!(payload <= body.len());
            }
        }
    }
}
