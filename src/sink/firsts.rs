//! The first record of each partition goes alone.
//!
//! Behind a refused batch nothing of its partition may be taken: what comes next could be a later
//! event of the same key. librdkafka stops at a refusal, but may have made one more request ready
//! by then. A broker that knows the producer refuses that one too, for the hole in its sequence
//! numbers; of a producer that is new to a partition it takes whatever comes first. So the second
//! record of a partition waits until the first is acknowledged.

use std::collections::HashMap;

use crate::record::Record;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing was sent there.
    New,
    /// The first record is on its way.
    Sent,
    /// The broker knows the producer.
    Known,
}

/// What one producer has sent where. A producer in transactions does without: there a refusal takes
/// back what came before and after it.
#[derive(Debug, Default)]
pub(super) struct Firsts {
    /// By partition.
    topics: HashMap<String, Vec<Step>>,
    /// Partitions that are not known. With none left nothing is looked at.
    left: usize,
    /// First records handed over.
    sent: u64,
}

impl Firsts {
    /// Takes note of a topic's partitions, or of those it has gained.
    pub(super) fn add(&mut self, topic: &str, partitions: i32) {
        let count = usize::try_from(partitions).unwrap_or(0);
        let steps = self.topics.entry(topic.to_owned()).or_default();
        if steps.len() < count {
            self.left += count - steps.len();
            steps.resize(count, Step::New);
        }
    }

    /// Whether `record` may be handed over, with so many first records acknowledged.
    pub(super) fn admit(&mut self, record: &Record<'_>, acknowledged: u64) -> bool {
        let all = self.sent == acknowledged;
        match self.step(record) {
            Some(step @ Step::Sent) if all => {
                *step = Step::Known;
                self.left -= 1;
                true
            }
            Some(Step::Sent) => false,
            _ => true,
        }
    }

    /// Whether `record` would be the first of its partition.
    pub(super) fn is_first(&mut self, record: &Record<'_>) -> bool {
        matches!(self.step(record), Some(Step::New))
    }

    /// The first record of a partition was handed over.
    pub(super) fn entered(&mut self, record: &Record<'_>) {
        if let Some(step) = self.step(record) {
            *step = Step::Sent;
            self.sent += 1;
        }
    }

    /// The step of the record's partition; `None` where there is nothing to watch.
    fn step(&mut self, record: &Record<'_>) -> Option<&mut Step> {
        if self.left == 0 {
            return None;
        }
        let steps = self.topics.get_mut(record.topic.as_ref())?;
        let index = match (record.partition, &record.key) {
            (Some(partition), _) => usize::try_from(partition).ok()?,
            (None, Some(key)) => (murmur2(key) & 0x7fff_ffff) as usize % steps.len().max(1),
            // Without a key there is no order to keep.
            (None, None) => return None,
        };
        steps.get_mut(index)
    }
}

/// The hash by which Java's producer, and ours, places a key.
pub(crate) fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let word = chunk
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
        let k = word.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}
