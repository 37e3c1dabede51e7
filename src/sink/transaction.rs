//! Kafka transactions: records and the position behind them become visible together, or not at all.
//!
//! One transaction is open at a time. It begins with its first record and ends with
//! [`Transactions::commit`], after which nothing can be produced until Kafka has answered. There is
//! no abort and carry on: after the first failure the sink is finished, and the next one, which
//! begins by fencing this one off, finds in the offsets topic what came of it.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::util::Timeout;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::Settings;
use super::producer::{Producer, Reports};
use super::refusal::{code_of, describe, failed_with};
use crate::config::ExactlyOnce;
use crate::error::{Class, Failure};
use crate::lsn::ResumePoint;

/// How long the coordinator is asked for before the attempt is given up; the next one asks again.
const FENCE: Duration = Duration::from_secs(30);
/// One such question.
const FENCE_ANSWER: Duration = Duration::from_secs(5);
/// Pause before a call that may be repeated is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a commit looks whether the last report has been taken.
const LOOK: Duration = Duration::from_micros(200);
/// How long a transaction that is given up may take to be aborted. Otherwise the next sink or the
/// coordinator's clock does it, and readers of committed records wait that long.
const ABORT: Duration = Duration::from_secs(3);

/// Proof that Kafka has committed a transaction with the record of a position in it. Only this
/// module makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed(Option<ResumePoint>);

impl Committed {
    /// The position whose record was in the transaction; `None` inside a snapshot.
    pub fn resume_point(&self) -> Option<ResumePoint> {
        self.0
    }
}

/// The record of a position, to ride in the transaction of the events before it.
#[derive(Debug)]
pub struct PositionRecord {
    /// The offsets topic.
    pub topic: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The resume point that it says, if it says one.
    pub at: Option<ResumePoint>,
}

/// Over the producer's usual settings.
pub(super) fn complete(settings: &mut Settings, options: &ExactlyOnce) {
    let timeout = options.timeout.as_millis().to_string();
    settings.force("transactional.id", &options.transactional_id);
    settings.force("transaction.timeout.ms", &timeout);
    // It may not be longer than the transaction. What is given up then is not lost: the transaction
    // fails with it, and all of it is produced again.
    settings.force("message.timeout.ms", &timeout);
    for name in ["socket.timeout.ms", "request.timeout.ms"] {
        let set: Option<u128> = settings.get(name).and_then(|value| value.parse().ok());
        if set.is_some_and(|set| set > options.timeout.as_millis()) {
            settings.force(name, &timeout);
        }
    }
}

/// The state of a transactional producer.
pub(super) struct Transactions {
    id: String,
    timeout: Duration,
    /// Records that one transaction of the source may have before it is cut.
    limit: u64,
    is_open: bool,
    /// A commit has failed.
    is_broken: bool,
    /// Records in the open transaction, that of the position left out.
    records: u64,
    /// At this many records the open transaction takes no more.
    cut_at: u64,
    commit: Option<Commit>,
}

/// A commit on its way.
struct Commit {
    at: Option<ResumePoint>,
    outcome: JoinHandle<Result<(), Failed>>,
}

/// Why a commit did not happen.
pub(super) enum Failed {
    /// A record was refused before, so that it was not even tried; the producer knows which.
    Undelivered,
    /// Kafka has refused it, and the transaction is still open.
    Refused(Failure),
    /// It may have happened.
    Unknown(Failure),
}

impl Transactions {
    pub(super) fn new(options: &ExactlyOnce) -> Self {
        Self {
            id: options.transactional_id.clone(),
            timeout: options.timeout,
            limit: options.max_records,
            is_open: false,
            is_broken: false,
            records: 0,
            cut_at: options.max_records,
            commit: None,
        }
    }

