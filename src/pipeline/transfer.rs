//! From events to the sink: the synchronous inner part of snapshot and stream alike.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::{error, info};

use super::progress::CommitTimes;
use super::supervisor::{Context, Refused};
use super::tally::{Complaints, Tally};
use crate::error::{Class, Failure};
use crate::lsn::{Lsn, ResumePoint};
use crate::observability::Telemetry;
use crate::outbox::{Outbox, Outcome, Poison};
use crate::record::{Origin, Record, TableIndex};
use crate::sink::Sink;
use crate::source::row::{Change, Event, Operation, Relation, TableFacts};
use crate::source::{Snapshot, Source};

/// What can be read event by event out of its buffer.
pub(super) trait Events {
    /// The next event in the buffer, or `None` when it must be filled first.
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Failure>;
}

impl Events for Source {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Failure> {
        Source::next_event(self)
    }
}

impl Events for Snapshot {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Failure> {
        Snapshot::next_event(self)
    }
}

/// Why a burst ended.
pub(super) enum Burst {
    /// The buffer holds no further whole event.
    Drained,
    /// The sink has no room.
    Full,
    /// A commit was reached, and the caller wanted no more than that.
    AtCommit,
    /// A table must be bound before its rows.
    Bind(Arc<Relation>),
    /// A record waits for its topic to be looked up: call [`Transfer::release`].
    Held,
}

/// What the commits of a batch say.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ends {
    /// The last position at which a restart may begin.
    pub(super) last: Option<ResumePoint>,
    /// Commit times of the first and of the last transaction that ended in the batch.
    pub(super) times: Option<CommitTimes>,
}

/// Router, sink and what lies between.
pub(super) struct Transfer {
    pub(super) sink: Sink,
    outbox: Outbox,
    telemetry: Telemetry,
    tally: Tally,
    complaints: Complaints,
    tables: Vec<String>,
    held: Option<(Record<'static>, Origin)>,
    /// Where a restart may begin after the held record, if that is no commit.
    held_end: Option<ResumePoint>,
    ends: Ends,
    tolerate: bool,
    skip: HashSet<Refused>,
}

impl Transfer {
    /// A transfer into `sink` for one attempt.
    pub(super) fn new(context: &Context, sink: Sink) -> Self {
        Self {
            sink,
            outbox: Outbox::new(&context.connector, &context.run_id),
            telemetry: context.telemetry.clone(),
            tally: Tally::default(),
            complaints: Complaints::default(),
            tables: Vec::new(),
            held: None,
            held_end: None,
            ends: Ends::default(),
            tolerate: context.connector.errors.tolerate,
            skip: context.skip.clone(),
        }
    }

    /// Makes the rows of `relation` routable.
    pub(super) fn bind(
        &mut self,
        relation: &Arc<Relation>,
        facts: &TableFacts,
    ) -> Result<(), Failure> {
        self.outbox.bind(relation, facts)
    }

    /// Moves events until the buffer is empty, the sink is full, or something asynchronous has to
    /// happen first. With `to_commit` it stops at the first commit.
    ///
    /// # Errors
    /// A poison event that the policy does not tolerate; what the source or the sink report.
    pub(super) fn burst(
        &mut self,
        events: &mut impl Events,
        to_commit: bool,
    ) -> Result<Burst, Failure> {
        let now_ms = wall_clock_ms();
        while self.sink.has_room() {
            let Some(event) = events.next_event()? else {
                return Ok(Burst::Drained);
            };
            // Where a restart may begin once this event is delivered, if it ends nothing.
            let mut end = None;
            let (outcome, lsn, table) = match event {
                Event::Relation(relation) => return Ok(Burst::Bind(relation)),
                Event::Commit(point) => {
                    self.ended(point);
                    self.sink.source_committed();
                    if to_commit {
                        return Ok(Burst::AtCommit);
                    }
                    continue;
                }
                Event::Idle(point) => {
                    self.ends.last = Some(point);
                    continue;
                }
                Event::Change(change) => {
                    let table = table_index(&mut self.tables, change.relation);
                    if matches!(change.operation, Operation::Truncate) {
                        tell_truncate(&change);
                    }
                    (self.outbox.route(&change, now_ms), change.lsn, table)
                }
                Event::Message(message) => {
                    if !message.transactional {
                        end = Some(ResumePoint::after_message(message.lsn));
                    }
                    let outcome = self.outbox.message(&message, now_ms);
                    (outcome, message.lsn, TableIndex(0))
                }
            };
            let record = match outcome {
                Ok(Outcome::Record(record)) => record,
                Ok(Outcome::Dropped(dropped)) => {
                    self.complaints.dropped(&self.telemetry, dropped);
                    continue;
                }
                Err(poison) if self.tolerate => {
                    skip_poison(&self.telemetry, &poison);
                    continue;
                }
                Err(poison) => return Err(poison.into()),
            };
            if !self.skip.is_empty() && self.skip.contains(&(lsn, record.event_id())) {
                continue;
            }
            let origin = Origin { lsn, table };
            let Some(topic) = self.tally.find(&record.topic) else {
                self.held = Some((record.into_owned(), origin));
                self.held_end = end;
                return Ok(Burst::Held);
            };
            match self.sink.enqueue(&record, origin) {
                Ok(()) => {
                    self.tally.count(topic, record.size());
                    self.ends.last = end.or(self.ends.last);
                }
                Err(failure) if self.tolerate && failure.class() == Class::Poison => {
                    error!(error = %failure, "skipping an event, as errors.tolerance=all asks");
                    self.telemetry.dropped("poison", 1);
                }
                Err(failure) => return Err(name_table(failure, &self.tables)),
            }
        }
        Ok(Burst::Full)
    }

