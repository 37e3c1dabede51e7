//! Which prefix of what was handed to Kafka is acknowledged.
//!
//! Records are counted per batch, in a fixed ring shared with librdkafka's poll thread: one atomic
//! subtraction per acknowledgement, and no lock, allocation or wake-up before a whole batch is done.
//! A position is given out only when its batch and every batch before it are done; a batch with a
//! refused record is never done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use std::sync::Arc;
use tokio::sync::Notify;

use crate::config::Limits;
use crate::lsn::{Lsn, ResumePoint};
use crate::record::{Origin, TableIndex};

/// Batches that may wait for Kafka at once; a power of two.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
const TABLE_BITS: u32 = 8;
/// What is left of the opaque for the distance between a record's LSN and its batch's first.
const DELTA_BITS: u32 = usize::BITS - SLOT_BITS - TABLE_BITS - 1;
/// The record is the first that its partition gets from this producer.
const FIRST: usize = 1 << DELTA_BITS;
const _: () = assert!(
    usize::BITS == 64,
    "the opaque packs four fields into 64 bits"
);

/// An open batch counts down from here, so that it cannot reach zero before it is sealed.
const BIAS: i64 = 1 << 40;

/// A batch is cut when it holds this fraction of a limit: what is acknowledged is released batch
/// by batch, so a batch must be small against the limit.
const CUT: usize = 8;

#[derive(Debug, Default)]
struct Slot {
    /// Records not yet acknowledged, plus [`BIAS`] while the batch is open.
    remaining: AtomicI64,
    number: AtomicU64,
    first_lsn: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

/// The half of the tracker that the poll thread sees.
#[derive(Debug)]
pub(super) struct Acks {
    slots: Box<[Slot]>,
    released_records: AtomicU64,
    released_bytes: AtomicU64,
    firsts: AtomicU64,
    /// Told whenever a batch or a partition's first record is done, and when the producer fails.
    pub(super) changed: Notify,
}

/// A record's place, as it comes back with its delivery report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The batch; batches are numbered in order.
    pub(super) batch: u64,
    /// The row.
    pub(super) origin: Origin,
}

impl Acks {
    fn slot(&self, index: usize) -> &Slot {
        &self.slots[index % SLOTS]
    }

    /// Kafka has the record behind `mark`.
    pub(super) fn acknowledge(&self, mark: usize) {
        if mark & FIRST != 0 {
            self.firsts.fetch_add(1, Ordering::Release);
            self.changed.notify_one();
        }
        let slot = self.slot(slot_of(mark));
        if slot.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish(slot);
        }
    }

    /// How many records marked as [`first`] are acknowledged.
    pub(super) fn firsts(&self) -> u64 {
        self.firsts.load(Ordering::Acquire)
    }

    /// Where the record behind `mark` came from. Valid while its batch is not done.
    pub(super) fn place(&self, mark: usize) -> Option<Place> {
        let slot = self.slot(slot_of(mark));
        // The delivery report travelled through librdkafka's queues, whose locks order this read
        // after the writes made when the batch was opened.
        let first = slot.first_lsn.load(Ordering::Relaxed);
        let lsn = Lsn::new(first.wrapping_add_signed(delta_of(mark)))?;
        let table = TableIndex((mark >> (DELTA_BITS + 1)) as u8);
        Some(Place {
            batch: slot.number.load(Ordering::Relaxed),
            origin: Origin { lsn, table },
        })
    }

    fn finish(&self, slot: &Slot) {
        let add = |total: &AtomicU64, part: &AtomicU64| {
            total.fetch_add(part.load(Ordering::Relaxed), Ordering::Release);
        };
        add(&self.released_records, &slot.records);
        add(&self.released_bytes, &slot.bytes);
        self.changed.notify_one();
    }
}

/// Marks a record as the first of its partition.
pub(super) fn first(mark: usize) -> usize {
    mark | FIRST
}

fn slot_of(mark: usize) -> usize {
    mark >> (usize::BITS - SLOT_BITS)
}

/// The low bits, sign-extended.
fn delta_of(mark: usize) -> i64 {
    ((mark << (usize::BITS - DELTA_BITS)) as i64) >> (usize::BITS - DELTA_BITS)
}

fn pack(slot: usize, table: TableIndex, delta: i64) -> usize {
    let low = (delta as usize) & ((1 << DELTA_BITS) - 1);
    slot << (usize::BITS - SLOT_BITS) | usize::from(table.0) << (DELTA_BITS + 1) | low
}

/// The distance from `first` to `lsn`, if it fits the opaque.
fn delta(first: Lsn, lsn: Lsn) -> Option<i64> {
    let delta = lsn.as_u64().wrapping_sub(first.as_u64()) as i64;
    let bound = 1_i64 << (DELTA_BITS - 1);
    (-bound..bound).contains(&delta).then_some(delta)
}

/// What is handed over and not yet acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// Records; those of a batch count until all of it is acknowledged.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// Batches, the open one included.
    pub batches: usize,
    /// The first position that still waits for an acknowledgement.
    pub oldest: Option<ResumePoint>,
}

#[derive(Debug)]
struct Open {
    first: Lsn,
    records: u64,
    bytes: u64,
    /// Set when a seal found the ring full: the batch goes on, and this is what it owes.
    end: Option<ResumePoint>,
}

/// The half of the tracker that the sink owns.
#[derive(Debug)]
pub(super) struct Tracker {
    acks: Arc<Acks>,
    limits: Limits,
    /// Ends of the sealed batches, oldest first. Their numbers are `next - len .. next`.
    sealed: VecDeque<Option<ResumePoint>>,
    open: Option<Open>,
    /// Number of the open batch, or of the next one.
    next: u64,
    finished: Option<ResumePoint>,
    sent_records: u64,
    sent_bytes: u64,
}

