//! Records into Kafka, in order; and the prefix that Kafka has acknowledged.
//!
//! Owns: the producer and every librdkafka key, the acknowledgement tracker, topic creation.
//! Never: a slot, a table.
//!
//! The life of a sink: [`Sink::open`], then for each topic once [`Sink::prepare`], then
//! [`Sink::enqueue`] while there is room, [`Sink::seal`] at the end of each burst, and
//! [`Sink::progressed`] whenever nothing else is to be done. With transactions [`Sink::fence`] comes
//! first, and positions travel with [`Sink::commit`] instead of [`Sink::seal`]. After the first failure it is finished:
//! the caller drops it and begins again from the stored position.

mod ack;
pub(crate) mod client;
mod committing;
mod firsts;
mod producer;
mod refusal;
mod topics;
mod transaction;

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::Producer as _;
use tokio::time::Instant;

pub use ack::InFlight;
use ack::Tracker;
use client::{Role, Settings};
use firsts::Firsts;
#[cfg(test)]
pub(crate) use firsts::murmur2;
pub use producer::BatchSize;
use producer::Producer;
pub(crate) use refusal::{code_of, describe, failed, failed_with, position_refused, verdict};
use topics::Topics;
pub use transaction::{Committed, PositionRecord};
use transaction::{Failed, Transactions};

use crate::config::{ExactlyOnce, KafkaProperties, Limits, TopicCreation};
use crate::error::Failure;
use crate::lsn::ResumePoint;
use crate::record::{Origin, Record};

/// Proof that Kafka acknowledged every record up to a resume point. Only this module makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivered(ResumePoint);

impl Delivered {
    /// The position up to which everything is acknowledged.
    pub fn resume_point(&self) -> ResumePoint {
        self.0
    }
}

/// What a sink needs to know.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Java producer properties.
    pub producer: KafkaProperties,
    /// Java client properties for creating topics.
    pub admin: KafkaProperties,
    /// How to create missing topics; `None` leaves it to the broker.
    pub topic_creation: Option<TopicCreation>,
    /// Bounds on what may wait for Kafka.
    pub limits: Limits,
    /// `client.id`, unless the properties give one.
    pub client_id: String,
    /// What sinks opened with these options have learned; keep the options from one to the next.
    pub batch_size: BatchSize,
    /// Produce in transactions.
    pub exactly_once: Option<ExactlyOnce>,
}

/// What has moved since the last look.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// There is room again, at most.
    Room,
    /// Kafka has acknowledged everything up to a position.
    Delivered(Delivered),
    /// Kafka has committed everything up to a position, and the position.
    Committed(Committed),
}

/// How long a failed sink waits for the reports that say what failed first.
const LAST_REPORTS: Duration = Duration::from_millis(500);

/// One producer and what it owes.
pub struct Sink {
    producer: Producer,
    tracker: Tracker,
    topics: Topics,
    transactions: Option<Transactions>,
    firsts: Firsts,
    /// The client's own limit on one record, for messages.
    record_limit: String,
}

impl Sink {
    /// Creates the producer. It connects in the background; [`Sink::prepare`] and [`Sink::probe`]
    /// say whether that went well.
    ///
    /// # Errors
    /// `Config` when a property cannot be used, naming it.
    pub fn open(options: &SinkOptions) -> Result<Self, Failure> {
        let mut settings =
            Settings::translate(&options.producer, Role::Producer, &options.client_id)?;
        producer::complete(
            &mut settings,
            options.topic_creation.is_some(),
            &options.batch_size,
        );
        if let Some(options) = &options.exactly_once {
            transaction::complete(&mut settings, options);
        }
        settings.log_notices();
        let record_limit = settings.get("message.max.bytes").unwrap_or("?").to_owned();
        let tracker = Tracker::new(options.limits);
        let producer = Producer::start(
            &settings,
            tracker.acks().clone(),
            options.batch_size.clone(),
        )?;
        let topics = Topics::new(
            options.topic_creation.clone(),
            options.admin.clone(),
            options.client_id.clone(),
        );
        Ok(Self {
            producer,
            tracker,
            topics,
            transactions: options.exactly_once.as_ref().map(Transactions::new),
            firsts: Firsts::default(),
            record_limit,
        })
    }

    /// Whether another record may be enqueued.
    pub fn has_room(&self) -> bool {
        let open =
            |transactions: &Transactions| !transactions.is_committing() && !transactions.is_cut();
        self.tracker.has_room() && self.transactions.as_ref().is_none_or(open)
    }

    /// Whether [`Sink::prepare`] must be called (again) before this record: it names a partition
    /// that its topic did not have when last looked at.
    pub fn outgrown(&mut self, record: &Record<'_>) -> bool {
        let named = record.partition;
        named.is_some_and(|partition| self.topics.outgrown(&record.topic, partition))
    }

