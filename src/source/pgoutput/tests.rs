use proptest::prelude::*;

use super::super::row::{Cell, Tuple};
use super::*;

/// Writes messages as the server does.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn new(tag: u8) -> Self {
        Self(vec![tag])
    }
    fn put(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend_from_slice(bytes.as_ref());
        self
    }
    fn text(self, text: &str) -> Self {
        self.put(text).put([0])
    }
    fn u16(self, value: u16) -> Self {
        self.put(value.to_be_bytes())
    }
    fn u32(self, value: u32) -> Self {
        self.put(value.to_be_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.put(value.to_be_bytes())
    }
    fn row(self, values: &[Option<&[u8]>]) -> Self {
        let count = u16::try_from(values.len()).unwrap();
        values
            .iter()
            .fold(self.u16(count), |writer, value| match value {
                None => writer.put(b"n"),
                Some(bytes) => writer
                    .put(b"t")
                    .u32(u32::try_from(bytes.len()).unwrap())
                    .put(bytes),
            })
    }
}

fn one(bytes: &[u8]) -> Message {
    parse(bytes, &mut Vec::new()).unwrap()
}

#[test]
fn reads_begin_and_commit() {
    assert_eq!(
        one(&Writer::new(b'B').u64(100).u64(5).u32(742).0),
        Message::Begin {
            final_lsn: 100,
            time: 5,
            xid: 742
        }
    );
    assert_eq!(
        one(&Writer::new(b'C').put([0]).u64(100).u64(148).u64(5).0),
        Message::Commit {
            commit_lsn: 100,
            end_lsn: 148,
            time: 5
        }
    );
}

#[test]
fn reads_a_relation_with_its_columns() {
    let bytes = Writer::new(b'R')
        .u32(16385)
        .text("Sales-EU")
        .text("OutBox.Événements")
        .put(b"d")
        .u16(2)
        .put([1])
        .text("id")
        .u32(2950)
        .u32(u32::MAX)
        .put([0])
        .text("полезная")
        .u32(1043)
        .u32(259)
        .0;
    let Message::Relation(relation) = one(&bytes) else {
        panic!("not a relation")
    };
    assert_eq!(
        (relation.schema.as_str(), relation.table.as_str()),
        ("Sales-EU", "OutBox.Événements")
    );
    assert_eq!(relation.columns[0].type_modifier, -1);
    assert!(relation.columns[0].key && !relation.columns[1].key);
    assert_eq!(relation.columns[1].name, "полезная");
}

#[test]
fn reads_rows_without_copying_their_values() {
    let bytes = Writer::new(b'I')
        .u32(7)
        .put(b"N")
        .row(&[Some(b"abc"), None, Some(b"")])
        .0;
    let mut spans = Vec::new();
    let Message::Insert { new_spans, .. } = parse(&bytes, &mut spans).unwrap() else {
        panic!("not an insert")
    };
    let row = Tuple::new(&bytes, &spans[new_spans]);
    assert_eq!(row.cell(0), Cell::Text(b"abc"));
    assert_eq!(row.cell(1), Cell::Null);
    assert_eq!(row.cell(2), Cell::Text(b""));
}

#[test]
fn an_update_keeps_old_key_and_untouched_values_apart_from_null() {
    let bytes = Writer::new(b'U')
        .u32(7)
        .put(b"K")
        .row(&[Some(b"1"), None])
        .put(b"N")
        .u16(2)
        .put(b"t")
        .u32(1)
        .put(b"2")
        .put(b"u")
        .0;
    let mut spans = vec![Span::Null];
    let message = parse(&bytes, &mut spans).unwrap();
    assert_eq!(
        message,
        Message::Update {
            relation: 7,
            old_spans: Some(1..3),
            new_spans: 3..5
        }
    );
    assert_eq!(spans[4], Span::Unchanged);
}

