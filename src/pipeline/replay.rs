//! Publishing dead letters: in order, by the configuration as it is now, and handed over to a
//! running connector without a gap or an overtaking.
//!
//! While letters of an aggregate wait, the running connector sends its later events after them. So
//! whoever replays reads the topic again until nothing came after, and only the running connector,
//! which knows what it has sent, says that the aggregate is released. An aggregate that gets events
//! faster than they are replayed never comes to that by itself; then it is asked to pause.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::dlq::{Auditor, LetterFilter, each, letters, none};
use super::transfer::wall_clock_ms;
use crate::config::{Connector, DeadLetters, Worker};
use crate::deadletter::{Action, Audit, Body, Found, Letter, Log, News, RowOperation, Tail};
use crate::error::Failure;
use crate::lsn::Lsn;
use crate::outbox::{Outbox, Outcome};
use crate::record::{Origin, Record, TableIndex};
use crate::sink::Sink;
use crate::source::Session;
use crate::source::row::{Change, LogicalMessage, Operation, Relation};

/// Letters published before it is noted that they are: what a crash repeats.
const CHUNK: usize = 500;
/// How long Kafka may take for a chunk.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a running connector may take to release an aggregate.
const ANSWER: Duration = Duration::from_secs(30);
/// Between two looks for letters that came meanwhile.
const LOOK: Duration = Duration::from_millis(500);
/// How long a replay that has just ended may take to let go of its lock.
const RELEASE: Duration = Duration::from_secs(2);

