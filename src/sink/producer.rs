//! The producer: the settings that make the guarantees, and the thread that takes its reports.
//!
//! librdkafka queues what it is given, sends it in order per partition, retries by itself, and says
//! of each record exactly once what became of it, when polled. A record that is refused takes its
//! batch with it and ends the producer, so that nothing overtakes it; the next one reads it again.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};

use super::ack::Acks;
use super::client::{self, Lifeline, Settings, Tied, Trouble};
use super::refusal::Refusal;
use super::transaction::PositionRecord;
use crate::error::Failure;
use crate::record::Record;

/// The largest batch, in bytes before compression: below what brokers accept by default
/// (`message.max.bytes` 1,048,588), which they compare with whole batches.
pub(super) const BATCH_BYTES: i64 = 1_000_000;

/// The client's own limit on one record unless `max.request.size` says otherwise: far above any
/// topic's, so that the topic's limit decides.
const RECORD_BYTES: &str = "134217728";

/// How long a batch may wait to fill. At 1,000 records/s this adds under a millisecond to the median
/// that no wait at all has, and takes half its tail away; under load batches fill while earlier ones
/// are in flight, and a longer wait gains nothing.
const LINGER_MS: &str = "1";

/// Requests on their way to one broker. A second one gains nothing: of an idempotent producer librdkafka
/// sends one batch at a time per partition, and a broker serves one request of a connection after the
/// other. With more allowed, a batch that is ready while its partition's last one is unanswered makes
/// librdkafka's broker thread poll without pause, on a core that Postgres and Kafka could use.
const IN_FLIGHT: &str = "1";

/// How long the poll thread sleeps without events before it looks whether it should stop.
const POLL: Duration = Duration::from_millis(100);

/// Records refused for the size of their batch are tried again in batches this much smaller.
const SHRINK: i64 = 8;

/// The largest batch that brokers are known to take. Brokers compare `max.message.bytes` of a topic
/// with whole batches and do not say by how much one was too large, so it is learned, and kept
/// across producers: copies share what one has learned.
#[derive(Debug, Clone, Default)]
pub struct BatchSize(Arc<AtomicI64>);

impl BatchSize {
    /// In bytes; `None` while no batch was too large.
    pub fn learned(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Acquire)).filter(|bytes| *bytes > 0)
    }
}

/// Settings of the producer over the user's.
pub(super) fn complete(
    settings: &mut Settings,
    create_topics_ourselves: bool,
    batch_size: &BatchSize,
) {
    for (name, value) in [
        ("enable.idempotence", "true"),
        ("acks", "all"),
        // A record given up on would be a gap; trouble is shown instead.
        ("message.timeout.ms", "0"),
        // After a batch that a broker refuses nothing behind it is sent: the order of first
        // deliveries is kept, and with it the order by aggregate of dead letters.
        ("enable.gapless.guarantee", "true"),
        // The sink's own limits bound memory, so these must not be met first.
        ("queue.buffering.max.messages", "0"),
        ("queue.buffering.max.kbytes", "2147483647"),
    ] {
        settings.force(name, value);
    }
    for (name, value) in [
        ("partitioner", "murmur2_random"),
        ("message.max.bytes", RECORD_BYTES),
        ("batch.num.messages", "100000"),
        ("linger.ms", LINGER_MS),
        ("max.in.flight", IN_FLIGHT),
        ("reconnect.backoff.max.ms", "1000"),
    ] {
        settings.default(name, value);
    }
    settings.default("batch.size", &BATCH_BYTES.to_string());
    if let Some(learned) = batch_size.learned() {
        settings.force("batch.size", &learned.to_string());
    }
    if create_topics_ourselves {
        settings.force("allow.auto.create.topics", "false");
    }
}

/// What the poll thread hears.
pub(super) struct Reports {
    acks: Arc<Acks>,
    trouble: Trouble,
    failed: AtomicBool,
    first: Mutex<Option<Refusal>>,
    /// Records refused for their size, or for the company they kept.
    too_large: AtomicUsize,
    /// The poll thread is gone.
    ended: AtomicBool,
    lifeline: Lifeline,
}

