//! Against librdkafka's mock brokers: what each refusal in a transaction leads to. That aborted
//! records stay hidden is tested on a real broker.

use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Answer};

use super::super::Sink;
use super::super::tests::{Mock, PATIENCE, TOPIC, cluster, options, origin, record};
use super::*;
use crate::lsn::Lsn;

const OFFSETS: &str = "walpost-offsets";

fn mock() -> Mock {
    let mock = cluster(1);
    mock.create_topic(OFFSETS, 1, 1).unwrap();
    mock
}

fn open(mock: &Mock) -> Sink {
    let mut options = options(mock, &[]);
    options.exactly_once = Some(ExactlyOnce {
        transactional_id: "group-connector-0".to_owned(),
        boundary: crate::config::Boundary::Poll,
        timeout: Duration::from_secs(10),
        max_records: 5,
    });
    Sink::open(&options).unwrap()
}

async fn fenced(mock: &Mock) -> Sink {
    let mut sink = open(mock);
    sink.fence().await.unwrap();
    sink.prepare(TOPIC).await.unwrap();
    sink
}

fn position(raw: u64) -> PositionRecord {
    PositionRecord {
        topic: OFFSETS.to_owned(),
        key: b"key".to_vec(),
        value: b"{}".to_vec(),
        at: Lsn::new(raw).map(ResumePoint::idle),
    }
}

async fn commit(sink: &mut Sink, raw: u64) -> Result<Committed, Failure> {
    tokio::time::timeout(PATIENCE, sink.commit_now(&position(raw)))
        .await
        .expect("the commit is answered in time")
}

fn enqueue(sink: &mut Sink, raw: u64) -> Result<(), Failure> {
    sink.enqueue(&record("k", "1", b"{}"), origin(raw))
}

#[tokio::test]
async fn a_commit_proves_its_position_and_the_next_transaction_begins() {
    let mock = mock();
    let mut sink = fenced(&mock).await;
    for round in 1..=3 {
        enqueue(&mut sink, round * 10).unwrap();
        sink.seal(Lsn::new(round * 10).map(ResumePoint::idle));
        assert_eq!(sink.uncommitted(), 1);
        let committed = commit(&mut sink, round * 10).await.unwrap();
        assert_eq!(committed.resume_point(), position(round * 10).at);
        assert_eq!(sink.uncommitted(), 0);
        assert!(sink.has_room() && sink.is_sound());
    }
    // A position alone.
    assert!(commit(&mut sink, 100).await.is_ok());
    assert_eq!(sink.in_flight().records, 0);
}

#[tokio::test]
async fn nothing_enters_while_a_commit_is_under_way_or_the_limit_is_reached() {
    let mock = mock();
    let mut sink = fenced(&mock).await;
    for n in 1..=4 {
        enqueue(&mut sink, n).unwrap();
        assert!(sink.has_room());
    }
    sink.source_committed();
    for n in 5..=9 {
        assert!(!sink.is_cut() && sink.has_room());
        enqueue(&mut sink, n).unwrap();
    }
    assert!(sink.is_cut() && !sink.has_room(), "five in one transaction");
    sink.seal(None);
    sink.commit(&position(9)).unwrap();
    assert!(sink.is_committing() && !sink.has_room());
    assert!(sink.commit(&position(9)).is_err(), "one at a time");
}

#[tokio::test]
async fn an_end_that_may_be_repeated_is_repeated() {
    let mock = mock();
    let mut sink = fenced(&mock).await;
    enqueue(&mut sink, 1).unwrap();
    sink.seal(None);
    mock.request_errors(
        Api::EndTxn,
        &[
            Answer::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
            Answer::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            Answer::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
        ],
    );
    assert_eq!(
        commit(&mut sink, 1).await.unwrap().resume_point(),
        position(1).at
    );
}

#[tokio::test]
async fn a_fence_is_told_apart_and_leaves_the_sink_useless() {
    for (api, answer) in [
        (
            Api::EndTxn,
            Answer::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        ),
        (Api::EndTxn, Answer::RD_KAFKA_RESP_ERR_PRODUCER_FENCED),
        (
            Api::AddPartitionsToTxn,
            Answer::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        ),
        (
            Api::AddPartitionsToTxn,
            Answer::RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
        ),
    ] {
        let mock = mock();
        let mut sink = fenced(&mock).await;
        mock.request_errors(api, &[answer]);
        enqueue(&mut sink, 1).unwrap();
        sink.seal(None);
        let failure = commit(&mut sink, 1).await.unwrap_err();
        assert_eq!(failure.class(), Class::Retriable, "{failure}");
        for word in ["fenced", "\"group-connector-0\"", "letting go of the slot"] {
            assert!(
                failure.to_string().contains(word),
                "{api:?} {answer:?}: {failure}"
            );
        }
        assert!(!sink.is_sound());
        sink.abandon().await;
    }
}

#[tokio::test]
async fn what_fails_a_transaction_is_named_not_its_consequences() {
    for (api, answer, class, word) in [
        (
            Api::AddPartitionsToTxn,
            Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            Class::Retriable,
            "WRITE",
        ),
        (
            Api::Produce,
            Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            Class::Poison,
            "max.message.bytes",
        ),
        (
            Api::EndTxn,
            Answer::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Class::Config,
            "transactional id",
        ),
    ] {
        let mock = mock();
        let mut sink = fenced(&mock).await;
        mock.request_errors(api, &[answer]);
        enqueue(&mut sink, 1).unwrap();
        sink.seal(None);
        // So that the record, not the position, meets the answer.
        let failure = loop {
            if api != Api::Produce {
                break commit(&mut sink, 1).await.unwrap_err();
            }
            let moved = tokio::time::timeout(PATIENCE, sink.progressed());
            if let Err(failure) = moved.await.expect("the refusal is heard in time") {
                break failure;
            }
        };
        assert_eq!(failure.class(), class, "{failure}");
        assert!(failure.to_string().contains(word), "{failure}");
        assert!(!sink.is_sound());
        sink.abandon().await;
    }
}

#[tokio::test]
async fn a_beginning_that_only_an_operator_can_make_possible_is_config() {
    for (answer, word) in [
        (
            Answer::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional id",
        ),
        (
            Answer::RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT,
            "transaction.max.timeout.ms",
        ),
    ] {
        let mock = mock();
        mock.request_errors(Api::InitProducerId, &[answer]);
        let failure = open(&mock).fence().await.unwrap_err();
        assert_eq!(failure.class(), Class::Config, "{failure}");
        assert!(failure.to_string().contains(word), "{failure}");
    }
}