    /// Fences off every producer that used this transactional id before, and ends its transaction.
    pub(super) async fn fence(&self, producer: &Producer) -> Result<(), Failure> {
        let attempt = format!("begin with transactional id {:?}", self.id);
        let began = Instant::now();
        loop {
            let client = Arc::clone(producer.client());
            let answer =
                tokio::task::spawn_blocking(move || client.init_transactions(FENCE_ANSWER))
                    .await
                    .map_err(|error| Failure::internal(attempt.clone()).caused_by(error))?;
            let Err(error) = answer else { return Ok(()) };
            if let Some((cause, text)) = producer.trouble().hopeless() {
                return Err(failed_with(&format!("{attempt}: {text}"), cause));
            }
            let late = began.elapsed() >= FENCE;
            if late || !may_repeat(&error) {
                return Err(self.explain(&attempt, code_of(&error), &words(&error)));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Begins a transaction unless one is open. A local matter, without a word to the broker.
    pub(super) fn begin(&mut self, producer: &Producer) -> Result<(), Failure> {
        if self.is_open {
            return Ok(());
        }
        producer.client().begin_transaction().map_err(|error| {
            self.explain("begin a Kafka transaction", code_of(&error), &words(&error))
        })?;
        self.is_open = true;
        Ok(())
    }

    /// A record has entered the open transaction.
    pub(super) fn entered(&mut self) {
        self.records += 1;
    }

    /// A transaction of the source has ended with the last record.
    pub(super) fn ended(&mut self) {
        self.cut_at = self.records.saturating_add(self.limit);
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// Whether the source's transaction has reached the limit.
    pub(super) fn is_cut(&self) -> bool {
        self.records >= self.cut_at
    }

    /// Ends the open transaction; the record of the position is in it already. The answer comes
    /// from [`Transactions::outcome`].
    pub(super) fn commit(&mut self, producer: &Producer, at: Option<ResumePoint>) {
        let client = Arc::clone(producer.client());
        let id = self.id.clone();
        let timeout = self.timeout;
        let outcome = tokio::task::spawn_blocking(move || {
            commit(&client).map_err(|error| match error {
                None => Failed::Undelivered,
                Some(error) => {
                    let attempt = "commit a Kafka transaction";
                    let failure = explain(&id, timeout, attempt, code_of(&error), &words(&error));
                    match error {
                        KafkaError::Transaction(error) if error.txn_requires_abort() => {
                            Failed::Refused(failure)
                        }
                        _ => Failed::Unknown(failure),
                    }
                }
            })
        });
        self.commit = Some(Commit { at, outcome });
    }

    /// What came of the commit under way; without one this never ends. Cancel-safe.
    pub(super) async fn outcome(&mut self) -> Result<Committed, Failed> {
        let Some(commit) = &mut self.commit else {
            return std::future::pending().await;
        };
        let answer = (&mut commit.outcome).await;
        let at = commit.at;
        self.commit = None;
        match answer {
            Ok(Ok(())) => {
                (self.is_open, self.records, self.cut_at) = (false, 0, self.limit);
                Ok(Committed(at))
            }
            Ok(Err(failed)) => {
                self.is_broken = true;
                if matches!(failed, Failed::Unknown(_)) {
                    // Not to be aborted: the next sink will find out.
                    self.is_open = false;
                }
                Err(failed)
            }
            Err(error) => Err(Failed::Unknown(
                Failure::internal("commit a Kafka transaction").caused_by(error),
            )),
        }
    }

    /// Aborts what is open, so that readers need not wait for it. Nothing depends on it. A commit
    /// under way is left to itself: whether it happened shows when the next sink has begun.
    pub(super) async fn abandon(&mut self, producer: &Producer) {
        let client = Arc::clone(producer.client());
        if !std::mem::take(&mut self.is_open)
            || self.is_committing()
            || client.client().fatal_error().is_some()
        {
            return;
        }
        producer.purge();
        let abort = tokio::task::spawn_blocking(move || client.abort_transaction(ABORT));
        match tokio::time::timeout(ABORT * 2, abort).await {
            Ok(Ok(Ok(()))) => tracing::debug!("aborted the open Kafka transaction"),
            _ => tracing::debug!("left the open Kafka transaction to its time-out"),
        }
    }

    /// What librdkafka knows of a transaction that failed without a record to blame: the right to a
    /// topic is asked for all records at once, and each of them only fails as a consequence.
    pub(super) fn cause(&self, producer: &Producer) -> Option<Failure> {
        // Not allowed while a transaction is open, failed or not, so nothing begins.
        let error = producer.client().begin_transaction().err()?;
        let code = code_of(&error);
        (code != Code::State).then(|| self.explain("produce to Kafka", code, &words(&error)))
    }

    /// A failure with the class and the remedy of `code`; `words` are librdkafka's.
    pub(super) fn explain(&self, attempt: &str, code: Code, words: &str) -> Failure {
        explain(&self.id, self.timeout, attempt, code, words)
    }
}

fn explain(id: &str, timeout: Duration, attempt: &str, code: Code, words: &str) -> Failure {
    if is_fence(code) {
        return Failure::retriable(format!(
            "{attempt}: fenced: another producer has begun with transactional id {id:?}, or the \
             transaction was open for longer than transaction.timeout.ms ({} ms): {}; letting go of \
             the slot",
            timeout.as_millis(),
            describe(code)
        ));
    }
    let failure = failed_with(&format!("{attempt}: {words}"), code);
    match failure.class() {
        // A transaction is not an event: nothing about it is poison.
        Class::Poison => Failure::retriable(failure.to_string()),
        _ => failure,
    }
}

/// Somebody else has begun with the same transactional id, or the coordinator has lost patience.
pub(super) fn is_fence(code: Code) -> bool {
    matches!(
        code,
        Code::Fenced | Code::InvalidProducerEpoch | Code::ProducerFenced
    )
}

/// Commits, once every report has been taken: what fails to be delivered must be known before.
/// `None`: a record was refused.
fn commit(client: &BaseProducer<Reports>) -> Result<(), Option<KafkaError>> {
    let reports = client.client().context();
    loop {
        while client.in_flight_count() > 0 && !reports.has_failed() {
            std::thread::sleep(LOOK);
        }
        if reports.has_failed() {
            return Err(None);
        }
        match client.commit_transaction(Timeout::Never) {
            Ok(()) => return Ok(()),
            Err(error) if may_repeat(&error) => std::thread::sleep(PAUSE),
            Err(error) => return Err(Some(error)),
        }
    }
}

/// Whether the same call may be made again, and must be: its outcome is open.
fn may_repeat(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => {
            !error.txn_requires_abort() && !error.is_fatal() && error.is_retriable()
        }
        KafkaError::Flush(_) => true,
        _ => false,
    }
}

/// What librdkafka says of it, which quotes no data.
fn words(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(error) => RDKafkaError::string(error),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
