//! A producer without a source: what latency is compared with, and what warms the broker up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::backlog::Stage;
use crate::workload::KEYS;

/// walpost's own `linger.ms`, unless a property says otherwise.
const LINGER_MS: &str = "1";

/// How long a new broker is kept busy before anything is measured. It compiles its own code while
/// it runs, with half a core at first, which no broker in production does any more.
const WARM_UP: Duration = Duration::from_secs(30);

/// Records between two looks at the clock, a millisecond apart: a walpost that is busy brings as
/// many.
const BURST: u64 = 100;

/// Longest time for the last records.
const LIMIT: Duration = Duration::from_secs(60);

/// Produces records as walpost would, with its producer's settings.
pub(crate) struct Bare {
    producer: BaseProducer,
    topic: String,
    payload: String,
}

impl Bare {
    /// To a new topic; in transactions of this id, if one is given.
    pub(crate) fn new(stage: &Stage, transactional_id: Option<&str>) -> Self {
        let (_, topic) = stage.topic("bare");
        let linger = stage.property("producer.override.linger.ms", LINGER_MS);
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", stage.scene.kafka.bootstrap())
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("max.in.flight", "1")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", linger)
            .set("batch.size", "1000000")
            .set("batch.num.messages", "100000");
        if let Some(id) = transactional_id {
            config.set("transactional.id", id);
        }
        let note = "an ordinary note, ".repeat(12);
        Self {
            producer: config.create().unwrap(),
            topic,
            payload: format!("{{\"n\": 1, \"note\": \"{note}\"}}"),
        }
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// Hands over record `n`; the time just before.
    pub(crate) fn send(&self, n: u64) -> Instant {
        let id = format!("00000000-0000-4000-8000-{n:012}");
        let headers = OwnedHeaders::new().insert(Header {
            key: "id",
            value: Some(&id),
        });
        let key = format!("k{}", n % KEYS);
        let producing = Instant::now();
        let record = BaseRecord::to(&self.topic).key(&key).payload(&self.payload);
        self.producer.send(record.headers(headers)).unwrap();
        producing
    }

    /// Does `work` while another thread takes the reports, and waits for the last of them.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let polling = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while polling.load(Ordering::Acquire) {
                    self.producer.poll(Duration::from_millis(100));
                }
            });
            let done = work();
            self.producer.flush(LIMIT).unwrap();
            polling.store(false, Ordering::Release);
            done
        })
    }
}

/// Keeps the broker busy, without transactions and with.
pub(crate) fn warm_up(stage: &Stage) {
    let plain = Bare::new(stage, None);
    plain.during(|| keep_busy(&plain, || ()));
    let id = plain.topic();
    let transactional = Bare::new(stage, Some(id));
    let producer = &transactional.producer;
    producer.init_transactions(LIMIT).unwrap();
    transactional.during(|| {
        producer.begin_transaction().unwrap();
        keep_busy(&transactional, || {
            producer.commit_transaction(LIMIT).unwrap();
            producer.begin_transaction().unwrap();
        });
        producer.commit_transaction(LIMIT).unwrap();
    });
}

fn keep_busy(bare: &Bare, mut every_100_bursts: impl FnMut()) {
    let begun = Instant::now();
    let mut bursts = 0;
    while begun.elapsed() < WARM_UP / 2 {
        for n in bursts * BURST..(bursts + 1) * BURST {
            bare.send(n);
        }
        bursts += 1;
        if bursts % 100 == 0 {
            every_100_bursts();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
