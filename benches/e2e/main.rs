//! The end-to-end benchmark: walpost against the ceiling of its slot, and against Debezium.
//!
//! Every contender reads the same backlog of the same server, through slots that were created
//! before the backlog was written, in the same run. What is read back from Kafka is checked before
//! a figure counts. `benches/README.md` says how to read the output.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends where it fails"
)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod audit;
mod backlog;
mod bare;
mod ceiling;
mod contender;
mod latency;
mod options;
mod report;
mod throughput;
mod usage;
mod workload;

use options::Options;

fn main() {
    let options = Options::from_environment();
    report::machine();
    let stage = backlog::Stage::open(&options);
    bare::warm_up(&stage);
    if options.part("throughput") {
        throughput::plain(&stage, &options);
    }
    if options.part("formats") {
        throughput::formats(&stage, &options);
    }
    if options.part("latency") {
        latency::compare(&stage, &options);
    }
    support::cleanup::finish();
}