#[test]
fn what_the_router_never_needs_is_still_read_to_its_end() {
    assert_eq!(
        one(&Writer::new(b'D').u32(7).put(b"K").row(&[Some(b"1")]).0),
        Message::Delete { relation: 7 }
    );
    assert_eq!(
        one(&Writer::new(b'T').u32(2).put([3]).u32(7).u32(8).0),
        Message::Truncate {
            relations: vec![7, 8]
        }
    );
    assert_eq!(
        one(&Writer::new(b'Y').u32(9).text("public").text("mood").0),
        Message::Type
    );
    assert_eq!(
        one(&Writer::new(b'O').u64(9).text("elsewhere").0),
        Message::Origin
    );
    let bytes = Writer::new(b'M')
        .put([1])
        .u64(9)
        .text("outbox")
        .u32(3)
        .put(b"{}x")
        .0;
    let Message::Message {
        prefix, content, ..
    } = one(&bytes)
    else {
        panic!("not a message")
    };
    assert_eq!(
        (&bytes[prefix], &bytes[content]),
        (&b"outbox"[..], &b"{}x"[..])
    );
}

#[test]
fn a_byte_of_another_protocol_is_named() {
    assert_eq!(
        parse(b"S\0\0\0\0", &mut Vec::new()),
        Err(ParseError::Unknown(b'S'))
    );
}

#[test]
fn announced_counts_are_not_believed() {
    for bytes in [
        Writer::new(b'T').u32(u32::MAX).put([0]).0,
        Writer::new(b'I').u32(7).put(b"N").u16(u16::MAX).0,
        Writer::new(b'I')
            .u32(7)
            .put(b"N")
            .u16(1)
            .put(b"t")
            .u32(u32::MAX)
            .0,
        Writer::new(b'M').put([0]).u64(1).text("p").u32(u32::MAX).0,
        Writer::new(b'R')
            .u32(1)
            .text("s")
            .text("t")
            .put(b"d")
            .u16(u16::MAX)
            .0,
    ] {
        let mut spans = Vec::new();
        assert!(matches!(
            parse(&bytes, &mut spans),
            Err(ParseError::Malformed(_))
        ));
        assert!(spans.capacity() < 100_000);
    }
}

#[test]
fn errors_give_the_offset_and_no_content() {
    let bytes = Writer::new(b'I')
        .u32(7)
        .put(b"N")
        .u16(1)
        .put(b"b")
        .u32(6)
        .put(b"secret")
        .0;
    let text = parse(&bytes, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(
        text,
        "malformed pgoutput message: expected 'n', 'u' or 't' before at byte 9"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(
        tag in prop::sample::select(b"BCORYIUDTMSEcA".to_vec()),
        body: Vec<u8>,
    ) {
        let mut bytes = vec![tag];
        bytes.extend(body);
        let mut spans = Vec::new();
        if parse(&bytes, &mut spans).is_ok() {
            for span in spans {
                if let Span::Text { start, end } = span {
                    prop_assert!(start <= end && end as usize <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn a_row_reads_back_as_written(row: Vec<Option<Vec<u8>>>) {
        let values: Vec<_> = row.iter().map(|value| value.as_deref()).collect();
        let bytes = Writer::new(b'I').u32(7).put(b"N").row(&values).0;
        let mut spans = Vec::new();
        parse(&bytes, &mut spans).unwrap();
        let tuple = Tuple::new(&bytes, &spans);
        for (index, value) in values.iter().enumerate() {
            prop_assert_eq!(tuple.cell(index), value.map_or(Cell::Null, Cell::Text));
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_an_error(row: Vec<Option<Vec<u8>>>, cut: prop::sample::Index) {
        let values: Vec<_> = row.iter().map(|value| value.as_deref()).collect();
        let bytes = Writer::new(b'I').u32(7).put(b"N").row(&values).0;
        let cut = cut.index(bytes.len());
        prop_assert!(parse(&bytes[..cut], &mut Vec::new()).is_err());
    }
}