/// Sees to it that nobody else replays: both would publish the same letters. The lock is taken
/// before the letters are read, and ends with the session.
async fn alone(session: &Session, connector: &Connector) -> Result<(), Failure> {
    let deadline = Instant::now() + RELEASE;
    while !session.try_lock_letters(&connector.name).await? {
        if Instant::now() > deadline {
            return Err(Failure::config(format!(
                "another replay of the dead letters of {:?} is under way; wait for it to end",
                connector.name
            )));
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// One replay.
pub(super) struct Replay<'c> {
    connector: &'c Connector,
    log: Log,
    session: Session,
    outbox: Outbox,
    /// Tables as they were last described to the router.
    bound: HashMap<u32, Arc<Relation>>,
    audits: Auditor,
    by_aggregate: bool,
    /// Published, and not yet noted.
    sent: Vec<Audit>,
    published: usize,
    /// Matching letters behind one that waits on.
    left: usize,
    poison: Option<Failure>,
    /// Aggregates of which a letter waits on: nothing may overtake it.
    stuck: HashSet<Vec<u8>>,
    /// Aggregates of which letters were published.
    freed: HashSet<Vec<u8>>,
}

impl<'c> Replay<'c> {
    pub(super) async fn start(
        worker: &Worker,
        connector: &'c Connector,
        topics: &DeadLetters,
        log: Log,
    ) -> Result<Self, Failure> {
        let session = Session::connect(&connector.database, "dlq").await?;
        alone(&session, connector).await?;
        Ok(Self {
            log,
            session,
            outbox: Outbox::new(connector, &uuid::Uuid::new_v4().to_string()),
            bound: HashMap::new(),
            audits: Auditor::open(worker, connector, topics).await?,
            by_aggregate: topics.by_aggregate,
            sent: Vec::new(),
            published: 0,
            left: 0,
            poison: None,
            stuck: HashSet::new(),
            freed: HashSet::new(),
            connector,
        })
    }

    pub(super) async fn run(mut self, filter: &LetterFilter) -> Result<String, Failure> {
        let news = self.pass(|_, found| filter.takes(found)).await?;
        let freed: HashSet<Vec<u8>> = self.freed.difference(&self.stuck).cloned().collect();
        let stays = match self.by_aggregate && !freed.is_empty() && self.is_running().await? {
            true => self.hand_over(freed, news).await?,
            false => 0,
        };
        let text = format!("replayed {}\n", letters(self.published));
        if let Some(poison) = self.poison {
            return Err(poison.within(text.trim_end()));
        }
        if stays > 0 {
            return Err(Failure::retriable(format!(
                "{}, but the running connector has not released {stays} of their aggregates within \
                 {} s; it keeps the order, replay again",
                text.trim_end(),
                ANSWER.as_secs()
            )));
        }
        match (self.published, self.left) {
            (0, 0) => Err(none()),
            (0, left) => Err(Failure::config(format!(
                "{} behind an earlier one of the same aggregate: replay the aggregate with \
                 --aggregate, or discard what is in front",
                match left {
                    1 => "the dead letter waits".to_owned(),
                    left => format!("{left} dead letters wait"),
                }
            ))),
            (_, 0) => Ok(text),
            (_, left) => Ok(format!(
                "{text}left {} behind earlier ones of their aggregates\n",
                letters(left)
            )),
        }
    }

    /// Reads the topic once and publishes what `wanted` takes.
    async fn pass(&mut self, wanted: impl Fn(&Self, &Found) -> bool) -> Result<News, Failure> {
        let log = self.log.clone();
        let news = each(&log, async |found| {
            if found.settled.is_some() {
                return Ok(());
            }
            let wanted = wanted(self, &found);
            self.letter(&found.letter, wanted).await
        })
        .await?;
        self.note().await?;
        Ok(news)
    }

    async fn letter(&mut self, letter: &Letter, wanted: bool) -> Result<(), Failure> {
        let aggregate = letter.aggregate.as_ref().filter(|_| self.by_aggregate);
        if aggregate.is_some_and(|aggregate| self.stuck.contains(aggregate)) {
            self.left += usize::from(wanted);
            return Ok(());
        }
        let failure = match wanted {
            true => self.publish(letter).await?,
            false => None,
        };
        let published = wanted && failure.is_none();
        if let Some(failure) = failure {
            self.poison.get_or_insert(failure);
        }
        match aggregate.cloned() {
            Some(aggregate) if published => self.freed.insert(aggregate),
            Some(aggregate) => self.stuck.insert(aggregate),
            None => false,
        };
        if self.sent.len() >= CHUNK {
            self.note().await?;
        }
        Ok(())
    }

    /// Routes a letter and sends its record. What is poison still comes back.
    async fn publish(&mut self, letter: &Letter) -> Result<Option<Failure>, Failure> {
        self.describe(letter).await?;
        let now = wall_clock_ms();
        let outcome = match &letter.body {
            Body::Message {
                transactional,
                prefix,
                content,
            } => self.outbox.message(
                &LogicalMessage {
                    transactional: *transactional,
                    prefix,
                    content,
                    lsn: letter.lsn,
                    commit: letter.commit,
                },
                now,
            ),
            Body::Row { relation, .. } => {
                let Some(relation) = self.bound.get(&relation.oid) else {
                    return Err(Failure::internal("a dead letter of an undescribed table"));
                };
                let change = Change {
                    relation,
                    operation: operation(&letter.body),
                    lsn: letter.lsn,
                    commit: letter.commit,
                };
                self.outbox.route(&change, now)
            }
        };
        let mut audit = self.audits.of(letter, Action::Replayed);
        match outcome {
            Err(poison) => return Ok(Some(poison.into())),
            Ok(Outcome::Dropped(_)) => {
                tracing::info!(
                    "{}: the configuration publishes nothing for it",
                    letter.describe()
                );
            }
            Ok(Outcome::Record(record)) => {
                audit.outcome = Some(record.topic.clone().into_owned());
                self.audits.sink.prepare(&record.topic).await?;
                if let Err(failure) = send(&mut self.audits.sink, &record, Some(letter.lsn)).await {
                    return match failure.class() {
                        crate::error::Class::Poison => Ok(Some(failure)),
                        _ => Err(failure),
                    };
                }
            }
        }
        self.sent.push(audit);
        Ok(None)
    }

    /// Tells the router of the letter's table as it was then.
    async fn describe(&mut self, letter: &Letter) -> Result<(), Failure> {
        let Body::Row { relation, .. } = &letter.body else {
            return Ok(());
        };
        if self
            .bound
            .get(&relation.oid)
            .is_some_and(|bound| **bound == *relation)
        {
            return Ok(());
        }
        let relation = Arc::new(relation.clone());
        let facts = self.session.facts(&relation).await?;
        self.outbox.bind(&relation, &facts)?;
        self.bound.insert(relation.oid, relation);
        Ok(())
    }

    /// Waits for what was sent, then notes it: a letter noted too early could be lost.
    async fn note(&mut self) -> Result<(), Failure> {
        if self.sent.is_empty() {
            return Ok(());
        }
        flush(&mut self.audits.sink).await?;
        let sent = std::mem::take(&mut self.sent);
        self.audits.write(&sent).await?;
        self.published += sent.len();
        Ok(())
    }

    async fn is_running(&self) -> Result<bool, Failure> {
        let slot = self.session.slot(&self.connector.slot.name).await?;
        Ok(slot.is_some_and(|slot| slot.active_pid.is_some()))
    }

    /// Replays what still comes until the running connector has released every aggregate; how many
    /// it has not.
    async fn hand_over(
        &mut self,
        mut freed: HashSet<Vec<u8>>,
        news: News,
    ) -> Result<usize, Failure> {
        let mut tail = self.log.follow(news)?;
        let deadline = Instant::now() + ANSWER;
        let mut asked = false;
        loop {
            hear(&mut tail, &mut freed).await?;
            if freed.is_empty() || self.poison.is_some() {
                return Ok(0);
            }
            if Instant::now() >= deadline {
                return Ok(freed.len());
            }
            if !std::mem::replace(&mut asked, true) {
                let hold = |aggregate: &Vec<u8>| self.audits.hold(&self.connector.name, aggregate);
                let holds: Vec<Audit> = freed.iter().map(hold).collect();
                self.audits.write(&holds).await?;
            }
            self.pass(|_, found| {
                let aggregate = found.letter.aggregate.as_ref();
                aggregate.is_some_and(|aggregate| freed.contains(aggregate))
            })
            .await?;
        }
    }
}

/// Listens for a while; what is released leaves `freed`.
async fn hear(tail: &mut Tail, freed: &mut HashSet<Vec<u8>>) -> Result<(), Failure> {
    let mut end = std::pin::pin!(sleep(LOOK));
    while !freed.is_empty() {
        tokio::select! {
            said = tail.next() => {
                let said = said?;
                if let (Action::Released, Some(aggregate)) = (said.action, said.aggregate) {
                    freed.remove(&aggregate);
                }
            }
            () = &mut end => break,
        }
    }
    Ok(())
}

/// What happened to the row of a letter.
fn operation(body: &Body) -> Operation<'_> {
    let Body::Row {
        operation,
        new: Some(new),
        old,
        ..
    } = body
    else {
        return Operation::Truncate;
    };
    let new = new.tuple();
    match operation {
        RowOperation::Insert => Operation::Insert { new },
        RowOperation::Read => Operation::Read { new },
        RowOperation::Update => Operation::Update {
            old: old.as_ref().map(|old| old.tuple()),
            new,
        },
        RowOperation::Truncate => Operation::Truncate,
    }
}

/// Hands a record over, once there is room.
pub(super) async fn send(
    sink: &mut Sink,
    record: &Record<'_>,
    lsn: Option<Lsn>,
) -> Result<(), Failure> {
    while !sink.has_room() {
        sink.seal(None);
        sink.progressed().await?;
    }
    let Some(lsn) = lsn.or(Lsn::new(1)) else {
        return Err(Failure::internal("a position of 0"));
    };
    sink.enqueue(
        record,
        Origin {
            lsn,
            table: TableIndex(0),
        },
    )
}

/// Waits until Kafka has everything.
pub(super) async fn flush(sink: &mut Sink) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    sink.seal(None);
    while sink.in_flight().records > 0 {
        if let Ok(progressed) = timeout_at(deadline, sink.progressed()).await {
            progressed?;
            continue;
        }
        let trouble = sink
            .trouble()
            .map_or(String::new(), |text| format!(": {text}"));
        return Err(Failure::retriable(format!(
            "kafka has not acknowledged {} records within {} s{trouble}",
            sink.in_flight().records,
            PATIENCE.as_secs(),
        )));
    }
    Ok(())
}
