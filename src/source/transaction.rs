//! Begin to Commit as a state machine: which transaction a change belongs to, whether it was
//! already delivered, and the only place where a commit becomes a resume point.

use crate::error::Failure;
use crate::lsn::{CommitInfo, Lsn, ResumePoint};

/// A resume point inside a transaction: Debezium leaves one, and so does a large transaction that is
/// committed to Kafka in parts.
///
/// Within the transaction `xid`, changes up to and including `lsn` were delivered. Several changes
/// can share one LSN (COPY writes many rows in one record); of those at `lsn`, the first `events`
/// were delivered, and at least one. Every other transaction is delivered whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialTransaction {
    /// Its transaction id.
    pub xid: u32,
    /// Position of the last change that was delivered.
    pub lsn: Lsn,
    /// How many changes at `lsn` were delivered; 0 and 1 both mean one.
    pub events: u32,
}

/// The transaction that is open, if any, and what of it to skip.
#[derive(Debug)]
pub(super) struct Transactions {
    open: Option<Open>,
    partial: Option<PartialTransaction>,
}

#[derive(Debug)]
struct Open {
    final_lsn: u64,
    commit: CommitInfo,
    /// Changes seen at the partial transaction's LSN.
    at_partial: u32,
    /// LSN of the last change, and how many there were at it.
    last: Option<(Lsn, u32)>,
}

/// What to do with a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Deliver it as part of this transaction.
    Take(CommitInfo),
    /// It was delivered before.
    Skip,
}

