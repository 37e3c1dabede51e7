//! Against librdkafka's mock brokers, which can answer with any error code.

use std::borrow::Cow;

use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Answer};
use smallvec::smallvec;

use super::*;
use crate::error::Class;
use crate::lsn::Lsn;
use crate::record::{Header, TableIndex};

pub(super) type Mock = MockCluster<'static, DefaultProducerContext>;

pub(super) const TOPIC: &str = "outbox.event.order";
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn cluster(partitions: i32) -> Mock {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic(TOPIC, partitions, 1).unwrap();
    mock
}

pub(super) fn options(mock: &Mock, properties: &[(&str, &str)]) -> SinkOptions {
    let mut producer = KafkaProperties::default();
    let servers = mock.bootstrap_servers();
    producer.0.insert("bootstrap.servers".into(), servers);
    for (name, value) in properties {
        producer.0.insert((*name).into(), (*value).into());
    }
    SinkOptions {
        exactly_once: None,
        admin: producer.clone(),
        producer,
        topic_creation: None,
        limits: Limits {
            in_flight_bytes: 1 << 20,
            in_flight_records: 1000,
        },
        client_id: "test".to_owned(),
        batch_size: BatchSize::default(),
    }
}

async fn prepared(mock: &Mock, properties: &[(&str, &str)]) -> Sink {
    let mut sink = Sink::open(&options(mock, properties)).unwrap();
    sink.prepare(TOPIC).await.unwrap();
    sink
}

pub(super) fn record<'a>(key: &'a str, id: &'a str, value: &'a [u8]) -> Record<'a> {
    Record {
        topic: Cow::Borrowed(TOPIC),
        partition: None,
        key: Some(Cow::Borrowed(key.as_bytes())),
        value: Some(Cow::Borrowed(value)),
        headers: smallvec![Header {
            name: Cow::Borrowed("id"),
            value: Some(Cow::Borrowed(id.as_bytes())),
        }],
        timestamp_ms: Some(1_700_000_000_000),
    }
}

pub(super) fn origin(raw: u64) -> Origin {
    Origin {
        lsn: Lsn::new(raw).unwrap(),
        table: TableIndex(3),
    }
}

fn end(raw: u64) -> ResumePoint {
    ResumePoint::idle(Lsn::new(raw).unwrap())
}

async fn next(sink: &mut Sink) -> Result<ResumePoint, Failure> {
    tokio::time::timeout(PATIENCE, sink.delivered())
        .await
        .expect("nothing was said in time")
        .map(|delivered| delivered.resume_point())
}

#[tokio::test]
async fn a_sealed_batch_is_delivered() {
    let mock = cluster(3);
    let mut sink = prepared(&mock, &[]).await;
    assert!(sink.topics.partitions(TOPIC).is_some() && sink.topics.partitions("other").is_none());
    for n in 0..100 {
        let key = n.to_string();
        sink.enqueue(&record(&key, "1", b"{}"), origin(10 + n))
            .unwrap();
    }
    sink.seal(Some(end(200)));
    assert_eq!(next(&mut sink).await.unwrap(), end(200));
    assert_eq!(sink.in_flight().records, 0);
    sink.seal(Some(end(300)));
    assert_eq!(next(&mut sink).await.unwrap(), end(300));
}

