//! From received bytes to events. Finding an event changes the source, and an event borrows from
//! it, so the two are apart: `step` finds, `event` puts together.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;

use super::Source;
use crate::error::Failure;
use crate::lsn::{CommitInfo, Lsn, ResumePoint};
use crate::source::connection::unexpected_tag;
use crate::source::pgoutput::{self, Message};
use crate::source::protocol::{Frame, parse_frame, unix_time_us};
use crate::source::relation::Described;
use crate::source::row::{Change, Event, LogicalMessage, Operation, Relation, Tuple};
use crate::source::sqlstate::Doing;
use crate::source::transaction::Verdict;

/// An event of which the parts still lie in buffers; see [`Source::event`].
pub(super) enum Step {
    Relation(Arc<Relation>),
    Insert(ChangeAt),
    Update(ChangeAt, Option<Range<usize>>),
    Delete(ChangeAt),
    Truncate(ChangeAt),
    Message {
        transactional: bool,
        lsn: Lsn,
        prefix: Range<usize>,
        content: Range<usize>,
    },
    Commit(ResumePoint),
    Idle(ResumePoint),
}

/// A change: its table, transaction, message in the buffer, and the spans of its new row.
pub(super) struct ChangeAt {
    relation: u32,
    commit: CommitInfo,
    message: Range<usize>,
    row: Range<usize>,
}

/// What the parser's caller does next.
enum Handled {
    Event(Step),
    Nothing,
    /// The message stays where it is until the catalog has answered.
    Waiting,
}

impl Source {
    pub(super) fn step(&mut self) -> Result<Option<Step>, Failure> {
        if let Some(step) = self.next_truncated()? {
            return Ok(Some(step));
        }
        while let Some(frame) = self.connection.peek()? {
            let handled = match frame.tag {
                b'd' => self.copy_data(frame.body.clone())?,
                b'E' => {
                    let error = self.connection.error(&frame)?;
                    return Err(error.into_failure(&self.attempt, Doing::Streaming));
                }
                b'c' | b'C' | b'Z' => {
                    return Err(Failure::retriable(format!(
                        "{}: the server has ended the stream; it is probably shutting down",
                        self.attempt
                    )));
                }
                b'N' => {
                    let notice = self.connection.notice(&frame)?;
                    if notice.skips(&self.publication) {
                        return Err(notice.of_missing_publication(&self.attempt));
                    }
                    Handled::Nothing
                }
                b'S' => Handled::Nothing,
                tag => return Err(unexpected_tag(&self.attempt, tag)),
            };
            match handled {
                Handled::Waiting => return Ok(None),
                Handled::Nothing => self.connection.buffer.consume(&frame),
                Handled::Event(step) => {
                    self.connection.buffer.consume(&frame);
                    return Ok(Some(step));
                }
            }
        }
        Ok(None)
    }

    fn copy_data(&mut self, body: Range<usize>) -> Result<Handled, Failure> {
        let parsed = parse_frame(self.connection.buffer.bytes(body.clone()));
        let frame = parsed.map_err(|error| {
            Failure::internal(format!("{} at {}", self.attempt, self.position.received))
                .caused_by(error)
        })?;
        match frame {
            Frame::Keepalive {
                wal_end,
                reply_requested,
            } => {
                if reply_requested {
                    self.status.due = Instant::now();
                }
                Ok(self.keepalive(wal_end))
            }
            Frame::XLogData {
                start,
                end,
                payload,
            } => {
                self.receive(end);
                self.message(start, body.start + payload..body.end)
            }
        }
    }

    fn receive(&mut self, position: u64) {
        if let Some(position) = Lsn::new(position) {
            self.position.received = self.position.received.max(position);
        }
    }

    fn keepalive(&mut self, wal_end: u64) -> Handled {
        self.receive(wal_end);
        match Lsn::new(wal_end) {
            Some(wal_end) if !self.in_transaction() && wal_end > self.position.resumable => {
                self.position.resumable = wal_end;
                Handled::Event(Step::Idle(ResumePoint::idle(wal_end)))
            }
            _ => Handled::Nothing,
        }
    }

    fn message(&mut self, start: u64, range: Range<usize>) -> Result<Handled, Failure> {
        self.spans.clear();
        let bytes = self.connection.buffer.bytes(range.clone());
        let message = pgoutput::parse(bytes, &mut self.spans).map_err(|error| {
            let at = Lsn::new(start).unwrap_or(self.position.received);
            Failure::internal(format!("{} at {at}", self.attempt)).caused_by(error)
        })?;
        let no_row = 0..0;
        match message {
            Message::Insert {
                relation,
                new_spans,
            } => self.change(relation, start, range, new_spans, Step::Insert),
            Message::Begin {
                final_lsn,
                time,
                xid,
            } => {
                let time_us = unix_time_us(time);
                self.transactions
                    .begin(final_lsn, CommitInfo { xid, time_us })?;
                Ok(Handled::Nothing)
            }
            Message::Commit {
                commit_lsn,
                end_lsn,
                ..
            } => {
                let point = self.transactions.commit(commit_lsn, end_lsn)?;
                self.receive(end_lsn);
                self.position.resumable = point.lsn();
                Ok(Handled::Event(Step::Commit(point)))
            }
            Message::Relation(relation) => Ok(self.describe(relation)),
            Message::Update {
                relation,
                old_spans,
                new_spans,
            } => self.change(relation, start, range, new_spans, |change| {
                Step::Update(change, old_spans)
            }),
            Message::Delete { relation } => {
                self.change(relation, start, range, no_row, Step::Delete)
            }
            Message::Truncate { relations } => self.truncate(start, relations),
            Message::Message {
                transactional,
                lsn,
                prefix,
                content,
            } => self.logical_message(
                transactional,
                lsn,
                shift(&range, &prefix),
                shift(&range, &content),
            ),
            Message::Origin | Message::Type => Ok(Handled::Nothing),
        }
    }

