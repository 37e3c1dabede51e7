//! The compacted offsets topic, in Connect's format, shared with Connect workers if need be.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::util::Timeout;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::value::{self, KeyMatch};
use crate::config::{Connector, KafkaProperties, OffsetTopic, Worker};
use crate::error::Failure;
use crate::lsn::ResumePoint;
use crate::sink::client::{
    Admin, Ears, LOOK, Lifeline, Plan, Role, Settings, Tied as _, Trouble, read_topic,
};
use crate::sink::{PositionRecord, code_of, describe, failed_with, position_refused};

/// How long a topic just created may take to appear.
const CREATION: Duration = Duration::from_secs(10);
/// One question to a broker.
const ANSWER: Duration = Duration::from_secs(10);

/// A topic on a cluster.
struct Place {
    topic: String,
    properties: KafkaProperties,
}

/// The store.
pub(super) struct KafkaStore {
    connector: String,
    topic_prefix: String,
    key: Vec<u8>,
    home: Place,
    /// The worker's topic, when the connector has its own: read where the own one has nothing.
    fallback: Option<Place>,
    producer: FutureProducer<Ears>,
    trouble: Arc<Trouble>,
    lifeline: Lifeline,
}

impl KafkaStore {
    /// Finds or creates the topic. `worker_topic` is the worker's, if it has one.
    pub(super) async fn open(
        worker: &Worker,
        worker_topic: Option<&OffsetTopic>,
        connector: &Connector,
    ) -> Result<Self, Failure> {
        let (home, plan, fallback) = places(worker, worker_topic, connector)?;
        ensure(&home, &plan, &client_id(&connector.name)).await?;
        Self::connect(home, fallback, &connector.name, &connector.topic_prefix)
    }

    /// Finds the topic; `None` when neither it nor the worker's exists.
    pub(super) async fn open_existing(
        worker: &Worker,
        worker_topic: Option<&OffsetTopic>,
        connector: &Connector,
    ) -> Result<Option<Self>, Failure> {
        let (home, _, fallback) = places(worker, worker_topic, connector)?;
        for place in std::iter::once(&home).chain(&fallback) {
            let admin = Admin::start(&place.properties, &client_id(&connector.name))?;
            if admin.find(&place.topic, Duration::ZERO).await?.is_some() {
                let (name, prefix) = (&connector.name, &connector.topic_prefix);
                return Self::connect(home, fallback, name, prefix).map(Some);
            }
        }
        Ok(None)
    }

    /// What [`KafkaStore::open`] would find, with nothing created.
    pub(super) async fn survey(
        worker: &Worker,
        worker_topic: Option<&OffsetTopic>,
        connector: &Connector,
    ) -> Result<String, Failure> {
        let (home, ..) = places(worker, worker_topic, connector)?;
        let (topic, admin) = (
            &home.topic,
            Admin::start(&home.properties, &client_id(&connector.name))?,
        );
        if admin.find(topic, Duration::ZERO).await?.is_none() {
            return Ok(format!("would create topic {topic:?}"));
        }
        keeps_newest(&admin, topic).await?;
        Ok(format!("topic {topic:?} is there"))
    }

    fn connect(
        home: Place,
        fallback: Option<Place>,
        connector: &str,
        topic_prefix: &str,
    ) -> Result<Self, Failure> {
        let client_id = client_id(connector);
        let mut settings = Settings::translate(&home.properties, Role::Admin, &client_id)?;
        for (name, value) in [
            // One at a time keeps their order, needs no right of its own and no producer id, which
            // would take the first write half a second.
            ("max.in.flight", "1"),
            ("acks", "all"),
            ("linger.ms", "0"),
            // Connect finds the key where Java's producer would have put it.
            ("partitioner", "murmur2_random"),
            ("message.timeout.ms", "60000"),
            ("allow.auto.create.topics", "false"),
        ] {
            settings.force(name, value);
        }
        settings.default("reconnect.backoff.max.ms", "1000");
        let trouble = Arc::default();
        let ears = Ears::of(&trouble);
        Ok(Self {
            connector: connector.to_owned(),
            topic_prefix: topic_prefix.to_owned(),
            key: value::key(connector, topic_prefix),
            lifeline: ears.lifeline().clone(),
            producer: settings.create(ears)?,
            trouble,
            home,
            fallback,
        })
    }

    pub(super) fn describe(&self) -> String {
        format!("topic {:?}", self.home.topic)
    }