impl Tracker {
    pub(super) fn new(limits: Limits) -> Self {
        let acks = Acks {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            released_records: AtomicU64::new(0),
            released_bytes: AtomicU64::new(0),
            firsts: AtomicU64::new(0),
            changed: Notify::new(),
        };
        Self {
            acks: Arc::new(acks),
            limits,
            sealed: VecDeque::new(),
            open: None,
            next: 0,
            finished: None,
            sent_records: 0,
            sent_bytes: 0,
        }
    }

    pub(super) fn acks(&self) -> &Arc<Acks> {
        &self.acks
    }

    /// The opaque for a record about to be produced. Nothing is counted before [`Self::entered`].
    pub(super) fn mark(&mut self, origin: Origin) -> usize {
        let fits = |open: &Open| delta(open.first, origin.lsn).is_some();
        if self.open.as_ref().is_some_and(|open| !fits(open)) && self.has_slot() {
            self.seal(None);
        }
        let slot = self.next as usize % SLOTS;
        let open = self.open.get_or_insert_with(|| {
            let fresh = &self.acks.slots[slot];
            fresh.remaining.store(BIAS, Ordering::Release);
            fresh.number.store(self.next, Ordering::Relaxed);
            fresh
                .first_lsn
                .store(origin.lsn.as_u64(), Ordering::Relaxed);
            Open {
                first: origin.lsn,
                records: 0,
                bytes: 0,
                end: None,
            }
        });
        // Without a free slot a far-off record keeps its batch and is named by the batch's LSN.
        pack(
            slot,
            origin.table,
            delta(open.first, origin.lsn).unwrap_or(0),
        )
    }

    /// The record just marked is librdkafka's now.
    pub(super) fn entered(&mut self, bytes: usize) {
        let Some(open) = &mut self.open else { return };
        open.records += 1;
        open.bytes += bytes as u64;
        self.sent_records += 1;
        self.sent_bytes += bytes as u64;
        let full = open.records as usize >= self.limits.in_flight_records.div_ceil(CUT)
            || open.bytes as usize >= self.limits.in_flight_bytes.div_ceil(CUT);
        if full && self.has_slot() {
            self.seal(None);
        }
    }

    /// Ends the open batch; `end` is reached once it and all before it are acknowledged.
    pub(super) fn seal(&mut self, end: Option<ResumePoint>) {
        match &mut self.open {
            Some(open) if open.records > 0 => {
                open.end = end.or(open.end);
                if self.has_slot() {
                    self.close();
                }
            }
            // Nothing of its own to wait for: it is reached together with the batch before.
            _ => match (end, self.sealed.back_mut()) {
                (None, _) => {}
                (Some(_), Some(last)) => *last = end,
                (Some(_), None) => self.finished = end,
            },
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let slot = &self.acks.slots[self.next as usize % SLOTS];
        slot.records.store(open.records, Ordering::Relaxed);
        slot.bytes.store(open.bytes, Ordering::Relaxed);
        let unbias = BIAS - open.records as i64;
        if slot.remaining.fetch_sub(unbias, Ordering::AcqRel) == unbias {
            self.acks.finish(slot);
        }
        self.sealed.push_back(open.end);
        self.next += 1;
    }

    /// One slot is kept for the open batch.
    fn has_slot(&self) -> bool {
        self.sealed.len() + 1 < SLOTS
    }

    /// The newest position of the finished prefix, if it moved since the last call.
    pub(super) fn advance(&mut self) -> Option<ResumePoint> {
        self.retire();
        if self.open.as_ref().is_some_and(|open| open.end.is_some()) && self.has_slot() {
            self.close();
            self.retire();
        }
        #[cfg(feature = "sabotage")]
        if let Some(end) =
            crate::sabotage::early(self.sealed.iter().rev().copied().flatten().next())
        {
            return Some(end);
        }
        self.finished.take()
    }

    fn retire(&mut self) {
        while let Some(&end) = self.sealed.front() {
            let number = self.next - self.sealed.len() as u64;
            let slot = &self.acks.slots[number as usize % SLOTS];
            if slot.remaining.load(Ordering::Acquire) != 0 {
                break;
            }
            self.sealed.pop_front();
            self.finished = end.or(self.finished);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let (records, bytes) = self.outstanding();
        self.has_slot()
            && (records as usize) < self.limits.in_flight_records
            && (bytes as usize) < self.limits.in_flight_bytes
    }

    /// The larger share of the two limits that is taken, 0 to 1.
    pub(super) fn fill_ratio(&self) -> f64 {
        let (records, bytes) = self.outstanding();
        let share = |taken: u64, limit: usize| taken as f64 / limit.max(1) as f64;
        share(records, self.limits.in_flight_records)
            .max(share(bytes, self.limits.in_flight_bytes))
            .min(1.0)
    }

    fn outstanding(&self) -> (u64, u64) {
        let released = |total: &AtomicU64| total.load(Ordering::Acquire);
        (
            self.sent_records - released(&self.acks.released_records),
            self.sent_bytes - released(&self.acks.released_bytes),
        )
    }

    pub(super) fn in_flight(&self) -> InFlight {
        let (records, bytes) = self.outstanding();
        let owed = self.open.as_ref().and_then(|open| open.end);
        InFlight {
            records,
            bytes,
            batches: self.sealed.len() + usize::from(self.open.is_some()),
            oldest: self.sealed.iter().flatten().copied().next().or(owed),
        }
    }
}

#[cfg(test)]
#[path = "ack_tests.rs"]
mod tests;
