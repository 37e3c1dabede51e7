//! The part of the stream that commits: events and the position behind them in one transaction.

use tokio::time::{Instant, timeout_at};

use super::attempt::as_partial;
use super::committer::Committer;
use super::stream::Stream;
use crate::error::{Class, Failure};
use crate::offset::Stored;
use crate::sink::{Committed, Moved};

/// How long a commit under way is waited for when the stream has ended for another reason. What
/// came of it shows at the next start in any case.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(2);

impl Stream<'_> {
    /// When [`Stream::commit_if_due`] has something to do next.
    pub(super) fn commit_at(&self) -> Option<Instant> {
        let committer = self.positions.committer()?;
        if self.transfer.sink.is_committing() {
            None
        } else if self.source.in_transaction() {
            committer.overdue()
        } else {
            committer.due()
        }
    }

    /// Begins a commit if it is time for one. Inside a transaction of the source it is only time
    /// when that has become too large, or too old.
    pub(super) fn commit_if_due(&mut self) -> Result<(), Failure> {
        let cut = self.transfer.sink.is_cut() && !self.transfer.sink.is_committing();
        match self.commit_at() {
            Some(due) if cut || due <= Instant::now() => self.commit(),
            _ => Ok(()),
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let Some(committer) = self.positions.committer_mut() else {
            return Ok(());
        };
        let partial = self.source.partial().map(as_partial);
        let record = committer.store.record(committer.reached(), partial)?;
        if self.source.in_transaction() {
            tracing::debug!(lsn = %committer.reached().lsn(), "committing inside a transaction");
        }
        committer.committing();
        self.transfer.sink.commit(&record)
    }

    /// Kafka has committed: the position is delivered and stored at once.
    pub(super) async fn committed(&mut self, committed: Committed) -> Result<(), Failure> {
        let Some(stored) = Stored::with(&committed) else {
            return Err(Failure::internal("the stream committed without a position"));
        };
        let lsn = stored.resume_point().lsn();
        self.progress.delivered(lsn)?;
        if let Some(committer) = self.positions.committer_mut() {
            committer.committed(lsn);
        }
        self.confirm(stored).await?;
        let owed = self
            .positions
            .committer_mut()
            .map(|committer| std::mem::take(&mut committer.owes_heartbeat));
        match owed {
            Some(true) => self.heartbeat().await,
            _ => Ok(()),
        }
    }

    /// Commits whatever is whole, until `deadline`. Returns how many events were left uncommitted.
    pub(super) async fn commit_rest(&mut self, deadline: Instant) -> Result<u64, Failure> {
        loop {
            if !self.transfer.sink.is_committing() {
                let idle = self.positions.committer().is_none_or(Committer::is_idle);
                if idle || self.source.in_transaction() {
                    break;
                }
                self.commit()?;
            }
            match timeout_at(deadline, self.transfer.sink.progressed()).await {
                Ok(moved) => {
                    if let Moved::Committed(committed) = moved? {
                        self.committed(committed).await?;
                    }
                }
                Err(_) => break,
            }
        }
        let left = self.transfer.sink.uncommitted();
        self.transfer.sink.abandon().await;
        Ok(left)
    }

    /// Before the attempt ends on `failure`: commits what is whole, as far as that is possible at
    /// once, and gives up the rest. That comes again, and nobody has seen it.
    pub(super) async fn save_transaction(&mut self, failure: &Failure) {
        if self.transfer.sink.is_sound() && failure.class() != Class::Internal {
            let deadline = Instant::now() + ANSWER;
            if let Err(second) = self.commit_rest(deadline).await {
                tracing::debug!(error = %second, "could not finish the last transaction");
            }
        }
        self.transfer.sink.abandon().await;
    }
}
