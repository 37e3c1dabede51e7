//! The one record that waits: for its topic to be looked up, or for the first of its partition.

use super::aside::skip;
use super::{Transfer, end_of, name_table, wall_clock_ms};
use crate::deadletter::Letter;
use crate::error::{Class, Failure};
use crate::lsn::{Lsn, ResumePoint};
use crate::outbox::Item;
use crate::pipeline::dead_letters::Trouble;
use crate::record::{Origin, Record, TableIndex};

/// A record whose topic is not known yet, or whose partition is not open yet.
pub(super) struct Held {
    record: Record<'static>,
    origin: Origin,
    /// Its letter, should it turn out to be poison: the row is gone by then.
    letter: Option<(Letter, String)>,
    /// Where a restart may begin after it, if that is no commit.
    end: Option<ResumePoint>,
}

impl Transfer {
    /// Keeps the record of an event until its topic is known.
    pub(super) fn hold(&mut self, item: &Item<'_>, record: Record<'static>, origin: Origin) {
        let letter = self.dead_letters.as_ref().map(|letters| {
            // The reason is not known yet.
            let trouble = Trouble::Refused(String::new());
            let letter = letters.letter(&self.outbox, item, trouble);
            (letter, self.outbox.raw_topic(item))
        });
        self.held = Some(Held {
            record,
            origin,
            letter,
            end: end_of(item),
        });
    }

    /// Makes a heartbeat the held record, unless a row is waiting already: the row shows as well
    /// that we are alive.
    pub(in crate::pipeline) fn hold_heartbeat(&mut self, at: Lsn) -> Result<(), Failure> {
        if self.held.is_none() {
            let record = self.outbox.heartbeat(wall_clock_ms())?;
            self.held = Some(Held {
                record,
                origin: Origin {
                    lsn: at,
                    table: TableIndex(0),
                },
                letter: None,
                end: None,
            });
        }
        Ok(())
    }

    /// Whether a record is held.
    pub(in crate::pipeline) fn is_holding_record(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a record is held until Kafka has acknowledged the first of its partition.
    pub(in crate::pipeline) fn waits(&mut self) -> bool {
        match &self.held {
            Some(held) => !self.sink.admits(&held.record),
            None => false,
        }
    }

    /// Looks up (or creates) the topic that the held record waits for, and enqueues the record,
    /// unless it [waits](Self::waits) for more than that.
    pub(in crate::pipeline) async fn release(&mut self) -> Result<(), Failure> {
        let Some(Held { record, origin, .. }) = &self.held else {
            return Ok(());
        };
        let topic = record.topic.as_ref();
        let prepared = self.sink.prepare(topic).await;
        if prepared.is_ok() && !self.sink.admits(record) {
            return Ok(());
        }
        let outcome = match prepared {
            Ok(()) => {
                let index = self.tally.add_topic(topic, self.telemetry.topic(topic));
                let sent = self.sink.enqueue(record, *origin);
                if sent.is_ok() {
                    self.tally.count(index, record.size());
                }
                sent
            }
            Err(failure) => Err(failure.at(*origin).of_event(record.event_id())),
        };
        let Some(Held {
            origin,
            letter,
            end,
            ..
        }) = self.held.take()
        else {
            return Ok(());
        };
        match (outcome, letter) {
            (Err(failure), letter) if self.tolerate && failure.class() == Class::Poison => {
                let Some((mut letter, raw_topic)) = letter else {
                    skip(&self.telemetry, &failure);
                    return Ok(());
                };
                letter.reason = failure.to_string();
                self.bury(&letter, &raw_topic, origin, wall_clock_ms())?;
                self.reached(end)
            }
            (Ok(()), _) => self.reached(end),
            (Err(failure), _) => Err(name_table(failure, &self.tables)),
        }
    }
}
