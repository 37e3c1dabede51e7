//! Records into Kafka, in order; and the prefix that Kafka has acknowledged.
//!
//! Owns: the producer and every librdkafka key, the acknowledgement tracker, topic creation.
//! Never: a slot, a table.

use crate::lsn::ResumePoint;

/// Proof that Kafka acknowledged every record up to a resume point. Only this module makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivered(ResumePoint);

impl Delivered {
    /// The position up to which everything is acknowledged.
    pub fn resume_point(&self) -> ResumePoint {
        self.0
    }
}
