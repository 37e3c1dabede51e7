//! From a row to a record.
