//! What to do at start, from what is stored, what the slot says and what the server says.
//!
//! Pure: no connection, no clock. Each row of the table in docs/architecture.md is a test here.

use super::gap::Gap;
use super::{OffsetIdentity, Partial, SnapshotState, StoredOffset};
use crate::config::{Connector, OffsetMismatch, SnapshotMode};
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};

/// The slot as `pg_replication_slots` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotFacts {
    /// Output plugin; `None` for a physical slot.
    pub plugin: Option<String>,
    /// Database; `None` for a physical slot.
    pub database: Option<String>,
    /// Who streams from it now: pid, application and address as far as known.
    pub holder: Option<String>,
    /// `confirmed_flush_lsn`.
    pub confirmed: Option<Lsn>,
    /// `wal_status`.
    pub wal_status: Option<String>,
    /// `invalidation_reason`.
    pub invalidation_reason: Option<String>,
}

impl SlotFacts {
    /// Whether the server has given it up for good.
    pub fn is_invalidated(&self) -> bool {
        self.invalidation().is_some()
    }

    fn invalidation(&self) -> Option<String> {
        if let Some(reason) = &self.invalidation_reason {
            return Some(reason.clone());
        }
        (self.wal_status.as_deref() == Some("lost")).then(|| "wal_status is lost".to_owned())
    }
}

/// The server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// System identifier.
    pub system_id: String,
    /// Timeline.
    pub timeline: u32,
    /// The database we are connected to.
    pub database: String,
    /// Current write position, read after the stored offset.
    pub wal_position: Lsn,
    /// From the timeline history: each earlier timeline and where it ended. May be empty.
    pub past_timelines: Vec<(u32, Lsn)>,
}

/// What the operator configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Connector name, for the commands in messages.
    pub connector: String,
    /// `slot.name`.
    pub slot: String,
    /// `snapshot.mode`.
    pub snapshot: SnapshotMode,
    /// `snapshot.existing.slot` is `snapshot`.
    pub over_existing_slot: bool,
    /// `offset.mismatch.strategy`.
    pub mismatch: OffsetMismatch,
    /// The process has not streamed yet: it is a start, and not a return after a loss.
    pub starting: bool,
}

impl Policy {
    /// The policy of `connector`.
    pub fn of(connector: &Connector) -> Self {
        Self {
            connector: connector.name.clone(),
            slot: connector.slot.name.clone(),
            snapshot: connector.snapshot.mode,
            over_existing_slot: connector.snapshot.over_existing_slot,
            mismatch: connector.offset_mismatch,
            starting: true,
        }
    }
}

/// What to do.
#[derive(Debug)]
pub enum Decision {
    /// Create publication and slot; snapshot under the slot's exported snapshot if so configured.
    Create {
        /// Whether existing rows come first.
        snapshot: bool,
    },
    /// A snapshot has to be taken (again).
    SnapshotAgain {
        /// What becomes of the slot.
        slot: SlotFate,
        /// For the log.
        reason: String,
    },
    /// Nothing is stored: stream from where the slot stands. Rows older than the slot do not come.
    Adopt {
        /// The slot's confirmed position.
        at: ResumePoint,
    },
    /// Go on.
    Resume {
        /// Where.
        at: ResumePoint,
        /// What of the first transaction is delivered already.
        partial: Option<Partial>,
        /// Move the slot here first (`offset.mismatch.strategy`).
        advance_slot_to: Option<Lsn>,
    },
    /// `snapshot.mode=initial_only`, and the snapshot is done.
    Done,
    /// Someone else streams from the slot: try again later.
    Wait {
        /// Who.
        holder: String,
    },
    /// Stop.
    Stop(Failure),
}

impl Decision {
    /// Whether the slot's backlog comes next.
    pub fn streams(&self) -> bool {
        matches!(self, Decision::Adopt { .. } | Decision::Resume { .. })
    }
}

/// What a new snapshot does with the slot that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotFate {
    /// There is none: go on as with [`Decision::Create`].
    Create,
    /// It is lost: drop it, then as with [`Decision::Create`].
    Replace,
    /// It is sound: read the existing rows under a snapshot of their own, then stream from here.
    /// Rows of the time between come twice; dropping the slot would lose those that were deleted
    /// meanwhile, as many outboxes do at once.
    Keep(Lsn),
    /// It is sound, and the operator wants what Debezium does: read the existing rows, then stream
    /// what commits after that.
    PassOver,
}

/// The start-up decision.
pub fn decide(
    stored: Option<&StoredOffset>,
    slot: Option<&SlotFacts>,
    server: &ServerFacts,
    policy: &Policy,
) -> Decision {
    let case = Case {
        stored,
        slot,
        server,
        policy,
    };
    case.decide().unwrap_or_else(Decision::Stop)
}