#[tokio::test]
async fn a_refused_record_is_named_after_the_positions_before_it() {
    for (answer, class, word) in [
        (
            Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            Class::Retriable,
            "WRITE",
        ),
        (
            Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            Class::Poison,
            "max.message.bytes",
        ),
        (
            Answer::RD_KAFKA_RESP_ERR_INVALID_RECORD,
            Class::Poison,
            "compacted",
        ),
        (
            Answer::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
            Class::Poison,
            "message.timestamp",
        ),
        (
            Answer::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
            Class::Poison,
            "policy",
        ),
    ] {
        let mock = cluster(1);
        let mut sink = prepared(&mock, &[]).await;
        sink.enqueue(&record("k", "first", b"{}"), origin(10))
            .unwrap();
        sink.seal(Some(end(11)));
        assert_eq!(next(&mut sink).await.unwrap(), end(11));
        mock.request_errors(Api::Produce, &[answer]);
        sink.enqueue(&record("k", "second", b"secret"), origin(20))
            .unwrap();
        sink.seal(Some(end(21)));
        let failure = next(&mut sink).await.unwrap_err();
        let text = failure.to_string();
        assert_eq!(failure.class(), class, "{text}");
        for part in ["event second", "0/14", TOPIC, word] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(failure.origin(), Some(origin(20)));
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_tried_again_in_smaller_ones() {
    let mock = cluster(1);
    let options = options(&mock, &[("linger.ms", "100")]);
    for learned in [125_000, 15_625] {
        let mut sink = Sink::open(&options).unwrap();
        sink.prepare(TOPIC).await.unwrap();
        mock.request_errors(
            Api::Produce,
            &[Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
        );
        for n in 0..10 {
            sink.enqueue(&record("k", "1", b"{}"), origin(10 + n))
                .unwrap();
        }
        sink.seal(Some(end(99)));
        let failure = next(&mut sink).await.unwrap_err();
        assert_eq!(failure.class(), Class::Retriable, "{failure}");
        assert_eq!(failure.origin(), None, "no row is to blame");
        assert_eq!(options.batch_size.learned(), Some(learned));
    }
}

#[tokio::test]
async fn errors_that_pass_are_not_seen() {
    let mock = cluster(1);
    let mut sink = prepared(&mock, &[("retry.backoff.ms", "10")]).await;
    mock.request_errors(
        Api::Produce,
        &[
            Answer::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Answer::RD_KAFKA_RESP_ERR__TRANSPORT,
            Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            Answer::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    sink.enqueue(&record("k", "1", b"{}"), origin(10)).unwrap();
    sink.seal(Some(end(11)));
    assert_eq!(next(&mut sink).await.unwrap(), end(11));
}

#[tokio::test]
async fn lost_sequence_state_asks_for_a_new_producer() {
    let mock = cluster(1);
    let mut sink = prepared(&mock, &[]).await;
    mock.request_errors(
        Api::Produce,
        &[Answer::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    sink.enqueue(&record("k", "1", b"{}"), origin(10)).unwrap();
    sink.seal(Some(end(11)));
    let failure = next(&mut sink).await.unwrap_err();
    assert_eq!(failure.class(), Class::Retriable, "{failure}");
    tokio::time::timeout(PATIENCE, room(&mut sink))
        .await
        .unwrap();
}

#[tokio::test]
async fn brokers_away_are_waited_for_and_shown() {
    let mock = cluster(1);
    let mut sink = prepared(&mock, &[("retry.backoff.ms", "10")]).await;
    mock.broker_down(1).unwrap();
    sink.enqueue(&record("k", "1", b"{}"), origin(10)).unwrap();
    sink.seal(Some(end(11)));
    let began = Instant::now();
    while sink.trouble().is_none() && began.elapsed() < PATIENCE {
        let early = tokio::time::timeout(Duration::from_millis(20), sink.delivered()).await;
        assert!(early.is_err(), "delivered to nobody: {early:?}");
    }
    assert!(sink.trouble().is_some());
    mock.broker_up(1).unwrap();
    assert_eq!(next(&mut sink).await.unwrap(), end(11));
    assert_eq!(sink.trouble(), None);
}

#[tokio::test]
async fn a_record_that_cannot_be_sent_spares_the_others() {
    let mock = cluster(4);
    let mut sink = prepared(&mock, &[("max.request.size", "2000")]).await;
    let value = vec![b'x'; 3000];
    let mut beyond = record("k", "7", b"{}");
    beyond.partition = Some(4);
    let mut ancient = record("k", "8", b"{}");
    ancient.timestamp_ms = Some(-1);
    let large = record("k", "9", &value);
    for (record, word) in [
        (beyond, "partition 4"),
        (ancient, "before 1970"),
        (large, "max.request.size (2000"),
    ] {
        let failure = sink.enqueue(&record, origin(10)).unwrap_err();
        assert_eq!(failure.class(), Class::Poison, "{failure}");
        assert!(failure.to_string().contains(word), "{failure}");
        assert_eq!(failure.origin(), Some(origin(10)));
    }
    sink.enqueue(&record("k", "10", b"{}"), origin(20)).unwrap();
    sink.seal(Some(end(21)));
    assert_eq!(next(&mut sink).await.unwrap(), end(21));
}

#[tokio::test]
async fn an_unprepared_topic_is_our_own_mistake() {
    let mock = cluster(1);
    let mut sink = Sink::open(&options(&mock, &[])).unwrap();
    let failure = sink
        .enqueue(&record("k", "1", b"{}"), origin(1))
        .unwrap_err();
    assert_eq!(failure.class(), Class::Internal);
}

#[tokio::test]
async fn a_topic_that_may_not_be_seen_names_the_right() {
    let mock = cluster(1);
    mock.topic_error(TOPIC, Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        .unwrap();
    let mut sink = Sink::open(&options(&mock, &[])).unwrap();
    let failure = sink.prepare(TOPIC).await.unwrap_err();
    assert_eq!(failure.class(), Class::Retriable);
    let text = failure.to_string();
    assert!(text.contains(TOPIC) && text.contains("DESCRIBE"), "{text}");
}

#[tokio::test]
async fn a_missing_topic_names_the_remedies() {
    let mock = cluster(1);
    mock.topic_error(TOPIC, Answer::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        .unwrap();
    let mut sink = Sink::open(&options(&mock, &[])).unwrap();
    let failure = sink.prepare(TOPIC).await.unwrap_err();
    assert_eq!(failure.class(), Class::Retriable);
    let text = failure.to_string();
    for part in [TOPIC, "create the topic", "topic.creation"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

#[tokio::test]
async fn room_comes_back_inside_an_endless_burst() {
    let mock = cluster(1);
    let mut sink = prepared(&mock, &[]).await;
    for n in 0..5000 {
        if !sink.has_room() {
            tokio::time::timeout(PATIENCE, room(&mut sink))
                .await
                .unwrap();
        }
        assert!(sink.in_flight().records <= 1000);
        sink.enqueue(&record("k", "1", b"{}"), origin(10 + n))
            .unwrap();
    }
    sink.seal(Some(end(9000)));
    let deadline = Instant::now() + PATIENCE;
    let reached = sink.drain(deadline).await.unwrap().unwrap();
    assert_eq!(reached.resume_point(), end(9000));
}

#[tokio::test]
async fn a_drain_without_brokers_ends_at_its_deadline() {
    let mock = cluster(1);
    let mut sink = prepared(&mock, &[]).await;
    mock.broker_down(1).unwrap();
    sink.enqueue(&record("k", "1", b"{}"), origin(10)).unwrap();
    sink.seal(Some(end(11)));
    let deadline = Instant::now() + Duration::from_millis(200);
    assert_eq!(sink.drain(deadline).await.unwrap(), None);
    assert_eq!(sink.in_flight().records, 1);
}

/// Where each key of the list lands.
async fn placed(partitions: i32, keys: &[&str]) -> Vec<i32> {
    let mock = cluster(partitions);
    let mut sink = prepared(&mock, &[]).await;
    for (n, key) in keys.iter().enumerate() {
        sink.enqueue(&record(key, key, b"{}"), origin(10 + n as u64))
            .unwrap();
    }
    sink.seal(Some(end(99)));
    next(&mut sink).await.unwrap();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "test")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(TOPIC, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&all).unwrap();
    let mut found = vec![-1; keys.len()];
    let began = Instant::now();
    while found.contains(&-1) && began.elapsed() < PATIENCE {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let at = keys
                .iter()
                .position(|key| message.key() == Some(key.as_bytes()))
                .unwrap();
            found[at] = message.partition();
        }
    }
    found
}

#[tokio::test]
async fn keys_land_where_javas_producer_puts_them() {
    let ten = [
        "354afe16-939a-4ea8-8e17-8bb0840b6886",
        "f562ac3b-2224-4e25-a0ab-56094e10c239",
    ];
    assert_eq!(placed(10, &ten).await, [4, 5]);
    let many = "fd7af248-ce5c-46a5-93d7-1c0c9005b99d";
    assert_eq!(placed(32, &[many]).await, [26]);
    let twelve = [
        "order-1",
        "order-2",
        "order-3",
        "1",
        "клиент-7",
        "00000000-0000-0000-0000-000000000001",
        "",
    ];
    assert_eq!(placed(12, &twelve).await, [10, 3, 3, 3, 3, 2, 9]);
    // What is kept behind a partition's first record goes by the same hash.
    let hashed = twelve.map(|key| (murmur2(key.as_bytes()) & 0x7fff_ffff) % 12);
    assert_eq!(hashed, [10, 3, 3, 3, 3, 2, 9]);
}

#[tokio::test]
async fn the_second_record_of_a_partition_waits_for_the_first() {
    let mock = cluster(12);
    let mut sink = prepared(&mock, &[("linger.ms", "500")]).await;
    let (one, same, other) = ("order-1", "order-1", "order-2");
    for key in [one, other] {
        assert!(sink.admits(&record(key, "a", b"1")), "{key}");
        sink.enqueue(&record(key, "a", b"1"), origin(1)).unwrap();
    }
    assert!(!sink.admits(&record(same, "b", b"2")));
    tokio::time::timeout(PATIENCE, async {
        while !sink.admits(&record(same, "b", b"2")) {
            sink.progressed().await.unwrap();
        }
    })
    .await
    .expect("both are acknowledged");
    for n in 0..2 {
        assert!(sink.admits(&record(same, "b", b"2")));
        sink.enqueue(&record(same, "b", b"2"), origin(2 + n))
            .unwrap();
    }
    // Without a key there is no order to keep.
    let mut keyless = record("", "c", b"3");
    keyless.key = None;
    for n in 0..2 {
        assert!(sink.admits(&keyless));
        sink.enqueue(&keyless, origin(4 + n)).unwrap();
    }
}

#[test]
fn the_build_names_its_features() {
    let text = client_build();
    for feature in [
        "librdkafka 2.",
        "zstd",
        "ssl",
        "sasl_scram",
        "sasl_oauthbearer",
    ] {
        assert!(text.contains(feature), "{feature} is missing in: {text}");
    }
}

#[test]
fn its_futures_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let mock = cluster(1);
    let mut sink = Sink::open(&options(&mock, &[])).unwrap();
    is_send(&sink);
    is_send(&sink.prepare(TOPIC));
    is_send(&sink.delivered());
    is_send(&sink.progressed());
    is_send(&sink.probe());
}

/// Waits until there is room. An open batch frees nothing, so it is sealed first.
async fn room(sink: &mut Sink) {
    sink.seal(None);
    while !sink.has_room() {
        sink.progressed().await.unwrap();
    }
}