    /// Looks the topic up once per run. A missing one is created as `topic.creation.*` says, or by
    /// the broker. Cancel-safe.
    ///
    /// # Errors
    /// `Config` names topic, property and right; `Retriable` when no broker answers in time.
    pub async fn prepare(&mut self, topic: &str) -> Result<(), Failure> {
        self.topics.prepare(topic, &self.producer).await?;
        if self.transactions.is_none()
            && let Some(partitions) = self.topics.partitions(topic)
        {
            self.firsts.add(topic, partitions);
        }
        Ok(())
    }

    /// Whether `record` may be enqueued now: not if it is the second for a partition whose first one
    /// Kafka has not acknowledged. That it may be is progress, see [`Sink::progressed`].
    pub fn admits(&mut self, record: &Record<'_>) -> bool {
        self.firsts.admit(record, self.tracker.acks().firsts())
    }

    /// Hands a record to Kafka, behind all earlier ones. Never blocks.
    ///
    /// # Errors
    /// `Poison` when the record itself cannot be sent; the sink goes on without it. `Internal` when
    /// the topic was not prepared. Any other class: the sink is finished.
    pub fn enqueue(&mut self, record: &Record<'_>, origin: Origin) -> Result<(), Failure> {
        #[cfg(feature = "sabotage")]
        if let Some(records) = crate::sabotage::instead_of(record, origin) {
            return records
                .iter()
                .try_for_each(|(record, origin)| self.hand_over(record, *origin));
        }
        self.hand_over(record, origin)
    }

    fn hand_over(&mut self, record: &Record<'_>, origin: Origin) -> Result<(), Failure> {
        let Some(partitions) = self.topics.partitions(&record.topic) else {
            return Err(Failure::internal(format!(
                "topic {:?} was not prepared before its first record",
                record.topic
            )));
        };
        if let Some(partition) = record.partition.filter(|p| !(0..partitions).contains(p)) {
            return Err(unsendable(
                record,
                origin,
                &format!("partition {partition} does not exist, the topic has {partitions}"),
            ));
        }
        if record.timestamp_ms.is_some_and(|time| time < 0) {
            return Err(unsendable(
                record,
                origin,
                "the timestamp lies before 1970, which Kafka cannot store",
            ));
        }
        if let Some(transactions) = &mut self.transactions {
            transactions.begin(&self.producer)?;
        }
        let mut mark = self.tracker.mark(origin);
        let is_first = self.firsts.is_first(record);
        if is_first {
            mark = ack::first(mark);
        }
        match self.producer.send(record, mark) {
            Ok(()) => {
                self.tracker.entered(record.size());
                if is_first {
                    self.firsts.entered(record);
                }
                if let Some(transactions) = &mut self.transactions {
                    transactions.entered();
                }
                Ok(())
            }
            Err(Code::MessageSizeTooLarge) => Err(unsendable(
                record,
                origin,
                &format!(
                    "larger than the client limit max.request.size ({} bytes)",
                    self.record_limit
                ),
            )),
            // Whatever ended the producer is known once its last reports are in, and then said by
            // `progressed`. Until then this record counts as one that Kafka owes an answer for.
            Err(Code::Fatal) if self.transactions.is_none() => {
                self.tracker.entered(record.size());
                Ok(())
            }
            Err(code) => {
                let cause = self.cause(code);
                let text = format!("enqueue a record for topic {:?}", record.topic);
                Err(cause.unwrap_or_else(|| failed_with(&text, code).at(origin)))
            }
        }
    }

    /// Ends the current batch. `end` is the position reached when it and all before it are
    /// delivered: `None` when the burst ended inside a transaction. With nothing enqueued since the
    /// last seal this is how an idle position travels. In transactions a position is delivered by
    /// [`Sink::commit`] only.
    pub fn seal(&mut self, end: Option<ResumePoint>) {
        #[cfg(feature = "sabotage")]
        if let Some((record, origin)) = crate::sabotage::held() {
            let _late = self.hand_over(&record, origin);
        }
        self.tracker
            .seal(end.filter(|_| self.transactions.is_none()));
    }

    /// Waits until Kafka has acknowledged something, or has answered a commit. Cancel-safe.
    ///
    /// # Errors
    /// As [`Sink::delivered`]; or a commit that did not happen, or may not have.
    pub async fn progressed(&mut self) -> Result<Moved, Failure> {
        if let Some(transactions) = &mut self.transactions
            && transactions.is_committing()
        {
            return match transactions.outcome().await {
                Ok(committed) => {
                    self.tracker.advance();
                    Ok(Moved::Committed(committed))
                }
                Err(Failed::Refused(failure) | Failed::Unknown(failure)) => Err(failure),
                Err(Failed::Undelivered) => Err(self.give_up().await),
            };
        }
        let failed = self.producer.has_failed();
        if let Some(point) = self.tracker.advance() {
            return Ok(Moved::Delivered(Delivered(point)));
        }
        if failed {
            return Err(self.give_up().await);
        }
        self.tracker.acks().changed.notified().await;
        Ok(match self.tracker.advance() {
            Some(point) => Moved::Delivered(Delivered(point)),
            None => Moved::Room,
        })
    }

