//! What the transfer does with an event that cannot be published: a letter for it and, in order by
//! aggregate, for every later event of its aggregate.

use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::supervisor::Context;
use crate::config;
use crate::deadletter::{
    Action, Admission, Audit, Body, Cause, Full, Kept, Letter, Log, RowOperation, Stage, Tail,
    Waiting,
};
use crate::error::{Class, Failure};
use crate::lsn::Lsn;
use crate::observability::Telemetry;
use crate::offset::Partial;
use crate::outbox::{Item, Outbox, Poison};
use crate::record::Record;
use crate::source::row::{Cell, Change, Operation, Tuple};

/// How long the stream pauses at most for somebody who replays an aggregate.
const PAUSE: Duration = Duration::from_secs(10);

/// Why an event is set aside.
pub(super) enum Trouble {
    /// The router or a converter refuses it.
    Poison(Poison),
    /// The sink refuses its record.
    Unsendable(Failure),
    /// Kafka refused its record in an earlier attempt, for this reason.
    Refused(String),
    /// A letter of its aggregate waits.
    Follows,
}

/// What an attempt reads again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Again {
    /// Every existing row.
    Snapshot(Lsn),
    /// Every commit behind this position, less what is delivered of the first.
    From(Lsn, Option<Partial>),
}

impl Again {
    fn at(self) -> Lsn {
        match self {
            Again::Snapshot(at) | Again::From(at, _) => at,
        }
    }

    /// Behind which position the event of `letter` will be read again, if it will.
    fn brings(self, letter: &Letter) -> Option<Lsn> {
        let again = match self {
            Again::Snapshot(_) => letter.is_of_snapshot(),
            Again::From(at, partial) => {
                let xid = letter.commit.map(|commit| commit.xid);
                let delivered = partial.is_some_and(|part| {
                    part.xid.is_some() && part.xid == xid && letter.lsn <= part.lsn
                });
                !letter.is_of_snapshot() && letter.after >= at && !delivered
            }
        };
        again.then_some(letter.after)
    }
}

/// The dead letters of one attempt.
pub(super) struct DeadLetters {
    connector: String,
    topics: config::DeadLetters,
    audit_topic: String,
    telemetry: Telemetry,
    /// The newest position at which a transaction or an idle stretch ended.
    after: Lsn,
    order: Option<Order>,
}

/// What order by aggregate needs.
struct Order {
    waiting: Waiting,
    tail: Tail,
    paused_until: Option<Instant>,
}

impl DeadLetters {
    /// Finds or creates the topics and, for order by aggregate, reads from them which letters wait.
    /// `None` when the connector wants no dead letters.
    pub(super) async fn open(context: &Context, again: Again) -> Result<Option<Self>, Failure> {
        let errors = &context.connector.errors;
        let Some(topics) = errors.dead_letters.clone().filter(|_| errors.tolerate) else {
            return Ok(None);
        };
        let log = Log::new(&context.connector, &topics);
        log.create(topics.by_aggregate).await?;
        let order = match topics.by_aggregate {
            true => Some(Order::recover(&log, again).await?),
            false => None,
        };
        let letters = Self {
            connector: context.connector.name.clone(),
            audit_topic: topics.audit_topic(),
            topics,
            telemetry: context.telemetry.clone(),
            after: again.at(),
            order,
        };
        letters.tell();
        Ok(Some(letters))
    }

    /// The topics that are written to.
    pub(super) fn topics(&self) -> impl Iterator<Item = &str> {
        let audit = self.order.is_some().then_some(&*self.audit_topic);
        std::iter::once(&*self.topics.topic).chain(audit)
    }

    /// Whether any event may have to follow a letter.
    pub(super) fn is_holding(&self) -> bool {
        self.order
            .as_ref()
            .is_some_and(|order| !order.waiting.is_idle())
    }

