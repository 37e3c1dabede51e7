//! The loop, and the only place where a position moves.
//!
//! Owns: the order delivered → stored → confirmed, the start-up of an attempt, retries, shutdown.
//! Never: wire formats, column names, librdkafka keys. An `attempt` runs from start-up to its
//! first error; the `supervisor` decides by the error's class whether there is another one.

mod attempt;
mod attendant;
mod backoff;
mod check;
mod committer;
mod dead_letters;
mod dlq;
mod exactly_once;
mod guard;
mod keeper;
mod offsets;
mod progress;
mod replay;
mod snapshot;
mod startup;
mod stream;
mod supervisor;
mod tally;
mod transfer;

pub use check::{Finding, check};
pub use dlq::{
    LetterFilter, ListFormat, discard_letters, list_letters, replay_letters, show_letters,
};
pub use offsets::{reset_offset, set_offset, show_offset};
pub use supervisor::run;