    /// The newest value, the connector's own topic first.
    pub(super) async fn read(&self) -> Result<Option<Map<String, Value>>, Failure> {
        if let Some(found) = self.read_from(&self.home).await? {
            return Ok(Some(found));
        }
        let Some(fallback) = &self.fallback else {
            return Ok(None);
        };
        let admin = Admin::start(&fallback.properties, &self.client_id())?;
        match admin.find(&fallback.topic, Duration::ZERO).await? {
            Some(_) => self.read_from(fallback).await,
            None => Ok(None),
        }
    }

    fn client_id(&self) -> String {
        client_id(&self.connector)
    }

    async fn read_from(&self, place: &Place) -> Result<Option<Map<String, Value>>, Failure> {
        let settings = Settings::translate(&place.properties, Role::Consumer, &self.client_id())?;
        let topic = place.topic.clone();
        let (connector, prefix) = (self.connector.clone(), self.topic_prefix.clone());
        let read =
            tokio::task::spawn_blocking(move || newest(settings, &topic, &connector, &prefix));
        let value = read.await.map_err(|error| {
            Failure::internal(format!("read offsets topic {:?}", place.topic)).caused_by(error)
        })??;
        let Some(bytes) = value else { return Ok(None) };
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(members)) => Ok(Some(members)),
            _ => Err(Failure::gap(format!(
                "the position of {:?} in topic {:?} is not a JSON object; set it with \"walpost \
                 offsets set\" or forget it with \"walpost offsets reset\"",
                self.connector, place.topic
            ))),
        }
    }

    /// Writes a value, or a tombstone. Cancel-safe in effect: a write that goes on after its
    /// future was dropped is still followed by every later one.
    pub(super) async fn write(&self, members: Option<Map<String, Value>>) -> Result<(), Failure> {
        let value = members.map(|members| Value::Object(members).to_string());
        let mut record = FutureRecord::<[u8], str>::to(&self.home.topic).key(&self.key);
        if let Some(value) = &value {
            record = record.payload(value);
        }
        let sent = self.producer.send(record, Timeout::After(Duration::ZERO));
        let mut sent = pin!(sent);
        let answer = loop {
            match timeout(LOOK, &mut sent).await {
                Ok(answer) => break answer,
                Err(_) => self.lifeline.hold(self.producer.client()),
            }
        };
        match answer {
            Ok(_) => {
                self.trouble.clear();
                Ok(())
            }
            Err((error, _)) => {
                let aside = self.trouble.aside();
                let attempt = format!("store the position in topic {:?}{aside}", self.home.topic);
                Err(position_refused(&attempt, code_of(&error)))
            }
        }
    }

    /// The record that says `members`, for somebody else to produce.
    pub(super) fn record(
        &self,
        members: Map<String, Value>,
        at: Option<ResumePoint>,
    ) -> PositionRecord {
        PositionRecord {
            topic: self.home.topic.clone(),
            key: self.key.clone(),
            value: Value::Object(members).to_string().into_bytes(),
            at,
        }
    }

    /// Tombstones, the fallback first: the other way round a forgotten position could come back.
    pub(super) async fn forget(&self) -> Result<(), Failure> {
        if let Some(fallback) = &self.fallback {
            let admin = Admin::start(&fallback.properties, &self.client_id())?;
            if admin.find(&fallback.topic, Duration::ZERO).await?.is_some()
                && self.read_from(fallback).await?.is_some()
            {
                self.tombstone(fallback).await?;
            }
        }
        self.write(None).await
    }

    async fn tombstone(&self, place: &Place) -> Result<(), Failure> {
        let mut settings = Settings::translate(&place.properties, Role::Admin, &self.client_id())?;
        settings.force("acks", "all");
        settings.force("partitioner", "murmur2_random");
        let producer: FutureProducer<Ears> = settings.create(Ears::default())?;
        let record = FutureRecord::<[u8], str>::to(&place.topic).key(&self.key);
        match producer.send(record, Timeout::After(ANSWER)).await {
            Ok(_) => Ok(()),
            Err((error, _)) => {
                let attempt = format!("forget the position in topic {:?}", place.topic);
                Err(position_refused(&attempt, code_of(&error)))
            }
        }
    }
}

/// The newest value under our key; `None` where there is none or a tombstone.
fn newest(
    settings: Settings,
    topic: &str,
    connector: &str,
    prefix: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut newest = None;
    let place = ("offsets topic", topic);
    read_topic(
        settings,
        "walpost-offsets",
        place,
        |message| match value::match_key(message.key(), connector, prefix) {
            KeyMatch::Ours => newest = message.payload().map(<[u8]>::to_vec),
            KeyMatch::Other => {}
            KeyMatch::IllFormed => tracing::warn!(
                topic,
                partition = message.partition(),
                kafka_offset = message.offset(),
                "skipped a record of the offsets topic whose key is not Connect's"
            ),
        },
    )?;
    Ok(newest)
}

