//! The test kit: real Postgres and Kafka on free ports, faults between them, and the walpost
//! binary seen from outside.
//!
//! Servers shared by a run are started once, by the first test that asks; every test has a
//! database, slot and topics of its own (see [`Scene`]). Whatever is started here dies with the
//! process that started it, however that ends (see [`cleanup`]).

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "shared by the tests, the demo and the benchmarks, none of which uses all of it; a \
              failure here is a failed test"
)]

pub(crate) mod checker;
pub(crate) mod cleanup;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod connector;
pub(crate) mod consumer;
pub(crate) mod http;
pub(crate) mod kafka;
pub(crate) mod ports;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod relay;
pub(crate) mod scene;
pub(crate) mod surroundings;
pub(crate) mod tls;
pub(crate) mod wait;

pub(crate) use connector::{Connector, Worker};
pub(crate) use consumer::{Record, Tail};
pub(crate) use kafka::Kafka;
pub(crate) use postgres::Postgres;
pub(crate) use process::Walpost;
pub(crate) use relay::Relay;
pub(crate) use scene::Scene;
