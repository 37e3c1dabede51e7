//! Topics before their first record: found, created, or refused with a name and a remedy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::Producer as _;

use super::client::{Admin, Plan, find, look};
use super::producer::Producer;
use super::refusal::{describe, failed_with, verdict};
use crate::config::{KafkaProperties, TopicCreation, TopicGroup};
use crate::error::{Class, Failure};

/// How long a broker that creates topics by itself may take.
const AUTO_CREATION: Duration = Duration::from_secs(5);

/// For so long a partition that was not there is believed not to be there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is known of the topics of this run.
pub(super) struct Topics {
    /// Number of partitions, and when they were counted.
    partitions: HashMap<String, (i32, Instant)>,
    creation: Option<TopicCreation>,
    admin_properties: KafkaProperties,
    client_id: String,
    admin: Option<Admin>,
}

impl Topics {
    pub(super) fn new(
        creation: Option<TopicCreation>,
        admin_properties: KafkaProperties,
        client_id: String,
    ) -> Self {
        Self {
            partitions: HashMap::new(),
            creation,
            admin_properties,
            client_id,
            admin: None,
        }
    }

    /// Number of partitions of a topic that has been prepared.
    pub(super) fn partitions(&self, topic: &str) -> Option<i32> {
        self.partitions
            .get(topic)
            .map(|&(partitions, _)| partitions)
    }

    /// Whether a topic has to be prepared again: it had no such partition when it was last looked
    /// at, and may have grown since.
    pub(super) fn outgrown(&mut self, topic: &str, partition: i32) -> bool {
        let beyond = |&(partitions, counted): &(i32, Instant)| {
            partition >= partitions && counted.elapsed() > LOOK_AGAIN
        };
        let outgrown = self.partitions.get(topic).is_some_and(beyond);
        if outgrown {
            self.partitions.remove(topic);
        }
        outgrown
    }

    /// Finds the topic, or sees to it that it comes to be. The look goes through the producer, so
    /// that it knows the topic's partitions before the first record arrives.
    pub(super) async fn prepare(
        &mut self,
        topic: &str,
        producer: &Producer,
    ) -> Result<(), Failure> {
        if self.partitions.contains_key(topic) {
            return Ok(());
        }
        let patience = match self.creation {
            Some(_) => Duration::ZERO,
            None => AUTO_CREATION,
        };
        let found = match Self::find(topic, producer, patience).await? {
            Some(partitions) => partitions,
            None => {
                let Some(group) = self.group(topic)? else {
                    return Err(failed_with(
                        &format!("produce to topic {topic:?}"),
                        Code::UnknownTopic,
                    ));
                };
                self.create(topic, &group).await?;
                Self::find(topic, producer, AUTO_CREATION)
                    .await?
                    .ok_or_else(|| {
                        Failure::retriable(format!(
                            "create topic {topic:?}: it has not appeared yet"
                        ))
                    })?
            }
        };
        self.partitions
            .insert(topic.to_owned(), (found, Instant::now()));
        Ok(())
    }

    async fn find(
        topic: &str,
        producer: &Producer,
        patience: Duration,
    ) -> Result<Option<i32>, Failure> {
        let client = Arc::clone(producer.client());
        let name = topic.to_owned();
        let look = move || look(client.client(), &name);
        find(topic, producer.trouble(), patience, look).await
    }

    /// The first group that takes the topic.
    fn group(&self, topic: &str) -> Result<Option<TopicGroup>, Failure> {
        let Some(creation) = &self.creation else {
            return Ok(None);
        };
        for group in &creation.groups {
            let any = |expressions: &[fancy_regex::Regex]| -> Result<bool, Failure> {
                for expression in expressions {
                    if expression.is_match(topic).map_err(|error| {
                        Failure::config(format!(
                            "match topic {topic:?} against topic.creation.{}",
                            group.name
                        ))
                        .caused_by(error)
                    })? {
                        return Ok(true);
                    }
                }
                Ok(false)
            };
            let included = group.include.is_empty() || any(&group.include)?;
            if included && !any(&group.exclude)? {
                return Ok(Some(group.clone()));
            }
        }
        Ok(None)
    }

    async fn create(&mut self, topic: &str, group: &TopicGroup) -> Result<(), Failure> {
        let admin = match self.admin.take() {
            Some(admin) => admin,
            None => Admin::start(&self.admin_properties, &self.client_id)?,
        };
        let plan = Plan {
            topic,
            partitions: group.partitions,
            replication_factor: group.replication_factor,
            settings: &group.settings,
        };
        let created = admin.create(&plan).await;
        let admin = self.admin.insert(admin);
        match created {
            Ok(()) => {
                tracing::info!(topic, group = group.name, "created the topic");
                Ok(())
            }
            Err(code) => Err(not_created(topic, group, code, admin)),
        }
    }
}

fn not_created(topic: &str, group: &TopicGroup, code: Code, admin: &Admin) -> Failure {
    let attempt = format!("create topic {topic:?} by topic.creation.{}", group.name);
    match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Failure::retriable(format!(
                "{attempt}: {}; grant CREATE on the topic or the cluster to the principal of the \
                 worker's (or admin.override.*) properties, or create the topic yourself",
                describe(code)
            ))
            .about_rights()
        }
        Code::InvalidReplicationFactor | Code::InvalidPartitions | Code::InvalidConfig => {
            Failure::config(format!(
                "{attempt}: {}; the cluster does not accept partitions={}, \
                 replication.factor={} or one of the other settings of the group",
                describe(code),
                group.partitions,
                group.replication_factor
            ))
        }
        Code::PolicyViolation => Failure::config(format!(
            "{attempt}: {}; a policy of the cluster forbids it as configured",
            describe(code)
        )),
        _ => match (admin.trouble().hopeless(), verdict(code).0) {
            (Some((cause, text)), Class::Retriable) => {
                failed_with(&format!("{attempt}: connect to Kafka: {text}"), cause)
            }
            _ => failed_with(&attempt, code),
        },
    }
}