impl Transactions {
    pub(super) fn new(partial: Option<PartialTransaction>) -> Self {
        Self {
            open: None,
            partial,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The open transaction.
    pub(super) fn current(&self) -> Option<CommitInfo> {
        self.open.as_ref().map(|open| open.commit)
    }

    /// How far the open transaction has come: what a restart may leave out once all changes handed
    /// out so far are delivered. `None` outside of transactions and before the first change.
    pub(super) fn inside(&self) -> Option<PartialTransaction> {
        let open = self.open.as_ref()?;
        let (lsn, events) = open.last?;
        Some(PartialTransaction {
            xid: open.commit.xid,
            lsn,
            events,
        })
    }

    /// What of a transaction still to come was delivered before this stream began.
    pub(super) fn partial(&self) -> Option<PartialTransaction> {
        self.partial
    }

    pub(super) fn begin(&mut self, final_lsn: u64, commit: CommitInfo) -> Result<(), Failure> {
        if let Some(open) = &self.open {
            return Err(Failure::internal(format!(
                "transaction {} begins while transaction {} is open",
                commit.xid, open.commit.xid
            )));
        }
        self.open = Some(Open {
            final_lsn,
            commit,
            at_partial: 0,
            last: None,
        });
        Ok(())
    }

    /// Decides on one change of a table of ours.
    pub(super) fn change(&mut self, lsn: Lsn) -> Result<Verdict, Failure> {
        let Some(open) = &mut self.open else {
            return Err(Failure::internal(format!(
                "change at {lsn} arrived outside any transaction"
            )));
        };
        open.last = match open.last {
            Some((same, count)) if same == lsn => Some((lsn, count.saturating_add(1))),
            _ => Some((lsn, 1)),
        };
        let delivered = match self.partial {
            Some(partial) if partial.xid == open.commit.xid => {
                if lsn == partial.lsn {
                    open.at_partial = open.at_partial.saturating_add(1);
                    open.at_partial <= partial.events.max(1)
                } else {
                    lsn < partial.lsn
                }
            }
            _ => false,
        };
        Ok(if delivered {
            Verdict::Skip
        } else {
            Verdict::Take(open.commit)
        })
    }

    pub(super) fn commit(&mut self, commit_lsn: u64, end_lsn: u64) -> Result<ResumePoint, Failure> {
        let Some(open) = self.open.take() else {
            return Err(Failure::internal(
                "a commit arrived outside any transaction",
            ));
        };
        let end = Lsn::new(end_lsn).filter(|_| commit_lsn == open.final_lsn);
        let Some(end) = end.filter(|_| end_lsn >= commit_lsn) else {
            return Err(Failure::internal(format!(
                "the commit of transaction {} does not match its begin",
                open.commit.xid
            )));
        };
        if self
            .partial
            .is_some_and(|partial| partial.xid == open.commit.xid)
        {
            self.partial = None;
        }
        Ok(ResumePoint::after_commit(end, open.commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsn(raw: u64) -> Lsn {
        Lsn::new(raw).unwrap()
    }

    fn info(xid: u32) -> CommitInfo {
        CommitInfo { xid, time_us: 1 }
    }

    fn taken(transactions: &mut Transactions, lsns: &[u64]) -> Vec<bool> {
        lsns.iter()
            .map(|raw| transactions.change(lsn(*raw)).unwrap() != Verdict::Skip)
            .collect()
    }

    #[test]
    fn a_commit_yields_its_end_as_resume_point() {
        let mut transactions = Transactions::new(None);
        transactions.begin(100, info(7)).unwrap();
        assert_eq!(
            transactions.change(lsn(90)).unwrap(),
            Verdict::Take(info(7))
        );
        assert!(transactions.is_open());
        let point = transactions.commit(100, 148).unwrap();
        assert_eq!(point, ResumePoint::after_commit(lsn(148), info(7)));
        assert!(!transactions.is_open());
    }

    #[test]
    fn messages_out_of_order_are_refused() {
        let mut transactions = Transactions::new(None);
        assert!(transactions.change(lsn(1)).is_err());
        assert!(transactions.commit(1, 2).is_err());
        transactions.begin(100, info(7)).unwrap();
        assert!(transactions.begin(200, info(8)).is_err());
        assert!(transactions.commit(99, 148).is_err());
    }

    #[test]
    fn a_position_inside_a_transaction_skips_only_what_came_before_it() {
        let partial = PartialTransaction {
            xid: 7,
            lsn: lsn(90),
            events: 0,
        };
        let mut transactions = Transactions::new(Some(partial));
        transactions.begin(60, info(6)).unwrap();
        assert_eq!(taken(&mut transactions, &[50]), [true]);
        transactions.commit(60, 61).unwrap();
        transactions.begin(100, info(7)).unwrap();
        assert_eq!(
            taken(&mut transactions, &[80, 90, 95]),
            [false, false, true]
        );
        transactions.commit(100, 148).unwrap();
        transactions.begin(200, info(7)).unwrap();
        assert_eq!(taken(&mut transactions, &[10]), [true]);
    }

    #[test]
    fn rows_of_one_copy_share_an_lsn_and_are_counted() {
        let partial = PartialTransaction {
            xid: 7,
            lsn: lsn(90),
            events: 3,
        };
        let mut transactions = Transactions::new(Some(partial));
        transactions.begin(100, info(7)).unwrap();
        assert_eq!(
            taken(&mut transactions, &[90; 5]),
            [false, false, false, true, true]
        );
    }

    #[test]
    fn a_position_inside_goes_on_where_it_was_taken() {
        let changes = [80, 90, 90, 90, 95];
        for taken_before in 1..=changes.len() {
            let mut first = Transactions::new(None);
            first.begin(100, info(7)).unwrap();
            assert_eq!(first.inside(), None);
            taken(&mut first, &changes[..taken_before]);
            let mut second = Transactions::new(first.inside());
            second.begin(100, info(7)).unwrap();
            let again = taken(&mut second, &changes);
            let left_out = again.iter().filter(|taken| !**taken).count();
            assert_eq!(left_out, taken_before, "{again:?}");
            assert_eq!(
                again.iter().position(|taken| *taken).unwrap_or(5),
                taken_before
            );
        }
    }

    #[test]
    fn row_positions_may_fall_from_one_transaction_to_the_next() {
        let mut transactions = Transactions::new(None);
        transactions.begin(100, info(8)).unwrap();
        assert_eq!(taken(&mut transactions, &[90]), [true]);
        transactions.commit(100, 101).unwrap();
        transactions.begin(200, info(7)).unwrap();
        assert_eq!(taken(&mut transactions, &[10]), [true]);
    }
}
