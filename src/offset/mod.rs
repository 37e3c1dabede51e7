//! The position that survives a restart.
//!
//! Owns: the offset stores and the start-up decision. Never: Kafka's data topics, the slot.

use crate::lsn::ResumePoint;

/// Proof that a position is durable. Only this module makes one, from a [`crate::sink::Delivered`].
#[derive(Debug, PartialEq, Eq)]
pub struct Stored(ResumePoint);

impl Stored {
    /// The durable position.
    pub fn resume_point(&self) -> ResumePoint {
        self.0
    }
}
