//! A fast wrong answer does not count: every record is read back and checked.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::backlog::{Backlog, PARTITIONS};
use crate::workload::KEYS;

/// Reads all partitions of a topic from the beginning, and says where each ends.
pub(crate) fn reader(bootstrap: &str, topic: &str, setting: (&str, &str)) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set(setting.0, setting.1)
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(topic, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&list).unwrap();
    consumer
}

/// Each row exactly once, each key in the order of commits, each value made from its own row.
pub(crate) fn records(backlog: &Backlog<'_>, topic: &str) {
    let bootstrap = backlog.stage.scene.kafka.bootstrap();
    let consumer = reader(&bootstrap, topic, ("queued.max.messages.kbytes", "32768"));
    let mut seen = 0;
    let mut last = vec![0; usize::try_from(KEYS).unwrap()];
    let mut open = PARTITIONS;
    let deadline = Instant::now() + Duration::from_secs(120);
    while open > 0 {
        assert!(Instant::now() < deadline, "{topic} is read to its end");
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                let n = row_number(&message);
                let key = key_number(&message);
                assert_eq!(n % KEYS, key, "row {n} has its own key");
                let last = &mut last[usize::try_from(key).unwrap()];
                assert!(*last < n, "row {n} comes after row {last} of its key");
                *last = n;
                seen += 1;
                check_value(backlog, n, message.payload().unwrap_or_default());
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => panic!("{topic}: {error}"),
            None => {}
        }
    }
    assert_eq!(seen, backlog.rows, "each row is one record of {topic}");
}

/// From the header `id`, whose tail is the row's number.
pub(crate) fn row_number(message: &BorrowedMessage<'_>) -> u64 {
    let headers = message.headers().expect("headers");
    let id = headers.iter().find(|header| header.key == "id");
    let id = std::str::from_utf8(id.and_then(|header| header.value).expect("an id")).unwrap();
    let digits = id.trim_matches('"').rsplit('-').next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("id {id:?}"))
}

fn key_number(message: &BorrowedMessage<'_>) -> u64 {
    let key = std::str::from_utf8(message.key().expect("a key")).unwrap();
    key[1..].parse().unwrap_or_else(|_| panic!("key {key:?}"))
}

fn check_value(backlog: &Backlog<'_>, n: u64, value: &[u8]) {
    let value = std::str::from_utf8(value).unwrap();
    let (before, after) = backlog.workload.proof;
    let found = value.find(before).map(|at| &value[at + before.len()..]);
    let number = found.and_then(|rest| rest.split(after).next());
    assert_eq!(
        number.and_then(|digits| digits.parse().ok()),
        Some(n),
        "the value of row {n} is {value:?}"
    );
}
