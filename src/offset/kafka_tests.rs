//! Reading and writing against librdkafka's mock broker, which knows nothing of topic settings;
//! and, where `WALPOST_TEST_KAFKA` names a real broker, the topic itself.

use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use serde_json::json;

use super::*;
use crate::error::Class;

type Mock = MockCluster<'static, DefaultProducerContext>;

fn properties(servers: &str) -> KafkaProperties {
    let mut all = KafkaProperties::default();
    all.0.insert("bootstrap.servers".into(), servers.to_owned());
    all
}

fn place(mock: &Mock, topic: &str) -> Place {
    Place {
        topic: topic.to_owned(),
        properties: properties(&mock.bootstrap_servers()),
    }
}

fn mock(topics: &[&str]) -> Mock {
    let mock = MockCluster::new(1).unwrap();
    for topic in topics {
        mock.create_topic(topic, 3, 1).unwrap();
    }
    mock
}

fn members(lsn: u64) -> Map<String, Value> {
    json!({ "lsn": lsn }).as_object().unwrap().clone()
}

#[tokio::test]
async fn the_newest_value_of_the_connectors_own_key_is_read() {
    let mock = mock(&["offsets"]);
    let open = |name: &str| KafkaStore::connect(place(&mock, "offsets"), None, name, "p").unwrap();
    let (ours, other) = (open("ours"), open("other"));
    assert_eq!(ours.read().await.unwrap(), None);
    for lsn in 1..=5 {
        ours.write(Some(members(lsn))).await.unwrap();
        other.write(Some(members(lsn + 100))).await.unwrap();
    }
    assert_eq!(ours.read().await.unwrap(), Some(members(5)));
    ours.forget().await.unwrap();
    assert_eq!(ours.read().await.unwrap(), None);
    assert_eq!(other.read().await.unwrap(), Some(members(105)));
}

#[tokio::test]
async fn what_is_not_connects_is_skipped() {
    let mock = mock(&["offsets"]);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .create()
        .unwrap();
    for key in ["", "x", "[1]", "{}"] {
        producer
            .send(BaseRecord::to("offsets").key(key).payload("{}"))
            .unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
    let store = KafkaStore::connect(place(&mock, "offsets"), None, "c", "p").unwrap();
    assert_eq!(store.read().await.unwrap(), None);
    store.write(Some(members(7))).await.unwrap();
    assert_eq!(store.read().await.unwrap(), Some(members(7)));
}

#[tokio::test]
async fn the_own_topic_comes_before_the_workers() {
    let mock = mock(&["own", "global"]);
    let global = KafkaStore::connect(place(&mock, "global"), None, "c", "p").unwrap();
    global.write(Some(members(1))).await.unwrap();
    let fallback = Some(place(&mock, "global"));
    let own = KafkaStore::connect(place(&mock, "own"), fallback, "c", "p").unwrap();
    assert_eq!(own.read().await.unwrap(), Some(members(1)));
    own.write(Some(members(2))).await.unwrap();
    assert_eq!(own.read().await.unwrap(), Some(members(2)));
    assert_eq!(global.read().await.unwrap(), Some(members(1)));
    own.forget().await.unwrap();
    assert_eq!(own.read().await.unwrap(), None, "the old one came back");
}

#[tokio::test]
async fn a_value_that_is_no_object_is_a_gap() {
    let mock = mock(&["offsets"]);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .create()
        .unwrap();
    let key = value::key("c", "p");
    producer
        .send(BaseRecord::to("offsets").key(&key).payload("[1]"))
        .unwrap();
    producer.flush(Duration::from_secs(10)).unwrap();
    let store = KafkaStore::connect(place(&mock, "offsets"), None, "c", "p").unwrap();
    let failure = store.read().await.unwrap_err();
    assert_eq!(failure.class(), Class::Gap);
    assert!(failure.to_string().contains("offsets"), "{failure}");
}
