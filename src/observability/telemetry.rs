//! The writing side: one cheap handle per connector, through which the pipeline reports.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::board::Board;
use super::clock::Now;
use crate::error::Class;
use crate::lsn::Lsn;

/// How often the pipeline asks the server for a [`ServerSample`]. One that is three times older
/// counts as unknown.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Topics with a series of their own. Topics come from data, so without a limit a column with
/// many values would exhaust whoever stores the metrics; the rest share [`OTHER_TOPICS`].
const TOPICS_MAX: usize = 1_000;

/// Not a valid topic name, so no topic can be mistaken for it.
const OTHER_TOPICS: &str = "(other)";

/// What does not change about a connector while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Connector name.
    pub name: String,
    /// Name of the replication slot.
    pub slot: String,
    /// Name of the database.
    pub database: String,
    /// Where positions are kept, for people: `topic connect-offsets`, `file /var/lib/…`.
    pub offsets: String,
    /// The dead-letter topic, if there is one.
    pub dead_letters: Option<String>,
}

/// What a connector is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Connecting and deciding where to begin.
    Starting,
    /// Ready to take over; another process has the slot.
    Standby {
        /// Who has it, as far as the server says: a process id, an address.
        holder: String,
    },
    /// Reading the rows that existed before the slot.
    Snapshotting,
    /// Reading the slot.
    Streaming,
    /// A retriable error ended the last attempt; waiting for the next.
    Retrying {
        /// What went wrong.
        error: String,
        /// Number of the attempt to come.
        attempt: u32,
        /// Wait before it.
        next_in: Duration,
    },
    /// Told to stop, finishing what is in flight.
    Stopping,
    /// Ended; nothing more will come from it.
    Stopped {
        /// Class of the error that ended it; `None` when it was told to stop or had finished.
        class: Option<Class>,
        /// Text of that error.
        error: Option<String>,
    },
}

/// What a known trouble is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The publication does not serve our tables.
    Publication,
    /// The Kafka client retries something by itself.
    Kafka,
    /// The slot holds back more WAL than it should.
    Slot,
}

/// How far each stage has come. The four positions are four different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Up to here Postgres has sent everything to us.
    pub received: Option<Lsn>,
    /// Up to here Kafka has acknowledged everything.
    pub delivered: Option<Lsn>,
    /// Up to here a restart repeats nothing.
    pub stored: Option<Lsn>,
    /// Up to here Postgres was told that it may forget.
    pub confirmed: Option<Lsn>,
    /// Commit time of the newest transaction received. As every time here: microseconds since the
    /// Unix epoch, on the server's clock.
    pub received_commit_us: Option<i64>,
    /// Commit time of the oldest transaction received and not delivered; `None` when there is none.
    pub undelivered_since_us: Option<i64>,
    /// Commit time of the oldest transaction received and not stored.
    pub unstored_since_us: Option<i64>,
    /// Commit time of the oldest transaction received and not confirmed.
    pub unconfirmed_since_us: Option<i64>,
    /// Records are on their way to Kafka, be it of a transaction whose end has not been read.
    pub in_flight: bool,
}

/// What the server said about itself and the slot, asked on a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSample {
    /// Its current write position.
    pub wal_position: Lsn,
    /// Its clock, microseconds since the Unix epoch. With it lag does not depend on our own clock.
    pub clock_us: Option<i64>,
    /// `wal_status` of the slot: reserved, extended, unreserved, lost.
    pub wal_status: Option<String>,
    /// `safe_wal_size` of the slot: bytes that may still be written before it is at risk.
    pub safe_wal_size: Option<i64>,
    /// WAL that the slot holds back.
    pub retained_bytes: Option<u64>,
    /// Why the server gave the slot up, once it has.
    pub invalidation_reason: Option<String>,
    /// For how many seconds nobody has used the slot, by the server's clock.
    pub inactive_seconds: Option<u64>,
    /// Seconds until the slot holds back as much as it may, at the rate of the last minute; `None`
    /// without a limit, and while what it holds back does not grow.
    pub seconds_to_limit: Option<u64>,
    /// When it was taken.
    pub at: Instant,
}

impl ServerSample {
    /// Whether the server has given the slot up.
    pub(super) fn is_slot_lost(&self) -> bool {
        self.invalidation_reason.is_some() || self.wal_status.as_deref() == Some("lost")
    }
}

/// How far the snapshot has come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SnapshotView {
    /// Rows read so far, all tables.
    pub rows: u64,
    /// Rows expected, from the server's statistics.
    pub estimated_rows: Option<u64>,
    /// Tables finished.
    pub tables_done: usize,
    /// Tables in all.
    pub tables: usize,
    /// Rows a second, over the whole snapshot.
    pub rows_per_second: f64,
}

