//! The WAL that a slot keeps.
