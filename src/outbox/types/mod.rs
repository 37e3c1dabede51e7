//! Postgres types: which schema a column gets, and how its text becomes a value of that schema.
//!
//! [`describe`](fn@describe) decides once per relation; [`Codec::decode`] runs per value and knows no catalog.

mod binary;
pub(super) mod calendar;
mod decode;
mod describe;
mod literal;
mod measure;
mod missing;

pub(super) use describe::describe;
pub(super) use measure::{Measure, root};

use crate::config::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode};

/// How a type's text is read. Everything that options decide is decided.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Codec {
    /// The text itself.
    Text,
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Numeric(Numeric),
    Money {
        mode: DecimalMode,
        digits: i32,
    },
    Bytea(BinaryMode),
    /// A type nobody knows, as the bytes of its text.
    Opaque(BinaryMode),
    /// A geometric type nobody knows, as the bytes of the text that Java prints for it.
    OpaqueShape(BinaryMode),
    /// A single bit.
    Bit,
    Bits,
    Date(TimeMode),
    Time(TimeMode, Precision),
    Timestamp(TimeMode, Precision),
    TimeZoned,
    TimestampZoned {
        digits: usize,
    },
    Interval(IntervalMode),
    Hstore(HstoreMode),
    Point,
    Array(Box<Codec>),
    /// A type that has a schema and, in the stream, no values: whatever stands there reads as NULL.
    Void,
}

/// A numeric column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numeric {
    pub(super) mode: DecimalMode,
    /// Declared without precision, so that each value carries its own scale.
    pub(super) variable: bool,
    pub(super) scale: i32,
}

/// Which unit holds a time or timestamp without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Millis,
    Micros,
}

/// Through which of Java's classes a value would have passed; some of them lose something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A value of the stream.
    Stream,
    /// A value of a snapshot.
    Snapshot,
    /// An element of an array.
    Element,
}

/// The text is no value of the column's type that its schema could hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unconvertible;

impl Codec {
    /// Whether a StringConverter would write the very text that Postgres sends.
    pub(super) fn is_plain(&self) -> bool {
        matches!(
            self,
            Codec::Text | Codec::Int16 | Codec::Int32 | Codec::Int64
        )
    }
}

#[cfg(test)]
mod tests;