/// The handle through which one connector reports. Cheap to clone; each call but
/// [`TopicCounter::add`] and [`Telemetry::beat`] takes a short lock: call them per burst or tick,
/// never per record.
#[derive(Debug, Clone)]
pub struct Telemetry {
    reporter: Arc<Reporter>,
}

impl Telemetry {
    pub(super) fn new(reporter: Arc<Reporter>) -> Self {
        Self { reporter }
    }

    /// The connector is now doing this.
    pub fn state(&self, state: State) {
        self.reporter.board().state(state, Now::read());
        self.beat();
    }

    /// The counter of `topic`; resolve it once and keep it.
    pub fn topic(&self, topic: &str) -> TopicCounter {
        let mut topics = self.reporter.topics();
        let name = if topics.len() < TOPICS_MAX || topics.contains_key(topic) {
            topic
        } else {
            OTHER_TOPICS
        };
        let totals = match topics.get(name) {
            Some(totals) => Arc::clone(totals),
            None => Arc::clone(topics.entry(name.to_owned()).or_default()),
        };
        TopicCounter {
            totals,
            reporter: Arc::clone(&self.reporter),
        }
    }

    /// How far each stage has come.
    pub fn progress(&self, progress: &Progress) {
        let delivered = self.reporter.delivered.load(Ordering::Relaxed);
        self.reporter
            .board()
            .progress(progress, delivered, Now::read());
    }

    /// What the server says; `None` when it cannot be asked. What is unknown is absent from
    /// metrics and `null` in the status, never 0 and never the last good value.
    pub fn server(&self, sample: Option<ServerSample>) {
        self.reporter.board().server(sample, Now::read());
    }

    /// What waits between us and Kafka: records and bytes, and how full that makes the queue (0–1).
    pub fn queue(&self, records: usize, bytes: usize, fill_ratio: f64) {
        self.reporter.board().queue(records, bytes, fill_ratio);
    }

    /// An error of `class` arose and was handled.
    pub fn error(&self, class: Class) {
        self.reporter.errors[class_index(class)].fetch_add(1, Ordering::Relaxed);
        self.reporter.board().error(class, Now::read());
    }

    /// A condition that is no error of the running stream but keeps events from flowing: the
    /// connector is not ready, for this reason, until `None` or the next start.
    pub fn trouble(&self, with: Trouble, text: Option<String>) {
        self.reporter.board().trouble(with, text);
    }

