//! The two topics: created, read from end to end, and followed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::sync::mpsc;

use super::audit::{Action, Audit};
use super::letter::{Letter, LetterId};
use crate::config::{Connector, DeadLetters, KafkaProperties};
use crate::error::Failure;
use crate::sink::client::{
    Admin, Ears, Ends, Plan, Role, Settings, bear, follow_topic, hold, read_topic,
};
use crate::sink::{describe, failed_with};

/// How long a topic just created may take to appear.
const CREATION: Duration = Duration::from_secs(10);
/// Connect's default for the dead-letter topic.
const REPLICAS: i32 = 3;
/// Room for what was too large elsewhere: about what a broker takes in one request.
const MAX_MESSAGE_BYTES: &str = "104857600";
/// How long the follower sleeps without records before it looks whether it should stop.
const POLL: Duration = Duration::from_millis(250);

const GROUP: &str = "walpost-dead-letters";
const LETTERS: &str = "dead-letter topic";
const AUDIT: &str = "audit topic";

/// The dead-letter topic and its audit topic, as one connector sees them.
#[derive(Debug, Clone)]
pub struct Log {
    connector: String,
    topics: DeadLetters,
    /// The producer's, since it writes there.
    properties: KafkaProperties,
}

/// A letter of the connector, found in the topic.
#[derive(Debug)]
pub struct Found {
    /// The letter.
    pub letter: Letter,
    /// Its name.
    pub id: LetterId,
    /// Where it is.
    pub partition: i32,
    /// Where it is.
    pub offset: i64,
    /// When it was written, milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
    /// What became of it; `None` while it waits.
    pub settled: Option<Action>,
}

/// What [`Log::read`] came across.
#[derive(Debug, Default)]
pub struct News {
    /// Where the audit topic ended: what is said later is for [`Log::follow`].
    audited: Ends,
    /// Records that are no dead letters of walpost.
    pub foreign: u64,
}

impl Log {
    /// The topics of `connector`; nothing is asked yet.
    pub fn new(connector: &Connector, topics: &DeadLetters) -> Self {
        Self {
            connector: connector.name.clone(),
            topics: topics.clone(),
            properties: connector.producer.clone(),
        }
    }

    /// Sees to it that the topics are there, the second one only if `audited`.
    ///
    /// # Errors
    /// `Config` or `Retriable`, naming topic and right or property.
    pub async fn create(&self, audited: bool) -> Result<(), Failure> {
        let admin = Admin::start(&self.properties, &self.client_id())?;
        let room = BTreeMap::from([("max.message.bytes", MAX_MESSAGE_BYTES)]);
        self.ensure(&admin, LETTERS, &self.topics.topic, room)
            .await?;
        if audited {
            self.ensure(&admin, AUDIT, &self.topics.audit_topic(), BTreeMap::new())
                .await?;
        }
        Ok(())
    }

    /// Whether the dead-letter topic is there.
    ///
    /// # Errors
    /// As [`Log::create`].
    pub async fn exists(&self) -> Result<bool, Failure> {
        let admin = Admin::start(&self.properties, &self.client_id())?;
        let found = admin.find(&self.topics.topic, Duration::ZERO).await?;
        Ok(found.is_some())
    }

    fn client_id(&self) -> String {
        format!("walpost-dead-letters-{}", self.connector)
    }

    async fn ensure(
        &self,
        admin: &Admin,
        what: &str,
        topic: &str,
        settings: BTreeMap<&str, &str>,
    ) -> Result<(), Failure> {
        if admin.find(topic, Duration::ZERO).await?.is_some() {
            return self.check(admin, what, topic).await;
        }
        // Kept for ever: a letter that a broker deletes would release its aggregate.
        let settings = settings
            .into_iter()
            .chain([("cleanup.policy", "delete"), ("retention.ms", "-1")])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut plan = Plan {
            topic,
            partitions: 1,
            replication_factor: self.topics.replication_factor.unwrap_or(REPLICAS),
            settings: &settings,
        };
        let mut created = admin.create(&plan).await;
        if created == Err(Code::InvalidReplicationFactor)
            && self.topics.replication_factor.is_none()
        {
            plan.replication_factor = -1;
            created = admin.create(&plan).await;
        }
        created.map_err(|code| not_created(what, &plan, code))?;
        tracing::info!(topic, "created the {what}");
        match admin.find(topic, CREATION).await? {
            Some(_) => Ok(()),
            None => Err(Failure::retriable(format!(
                "create {what} {topic:?}: it has not appeared yet"
            ))),
        }
    }

    /// A compacted topic would keep only the last letter of each aggregate.
    async fn check(&self, admin: &Admin, what: &str, topic: &str) -> Result<(), Failure> {
        match admin.setting(topic, "cleanup.policy").await {
            Ok(Some(policy)) if policy.contains("compact") => {
                return Err(Failure::config(format!(
                    "{what} {topic:?} has cleanup.policy={policy}, so that all but the newest \
                     record of an aggregate would be deleted; set cleanup.policy=delete on it"
                )));
            }
            Ok(_) => {}
            // Only a look; the right is needed for nothing else.
            Err(code) => tracing::debug!(topic, "describe the {what}: {}", describe(code)),
        }
        if self.topics.by_aggregate
            && let Ok(Some(retention)) = admin.setting(topic, "retention.ms").await
            && retention != "-1"
        {
            tracing::info!(
                topic,
                retention_ms = retention,
                "the {what} forgets: a dead letter that it deletes holds its aggregate back no \
                 longer after the next start; set retention.ms=-1 on it"
            );
        }
        Ok(())
    }

