//! Topics as a consumer sees them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::kafka::hold;
use super::wait;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) kafka_offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) timestamp: Option<i64>,
}

impl Record {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message
            .headers()
            .into_iter()
            .flat_map(|headers| headers.iter());
        Self {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            kafka_offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
            timestamp: message.timestamp().to_millis(),
        }
    }

    /// The key as text; empty for a null key.
    pub(crate) fn key_text(&self) -> &str {
        text(self.key.as_deref())
    }

    /// The value as text; empty for a tombstone.
    pub(crate) fn value_text(&self) -> &str {
        text(self.value.as_deref())
    }

    /// The value as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.value.as_deref().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.value_text()))
    }

    /// The first header called `name`, as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(found, _)| found == name)?;
        Some(text(value.as_deref()))
    }
}

fn text(bytes: Option<&[u8]>) -> &str {
    std::str::from_utf8(bytes.unwrap_or_default()).expect("UTF-8")
}

/// Which records count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    Committed,
    Uncommitted,
}

fn consumer(bootstrap: &str, isolation: Isolation) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "walpost-tests")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        .set("fetch.wait.max.ms", "20")
        .set("fetch.error.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "500")
        .set("log_level", "2")
        .set(
            "isolation.level",
            match isolation {
                Isolation::Committed => "read_committed",
                Isolation::Uncommitted => "read_uncommitted",
            },
        )
        .create()
        .unwrap()
}

/// Every record now in `topics`, by topic, partition and position. A topic that does not exist
/// has none.
pub(crate) fn read(bootstrap: &str, topics: &[&str]) -> Vec<Record> {
    read_as(bootstrap, topics, Isolation::Committed)
}

/// As [`read`], with the given isolation.
pub(crate) fn read_as(bootstrap: &str, topics: &[&str], isolation: Isolation) -> Vec<Record> {
    let consumer = consumer(bootstrap, isolation);
    let counts = partition_counts(&consumer, topics);
    let mut open: usize = counts.values().sum();
    let mut list = TopicPartitionList::new();
    for (topic, count) in &counts {
        for partition in 0..i32::try_from(*count).unwrap() {
            list.add_partition_offset(topic, partition, Offset::Beginning)
                .unwrap();
        }
    }
    if open == 0 {
        return Vec::new();
    }
    consumer.assign(&list).unwrap();
    let mut records = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    while open > 0 {
        assert!(Instant::now() < deadline, "read {topics:?} to their end");
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => records.push(Record::of(&message)),
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(_)) | None => hold(consumer.client(), bootstrap),
        }
    }
    records.sort_by(|a, b| {
        (&a.topic, a.partition, a.kafka_offset).cmp(&(&b.topic, b.partition, b.kafka_offset))
    });
    records
}

fn partition_counts(consumer: &BaseConsumer, topics: &[&str]) -> BTreeMap<String, usize> {
    let metadata = wait::value("Kafka lists its topics", wait::SOON, || {
        consumer.fetch_metadata(None, Duration::from_secs(5)).ok()
    });
    metadata
        .topics()
        .iter()
        .filter(|topic| topics.contains(&topic.name()))
        .map(|topic| (topic.name().to_owned(), topic.partitions().len()))
        .collect()
}

/// Follows topics, some of which may not exist yet, and keeps what it has seen in the order of
/// arrival: per partition the order of Kafka.
pub(crate) struct Tail {
    bootstrap: String,
    consumer: BaseConsumer,
    topics: Vec<String>,
    assigned: HashMap<String, usize>,
    looked: Option<Instant>,
    records: Vec<Record>,
}

impl Tail {
    pub(crate) fn new(bootstrap: &str, topics: &[&str]) -> Self {
        Self {
            bootstrap: bootstrap.to_owned(),
            consumer: consumer(bootstrap, Isolation::Committed),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            assigned: HashMap::new(),
            looked: None,
            records: Vec::new(),
        }
    }

    /// What was seen so far, after taking in what is there.
    pub(crate) fn now(&mut self) -> &[Record] {
        self.take(Duration::ZERO);
        &self.records
    }

    /// What has come since the last call, waiting for it at most so long; it is not kept.
    pub(crate) fn drain(&mut self, patience: Duration) -> Vec<Record> {
        self.take(patience);
        std::mem::take(&mut self.records)
    }

    /// Waits until at least `count` records were seen, and returns all seen.
    pub(crate) fn at_least(&mut self, count: usize) -> &[Record] {
        self.within(count, Duration::from_secs(60))
    }

    /// As [`Tail::at_least`], with a deadline of its own.
    pub(crate) fn within(&mut self, count: usize, limit: Duration) -> &[Record] {
        let deadline = Instant::now() + limit;
        while self.records.len() < count {
            assert!(Instant::now() < deadline, "{}", self.shortage(count, limit));
            self.take(wait::POLL);
        }
        &self.records
    }

    /// What was seen, beside what a fresh look finds.
    fn shortage(&self, wanted: usize, limit: Duration) -> String {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let fresh = read(&self.bootstrap, &topics);
        format!(
            "{} of {wanted} records of {topics:?} after {} s; a fresh look finds {}; partitions {:?}",
            self.records.len(),
            limit.as_secs(),
            fresh.len(),
            self.assigned
        )
    }

    /// Takes in what is there until nothing more comes; gives the number seen.
    pub(crate) fn settled(&mut self) -> usize {
        let mut seen = self.now().len();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            self.take(wait::POLL);
            if self.records.len() != seen {
                seen = self.records.len();
                since = Instant::now();
            }
        }
        seen
    }

    /// Waits for `count` records, then checks for `time` that no more come.
    pub(crate) fn exactly(&mut self, count: usize, time: Duration) -> &[Record] {
        self.at_least(count);
        let end = Instant::now() + time;
        while self.records.len() == count && Instant::now() < end {
            self.take(wait::POLL);
        }
        assert_eq!(self.records.len(), count, "records of {:?}", self.topics);
        &self.records
    }

    fn take(&mut self, patience: Duration) {
        self.find_topics();
        hold(self.consumer.client(), &self.bootstrap);
        let mut patience = patience;
        while let Some(result) = self.consumer.poll(patience) {
            if let Ok(message) = result {
                self.records.push(Record::of(&message));
            }
            patience = Duration::ZERO;
        }
    }

    /// Topics are looked for again until all were found.
    fn find_topics(&mut self) {
        let recently = |at: Instant| at.elapsed() < Duration::from_millis(100);
        if self.assigned.len() == self.topics.len() || self.looked.is_some_and(recently) {
            return;
        }
        self.looked = Some(Instant::now());
        let Ok(metadata) = self.consumer.fetch_metadata(None, Duration::from_secs(2)) else {
            return;
        };
        for topic in metadata.topics() {
            let name = topic.name();
            if !self.topics.iter().any(|wanted| wanted == name)
                || self.assigned.contains_key(name)
                || topic.partitions().is_empty()
            {
                continue;
            }
            let mut list = TopicPartitionList::new();
            for partition in topic.partitions() {
                list.add_partition_offset(name, partition.id(), Offset::Beginning)
                    .unwrap();
            }
            self.consumer.incremental_assign(&list).unwrap();
            self.assigned
                .insert(name.to_owned(), topic.partitions().len());
        }
    }
}

/// Writes one record, as another program would.
pub(crate) fn write(bootstrap: &str, topic: &str, key: &str, value: &str) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()
        .unwrap();
    producer
        .send(BaseRecord::to(topic).key(key).payload(value))
        .map_err(|(error, _)| error)
        .unwrap();
    producer.flush(wait::SOON).unwrap();
}
