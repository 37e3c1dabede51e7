//! Counting: what was delivered to which topic, and what was left out and why.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, warn};

use crate::config::InvalidOp;
use crate::observability::{Telemetry, TopicCounter};
use crate::outbox::{Dropped, Notices, Replaced};

/// Shortest time between two complaints about updates of outbox rows.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// Counts records by topic and shows them once their batch is acknowledged.
#[derive(Default)]
pub(super) struct Tally {
    index: HashMap<String, usize>,
    topics: Vec<(TopicCounter, u64, u64)>,
    /// Topics with records in the open batch.
    touched: Vec<usize>,
    /// Records enqueued so far.
    enqueued: u64,
    /// Sealed batches, oldest first: records enqueued up to their end, and what is in them.
    sealed: VecDeque<(u64, Vec<Share>)>,
}

/// What one topic has of a batch.
struct Share {
    topic: usize,
    records: u64,
    bytes: u64,
}

impl Tally {
    pub(super) fn find(&self, topic: &str) -> Option<usize> {
        self.index.get(topic).copied()
    }

    pub(super) fn add_topic(&mut self, topic: &str, counter: TopicCounter) -> usize {
        if let Some(known) = self.find(topic) {
            return known;
        }
        let index = self.topics.len();
        self.topics.push((counter, 0, 0));
        self.index.insert(topic.to_owned(), index);
        index
    }

    pub(super) fn count(&mut self, topic: usize, bytes: usize) {
        let (_, records, total) = &mut self.topics[topic];
        if *records == 0 {
            self.touched.push(topic);
        }
        *records += 1;
        *total += bytes as u64;
        self.enqueued += 1;
    }

    pub(super) fn seal(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let mut batch = Vec::with_capacity(self.touched.len());
        for topic in self.touched.drain(..) {
            let (_, records, bytes) = &mut self.topics[topic];
            let (records, bytes) = (std::mem::take(records), std::mem::take(bytes));
            batch.push(Share {
                topic,
                records,
                bytes,
            });
        }
        self.sealed.push_back((self.enqueued, batch));
    }

    /// All but the newest `outstanding` records are acknowledged.
    pub(super) fn acknowledged(&mut self, outstanding: u64) {
        let acknowledged = self.enqueued.saturating_sub(outstanding);
        while self
            .sealed
            .front()
            .is_some_and(|(end, _)| *end <= acknowledged)
        {
            for share in self
                .sealed
                .pop_front()
                .map(|(_, batch)| batch)
                .unwrap_or_default()
            {
                self.topics[share.topic].0.add(share.records, share.bytes);
            }
        }
    }
}

/// Counts what is not published or not as it stands, and complains about it at a bounded rate.
#[derive(Default)]
pub(super) struct Complaints {
    updates: u64,
    last: Option<Instant>,
    /// Columns that were complained about, by table.
    told: HashSet<(String, Arc<str>, Replaced)>,
}

impl Complaints {
    /// Each column is reported with its first event; the rest is counted.
    pub(super) fn replaced(&mut self, telemetry: &Telemetry, notices: &Notices) {
        for (what, count) in [("value", notices.values), ("timestamp", notices.times)] {
            if count > 0 {
                telemetry.replaced(what, count);
            }
        }
        for notice in &notices.kept {
            let text = match notice.what {
                Replaced::Value => {
                    "a value has no form in its column's Connect schema and is published as null, \
                     see event.converting.failure.handling.mode"
                }
                Replaced::Time => {
                    "kafka has no timestamp for an event's moment, record.timestamp decides \
                     instead, see event.timestamp.strict"
                }
            };
            let column = (
                notice.table.clone(),
                Arc::clone(&notice.column),
                notice.what,
            );
            if self.told.insert(column) {
                warn!(
                    table = notice.table,
                    column = &*notice.column,
                    event = notice.event_id,
                    lsn = %notice.lsn,
                    "{text}"
                );
            }
        }
    }

    pub(super) fn dropped(&mut self, telemetry: &Telemetry, dropped: Dropped) {
        telemetry.dropped(label(dropped), 1);
        let Dropped::Update(how) = dropped else {
            return;
        };
        self.updates += 1;
        if self
            .last
            .is_some_and(|last| last.elapsed() < COMPLAINT_INTERVAL)
        {
            return;
        }
        let text = "an UPDATE of an outbox row is not published, see table.op.invalid.behavior";
        match how {
            InvalidOp::Warn => warn!(updates = self.updates, "{text}"),
            InvalidOp::Error | InvalidOp::Fatal => error!(updates = self.updates, "{text}"),
        }
        self.updates = 0;
        self.last = Some(Instant::now());
    }
}

fn label(dropped: Dropped) -> &'static str {
    match dropped {
        Dropped::Update(_) => "update",
        Dropped::Delete => "delete",
        Dropped::Truncate => "truncate",
        Dropped::Skipped => "skipped",
        Dropped::Prefix => "prefix",
        Dropped::Filtered => "filtered",
        Dropped::NotRouted => "not_routed",
    }
}
