//! A run of messages as the walsender frames them: tag, length, CopyData, XLogData, pgoutput.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost::source::pgoutput::parse;
use walpost::source::protocol::{Frame, parse_frame, split_message};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut spans = Vec::new();
    while let Ok(Some((tag, length))) = split_message(rest) {
        let Some(message) = rest.get(..length) else {
            break;
        };
        assert!(length >= 5);
        let body = &message[5..];
        if tag == b'd'
            && let Ok(Frame::XLogData { payload, .. }) = parse_frame(body)
        {
            spans.clear();
            let _ = parse(&body[payload..], &mut spans);
        }
        rest = &rest[length..];
    }
});
