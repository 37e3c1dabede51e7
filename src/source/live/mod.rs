//! The source against a real Postgres. Each test starts its own server, in a second or two.

mod access;
mod boundaries;
mod connectors;
#[path = "../../../tests/support/ports.rs"]
mod ports;
mod preflights;
mod server;
mod snapshots;
mod streaming;
