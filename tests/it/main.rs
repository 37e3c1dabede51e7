//! Integration tests: the binary between a real Postgres and a real Kafka, held to what
//! `docs/architecture.md` promises.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failure here is a failed test"
)]

#[path = "../regressions/mod.rs"]
mod regressions;
#[path = "../support/mod.rs"]
mod support;

mod cli;
mod cluster;
mod dead_letters;
mod delivery;
mod docs;
mod exactly_once;
mod failover;
mod golden;
mod handover;
mod http;
mod idle;
mod kit;
mod limits;
mod offsets;
mod outage;
mod poison;
mod restart;
mod rights;
mod secrets;
mod slot_guard;
mod snapshot;
mod sql;
mod standby;
mod startup;
mod tls;
mod topics;