fn client_id(connector: &str) -> String {
    format!("walpost-offsets-{connector}")
}

/// Where the connector's position lives, how to create that, and where else to look.
fn places(
    worker: &Worker,
    worker_topic: Option<&OffsetTopic>,
    connector: &Connector,
) -> Result<(Place, OffsetTopic, Option<Place>), Failure> {
    let global = worker_topic.map(|topic| Place {
        topic: topic.name.clone(),
        properties: worker.client.clone(),
    });
    match (&connector.own_offset_topic, worker_topic, global) {
        (Some(own), topic, global) => {
            let plan = OffsetTopic {
                name: own.clone(),
                partitions: topic.map_or(-1, |topic| topic.partitions),
                replication_factor: topic.map_or(-1, |topic| topic.replication_factor),
                settings: topic.map_or_else(BTreeMap::new, |topic| topic.settings.clone()),
            };
            let home = Place {
                topic: own.clone(),
                properties: connector.producer.clone(),
            };
            let same = global
                .as_ref()
                .is_some_and(|global| global.topic == *own && global.properties == home.properties);
            Ok((home, plan, global.filter(|_| !same)))
        }
        // The producer's transaction reaches no other cluster than its own.
        (None, Some(topic), Some(global)) if !is_reached(worker, connector) => {
            let home = Place {
                topic: topic.name.clone(),
                properties: connector.producer.clone(),
            };
            Ok((home, topic.clone(), Some(global)))
        }
        (None, Some(topic), Some(global)) => Ok((global, topic.clone(), None)),
        (None, ..) => Err(Failure::internal("no offsets topic is configured")),
    }
}

/// Whether what the connector's producer writes can go to the worker's topic: without transactions
/// it need not.
fn is_reached(worker: &Worker, connector: &Connector) -> bool {
    const BROKERS: &str = "bootstrap.servers";
    connector.exactly_once.is_none()
        || connector.producer.get(BROKERS) == worker.client.get(BROKERS)
}

/// Sees to it that the topic is there and keeps the newest value of each key.
async fn ensure(home: &Place, plan: &OffsetTopic, client_id: &str) -> Result<(), Failure> {
    let topic = &home.topic;
    let admin = Admin::start(&home.properties, client_id)?;
    if admin.find(topic, Duration::ZERO).await?.is_none() {
        let mut settings = plan.settings.clone();
        settings.insert("cleanup.policy".to_owned(), "compact".to_owned());
        let created = admin
            .create(&Plan {
                topic,
                partitions: plan.partitions,
                replication_factor: plan.replication_factor,
                settings: &settings,
            })
            .await;
        if let Err(code) = created {
            return Err(not_created(topic, plan, code));
        }
        tracing::info!(topic, "created the offsets topic");
        if admin.find(topic, CREATION).await?.is_none() {
            return Err(Failure::retriable(format!(
                "create offsets topic {topic:?}: it has not appeared yet"
            )));
        }
        return Ok(());
    }
    keeps_newest(&admin, topic).await
}

/// Refuses a topic that is cleaned up in a way which could delete a position.
async fn keeps_newest(admin: &Admin, topic: &str) -> Result<(), Failure> {
    match admin.setting(topic, "cleanup.policy").await {
        Ok(Some(policy)) if policy != "compact" => Err(Failure::config(format!(
            "offsets topic {topic:?} has cleanup.policy={policy}, so that positions could be \
             deleted; set cleanup.policy=compact on it, or choose another offset.storage.topic"
        ))),
        Ok(_) => Ok(()),
        Err(code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)) => {
            tracing::warn!(
                topic,
                "cannot check that the offsets topic has cleanup.policy=compact: {}; grant \
                 DESCRIBE_CONFIGS on it",
                describe(code)
            );
            Ok(())
        }
        Err(code) => Err(failed_with(
            &format!("describe offsets topic {topic:?}"),
            code,
        )),
    }
}

fn not_created(topic: &str, plan: &OffsetTopic, code: Code) -> Failure {
    let attempt = format!("create offsets topic {topic:?}");
    match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Failure::config(format!(
                "{attempt}: {}; grant CREATE on it, or create it with cleanup.policy=compact",
                describe(code)
            ))
        }
        Code::InvalidReplicationFactor | Code::InvalidPartitions | Code::InvalidConfig => {
            Failure::config(format!(
                "{attempt}: {}; the cluster does not accept \
                 offset.storage.replication.factor={}, offset.storage.partitions={} or another \
                 offset.storage setting",
                describe(code),
                plan.replication_factor,
                plan.partitions
            ))
        }
        _ => failed_with(&attempt, code),
    }
}

#[cfg(test)]
#[path = "kafka_tests.rs"]
mod tests;