    /// Whether the event follows a letter of its aggregate.
    pub(super) fn follows(&self, outbox: &Outbox, item: &Item<'_>) -> bool {
        let Some(order) = &self.order else {
            return false;
        };
        let aggregate = outbox.subject(item).aggregate;
        if aggregate.is_some_and(|aggregate| order.waiting.holds(&aggregate)) {
            return true;
        }
        order.waiting.expects_any()
            && order
                .waiting
                .expects(self.letter(outbox, item, Trouble::Follows).id())
    }

    /// The letter of an event.
    pub(super) fn letter(&self, outbox: &Outbox, item: &Item<'_>, trouble: Trouble) -> Letter {
        let (cause, stage, reason) = match trouble {
            Trouble::Poison(poison) => {
                let column = poison.column.map(|column| format!("column {column:?}: "));
                let reason = format!("{}{}", column.unwrap_or_default(), poison.reason);
                (Cause::Poison, Stage::Transformation, reason)
            }
            Trouble::Unsendable(failure) => (Cause::Poison, Stage::Produce, failure.to_string()),
            Trouble::Refused(reason) => (Cause::Poison, Stage::Produce, reason),
            Trouble::Follows => (
                Cause::Order,
                Stage::Produce,
                "an earlier event of the aggregate is a dead letter".to_owned(),
            ),
        };
        let subject = outbox.subject(item);
        let (commit, body) = match item {
            Item::Change(change) => (change.commit, row(outbox, change)),
            Item::Message(message) => (
                message.commit,
                Body::Message {
                    transactional: message.transactional,
                    prefix: message.prefix.to_owned(),
                    content: message.content.to_vec(),
                },
            ),
        };
        Letter {
            connector: self.connector.clone(),
            cause,
            stage,
            reason,
            event_id: subject.event_id,
            aggregate: subject.aggregate,
            lsn: item.lsn(),
            after: self.after,
            commit,
            body,
        }
    }

    /// Takes a letter in; its record, unless an earlier run wrote it.
    pub(super) fn take(
        &mut self,
        letter: &Letter,
        raw_topic: &str,
        now_ms: i64,
    ) -> Result<Option<Record<'static>>, Failure> {
        if letter.cause == Cause::Poison {
            self.telemetry.error(Class::Poison);
        }
        if let Some(order) = &mut self.order {
            let admitted = order
                .waiting
                .admit(letter.id(), letter.aggregate.as_deref())
                .map_err(|full| Failure::poison(format!("{}: {full}", letter.describe())))?;
            self.tell();
            if admitted == Admission::Known {
                debug!("{}: its dead letter was written before", letter.describe());
                return Ok(None);
            }
        }
        match letter.cause {
            Cause::Poison => warn!(
                error = letter.reason,
                "{} goes to the dead-letter topic{}",
                letter.describe(),
                match self.order {
                    Some(_) => ", and later events of its aggregate follow it",
                    None => "",
                }
            ),
            Cause::Order => debug!("{} follows a dead letter", letter.describe()),
        }
        self.telemetry.dead_letter(letter.cause.label());
        let described = self.topics.context_headers.then_some(raw_topic);
        Ok(Some(letter.record(&self.topics.topic, described, now_ms)))
    }

    /// A transaction or an idle stretch has ended at `at`.
    pub(super) fn ended(&mut self, at: Lsn) -> Result<(), Failure> {
        self.after = at;
        match &mut self.order {
            Some(order) if order.waiting.expects_any() => order.waiting.passed(at).map_err(full),
            _ => Ok(()),
        }
    }

    /// The snapshot is over: no row of it comes again.
    pub(super) fn snapshot_ended(&mut self) -> Result<(), Failure> {
        match &mut self.order {
            Some(order) => order.waiting.expect_no_more().map_err(full),
            None => Ok(()),
        }
    }

    /// Heeds what was said in the audit topic; what to answer there.
    pub(super) fn heed(&mut self, said: &Audit, now_ms: i64) -> Option<Record<'static>> {
        let order = self.order.as_mut()?;
        let aggregate = said.aggregate.as_deref();
        let free = match (said.action, said.letter) {
            (Action::Replayed | Action::Discarded, Some(letter)) => {
                order.waiting.settle(letter, aggregate)
            }
            (Action::Hold, _) => {
                let holds = aggregate.is_some_and(|aggregate| order.waiting.holds(aggregate));
                if holds {
                    order.paused_until = Some(Instant::now() + PAUSE);
                }
                !holds
            }
            _ => return None,
        };
        self.tell();
        let aggregate = aggregate.filter(|_| free)?;
        if let Some(order) = &mut self.order {
            order.paused_until = None;
        }
        info!("released an aggregate: its events are published again");
        let answer = Audit::on(
            &self.connector,
            aggregate,
            Action::Released,
            "walpost run",
            now_ms,
        );
        Some(answer.record(&self.audit_topic))
    }

    /// Until when reading pauses for somebody who replays; `None` when it does not.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.order
            .as_ref()?
            .paused_until
            .filter(|until| Instant::now() < *until)
    }

    fn tell(&self) {
        if let Some(order) = &self.order {
            self.telemetry
                .blocked(order.waiting.aggregates(), order.waiting.letters());
        }
    }
}