    /// One more attempt after a retriable error.
    pub fn retry(&self) {
        self.reporter.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection to Postgres was opened again after it had been lost.
    pub fn reconnected(&self) {
        self.reporter.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// `n` events were left out on purpose, for `reason` (a fixed word, never data).
    pub fn dropped(&self, reason: &'static str, n: u64) {
        *self.reporter.dropped().entry(reason).or_default() += n;
    }

    /// `n` values were published otherwise than they stand in the row; `what` is a fixed word.
    pub fn replaced(&self, what: &'static str, n: u64) {
        *self.reporter.replaced().entry(what).or_default() += n;
    }

    /// An event went to the dead-letter topic, for `cause` (a fixed word, never data).
    pub fn dead_letter(&self, cause: &'static str) {
        *self.reporter.dead_letters().entry(cause).or_default() += 1;
    }

    /// Dead letters hold back the later events of so many aggregates.
    pub fn blocked(&self, aggregates: usize, letters: usize) {
        self.reporter.board().blocked(aggregates, letters);
    }

    /// How far the snapshot has come; `None` once it is over.
    pub fn snapshot(&self, progress: Option<SnapshotView>) {
        self.reporter.board().snapshot(progress, Now::read());
    }

    /// The loop is alive; without a beat for 60 s `/health/live` fails.
    pub fn beat(&self) {
        self.reporter.beat();
    }

    /// Beats for ever. Run it as a task beside the connector's work, on the same thread: it goes on
    /// while that waits for a server, a lock or the next attempt, and stops when the thread is
    /// stuck, which is just what liveness is about.
    pub async fn beating(self) {
        loop {
            self.beat();
            tokio::time::sleep(BEAT_INTERVAL).await;
        }
    }
}

/// Events and bytes that Kafka acknowledged for one topic.
#[derive(Debug, Clone)]
pub struct TopicCounter {
    totals: Arc<TopicTotals>,
    reporter: Arc<Reporter>,
}

impl TopicCounter {
    /// Adds acknowledged records and their bytes: a few additions, no lock, no allocation.
    pub fn add(&self, records: u64, bytes: u64) {
        self.totals.events.fetch_add(records, Ordering::Relaxed);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.reporter
            .delivered
            .fetch_add(records, Ordering::Relaxed);
        self.reporter
            .last_delivered_us
            .store(Now::read().unix_us, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct TopicTotals {
    pub(super) events: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// All that one connector has reported. Counters are atomics; the rest is a [`Board`] under a lock.
#[derive(Debug)]
pub(super) struct Reporter {
    pub(super) about: About,
    born: Instant,
    board: Mutex<Board>,
    topics: Mutex<BTreeMap<String, Arc<TopicTotals>>>,
    dropped: Mutex<BTreeMap<&'static str, u64>>,
    replaced: Mutex<BTreeMap<&'static str, u64>>,
    dead_letters: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) errors: [AtomicU64; Class::ALL.len()],
    pub(super) retries: AtomicU64,
    pub(super) reconnects: AtomicU64,
    /// Records acknowledged over all topics.
    pub(super) delivered: AtomicU64,
    last_delivered_us: AtomicI64,
    /// Milliseconds from `born` to the last beat.
    last_beat_ms: AtomicU64,
}

impl Reporter {
    pub(super) fn new(about: About, now: Now) -> Self {
        Self {
            about,
            born: now.monotonic,
            board: Mutex::new(Board::new(now)),
            topics: Mutex::default(),
            dropped: Mutex::default(),
            replaced: Mutex::default(),
            dead_letters: Mutex::default(),
            errors: Default::default(),
            retries: AtomicU64::default(),
            reconnects: AtomicU64::default(),
            delivered: AtomicU64::default(),
            last_delivered_us: AtomicI64::default(),
            last_beat_ms: AtomicU64::default(),
        }
    }

    // A panic while one of these locks is held leaves nothing half-written that matters here.
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn topics(&self) -> MutexGuard<'_, BTreeMap<String, Arc<TopicTotals>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dropped(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn replaced(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dead_letters(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.dead_letters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let since_birth = self.born.elapsed().as_millis();
        self.last_beat_ms.store(
            u64::try_from(since_birth).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Time since the loop last showed a sign of life.
    pub(super) fn silent_for(&self, now: Now) -> Duration {
        let last = Duration::from_millis(self.last_beat_ms.load(Ordering::Relaxed));
        now.monotonic
            .saturating_duration_since(self.born)
            .saturating_sub(last)
    }

    /// When Kafka last acknowledged a record, microseconds since the Unix epoch.
    pub(super) fn last_delivered_us(&self) -> Option<i64> {
        match self.last_delivered_us.load(Ordering::Relaxed) {
            0 => None,
            time => Some(time),
        }
    }
}

/// Where [`Class::ALL`] has `class`.
pub(super) fn class_index(class: Class) -> usize {
    match class {
        Class::Retriable => 0,
        Class::Config => 1,
        Class::Poison => 2,
        Class::Gap => 3,
        Class::Internal => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observability::Observability;

    fn about() -> About {
        About {
            name: "orders".to_owned(),
            slot: "orders_slot".to_owned(),
            database: "shop".to_owned(),
            offsets: "topic connect-offsets".to_owned(),
            dead_letters: None,
        }
    }

    #[test]
    fn a_thread_that_can_still_run_its_tasks_is_heard() {
        let mut born = Now::read();
        born.monotonic -= Duration::from_secs(100);
        let reporter = Arc::new(Reporter::new(about(), born));
        assert!(reporter.silent_for(Now::read()) >= Duration::from_secs(100));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::spawn(Telemetry::new(Arc::clone(&reporter)).beating());
            tokio::task::yield_now().await;
        });
        assert!(reporter.silent_for(Now::read()) < Duration::from_secs(60));
    }

    #[test]
    fn every_class_has_its_own_counter() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class_index(class), index);
        }
    }

    #[test]
    fn handles_of_one_topic_add_to_one_counter() {
        let telemetry = Observability::new().connector(about());
        telemetry.topic("a").add(2, 20);
        telemetry.clone().topic("a").add(1, 5);
        let topics = telemetry.reporter.topics();
        assert_eq!(topics.len(), 1);
        assert_eq!(topics["a"].events.load(Ordering::Relaxed), 3);
        assert_eq!(topics["a"].bytes.load(Ordering::Relaxed), 25);
    }

    #[test]
    fn topics_beyond_the_limit_share_one_series_and_known_ones_keep_theirs() {
        let telemetry = Observability::new().connector(about());
        for number in 0..TOPICS_MAX + 10 {
            telemetry.topic(&format!("t{number}")).add(1, 1);
        }
        telemetry.topic("t0").add(1, 1);
        let topics = telemetry.reporter.topics();
        assert_eq!(topics.len(), TOPICS_MAX + 1);
        assert_eq!(topics[OTHER_TOPICS].events.load(Ordering::Relaxed), 10);
        assert_eq!(topics["t0"].events.load(Ordering::Relaxed), 2);
    }
}
