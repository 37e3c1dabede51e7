//! The verdict on an event that cannot become a record.

use std::fmt;

use crate::error::{Class, Failure};
use crate::lsn::Lsn;

/// One event that cannot become a record, and why. Never holds a payload, a key or another value
/// of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// What is wrong, and what to do.
    pub reason: String,
    /// Event id, where the event has one that can be read.
    pub event_id: Option<String>,
    /// `schema.table`; `None` for a logical message.
    pub table: Option<String>,
    /// The column at fault.
    pub column: Option<String>,
    /// WAL position of the event.
    pub lsn: Lsn,
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("route ")?;
        match &self.event_id {
            Some(id) => write!(f, "event {id:?}")?,
            None => f.write_str("an event without a readable id")?,
        }
        match &self.table {
            Some(table) => write!(f, " of table {table}")?,
            None => f.write_str(" of a logical message")?,
        }
        write!(f, " at {}: ", self.lsn)?;
        if let Some(column) = &self.column {
            write!(f, "column {column:?}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Poison {}

impl From<Poison> for Failure {
    fn from(poison: Poison) -> Self {
        Failure::new(Class::Poison, poison.to_string())
    }
}
