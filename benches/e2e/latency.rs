//! From a commit to a consumer, beside a bare produce and consume of the same records.
//!
//! The clock starts just before `COMMIT` is sent, or before the bare record is handed to the
//! client, and stops when the consumer's poll returns the record. All of it happens in this
//! process, so there is one clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::audit::{reader, row_number};
use crate::backlog::{Delivery, PARTITIONS, Stage};
use crate::bare::Bare;
use crate::options::Options;
use crate::report;
use crate::workload::PLAIN;

/// Rows before the clock counts: connections, metadata and topics are new to everybody.
const WARM_UP: u64 = 50;

/// How long a record may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Sorted times.
pub(crate) struct Latency {
    times: Vec<Duration>,
}

impl Latency {
    pub(crate) fn samples(&self) -> usize {
        self.times.len()
    }

    /// The time that `share` of the samples do not exceed.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let last = self.times.len() - 1;
        self.times[((self.times.len() as f64 * share) as usize).min(last)]
    }
}

/// Both, at 50 and at 1,000 rows a second, one row a transaction.
pub(crate) fn compare(stage: &Stage, options: &Options) {
    report::headline("latency, one row a transaction, from COMMIT to the consumer");
    report::latency_header();
    for rate in [50, 1000] {
        let samples = rate * options.latency_time.as_secs();
        let bare = bare(stage, rate, samples);
        report::latency(&format!("{rate}/s bare produce and consume"), &bare);
        let at_least = walpost(stage, rate, samples, Delivery::AtLeastOnce);
        report::latency(&format!("{rate}/s walpost"), &at_least);
        let exactly = walpost(stage, rate, samples, Delivery::ExactlyOnce);
        report::latency(&format!("{rate}/s walpost, exactly once"), &exactly);
        report::latency_ratio(&bare, &at_least);
    }
}

/// Commits at the given rate, with walpost between.
fn walpost(stage: &Stage, rate: u64, samples: u64, delivery: Delivery) -> Latency {
    stage.prepare(&PLAIN);
    let slot = stage.create_slot();
    let (prefix, topic) = stage.topic("latency");
    let mut walpost = stage.walpost(&PLAIN, &slot, &prefix, delivery);
    walpost.wait_ready();
    let mut client = stage.connect();
    let latency = measure(stage, &topic, rate, samples, |n| {
        client
            .batch_execute(&format!("begin; {}", PLAIN.one(n)))
            .unwrap();
        let committing = Instant::now();
        client.batch_execute("commit").unwrap();
        committing
    });
    walpost.stop();
    stage.drop_slot(&slot);
    latency
}

/// The same rate without a source.
fn bare(stage: &Stage, rate: u64, samples: u64) -> Latency {
    let bare = Bare::new(stage, None);
    bare.during(|| measure(stage, bare.topic(), rate, samples, |n| bare.send(n)))
}

/// Calls `write` at the given rate and takes each row's time to the consumer.
fn measure(
    stage: &Stage,
    topic: &str,
    rate: u64,
    samples: u64,
    mut write: impl FnMut(u64) -> Instant,
) -> Latency {
    let total = WARM_UP + samples;
    let bootstrap = stage.scene.kafka.bootstrap();
    let arrived = AtomicU64::new(0);
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let consuming = scope.spawn(|| consume(&bootstrap, topic, total, ready, &arrived));
        is_ready.recv_timeout(LIMIT).expect("the consumer is there");
        let mut written: Vec<Instant> = Vec::new();
        for n in 1..=WARM_UP {
            written.push(write(n));
        }
        let deadline = Instant::now() + LIMIT;
        while arrived.load(Ordering::Acquire) < WARM_UP {
            assert!(Instant::now() < deadline, "the first rows arrive");
            std::thread::sleep(Duration::from_millis(10));
        }
        let begun = Instant::now();
        for n in 0..samples {
            let due = begun + Duration::from_secs_f64(n as f64 / rate as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            written.push(write(WARM_UP + n + 1));
        }
        let read = consuming.join().unwrap();
        let mut times: Vec<Duration> = written
            .iter()
            .zip(&read)
            .skip(usize::try_from(WARM_UP).unwrap())
            .map(|(written, read)| *read - *written)
            .collect();
        times.sort();
        Latency { times }
    })
}

/// The time at which each row arrived, by its number.
fn consume(
    bootstrap: &str,
    topic: &str,
    total: u64,
    ready: mpsc::Sender<()>,
    arrived: &AtomicU64,
) -> Vec<Instant> {
    let consumer = reader(bootstrap, topic, ("fetch.wait.max.ms", "100"));
    let mut open = PARTITIONS;
    let mut times: Vec<Option<Instant>> = vec![None; usize::try_from(total).unwrap()];
    let deadline = Instant::now() + LIMIT + Duration::from_secs(total);
    while arrived.load(Ordering::Relaxed) < total {
        assert!(Instant::now() < deadline, "every row arrives");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let now = Instant::now();
                let at = usize::try_from(row_number(&message) - 1).unwrap();
                assert!(times[at].replace(now).is_none(), "a row comes once");
                arrived.fetch_add(1, Ordering::Release);
            }
            // All three are at their end: nothing has been written yet.
            Some(Err(_)) => {
                open -= 1;
                if open == 0 {
                    ready.send(()).unwrap();
                }
            }
            None => {}
        }
    }
    times.into_iter().map(Option::unwrap).collect()
}
