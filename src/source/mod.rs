//! One replication slot as a stream of committed rows, with bounded memory.
//!
//! Owns: the replication connection and its session settings, the wire formats, the slot and the
//! publication, the catalog, the snapshot. Never: a topic, a Kafka client, a position that was not
//! stored first.

pub mod row;