    /// Hands every letter of the connector to `take`, in the order of each partition.
    ///
    /// # Errors
    /// A topic cannot be read. One that is missing is empty.
    pub async fn read(&self, take: impl FnMut(Found) + Send + 'static) -> Result<News, Failure> {
        let log = self.clone();
        let settings = || Settings::translate(&self.properties, Role::Consumer, &self.client_id());
        let (audits, letters) = (settings()?, settings()?);
        tokio::task::spawn_blocking(move || log.read_both(audits, letters, take))
            .await
            .map_err(|error| {
                Failure::internal(format!("read {LETTERS} {:?}", self.topics.topic))
                    .caused_by(error)
            })?
    }

    /// The audit first: what is said of a letter while the letters are read is news for the
    /// follower.
    fn read_both(
        &self,
        audits: Settings,
        letters: Settings,
        mut take: impl FnMut(Found),
    ) -> Result<News, Failure> {
        let mut settled: HashMap<LetterId, Vec<Action>> = HashMap::new();
        let topic = self.topics.audit_topic();
        let audited = read_topic(audits, GROUP, (AUDIT, &topic), |message| {
            if let Some(audit) = self.audit(message.payload())
                && let Some(letter) = audit.letter
                && audit.action.settles()
            {
                settled.entry(letter).or_default().push(audit.action);
            }
        })?;
        let mut news = News {
            audited,
            foreign: 0,
        };
        let topic = &self.topics.topic;
        read_topic(letters, GROUP, (LETTERS, topic), |message| {
            let Ok(letter) = Letter::decode(message.payload().unwrap_or_default()) else {
                news.foreign += 1;
                return;
            };
            if letter.connector != self.connector {
                return;
            }
            let id = letter.id();
            let found = Found {
                id,
                letter,
                partition: message.partition(),
                offset: message.offset(),
                time_ms: message.timestamp().to_millis(),
                settled: settled.get_mut(&id).and_then(Vec::pop),
            };
            take(found);
        })?;
        Ok(news)
    }

    fn audit(&self, value: Option<&[u8]>) -> Option<Audit> {
        Audit::decode(value.unwrap_or_default())
            .ok()
            .filter(|audit| audit.connector == self.connector)
    }

    /// Follows what is said in the audit topic after `news`.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn follow(&self, news: News) -> Result<Tail, Failure> {
        let settings = Settings::translate(&self.properties, Role::Consumer, &self.client_id())?;
        let topic = self.topics.audit_topic();
        let consumer = follow_topic(settings, GROUP, (AUDIT, &topic), &news.audited)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (log, until) = (self.clone(), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("dead-letters".to_owned())
            .spawn(move || {
                while !until.load(Ordering::Acquire) {
                    if let Some(said) = log.poll(&consumer)
                        && sender.send(said).is_err()
                    {
                        return;
                    }
                }
            })
            .map_err(|error| {
                Failure::retriable("start the thread that follows the audit topic").caused_by(error)
            })?;
        Ok(Tail { receiver, stop })
    }

    fn poll(&self, consumer: &BaseConsumer<Ears>) -> Option<Result<Audit, Failure>> {
        let Some(polled) = consumer.poll(POLL) else {
            hold(consumer.client());
            return None;
        };
        match polled {
            Ok(message) => self.audit(message.payload()).map(Ok),
            Err(error) => {
                let attempt = format!("follow {AUDIT} {:?}", self.topics.audit_topic());
                bear(&attempt, &error).err().map(Err)
            }
        }
    }
}

/// What is said in the audit topic, as it is said.
pub struct Tail {
    receiver: mpsc::UnboundedReceiver<Result<Audit, Failure>>,
    stop: Arc<AtomicBool>,
}

impl Tail {
    /// The next record. Cancel-safe.
    ///
    /// # Errors
    /// The topic can be followed no longer.
    pub async fn next(&mut self) -> Result<Audit, Failure> {
        match self.receiver.recv().await {
            Some(said) => said,
            None => Err(Failure::retriable(
                "the thread that follows the audit topic has ended",
            )),
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn not_created(what: &str, plan: &Plan<'_>, code: Code) -> Failure {
    let attempt = format!("create {what} {:?}", plan.topic);
    match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Failure::retriable(format!(
                "{attempt}: {}; grant CREATE on the topic or the cluster to the producer's \
                 principal, or create it with one partition, cleanup.policy=delete and \
                 retention.ms=-1",
                describe(code)
            ))
        }
        Code::InvalidReplicationFactor => Failure::config(format!(
            "{attempt}: {}; the cluster does not accept \
             errors.deadletterqueue.topic.replication.factor={}",
            describe(code),
            plan.replication_factor
        )),
        _ => failed_with(&attempt, code),
    }
}
