//! One pass over a topic, to the end it had when the pass began.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Ears, Settings, hold};
use crate::error::{Class, Failure};
use crate::sink::{code_of, describe, failed, verdict};

/// How long reading may go without progress. Longer than a producer's transaction may stay open by
/// default, since a zombie's transaction has to end before the end can be read.
const STALLED: Duration = Duration::from_secs(70);
/// One question to a broker.
const ANSWER: Duration = Duration::from_secs(10);
/// A partition that ends without a single record is believed after this long.
const EMPTY_END: Duration = Duration::from_secs(5);

/// What such a consumer must be told, over the user's settings.
const SETTINGS: [(&str, &str); 7] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    ("fetch.wait.max.ms", "50"),
];

/// The next offset of each partition.
pub(crate) type Ends = BTreeMap<i32, i64>;

/// Reads what is committed in a topic, in the order of each partition, up to the ends it has now,
/// which are returned. `what` names the topic in errors; `group` is never joined, partitions are
/// assigned by hand. Blocks.
pub(crate) fn read_topic(
    mut settings: Settings,
    group: &str,
    (what, topic): (&str, &str),
    take: impl FnMut(&BorrowedMessage<'_>),
) -> Result<Ends, Failure> {
    settings.force("group.id", group);
    for (name, value) in SETTINGS {
        settings.force(name, value);
    }
    let consumer: BaseConsumer<Ears> = settings.create(Ears::default())?;
    // A committed reader would be told ends before open transactions, and miss what a zombie is
    // about to commit.
    settings.force("isolation.level", "read_uncommitted");
    let ends: BaseConsumer<Ears> = settings.create(Ears::default())?;
    Reading::new(&consumer, &ends, what, topic)?.finish(take)
}

/// A consumer of what is committed in a topic from `ends` on. `what` and `group` as for
/// [`read_topic`].
pub(crate) fn follow_topic(
    mut settings: Settings,
    group: &str,
    (what, topic): (&str, &str),
    ends: &Ends,
) -> Result<BaseConsumer<Ears>, Failure> {
    settings.force("group.id", group);
    for (name, value) in SETTINGS {
        settings.force(name, value);
    }
    settings.force("enable.partition.eof", "false");
    // Nobody waits for an answer.
    settings.force("fetch.wait.max.ms", "500");
    let consumer: BaseConsumer<Ears> = settings.create(Ears::default())?;
    let mut assignment = TopicPartitionList::new();
    let failed = |error: KafkaError| failed(&format!("follow {what} {topic:?}"), &error);
    for (partition, end) in ends {
        assignment
            .add_partition_offset(topic, *partition, Offset::Offset(*end))
            .map_err(failed)?;
    }
    consumer.assign(&assignment).map_err(failed)?;
    Ok(consumer)
}

/// One pass over a topic, from the first record to the end it had when the pass began.
struct Reading<'a> {
    consumer: &'a BaseConsumer<Ears>,
    attempt: String,
    /// Partitions not read to their end yet, and that end.
    open: Ends,
    /// Partitions that the broker has said to be at their end.
    ended: BTreeSet<i32>,
    all: Ends,
}

impl<'a> Reading<'a> {
    /// Takes the ends and begins.
    fn new(
        consumer: &'a BaseConsumer<Ears>,
        ends: &BaseConsumer<Ears>,
        what: &str,
        topic: &str,
    ) -> Result<Self, Failure> {
        let attempt = format!("read {what} {topic:?}");
        let failed = |error: KafkaError| failed(&attempt, &error);
        let metadata = ends.fetch_metadata(Some(topic), ANSWER).map_err(failed)?;
        let (mut open, mut all) = (Ends::new(), Ends::new());
        let mut assignment = TopicPartitionList::new();
        for partition in metadata
            .topics()
            .iter()
            .flat_map(|found| found.partitions())
        {
            let (low, high) = ends
                .fetch_watermarks(topic, partition.id(), ANSWER)
                .map_err(failed)?;
            all.insert(partition.id(), high);
            if high > low {
                open.insert(partition.id(), high);
                assignment
                    .add_partition_offset(topic, partition.id(), Offset::Offset(low))
                    .map_err(failed)?;
            }
        }
        consumer.assign(&assignment).map_err(failed)?;
        Ok(Self {
            consumer,
            attempt,
            open,
            ended: BTreeSet::new(),
            all,
        })
    }

    /// Hands over every record up to the ends.
    fn finish(mut self, mut take: impl FnMut(&BorrowedMessage<'_>)) -> Result<Ends, Failure> {
        let mut moved = Instant::now();
        while !self.open.is_empty() {
            match self.consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    moved = Instant::now();
                    take(&message);
                    if self.ends_at(message.partition(), message.offset() + 1) {
                        self.open.remove(&message.partition());
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.ended.insert(partition);
                    self.look_for_ends(moved)?;
                }
                None => {
                    hold(self.consumer.client());
                    self.look_for_ends(moved)?;
                }
                Some(Err(error)) => bear(&self.attempt, &error)?,
            }
            if moved.elapsed() > STALLED {
                return Err(Failure::retriable(format!(
                    "{}: no progress for {} s; a transaction may be open",
                    self.attempt,
                    STALLED.as_secs()
                )));
            }
        }
        Ok(self.all)
    }

    fn ends_at(&self, partition: i32, next: i64) -> bool {
        self.open.get(&partition).is_some_and(|&end| next >= end)
    }

    /// The position also moves over what is never delivered: markers, aborted and compacted records.
    fn look_for_ends(&mut self, moved: Instant) -> Result<(), Failure> {
        let positions = self
            .consumer
            .position()
            .map_err(|error| failed(&self.attempt, &error))?;
        for at in positions.elements() {
            let done = match at.offset() {
                Offset::Offset(next) => self.ends_at(at.partition(), next),
                // Nothing at all was delivered. Silence alone proves nothing, since a broker may be
                // slow or moving, and a position missed is a gap unseen. Should a foreign transaction be open there, its
                // position is missed, and the slot's own, which is older, is taken instead.
                _ => self.ended.contains(&at.partition()) && moved.elapsed() > EMPTY_END,
            };
            if done {
                self.open.remove(&at.partition());
            }
        }
        Ok(())
    }
}

/// Whether the client gets over an error by itself, while it does `attempt` with a topic.
///
/// # Errors
/// It does not, or would without a word.
pub(crate) fn bear(attempt: &str, error: &KafkaError) -> Result<(), Failure> {
    let code = code_of(error);
    match verdict(code).0 {
        // Retried by the client too, but in silence.
        _ if code == Code::TopicAuthorizationFailed => Err(Failure::retriable(format!(
            "{attempt}: {}; grant the client's principal READ on the topic",
            describe(code)
        ))
        .about_rights()),
        // Retried by the client.
        Class::Retriable => Ok(()),
        // Asked for by whoever reads to the end; the other is about the group, which is never joined.
        _ if matches!(code, Code::PartitionEOF | Code::GroupAuthorizationFailed) => Ok(()),
        _ => Err(failed(&format!("{attempt} (needs READ)"), error)),
    }
}
