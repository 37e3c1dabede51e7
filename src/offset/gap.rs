//! Why rows may be missing, in words an operator can act on.

use crate::lsn::{Lsn, ResumePoint};

/// A reason to stop, because going on would skip rows without a word.
pub(super) enum Gap {
    /// A position is stored, but its slot is gone.
    NoSlot,
    /// The server gave the slot up, for this reason.
    Invalidated(String),
    /// The slot is ahead of us, at this position.
    Behind(Lsn),
    /// The stored position lies beyond the server's end.
    Beyond,
    /// The server left the stored position's history here.
    Forked(Lsn),
}

impl Gap {
    /// What an operator can do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Gap::Behind(_) => {
                "go on without these rows with offset.mismatch.strategy=trust_slot or \
                 \"walpost offsets set\", or publish every row of the table again with \
                 snapshot.mode=when_needed"
            }
            Gap::NoSlot | Gap::Invalidated(_) => {
                "publish every row of the table again with snapshot.mode=when_needed, or go on \
                 without these rows: drop the slot if it exists, then \"walpost offsets reset\" \
                 and snapshot.mode=no_data"
            }
            Gap::Beyond | Gap::Forked(_) => {
                "connect to the server that has the newest data, or go on from here with \
                 \"walpost offsets set\", or publish every row of the table again with \
                 snapshot.mode=when_needed"
            }
        }
    }

    /// What happened: both positions, and how many bytes may be missing.
    pub(super) fn explain(&self, slot: &str, server: Lsn, at: Option<ResumePoint>) -> String {
        let stored = match at {
            Some(at) => format!("the stored position is {}", at.lsn()),
            None => "no position is stored".to_owned(),
        };
        let missing = |end: Lsn| match at {
            Some(at) => format!(
                "up to {} bytes of changes may be missing",
                end.bytes_since(at.lsn())
            ),
            None => "an unknown number of changes may be missing".to_owned(),
        };
        let differing = |from: Lsn| match at {
            Some(at) => format!("{} bytes of its past differ", at.lsn().bytes_since(from)),
            None => "its past differs".to_owned(),
        };
        match self {
            Gap::NoSlot => format!(
                "slot {slot:?} is gone; {stored}, the server is at {server}, {}",
                missing(server)
            ),
            Gap::Invalidated(reason) => format!(
                "slot {slot:?} was invalidated by the server ({reason}); {stored}, the server is \
                 at {server}, {}; see max_slot_wal_keep_size and idle_replication_slot_timeout",
                missing(server)
            ),
            Gap::Behind(confirmed) => format!(
                "slot {slot:?} was confirmed up to {confirmed} by someone else; {stored}, {}",
                missing(*confirmed)
            ),
            Gap::Beyond => format!(
                "{stored}, but the server is only at {server}: it was restored from a backup, or \
                 a copy that lagged behind was promoted, {}",
                differing(server)
            ),
            Gap::Forked(end) => format!(
                "{stored}, but the server went on from {end}: a copy that lagged behind was \
                 promoted, {}",
                differing(*end)
            ),
        }
    }
}