impl Order {
    async fn recover(log: &Log, again: Again) -> Result<Self, Failure> {
        let (sender, found) = mpsc::channel();
        let news = log
            .read(move |found| {
                if found.settled.is_none() {
                    let again = again.brings(&found.letter);
                    // The receiver waits until all is read.
                    let _ = sender.send((found.id, found.letter.aggregate, again));
                }
            })
            .await?;
        let mut waiting = Waiting::default();
        for (id, aggregate, again) in found {
            waiting
                .recover(id, aggregate.as_deref(), again)
                .map_err(full)?;
        }
        if !waiting.is_idle() {
            info!("dead letters wait, and later events of their aggregates follow them");
        }
        Ok(Self {
            waiting,
            tail: log.follow(news)?,
            paused_until: None,
        })
    }
}

/// What is said in the audit topic, as it is said; never, where nobody listens. Cancel-safe.
pub(super) async fn said(letters: &mut Option<DeadLetters>) -> Result<Audit, Failure> {
    match letters.as_mut().and_then(|letters| letters.order.as_mut()) {
        Some(order) => order.tail.next().await,
        None => pending().await,
    }
}

fn full(full: Full) -> Failure {
    Failure::poison(full.to_string())
}

/// The row as it may leave the database.
fn row(outbox: &Outbox, change: &Change<'_>) -> Body {
    let (operation, new, old) = match change.operation {
        Operation::Insert { new } => (RowOperation::Insert, Some(new), None),
        Operation::Read { new } => (RowOperation::Read, Some(new), None),
        Operation::Update { old, new } => (RowOperation::Update, Some(new), old),
        Operation::Delete | Operation::Truncate => (RowOperation::Truncate, None, None),
    };
    let oid = change.relation.oid;
    let mut relation = (**change.relation).clone();
    let shown: Vec<usize> = (0..relation.columns.len())
        .filter(|index| outbox.shown(oid, *index, b"").is_some())
        .collect();
    relation.columns = shown
        .iter()
        .filter_map(|index| change.relation.columns.get(*index).cloned())
        .collect();
    let kept = |tuple: Tuple<'_>| {
        let mut kept = Kept::default();
        for index in &shown {
            match tuple.cell(*index) {
                Cell::Text(text) => match outbox.shown(oid, *index, text) {
                    Some(text) => kept.push(Cell::Text(&text)),
                    None => kept.push(Cell::Null),
                },
                other => kept.push(other),
            }
        }
        kept
    };
    Body::Row {
        operation,
        new: new.map(kept),
        old: old.map(kept),
        relation,
    }
}