    /// How full the way to Kafka is, 0 to 1.
    pub fn fill_ratio(&self) -> f64 {
        self.tracker.fill_ratio()
    }

    /// The newest resume point of the finished prefix, once it moves. Cancel-safe. While brokers
    /// are away it waits; [`Sink::trouble`] says why.
    ///
    /// # Errors
    /// The first refusal in order, after every position before it has been given out; or the loss
    /// of the producer. The sink is finished.
    pub async fn delivered(&mut self) -> Result<Delivered, Failure> {
        loop {
            // Read first: a position finished before the failure is still given out.
            let failed = self.producer.has_failed();
            if let Some(point) = self.tracker.advance() {
                return Ok(Delivered(point));
            }
            if failed {
                return Err(self.give_up().await);
            }
            self.tracker.acks().changed.notified().await;
        }
    }

    /// Purges, and waits shortly for reports already under way, since one refused record makes
    /// others of its batch fail before or after it.
    async fn give_up(&mut self) -> Failure {
        self.producer.purge();
        let deadline = Instant::now() + LAST_REPORTS;
        while self.producer.unreported() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let cause = match self.producer.has_culprit() {
            true => None,
            false => self.cause(Code::State),
        };
        cause.unwrap_or_else(|| self.producer.failure())
    }

    /// What is handed over and not yet acknowledged.
    pub fn in_flight(&self) -> InFlight {
        self.tracker.in_flight()
    }

    /// What the client is struggling with while it retries by itself, and for how long; `None`
    /// when the last word was a delivery.
    pub fn trouble(&self) -> Option<String> {
        let (text, since) = self.producer.trouble().current()?;
        Some(format!("{text} (for {} s)", since.as_secs()))
    }

    /// Checks, within a bounded time, that a broker answers and lets us in.
    ///
    /// # Errors
    /// `Config` for refused credentials or certificates, `Retriable` when nobody answers.
    pub async fn probe(&self) -> Result<(), Failure> {
        let client = self.producer.client().clone();
        client::reach(self.producer.trouble(), move || {
            client::answers(client.client())
        })
        .await
    }

    /// Waits until everything is delivered or `deadline` has passed; the newest position reached.
    /// What is still open is sealed without a position.
    ///
    /// # Errors
    /// As [`Sink::delivered`].
    pub async fn drain(&mut self, deadline: Instant) -> Result<Option<Delivered>, Failure> {
        self.tracker.seal(None);
        let mut newest = None;
        loop {
            // Everything acknowledged: take the last position without waiting for another.
            if let Some(point) = self.tracker.advance() {
                newest = Some(Delivered(point));
            }
            if self.tracker.in_flight().records == 0 && !self.producer.has_failed() {
                return Ok(newest);
            }
            match tokio::time::timeout_at(deadline, self.delivered()).await {
                Ok(Ok(further)) => newest = Some(further),
                Ok(Err(failure)) if newest.is_none() => return Err(failure),
                // The position reached is worth more than the failure: a restart meets it again.
                Ok(Err(failure)) => {
                    tracing::warn!("flush at shutdown: {failure}");
                    return Ok(newest);
                }
                Err(_) => return Ok(newest),
            }
        }
    }
}

/// The user as whom a client with these Java properties logs in with a password or a client id.
pub fn user(java: &KafkaProperties) -> Option<String> {
    client::user(java)
}

/// The Kafka client inside this binary, for `--version`: its version, and what was built in
/// (codecs, TLS, SASL mechanisms).
pub fn client_build() -> String {
    let (_, version) = rdkafka::util::get_rdkafka_version();
    let features = rdkafka::ClientConfig::new()
        .create_native_config()
        .and_then(|config| config.get("builtin.features"))
        .unwrap_or_default();
    format!("librdkafka {version} ({features})")
}

fn unsendable(record: &Record<'_>, origin: Origin, why: &str) -> Failure {
    let event = record
        .event_id()
        .map_or("an event".to_owned(), |id| format!("event {id}"));
    Failure::poison(format!(
        "produce {event} at {} ({} bytes with key and headers) to topic {:?}: {why}",
        origin.lsn,
        record.size(),
        record.topic
    ))
    .at(origin)
}

#[cfg(test)]
mod tests;
