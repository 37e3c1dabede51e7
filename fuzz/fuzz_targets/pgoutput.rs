//! One message of the output plugin: understood or refused, never a panic, spans always inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost::source::pgoutput::parse;
use walpost::source::row::Span;

fuzz_target!(|bytes: &[u8]| {
    let mut spans = Vec::new();
    let _ = parse(bytes, &mut spans);
    for span in spans {
        if let Span::Text { start, end } = span {
            assert!(start <= end && end as usize <= bytes.len());
        }
    }
});
