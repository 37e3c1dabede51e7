//! What becomes of an event that cannot be published: a dead letter in its place, or nothing.

use std::collections::HashMap;

use tokio::time::Instant;
use tracing::error;

use super::{Transfer, wall_clock_ms};
use crate::deadletter::{Audit, Letter};
use crate::error::{Class, Failure};
use crate::lsn::Lsn;
use crate::observability::Telemetry;
use crate::outbox::Item;
use crate::pipeline::dead_letters::{Again, DeadLetters, Trouble};
use crate::pipeline::supervisor::{Context, Refused};
use crate::record::{Origin, Record, TableIndex};
use crate::source::row::Operation;

impl Transfer {
    /// Makes ready for dead letters, if the connector wants them. Before the first event.
    pub(in crate::pipeline) async fn open_dead_letters(
        &mut self,
        context: &Context,
        again: Again,
    ) -> Result<(), Failure> {
        let Some(letters) = DeadLetters::open(context, again).await? else {
            return Ok(());
        };
        for topic in letters.topics() {
            self.sink.prepare(topic).await?;
            self.tally.add_topic(topic, self.telemetry.topic(topic));
        }
        self.holding = letters.is_holding();
        self.dead_letters = Some(letters);
        Ok(())
    }

    pub(super) fn follows(&self, item: &Item<'_>) -> bool {
        let letters = self.dead_letters.as_ref();
        letters.is_some_and(|letters| letters.follows(&self.outbox, item))
    }

    /// An event that the policy tolerates and that cannot be published.
    pub(super) fn set_aside(
        &mut self,
        item: &Item<'_>,
        origin: Origin,
        trouble: Trouble,
        now_ms: i64,
    ) -> Result<(), Failure> {
        if let Some(letters) = &self.dead_letters {
            let letter = letters.letter(&self.outbox, item, trouble);
            let raw_topic = self.outbox.raw_topic(item);
            return self.bury(&letter, &raw_topic, origin, now_ms);
        }
        match trouble {
            // Told and counted when it was refused.
            Trouble::Refused(_) | Trouble::Follows => {}
            Trouble::Poison(poison) => skip(&self.telemetry, &poison),
            Trouble::Unsendable(failure) => skip(&self.telemetry, &failure),
        }
        Ok(())
    }

    /// Sends a dead letter, in its event's place.
    pub(super) fn bury(
        &mut self,
        letter: &Letter,
        raw_topic: &str,
        origin: Origin,
        now_ms: i64,
    ) -> Result<(), Failure> {
        let Some(letters) = &mut self.dead_letters else {
            return Err(Failure::internal("a dead letter without a topic for it"));
        };
        let record = letters.take(letter, raw_topic, now_ms)?;
        self.holding = letters.is_holding();
        match record {
            Some(record) => self.send_own(&record, origin).map_err(|failure| {
                // Without an origin: it is not to be tolerated in its turn.
                let attempt = format!("store the dead letter of {}", letter.describe());
                Failure::new(failure.class(), attempt).caused_by(failure)
            }),
            None => Ok(()),
        }
    }

    /// Sends a record to a topic that was made ready at the start.
    fn send_own(&mut self, record: &Record<'_>, origin: Origin) -> Result<(), Failure> {
        self.sink.enqueue(record, origin)?;
        if let Some(topic) = self.tally.find(&record.topic) {
            self.tally.count(topic, record.size());
        }
        Ok(())
    }

    /// Heeds what was said in the audit topic, and answers there. `at` is the newest position.
    pub(in crate::pipeline) fn heed(&mut self, said: &Audit, at: Lsn) -> Result<(), Failure> {
        let Some(letters) = &mut self.dead_letters else {
            return Ok(());
        };
        let answer = letters.heed(said, wall_clock_ms());
        self.holding = letters.is_holding();
        let Some(answer) = answer else { return Ok(()) };
        let origin = Origin {
            lsn: at,
            table: TableIndex(0),
        };
        self.send_own(&answer, origin)
    }

    /// Until when no event is to be read, while somebody replays an aggregate.
    pub(in crate::pipeline) fn paused_until(&self) -> Option<Instant> {
        self.dead_letters.as_ref()?.paused_until()
    }
}

/// Why Kafka refused the record of this event before, if it did.
pub(super) fn refusal<'m>(
    refused: &'m HashMap<Refused, String>,
    item: &Item<'_>,
    record: &Record<'_>,
) -> Option<&'m String> {
    if refused.is_empty() {
        return None;
    }
    let id = record.event_id();
    // A snapshot taken again shows the row at another position.
    let anywhere = id.is_some()
        && matches!(item, Item::Change(change) if matches!(change.operation, Operation::Read { .. }));
    if anywhere {
        let found = refused.iter().find(|((_, known), _)| *known == id);
        return found.map(|(_, reason)| reason);
    }
    refused.get(&(item.lsn(), id))
}

pub(super) fn skip(telemetry: &Telemetry, why: &impl std::fmt::Display) {
    telemetry.error(Class::Poison);
    telemetry.dropped("poison", 1);
    error!(error = %why, "skipping an event, as errors.tolerance=all asks");
}
