//! One replication slot as a stream of committed rows, with bounded memory.
//!
//! Owns: the replication connection and its session settings, the wire formats, the slot and the
//! publication, the catalog, the snapshot. Never: a topic, a Kafka client, a position that was not
//! stored first.
//!
//! Two kinds of connection: [`Session`] for ordinary SQL, which any task may use; and our own
//! connection for [`Replication`], [`Source`] and [`Snapshot`], where rows are parsed in place.

mod buffer;
mod catalog;
mod connection;
mod cursor;
#[cfg(test)]
mod live;
mod partitions;
pub mod pgoutput;
mod preflight;
pub mod protocol;
mod publication;
mod relation;
mod replication;
pub mod row;
mod slot;
mod snapshot;
mod socket;
mod sql;
mod sqlstate;
mod stream;
mod tables;
mod tls;
mod transaction;

pub use cursor::Malformed;
pub use preflight::Preflight;
pub use publication::PublicationReport;
pub use replication::{CreatedSlot, Replication, StartOptions};
pub use slot::{ServerSample, SlotState};
pub use snapshot::{Snapshot, SnapshotProgress};
pub use sql::{ServerIdentity, Session};
pub use stream::Source;
pub use transaction::PartialTransaction;

/// Settings that decide what values look like as text, and limits that must not end our sessions.
/// Roles and databases may have their own; these win, in every session.
const SETTINGS: &str = "SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; \
    SET client_min_messages = 'warning'; SET extra_float_digits = 3; SET bytea_output = 'hex'; SET TimeZone = 'UTC'; \
    SET statement_timeout = 0; SET lock_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0";

/// The statements that fix a session of a server of this major version.
fn session_settings(server_major: u32) -> String {
    let mut settings = SETTINGS.to_owned();
    if server_major >= 14 {
        settings.push_str("; SET idle_session_timeout = 0");
    }
    if server_major >= 17 {
        settings.push_str("; SET transaction_timeout = 0");
    }
    settings
}

/// The major version in a `server_version` such as `15.18 (Debian 15.18-1)` or `18beta1`; 0 when
/// there is none.
fn major_version(server_version: &str) -> u32 {
    let digits = server_version
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(server_version.len());
    server_version
        .get(..digits)
        .and_then(|major| major.parse().ok())
        .unwrap_or(0)
}

/// A name as an SQL identifier.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `"schema"."table"`.
fn qualified(schema: &str, table: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(table))
}

/// A text as an SQL literal.
fn literal(text: &str) -> String {
    postgres_protocol::escape::escape_literal(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted_whole() {
        assert_eq!(qualified("Sales-EU", "a\"b.c"), "\"Sales-EU\".\"a\"\"b.c\"");
        assert_eq!(literal("it's").trim(), "'it''s'");
    }

    #[test]
    fn major_versions_are_read_from_any_vendor_text() {
        for (text, major) in [
            ("15.18 (Debian 15.18-1)", 15),
            ("18beta1", 18),
            ("17", 17),
            ("", 0),
            ("EnterpriseDB", 0),
        ] {
            assert_eq!(major_version(text), major, "{text:?}");
        }
    }

    #[test]
    fn only_settings_that_the_server_knows_are_set() {
        assert!(!session_settings(13).contains("idle_session_timeout"));
        assert!(session_settings(14).contains("idle_session_timeout"));
        assert!(session_settings(17).contains("transaction_timeout"));
    }
}
