//! Questions to the cluster about topics, and their creation.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, Producer as _};
use tokio::time::{Instant, sleep};

use super::{Ears, Role, Settings, Tied, Trouble, hold};
use crate::config::KafkaProperties;
use crate::error::{Class, Failure};
use crate::sink::refusal::{code_of, failed_with, verdict};

/// How long brokers may be silent before the attempt is given up.
const REACH: Duration = Duration::from_secs(30);
/// One question.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer pause, when the first questions did not help.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// What one look at the metadata showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The topic is there, with so many partitions.
    Exists(i32),
    /// Just created; not every partition has a leader.
    NotYet,
    /// The cluster does not know it.
    Missing,
}

/// One blocking look.
pub(crate) fn look<C: Tied>(client: &Client<C>, topic: &str) -> Result<Sight, Code> {
    let metadata = ask(client, topic)?;
    let Some(found) = metadata.topics().iter().find(|t| t.name() == topic) else {
        return Ok(Sight::Missing);
    };
    match found.error().map(Code::from) {
        None if found.partitions().is_empty() => Ok(Sight::NotYet),
        None if found.partitions().iter().any(|p| p.leader() < 0) => Ok(Sight::NotYet),
        None => Ok(Sight::Exists(
            i32::try_from(found.partitions().len()).unwrap_or(i32::MAX),
        )),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(Sight::Missing),
        Some(Code::LeaderNotAvailable) => Ok(Sight::NotYet),
        Some(other) => Err(other),
    }
}

/// Looks until the topic is there, or has been missing for `patience`. `look` blocks, so it runs
/// on the blocking pool.
pub(crate) async fn find<L>(
    topic: &str,
    trouble: &Trouble,
    patience: Duration,
    look: L,
) -> Result<Option<i32>, Failure>
where
    L: Fn() -> Result<Sight, Code> + Clone + Send + 'static,
{
    let began = Instant::now();
    loop {
        let seen = tokio::task::spawn_blocking(look.clone())
            .await
            .map_err(|error| {
                Failure::internal(format!("look at topic {topic:?}")).caused_by(error)
            })?;
        let waited = began.elapsed();
        match seen {
            Ok(Sight::Exists(partitions)) => return Ok(Some(partitions)),
            Ok(Sight::Missing) if waited >= patience => return Ok(None),
            Ok(Sight::Missing | Sight::NotYet) if waited < REACH => {}
            Ok(_) => {
                return Err(Failure::retriable(format!(
                    "wait for topic {topic:?}: not every partition has a leader"
                )));
            }
            // The broker answered: asking again at once cannot help, saying it at once does.
            Err(code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)) => {
                return Err(failed_with(&format!("look up topic {topic:?}"), code));
            }
            Err(code) => {
                let attempt = format!("look up topic {topic:?}");
                unanswered(&attempt, trouble, code, waited >= REACH)?;
            }
        }
        sleep(if waited < 4 * PAUSE {
            PAUSE
        } else {
            LONG_PAUSE.min(waited)
        })
        .await;
    }
}

/// One blocking question that any broker can answer.
pub(crate) fn answers<C: Tied>(client: &Client<C>) -> Result<(), Code> {
    ask(client, "__consumer_offsets").map(drop)
}

fn ask<C: Tied>(client: &Client<C>, topic: &str) -> Result<Metadata, Code> {
    hold(client);
    client
        .fetch_metadata(Some(topic), ANSWER)
        .map_err(|error| code_of(&error))
}

/// Asks until someone answers.
pub(crate) async fn reach<A>(trouble: &Trouble, ask: A) -> Result<(), Failure>
where
    A: Fn() -> Result<(), Code> + Clone + Send + 'static,
{
    let began = Instant::now();
    loop {
        let answer = tokio::task::spawn_blocking(ask.clone())
            .await
            .map_err(|error| Failure::internal("connect to Kafka").caused_by(error))?;
        match answer {
            Ok(()) => return Ok(()),
            Err(code) => unanswered("connect to Kafka", trouble, code, began.elapsed() >= REACH)?,
        }
        sleep(LONG_PAUSE).await;
    }
}