    fn describe(&mut self, relation: Relation) -> Handled {
        let ancestors = self.partitions.take(relation.oid);
        match self.relations.describe(relation, ancestors.as_deref()) {
            Described::Ours(relation) => Handled::Event(Step::Relation(relation)),
            Described::Foreign => Handled::Nothing,
            Described::AskCatalog(relation) => {
                self.partitions.ask(relation);
                Handled::Waiting
            }
        }
    }

    fn change(
        &mut self,
        relation: u32,
        start: u64,
        message: Range<usize>,
        row: Range<usize>,
        step: impl FnOnce(ChangeAt) -> Step,
    ) -> Result<Handled, Failure> {
        if self.relations.ours(relation)?.is_none() {
            return Ok(Handled::Nothing);
        }
        let lsn = self.position_of(start)?;
        self.position.change = lsn;
        Ok(match self.transactions.change(lsn)? {
            Verdict::Skip => Handled::Nothing,
            Verdict::Take(commit) => Handled::Event(step(ChangeAt {
                relation,
                commit,
                message,
                row,
            })),
        })
    }

    fn position_of(&self, start: u64) -> Result<Lsn, Failure> {
        Lsn::new(start).ok_or_else(|| {
            Failure::internal(format!(
                "{}: a change after {} has no position",
                self.attempt, self.position.received
            ))
        })
    }

    fn truncate(&mut self, start: u64, relations: Vec<u32>) -> Result<Handled, Failure> {
        self.position.change = self.position_of(start)?;
        self.truncated = relations;
        self.truncated.reverse();
        Ok(self
            .next_truncated()?
            .map_or(Handled::Nothing, Handled::Event))
    }

    fn next_truncated(&mut self) -> Result<Option<Step>, Failure> {
        while let Some(relation) = self.truncated.pop() {
            let start = self.position.change.as_u64();
            let handled = self.change(relation, start, 0..0, 0..0, Step::Truncate)?;
            if let Handled::Event(step) = handled {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    fn logical_message(
        &mut self,
        transactional: bool,
        lsn: u64,
        prefix: Range<usize>,
        content: Range<usize>,
    ) -> Result<Handled, Failure> {
        let lsn = self.position_of(lsn)?;
        if transactional && self.transactions.change(lsn)? == Verdict::Skip {
            return Ok(Handled::Nothing);
        }
        Ok(Handled::Event(Step::Message {
            transactional,
            lsn,
            prefix,
            content,
        }))
    }

    /// Puts an event together from what [`Source::step`] found. Apart, because an event borrows
    /// the buffers that finding it changes.
    pub(super) fn event(&self, step: Step) -> Result<Event<'_>, Failure> {
        Ok(match step {
            Step::Relation(relation) => Event::Relation(relation),
            Step::Insert(change) => {
                let new = self.tuple(&change.message, &change.row);
                self.change_event(&change, Operation::Insert { new })?
            }
            Step::Update(change, old) => {
                let new = self.tuple(&change.message, &change.row);
                let old = old.map(|spans| self.tuple(&change.message, &spans));
                self.change_event(&change, Operation::Update { old, new })?
            }
            Step::Delete(change) => self.change_event(&change, Operation::Delete)?,
            Step::Truncate(change) => self.change_event(&change, Operation::Truncate)?,
            Step::Message {
                transactional,
                lsn,
                prefix,
                content,
            } => Event::Message(LogicalMessage {
                transactional,
                prefix: std::str::from_utf8(self.connection.buffer.bytes(prefix))
                    .map_err(|error| Failure::internal(&*self.attempt).caused_by(error))?,
                content: self.connection.buffer.bytes(content),
                lsn,
                commit: self.transactions.current().filter(|_| transactional),
            }),
            Step::Commit(point) => Event::Commit(point),
            Step::Idle(point) => Event::Idle(point),
        })
    }

    fn tuple(&self, message: &Range<usize>, row: &Range<usize>) -> Tuple<'_> {
        Tuple::new(
            self.connection.buffer.bytes(message.clone()),
            self.spans.get(row.clone()).unwrap_or_default(),
        )
    }

    fn change_event<'a>(
        &'a self,
        change: &ChangeAt,
        operation: Operation<'a>,
    ) -> Result<Event<'a>, Failure> {
        let relation = self.relations.ours(change.relation)?.ok_or_else(|| {
            Failure::internal(format!("table {} is no longer known", change.relation))
        })?;
        Ok(Event::Change(Change {
            relation,
            operation,
            lsn: self.position.change,
            commit: Some(change.commit),
        }))
    }
}

fn shift(message: &Range<usize>, part: &Range<usize>) -> Range<usize> {
    message.start + part.start..message.start + part.end
}
