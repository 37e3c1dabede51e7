//! The source against a real Postgres. Each test starts its own server, in a second or two.

mod access;
mod boundaries;
mod connectors;
mod preflights;
mod server;
mod snapshots;
mod streaming;