/// Whether asking again can help.
fn unanswered(attempt: &str, trouble: &Trouble, code: Code, late: bool) -> Result<(), Failure> {
    if let Some((cause, text)) = trouble.hopeless() {
        return Err(failed_with(&format!("{attempt}: {text}"), cause));
    }
    if verdict(code).0 != Class::Retriable {
        return Err(failed_with(attempt, code));
    }
    if late {
        let aside = trouble.aside();
        let attempt = format!("{attempt}: no broker of bootstrap.servers answers{aside}");
        return Err(failed_with(&attempt, code));
    }
    Ok(())
}

/// A connection for looking up, creating and describing topics.
pub(crate) struct Admin {
    /// Asks what exists. A producer, since an admin client keeps to itself what it hears of refused
    /// logins, certificates and names: nobody can poll it.
    scout: Arc<BaseProducer<Ears>>,
    settings: Settings,
    client: OnceLock<Arc<AdminClient<Ears>>>,
    trouble: Arc<Trouble>,
}

/// A topic to create.
pub(crate) struct Plan<'a> {
    /// Topic name.
    pub(crate) topic: &'a str,
    /// -1 is the broker's default.
    pub(crate) partitions: i32,
    /// -1 is the broker's default.
    pub(crate) replication_factor: i32,
    /// Topic configuration.
    pub(crate) settings: &'a BTreeMap<String, String>,
}

impl Admin {
    /// Connects in the background.
    pub(crate) fn start(java: &KafkaProperties, client_id: &str) -> Result<Self, Failure> {
        let mut settings = Settings::translate(java, Role::Admin, client_id)?;
        settings.default("reconnect.backoff.max.ms", "1000");
        settings.force("allow.auto.create.topics", "false");
        let trouble = Arc::default();
        let scout = Arc::new(settings.create(Ears::of(&trouble))?);
        Ok(Self {
            scout,
            settings,
            client: OnceLock::new(),
            trouble,
        })
    }

    /// Made when it is needed: most starts find everything in place.
    fn client(&self) -> Result<Arc<AdminClient<Ears>>, Code> {
        if let Some(client) = self.client.get() {
            hold(client.inner());
            return Ok(Arc::clone(client));
        }
        let created = self.settings.create(Ears::of(&self.trouble));
        // The same settings have made a client already.
        let client = Arc::new(created.map_err(|_| Code::InvalidConfig)?);
        Ok(Arc::clone(self.client.get_or_init(|| client)))
    }

    /// What its connections are struggling with.
    pub(crate) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Number of partitions of a topic; `None` when it is still missing after `patience`.
    pub(crate) async fn find(
        &self,
        topic: &str,
        patience: Duration,
    ) -> Result<Option<i32>, Failure> {
        let scout = Arc::clone(&self.scout);
        let name = topic.to_owned();
        let look = move || {
            let seen = look(scout.client(), &name);
            // What was heard meanwhile, into our ears.
            scout.poll(Duration::ZERO);
            seen
        };
        find(topic, self.trouble(), patience, look).await
    }

    /// Creates a topic. That it exists by now is no error.
    pub(crate) async fn create(&self, plan: &Plan<'_>) -> Result<(), Code> {
        let replication = TopicReplication::Fixed(plan.replication_factor);
        let mut topic = NewTopic::new(plan.topic, plan.partitions, replication);
        for (name, value) in plan.settings {
            topic = topic.set(name, value);
        }
        let options = AdminOptions::new()
            .request_timeout(Some(REACH))
            .operation_timeout(Some(REACH));
        let results = self
            .client()?
            .create_topics([&topic], &options)
            .await
            .map_err(|error| code_of(&error))?;
        match results.into_iter().next() {
            None | Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => Ok(()),
            Some(Err((_, code))) => Err(code),
        }
    }

    /// The value of one topic setting; `None` when the cluster does not say.
    pub(crate) async fn setting(&self, topic: &str, name: &str) -> Result<Option<String>, Code> {
        let options = AdminOptions::new().request_timeout(Some(REACH));
        let results = self
            .client()?
            .describe_configs([&ResourceSpecifier::Topic(topic)], &options)
            .await
            .map_err(|error| code_of(&error))?;
        match results.into_iter().next() {
            Some(Ok(resource)) => Ok(resource.get(name).and_then(|entry| entry.value.clone())),
            Some(Err(code)) => Err(code),
            None => Ok(None),
        }
    }
}

impl Drop for Admin {
    /// A client's own goodbye waits for its threads, which must not hold up the caller.
    fn drop(&mut self) {
        let clients = (Arc::clone(&self.scout), self.client.take());
        std::thread::spawn(move || drop(clients));
    }
}
