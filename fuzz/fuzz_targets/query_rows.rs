//! The rows of a snapshot's query and their description.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost::source::protocol::{parse_data_row, parse_row_description};
use walpost::source::row::Span;

fuzz_target!(|bytes: &[u8]| {
    let mut spans = Vec::new();
    let _ = parse_data_row(bytes, &mut spans);
    for span in spans {
        if let Span::Text { start, end } = span {
            assert!(start <= end && end as usize <= bytes.len());
        }
    }
    if let Ok(columns) = parse_row_description(bytes) {
        assert!(columns.len() * 19 <= bytes.len());
    }
});