struct Case<'a> {
    stored: Option<&'a StoredOffset>,
    slot: Option<&'a SlotFacts>,
    server: &'a ServerFacts,
    policy: &'a Policy,
}

impl Case<'_> {
    fn decide(&self) -> Result<Decision, Failure> {
        if let Some(identity) = self.stored.and_then(|stored| stored.identity.as_ref()) {
            self.belongs_here(identity)?;
        }
        self.slot_is_usable()?;
        if let Some(holder) = self.slot.and_then(|slot| slot.holder.clone()) {
            return Ok(Decision::Wait { holder });
        }
        match self.stored {
            None => self.first_run().map(|decision| self.rows_first(decision)),
            Some(stored) if stored.snapshot == SnapshotState::Unfinished => self.unfinished(stored),
            Some(stored) => match stored.position {
                Some(at) => {
                    let decision = self.go_on(stored, at)?;
                    Ok(self.rows_first(decision))
                }
                None => Err(Failure::internal(
                    "the stored position is empty although no snapshot is under way",
                )),
            },
        }
    }

    /// A slot of the wrong kind is never waited for, confirmed or dropped.
    fn slot_is_usable(&self) -> Result<(), Failure> {
        let Some(slot) = self.slot else { return Ok(()) };
        let name = &self.policy.slot;
        match slot.plugin.as_deref() {
            Some("pgoutput") => {}
            Some(other) => {
                return Err(Failure::config(format!(
                    "slot {name:?} uses the plugin {other}, not pgoutput; choose another slot.name"
                )));
            }
            None => {
                return Err(Failure::config(format!(
                    "slot {name:?} is a physical slot; choose another slot.name"
                )));
            }
        }
        match &slot.database {
            Some(database) if *database != self.server.database => Err(Failure::config(format!(
                "slot {name:?} belongs to database {database:?}, not to {:?}; choose another \
                 slot.name or the right database.dbname",
                self.server.database
            ))),
            _ => Ok(()),
        }
    }

    fn belongs_here(&self, identity: &OffsetIdentity) -> Result<(), Failure> {
        let differs = |what: &str, stored: &str, here: &str| {
            Err(Failure::gap(format!(
                "the stored position of {:?} belongs to {what} {stored}, but this is {here}; go \
                 on with the right one, or, if this is meant, forget the position with \
                 \"walpost offsets reset\" or set it with \"walpost offsets set\"",
                self.policy.connector
            )))
        };
        if identity.system_id != self.server.system_id {
            return differs(
                "the database cluster with system identifier",
                &identity.system_id,
                &self.server.system_id,
            );
        }
        if identity.database != self.server.database {
            return differs("database", &identity.database, &self.server.database);
        }
        if identity.slot != self.policy.slot {
            return differs("slot", &identity.slot, &self.policy.slot);
        }
        if identity.timeline > self.server.timeline {
            return differs(
                "timeline",
                &identity.timeline.to_string(),
                &self.server.timeline.to_string(),
            );
        }
        Ok(())
    }

    fn always(&self) -> bool {
        self.policy.snapshot == SnapshotMode::Always && self.policy.starting
    }

    /// In mode `always` the existing rows come before whatever a start would stream.
    fn rows_first(&self, decision: Decision) -> Decision {
        match decision {
            Decision::Adopt { at } | Decision::Resume { at, .. } if self.always() => {
                Decision::SnapshotAgain {
                    slot: SlotFate::Keep(at.lsn()),
                    reason: "publishing the existing rows first, as snapshot.mode=always asks"
                        .to_owned(),
                }
            }
            decision => decision,
        }
    }

    fn takes_snapshot(&self) -> bool {
        self.policy.snapshot != SnapshotMode::NoData
    }

    fn invalidation(&self) -> Option<String> {
        self.slot?.invalidation()
    }

    fn fate(&self) -> SlotFate {
        match self.slot {
            None => SlotFate::Create,
            Some(slot) => match slot.confirmed {
                Some(confirmed) if self.invalidation().is_none() => SlotFate::Keep(confirmed),
                _ => SlotFate::Replace,
            },
        }
    }

    fn first_run(&self) -> Result<Decision, Failure> {
        let Some(slot) = self.slot else {
            return Ok(Decision::Create {
                snapshot: self.takes_snapshot(),
            });
        };
        if let Some(reason) = self.invalidation() {
            return self.gap(Gap::Invalidated(reason), None);
        }
        if self.policy.snapshot == SnapshotMode::InitialOnly {
            return Err(Failure::config(format!(
                "snapshot.mode=initial_only needs to create slot {0:?}, which exists; drop it \
                 (select pg_drop_replication_slot('{0}')), or choose another slot.name or \
                 snapshot.mode",
                self.policy.slot
            )));
        }
        if self.policy.over_existing_slot && self.takes_snapshot() {
            return Ok(Decision::SnapshotAgain {
                slot: SlotFate::PassOver,
                reason: "the slot exists and no position is stored: publishing the existing rows \
                         first, as snapshot.existing.slot asks; rows that were deleted since the \
                         slot was created are not published"
                    .to_owned(),
            });
        }
        self.confirmed(slot).map(|at| Decision::Adopt {
            at: ResumePoint::slot_start(at),
        })
    }

    fn confirmed(&self, slot: &SlotFacts) -> Result<Lsn, Failure> {
        slot.confirmed.ok_or_else(|| {
            Failure::retriable(format!(
                "slot {:?} has no confirmed position yet; it is being created",
                self.policy.slot
            ))
        })
    }

    fn unfinished(&self, stored: &StoredOffset) -> Result<Decision, Failure> {
        if self.takes_snapshot() {
            return Ok(Decision::SnapshotAgain {
                slot: self.fate(),
                reason: "the last snapshot did not finish; it starts again".to_owned(),
            });
        }
        // The operator has decided against existing rows since.
        match self.slot {
            None => Ok(Decision::Create { snapshot: false }),
            Some(_) if self.invalidation().is_some() => {
                let reason = self.invalidation().unwrap_or_default();
                self.gap(Gap::Invalidated(reason), stored.position)
            }
            Some(slot) => self.confirmed(slot).map(|at| Decision::Adopt {
                at: ResumePoint::slot_start(at),
            }),
        }
    }

    fn go_on(&self, stored: &StoredOffset, at: ResumePoint) -> Result<Decision, Failure> {
        if self.policy.snapshot == SnapshotMode::InitialOnly {
            return Ok(Decision::Done);
        }
        if at.lsn() > self.server.wal_position {
            return self.gap(Gap::Beyond, Some(at));
        }
        if let Some(fork) = self.forked_before(stored, at.lsn()) {
            return self.gap(Gap::Forked(fork), Some(at));
        }
        let Some(slot) = self.slot else {
            return self.gap(Gap::NoSlot, Some(at));
        };
        if let Some(reason) = self.invalidation() {
            return self.gap(Gap::Invalidated(reason), Some(at));
        }
        let confirmed = self.confirmed(slot)?;
        let partial = stored.partial;
        let resume = |at, partial, advance_slot_to| {
            Ok(Decision::Resume {
                at,
                partial,
                advance_slot_to,
            })
        };
        use OffsetMismatch::{NoValidation, Stop, TrustGreaterLsn, TrustOffset, TrustSlot};
        match self.policy.mismatch {
            Stop | TrustOffset if confirmed > at.lsn() => {
                self.gap(Gap::Behind(confirmed), Some(at))
            }
            TrustSlot | TrustGreaterLsn if confirmed > at.lsn() => {
                resume(ResumePoint::slot_start(confirmed), None, None)
            }
            TrustOffset | TrustGreaterLsn if confirmed < at.lsn() => {
                resume(at, partial, Some(at.lsn()))
            }
            Stop | NoValidation | TrustOffset | TrustSlot | TrustGreaterLsn => {
                resume(at, partial, None)
            }
        }
    }

    /// Where the stored position's timeline ended, if that was before the position: the server went
    /// on from an older state, and commits of its own may lie below the position.
    fn forked_before(&self, stored: &StoredOffset, at: Lsn) -> Option<Lsn> {
        let timeline = stored.identity.as_ref()?.timeline;
        self.server
            .past_timelines
            .iter()
            .filter(|(past, _)| *past >= timeline)
            .map(|&(_, end)| end)
            .min()
            .filter(|&end| end < at)
    }

    /// A stop because rows may be missing, unless a new snapshot may fill the gap.
    fn gap(&self, gap: Gap, at: Option<ResumePoint>) -> Result<Decision, Failure> {
        let what = gap.explain(&self.policy.slot, self.server.wal_position, at);
        if self.policy.snapshot == SnapshotMode::WhenNeeded || self.always() {
            return Ok(Decision::SnapshotAgain {
                slot: self.fate(),
                reason: format!("{what}; snapshot.mode takes a new snapshot"),
            });
        }
        Err(Failure::gap(format!("{what}; {}", gap.remedy())))
    }
}

#[cfg(test)]
#[path = "startup_tests.rs"]
mod tests;