    /// Makes a heartbeat the held record, unless a row is waiting already: the row shows as well
    /// that we are alive.
    pub(super) fn hold_heartbeat(&mut self, at: Lsn) -> Result<(), Failure> {
        if self.held.is_none() {
            let record = self.outbox.heartbeat(wall_clock_ms())?;
            self.held = Some((
                record,
                Origin {
                    lsn: at,
                    table: TableIndex(0),
                },
            ));
        }
        Ok(())
    }

    /// Looks up (or creates) the topic that the held record waits for, and enqueues the record.
    pub(super) async fn release(&mut self) -> Result<(), Failure> {
        let Some((record, origin)) = &self.held else {
            return Ok(());
        };
        let topic = record.topic.as_ref();
        let outcome = match self.sink.prepare(topic).await {
            Ok(()) => {
                let index = self.tally.add_topic(topic, self.telemetry.topic(topic));
                let sent = self.sink.enqueue(record, *origin);
                if sent.is_ok() {
                    self.tally.count(index, record.size());
                    self.ends.last = self.held_end.take().or(self.ends.last);
                }
                sent
            }
            Err(failure) => Err(failure.at(*origin).of_event(record.event_id())),
        };
        self.held = None;
        match outcome {
            Err(failure) if self.tolerate && failure.class() == Class::Poison => {
                error!(error = %failure, "skipping an event, as errors.tolerance=all asks");
                self.telemetry.dropped("poison", 1);
                Ok(())
            }
            other => other.map_err(|failure| name_table(failure, &self.tables)),
        }
    }

    /// Ends the batch; says what ended in it.
    pub(super) fn seal(&mut self) -> Ends {
        let ends = std::mem::take(&mut self.ends);
        self.sink.seal(ends.last);
        self.tally.seal();
        self.complaints
            .replaced(&self.telemetry, &self.outbox.take_notices());
        ends
    }

    /// Ends the batch at `end`: the last of a snapshot.
    pub(super) fn seal_at(&mut self, end: ResumePoint) {
        self.ends = Ends::default();
        self.sink.seal(Some(end));
        self.tally.seal();
    }

    /// Adds the table's name to a failure that is about a row.
    pub(super) fn name(&self, failure: Failure) -> Failure {
        name_table(failure, &self.tables)
    }

    /// Tells the metrics what Kafka has acknowledged and how full the way there is.
    pub(super) fn tell_telemetry(&mut self) {
        let waiting = self.sink.in_flight();
        // What is not committed may still be taken back, and come again.
        let open = waiting.records.max(self.sink.uncommitted());
        self.tally.acknowledged(open);
        // A commit that is not answered keeps them waiting as much as a missing acknowledgement.
        let waits = match self.sink.is_committing() {
            true => open,
            false => waiting.records,
        };
        let records = usize::try_from(waits).unwrap_or(usize::MAX);
        let bytes = usize::try_from(waiting.bytes).unwrap_or(usize::MAX);
        self.telemetry.queue(records, bytes, self.sink.fill_ratio());
    }

    fn ended(&mut self, point: ResumePoint) {
        self.ends.last = Some(point);
        if let Some(commit) = point.commit() {
            let oldest_us = self
                .ends
                .times
                .map_or(commit.time_us, |times| times.oldest_us);
            self.ends.times = Some(CommitTimes {
                oldest_us,
                newest_us: commit.time_us,
            });
        }
    }
}

fn tell_truncate(change: &Change<'_>) {
    info!(
        table = %format_args!("{}.{}", change.relation.schema, change.relation.table),
        lsn = %change.lsn,
        "an outbox table was truncated; its events are not affected"
    );
}

/// The number of a table; the last one stands for all beyond the 255th.
fn table_index(tables: &mut Vec<String>, relation: &Relation) -> TableIndex {
    let is = |name: &String| {
        name.len() == relation.schema.len() + 1 + relation.table.len()
            && name.starts_with(&relation.schema)
            && name.ends_with(&relation.table)
    };
    let index = tables.iter().position(is).unwrap_or_else(|| {
        if tables.len() < usize::from(u8::MAX) {
            tables.push(format!("{}.{}", relation.schema, relation.table));
        }
        tables.len() - 1
    });
    TableIndex(u8::try_from(index).unwrap_or(u8::MAX))
}

fn name_table(failure: Failure, tables: &[String]) -> Failure {
    match failure
        .origin()
        .and_then(|origin| tables.get(usize::from(origin.table.0)))
    {
        Some(table) => failure.within(&format!("table {table}")),
        None => failure,
    }
}

fn skip_poison(telemetry: &Telemetry, poison: &Poison) {
    telemetry.error(Class::Poison);
    telemetry.dropped("poison", 1);
    error!(error = %poison, "skipping an event, as errors.tolerance=all asks");
}

/// Milliseconds since the epoch by this machine's clock; 0 before 1970.
pub(super) fn wall_clock_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| {
            i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
        })
}
