//! From the bytes of the replication stream to a row.
