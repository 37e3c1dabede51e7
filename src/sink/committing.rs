//! The part of the sink that is about transactions: without them nothing here does anything.

use rdkafka::error::RDKafkaErrorCode as Code;

use super::transaction::{Committed, PositionRecord, Transactions};
use super::{Moved, Sink, failed_with};
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};
use crate::record::{Origin, TableIndex};

impl Sink {
    /// Fences off every earlier producer with the same transactional id and ends what it left open;
    /// without transactions there is nothing to do. The stored position counts only after this.
    ///
    /// # Errors
    /// `Config` for a missing right, `Retriable` when no coordinator answers in time.
    pub async fn fence(&self) -> Result<(), Failure> {
        match &self.transactions {
            Some(transactions) => transactions.fence(&self.producer).await,
            None => Ok(()),
        }
    }

    /// Whether positions travel with [`Sink::commit`].
    pub fn has_transactions(&self) -> bool {
        self.transactions.is_some()
    }

    /// Records in the open transaction.
    pub fn uncommitted(&self) -> u64 {
        self.transactions.as_ref().map_or(0, Transactions::records)
    }

    /// Whether a commit is under way.
    pub fn is_committing(&self) -> bool {
        self.transactions
            .as_ref()
            .is_some_and(Transactions::is_committing)
    }

    /// Whether the source's transaction is larger than one of Kafka may be: it has to be committed
    /// in parts.
    pub fn is_cut(&self) -> bool {
        self.transactions.as_ref().is_some_and(Transactions::is_cut)
    }

    /// A transaction of the source has ended: the limit on its size counts anew.
    pub fn source_committed(&mut self) {
        if let Some(transactions) = &mut self.transactions {
            transactions.ended();
        }
    }

    /// Commits the open transaction with `position` in it, or `position` alone.
    /// [`Sink::progressed`] says what came of it; until then there is no room.
    ///
    /// # Errors
    /// The sink is finished.
    pub fn commit(&mut self, position: &PositionRecord) -> Result<(), Failure> {
        let Some(transactions) = &mut self.transactions else {
            return Err(Failure::internal("commit without transactions"));
        };
        if transactions.is_committing() {
            return Err(Failure::internal(
                "commit while another commit is under way",
            ));
        }
        transactions.begin(&self.producer)?;
        let origin = Origin {
            lsn: position.at.map_or(Lsn::MIN, ResumePoint::lsn),
            table: TableIndex::POSITION,
        };
        let mark = self.tracker.mark(origin);
        if let Err(code) = self.producer.send_position(position, mark) {
            let text = format!("store the position in topic {:?}", position.topic);
            return Err(self.cause(code).unwrap_or_else(|| failed_with(&text, code)));
        }
        self.tracker
            .entered(position.key.len() + position.value.len());
        self.tracker.seal(None);
        transactions.commit(&self.producer, position.at);
        Ok(())
    }

    /// Commits as [`Sink::commit`] does, and waits for the answer.
    ///
    /// # Errors
    /// The sink is finished.
    pub async fn commit_now(&mut self, position: &PositionRecord) -> Result<Committed, Failure> {
        self.commit(position)?;
        loop {
            if let Moved::Committed(committed) = self.progressed().await? {
                return Ok(committed);
            }
        }
    }

    /// Whether nothing has failed yet that makes this sink useless.
    pub fn is_sound(&self) -> bool {
        let broken = self
            .transactions
            .as_ref()
            .is_some_and(Transactions::is_broken);
        !broken && !self.producer.has_failed()
    }

    /// Gives up the open transaction, if there is one: nothing of it becomes visible.
    pub async fn abandon(&mut self) {
        if let Some(transactions) = &mut self.transactions {
            transactions.abandon(&self.producer).await;
        }
    }

    /// Why nothing can be produced, where the transaction is to blame.
    pub(super) fn cause(&self, code: Code) -> Option<Failure> {
        let transactions = self.transactions.as_ref()?;
        match self.producer.fatal() {
            Some((code, words)) => Some(transactions.explain("produce to Kafka", code, &words)),
            None if code == Code::State => transactions.cause(&self.producer),
            None => None,
        }
    }
}
