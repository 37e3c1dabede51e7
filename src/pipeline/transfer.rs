//! From events to the sink: the synchronous inner part of snapshot and stream alike.

mod aside;
mod held;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::info;

use aside::refusal;
use held::Held;

use super::dead_letters::{DeadLetters, Trouble};
use super::progress::CommitTimes;
use super::supervisor::{Context, Refused};
use super::tally::{Complaints, Tally};
use crate::error::{Class, Failure};
use crate::lsn::{Lsn, ResumePoint};
use crate::observability::Telemetry;
use crate::outbox::{Item, Outbox, Outcome};
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
    /// Some time has passed, and others may be waiting.
    Paused,
    /// A table must be bound before its rows.
    Bind(Arc<Relation>),
    /// A record waits for its topic to be looked up: call [`Transfer::release`].
    Held,
}

/// The longest burst. Rows are cheap, but a process may be given little time, and the server ends a
/// connection that does not answer it.
const LONGEST: Duration = Duration::from_millis(50);

/// Events between two looks at the clock, which costs a tenth of a row.
const PER_LOOK: u32 = 64;

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
    held: Option<Held>,
    ends: Ends,
    tolerate: bool,
    refused: HashMap<Refused, String>,
    pub(super) dead_letters: Option<DeadLetters>,
    /// An event may have to follow a dead letter.
    holding: bool,
}

/// What became of an event.
enum Taken {
    /// There is nothing to publish.
    Done,
    /// It is the sink's.
    Sent,
    /// Its topic is not known yet.
    Hold(Record<'static>),
    /// It cannot be published.
    Aside(Trouble),
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
            ends: Ends::default(),
            tolerate: context.connector.errors.tolerate,
            refused: context.refused.clone(),
            dead_letters: None,
            holding: false,
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
    /// happen first; for a bounded time. With `to_commit` it stops at the first commit.
    ///
    /// # Errors
    /// A poison event that the policy does not tolerate; what the source or the sink report.
    pub(super) fn burst(
        &mut self,
        events: &mut impl Events,
        to_commit: bool,
    ) -> Result<Burst, Failure> {
        if self.held.is_some() {
            return Ok(Burst::Held);
        }
        let now_ms = wall_clock_ms();
        let began = Instant::now();
        let mut events_moved = 0_u32;
        while self.sink.has_room() {
            events_moved += 1;
            if events_moved.is_multiple_of(PER_LOOK) && began.elapsed() > LONGEST {
                return Ok(Burst::Paused);
            }
            let Some(event) = events.next_event()? else {
                return Ok(Burst::Drained);
            };
            let item = match event {
                Event::Relation(relation) => return Ok(Burst::Bind(relation)),
                Event::Commit(point) => {
                    self.ended(point)?;
                    self.sink.source_committed();
                    if to_commit {
                        return Ok(Burst::AtCommit);
                    }
                    continue;
                }
                Event::Idle(point) => {
                    self.ends.last = Some(point);
                    self.passed(point.lsn())?;
                    continue;
                }
                Event::Change(change) => {
                    if matches!(change.operation, Operation::Truncate) {
                        tell_truncate(&change);
                    }
                    Item::Change(change)
                }
                Event::Message(message) => Item::Message(message),
            };
            if self.take(&item, now_ms)? {
                return Ok(Burst::Held);
            }
        }
        Ok(Burst::Full)
    }

    /// Moves one event; whether it is held now.
    fn take(&mut self, item: &Item<'_>, now_ms: i64) -> Result<bool, Failure> {
        let follows = self.holding && self.follows(item);
        let table = match item {
            Item::Change(change) => table_index(&mut self.tables, change.relation),
            Item::Message(_) => TableIndex(0),
        };
        let origin = Origin {
            lsn: item.lsn(),
            table,
        };
        match self.publish(item, origin, follows, now_ms)? {
            Taken::Done => Ok(false),
            Taken::Sent => {
                self.reached(end_of(item))?;
                Ok(false)
            }
            Taken::Hold(record) => {
                self.hold(item, record, origin);
                Ok(true)
            }
            Taken::Aside(trouble) => {
                self.set_aside(item, origin, trouble, now_ms)?;
                self.reached(end_of(item))?;
                Ok(false)
            }
        }
    }

    /// Routes one event and hands its record to the sink.
    fn publish(
        &mut self,
        item: &Item<'_>,
        origin: Origin,
        follows: bool,
        now_ms: i64,
    ) -> Result<Taken, Failure> {
        let outcome = match item {
            Item::Change(change) => self.outbox.route(change, now_ms),
            Item::Message(message) => self.outbox.message(message, now_ms),
        };
        let record = match outcome {
            Ok(Outcome::Record(record)) => record,
            Ok(Outcome::Dropped(dropped)) => {
                self.complaints.dropped(&self.telemetry, dropped);
                return Ok(Taken::Done);
            }
            Err(poison) if self.tolerate => return Ok(Taken::Aside(Trouble::Poison(poison))),
            Err(poison) => return Err(poison.into()),
        };
        if follows {
            return Ok(Taken::Aside(Trouble::Follows));
        }
        if let Some(reason) = refusal(&self.refused, item, &record) {
            return Ok(Taken::Aside(Trouble::Refused(reason.clone())));
        }
        let known = self.tally.find(&record.topic);
        let Some(topic) = known.filter(|_| !self.sink.outgrown(&record)) else {
            return Ok(Taken::Hold(record.into_owned()));
        };
        if !self.sink.admits(&record) {
            return Ok(Taken::Hold(record.into_owned()));
        }
        match self.sink.enqueue(&record, origin) {
            Ok(()) => {
                self.tally.count(topic, record.size());
                Ok(Taken::Sent)
            }
            Err(failure) if self.tolerate && failure.class() == Class::Poison => {
                Ok(Taken::Aside(Trouble::Unsendable(failure)))
            }
            Err(failure) => Err(name_table(failure, &self.tables)),
        }
    }

    /// An event was sent that is a place for a restart by itself.
    fn reached(&mut self, end: Option<ResumePoint>) -> Result<(), Failure> {
        let Some(end) = end else { return Ok(()) };
        self.ends.last = Some(end);
        self.passed(end.lsn())
    }

    fn passed(&mut self, at: Lsn) -> Result<(), Failure> {
        match &mut self.dead_letters {
            Some(letters) => {
                letters.ended(at)?;
                self.holding = letters.is_holding();
                Ok(())
            }
            None => Ok(()),
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
    pub(super) fn seal_at(&mut self, end: ResumePoint) -> Result<(), Failure> {
        self.ends = Ends::default();
        self.sink.seal(Some(end));
        self.tally.seal();
        if let Some(letters) = &mut self.dead_letters {
            letters.snapshot_ended()?;
            self.holding = letters.is_holding();
        }
        Ok(())
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

    fn ended(&mut self, point: ResumePoint) -> Result<(), Failure> {
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
        self.passed(point.lsn())
    }
}

/// Where a restart may begin after the event, if it is in no transaction.
fn end_of(item: &Item<'_>) -> Option<ResumePoint> {
    match item {
        Item::Message(message) if !message.transactional => {
            Some(ResumePoint::after_message(message.lsn))
        }
        _ => None,
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

/// Milliseconds since the epoch by this machine's clock; 0 before 1970.
pub(super) fn wall_clock_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| {
            i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
        })
}