impl Tied for Reports {
    fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }
}

impl Reports {
    fn refuse(&self, code: Code, message: &impl Message, mark: usize) {
        if code == Code::MessageSizeTooLarge {
            self.too_large.fetch_add(1, Ordering::AcqRel);
        }
        let headers = message.headers();
        let event_id = headers.and_then(|headers| {
            let id = headers.iter().find(|header| header.key == "id")?;
            Some(String::from_utf8_lossy(id.value?).into_owned())
        });
        let header_bytes = headers.map_or(0, |headers| {
            headers
                .iter()
                .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len))
                .sum()
        });
        let refusal = Refusal {
            code,
            place: self.acks.place(mark),
            topic: message.topic().to_owned(),
            event_id,
            bytes: message.key().map_or(0, <[u8]>::len)
                + message.payload().map_or(0, <[u8]>::len)
                + header_bytes,
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.keep_first(&mut first);
        drop(first);
        self.fail();
    }

    /// Whether anything was refused or the producer died.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.acks.changed.notify_one();
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.trouble.remark(level, facility, message);
        client::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = super::refusal::code_of(&error);
        // The second is a broker's refusal, which the report of the record tells better.
        if !matches!(code, Code::Fatal | Code::GaplessGuarantee) {
            client::hear(&self.trouble, &error, reason);
        }
        // The second is the answer to the request for a producer id, which librdkafka repeats for
        // ever while the records wait in silence.
        if matches!(code, Code::Fatal | Code::ClusterAuthorizationFailed) {
            self.fail();
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, mark: usize) {
        match result {
            Ok(_) => {
                self.trouble.clear();
                self.acks.acknowledge(mark);
            }
            Err((error, message)) => {
                self.refuse(super::refusal::code_of(error), message, mark);
            }
        }
    }
}

/// The producer and its poll thread. Dropping it purges what it still holds.
pub(super) struct Producer {
    // Dropped before `stop` is set, so that the thread, not the caller, waits for the goodbye.
    client: Arc<BaseProducer<Reports>>,
    _stop: StopOnDrop,
    batch_bytes: i64,
    batch_size: BatchSize,
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Turns the end of the poll thread, for whatever reason, into a failure of the sink.
struct Deathwatch(Arc<BaseProducer<Reports>>);

impl Drop for Deathwatch {
    fn drop(&mut self) {
        let reports = self.0.client().context();
        reports.ended.store(true, Ordering::Release);
        reports.fail();
    }
}

impl Producer {
    /// Creates the client and starts its thread; connects in the background.
    pub(super) fn start(
        settings: &Settings,
        acks: Arc<Acks>,
        batch_size: BatchSize,
    ) -> Result<Self, Failure> {
        let batch_bytes = settings
            .get("batch.size")
            .and_then(|bytes| bytes.parse().ok());
        let reports = Reports {
            acks,
            trouble: Trouble::default(),
            failed: AtomicBool::new(false),
            first: Mutex::new(None),
            too_large: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            lifeline: Lifeline::default(),
        };
        let client: BaseProducer<Reports> = settings.create(reports)?;
        let client = Arc::new(client);
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, until) = (Deathwatch(Arc::clone(&client)), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("kafka-reports".to_owned())
            .spawn(move || {
                let mut looked = Instant::now();
                while !until.load(Ordering::Acquire) {
                    watched.0.poll(POLL);
                    if looked.elapsed() >= client::LOOK {
                        client::hold(watched.0.client());
                        looked = Instant::now();
                    }
                }
            })
            .map_err(|error| {
                Failure::retriable("start the thread that takes delivery reports").caused_by(error)
            })?;
        Ok(Self {
            client,
            _stop: StopOnDrop(stop),
            batch_bytes: batch_bytes.unwrap_or(BATCH_BYTES),
            batch_size,
        })
    }

    /// Hands one record over; never blocks.
    pub(super) fn send(&self, record: &Record<'_>, mark: usize) -> Result<(), Code> {
        let mut ours = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&record.topic, mark);
        ours.partition = record.partition;
        ours.key = record.key.as_deref();
        ours.payload = record.value.as_deref();
        ours.timestamp = record.timestamp_ms;
        ours.headers = headers(record);
        match self.client.send(ours) {
            Ok(()) => Ok(()),
            Err((error, _)) => Err(super::refusal::code_of(&error)),
        }
    }

