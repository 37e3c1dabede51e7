//! What walpost reads back from topics that others may have written to: stored positions, dead
//! letters, and the audit of what was done with them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use walpost::deadletter::{Audit, Letter};
use walpost::offset::StoredOffset;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Value::Object(members)) = serde_json::from_slice(bytes) {
        let _ = StoredOffset::decode(&members);
    }
    if let Ok(letter) = Letter::decode(bytes) {
        let again = Letter::decode(&letter.encode()).expect("what was written can be read");
        assert_eq!(again, letter);
    }
    if let Ok(audit) = Audit::decode(bytes) {
        let _ = format!("{audit:?}");
    }
});