    /// Hands over the record of a position; never blocks.
    pub(super) fn send_position(&self, record: &PositionRecord, mark: usize) -> Result<(), Code> {
        let ours = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&record.topic, mark)
            .key(&record.key)
            .payload(&record.value);
        match self.client.send(ours) {
            Ok(()) => Ok(()),
            Err((error, _)) => Err(super::refusal::code_of(&error)),
        }
    }

    /// The librdkafka client, for metadata and transactions.
    pub(super) fn client(&self) -> &Arc<BaseProducer<Reports>> {
        &self.client
    }

    fn reports(&self) -> &Reports {
        self.client.client().context()
    }

    /// What librdkafka is struggling with.
    pub(super) fn trouble(&self) -> &Trouble {
        &self.reports().trouble
    }

    /// Whether anything was refused or the producer died.
    pub(super) fn has_failed(&self) -> bool {
        self.reports().has_failed()
    }

    /// Whether a record was refused that is itself to blame.
    pub(super) fn has_culprit(&self) -> bool {
        let first = self.reports().first.lock();
        first
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|refusal| !refusal.is_consequence())
    }

    /// The error that ended the client, and librdkafka's words for it.
    pub(super) fn fatal(&self) -> Option<(Code, String)> {
        self.client.client().fatal_error()
    }

    /// Gives up everything that is queued or in flight.
    pub(super) fn purge(&self) {
        self.client.purge(PurgeConfig::default().queue().inflight());
    }

    /// Records whose report has not been taken yet.
    pub(super) fn unreported(&self) -> i32 {
        self.client.in_flight_count()
    }

    /// Why it failed: the first refusal in order, a fatal error, or the thread's end.
    pub(super) fn failure(&self) -> Failure {
        let reports = self.reports();
        let first = reports.first.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).clone();
        let fatal = self.fatal();
        if let Some(refusal) = first.filter(|first| fatal.is_none() || !first.is_consequence()) {
            return self
                .shrink(&refusal)
                .unwrap_or_else(|| refusal.into_failure());
        }
        // With the sequence state lost a fresh producer has none.
        let spoken = fatal.or_else(|| reports.trouble.hopeless());
        if let Some((code, text)) = spoken {
            return super::refusal::failed_with(&format!("produce to Kafka: {text}"), code);
        }
        Failure::retriable(match reports.ended.load(Ordering::Acquire) {
            true => "the thread that takes delivery reports has ended",
            false => "the Kafka producer failed without saying why",
        })
    }

    /// Several records refused for their size: which of them is too large, if any, shows only in
    /// smaller batches. `None` when the record stood alone.
    fn shrink(&self, refusal: &Refusal) -> Option<Failure> {
        let alone = self.reports().too_large.load(Ordering::Acquire) <= 1
            || self.batch_bytes <= i64::try_from(refusal.bytes).unwrap_or(i64::MAX);
        if refusal.code != Code::MessageSizeTooLarge || alone {
            return None;
        }
        let smaller = (self.batch_bytes / SHRINK).max(1);
        self.batch_size.0.store(smaller, Ordering::Release);
        Some(Failure::retriable(format!(
            "topic {:?} refused a batch of up to {} bytes as larger than its max.message.bytes; \
             batches hold up to {smaller} bytes from now on",
            refusal.topic, self.batch_bytes
        )))
    }
}

impl Drop for Producer {
    /// Nothing queued may leave after a new producer has begun from the stored position.
    fn drop(&mut self) {
        self.purge();
    }
}

fn headers(record: &Record<'_>) -> Option<OwnedHeaders> {
    if record.headers.is_empty() {
        return None;
    }
    let empty = OwnedHeaders::new_with_capacity(record.headers.len());
    Some(record.headers.iter().fold(empty, |headers, header| {
        headers.insert(Header {
            key: &header.name,
            value: header.value.as_deref(),
        })
    }))
}
