//! The loop of a running stream: read, deliver, store, confirm.

use std::future::Future;

use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::attendant::Attendant;
use super::committer::Committer;
use super::dead_letters;
use super::keeper::Positions;
use super::progress::Progress;
use super::supervisor::Context;
use super::transfer::{Burst, Transfer};
use crate::deadletter::Audit;
use crate::error::{Class, Failure};
use crate::lsn::Lsn;
use crate::observability::{self, Stage, State, Trouble};
use crate::offset::Stored;
use crate::sink::Moved;
use crate::source::{Session, Source};

/// A stream that has started.
pub(super) struct Stream<'c> {
    pub(super) context: &'c Context,
    pub(super) source: Source,
    pub(super) transfer: Transfer,
    pub(super) positions: Positions,
    pub(super) session: Session,
    pub(super) attendant: Attendant,
    pub(super) progress: Progress,
    /// Why to stop once the stream has come so far.
    pub(super) outdated: Option<(Lsn, Failure)>,
}

/// Whether a stop was asked for, and by when it must be done.
#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// Reading on to the end of the open transaction.
    Stopping(Instant),
}

impl Stream<'_> {
    /// Runs until a stop is asked for (`Ok`) or something fails.
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        self.context.telemetry.state(State::Streaming);
        match self.pump().await {
            Ok(deadline) => self.finish(deadline).await,
            Err(failure) => Err(self.save_what_stands(failure).await),
        }
    }

    /// The loop. Arms in order of urgency: a stop, what Kafka acknowledged, what became durable,
    /// the status the server waits for, a heartbeat, and last the next rows, only with room for
    /// them. Returns the deadline of the stop once no transaction is open.
    async fn pump(&mut self) -> Result<Instant, Failure> {
        let stop = self.context.stop.clone();
        let mut phase = Phase::Running;
        loop {
            let received = self.source.received();
            if !self.source.in_transaction()
                && let Some((_, failure)) = self.outdated.take_if(|(until, _)| received >= *until)
            {
                return Err(failure);
            }
            if let Phase::Stopping(deadline) = phase
                && (!self.source.in_transaction() || Instant::now() >= deadline)
            {
                return Ok(deadline);
            }
            // A timer fires only once the runtime gets a word in, which it may not for many bursts
            // while rows pour in.
            if Instant::now() >= self.source.status_due() {
                self.report().await?;
            }
            let running = matches!(phase, Phase::Running);
            let deadline = match phase {
                Phase::Running => self.source.status_due(),
                Phase::Stopping(deadline) => deadline,
            };
            let paused_until = self.transfer.paused_until();
            let has_room =
                self.transfer.sink.has_room() && paused_until.is_none() && !self.transfer.waits();
            let holds = self.transfer.is_holding_record();
            let commit_at = self.commit_at();
            let listens = running && !self.transfer.sink.is_committing();
            tokio::select! {
                biased;
                () = stop.cancelled(), if running => {
                    info!("asked to stop");
                    self.context.telemetry.state(State::Stopping);
                    phase = Phase::Stopping(self.context.stop_by());
                }
                moved = self.transfer.sink.progressed() => {
                    match moved? {
                        Moved::Delivered(delivered) => {
                            self.progress.delivered(delivered.resume_point().lsn())?;
                            self.positions.offer(delivered);
                        }
                        Moved::Committed(committed) => self.committed(committed).await?,
                        Moved::Room => {}
                    }
                    self.tell_progress();
                }
                stored = self.positions.stored() => self.confirm(stored?).await?,
                () = sleep_until(commit_at.unwrap_or(deadline)), if commit_at.is_some() => {
                    self.commit_if_due()?;
                }
                () = sleep_until(self.source.status_due()) => self.report().await?,
                said = dead_letters::said(&mut self.transfer.dead_letters), if listens => {
                    self.heed(&said?)?;
                }
                () = sleep_until(paused_until.unwrap_or(deadline)), if paused_until.is_some() => {}
                () = sleep_until(deadline), if !running => {}
                due = self.attendant.heartbeat_due(), if running => {
                    due?;
                    self.heartbeat().await?;
                }
                () = self.context.post.server_stopping(), if running => {
                    return Err(Failure::retriable("the server is shutting down"));
                }
                () = std::future::ready(()), if has_room && holds => self.take(!running).await?,
                filled = self.source.fill(), if has_room => {
                    filled?;
                    self.take(!running).await?;
                }
            }
        }
    }

    /// Tells the server where we are.
    async fn report(&mut self) -> Result<(), Failure> {
        self.source.report().await?;
        self.tell_progress();
        Ok(())
    }

    /// Moves what the read buffer holds into the sink.
    async fn take(&mut self, to_commit: bool) -> Result<(), Failure> {
        let to_commit = to_commit
            || self
                .positions
                .committer()
                .is_some_and(Committer::wants_boundary);
        let outcome = self.move_events(to_commit).await;
        // Also after a failure: the commits before it are worth keeping.
        self.progress.received(self.source.received());
        let ends = self.transfer.seal();
        if let Some(last) = ends.last {
            self.progress.ended(last.lsn(), ends.times);
        }
        if let Some(committer) = self.positions.committer_mut() {
            committer.enqueued(ends.last, self.transfer.sink.uncommitted());
        }
        self.tell_progress();
        outcome?;
        self.commit_if_due()
    }

    async fn move_events(&mut self, to_commit: bool) -> Result<(), Failure> {
        loop {
            match self.transfer.burst(&mut self.source, to_commit)? {
                Burst::Bind(relation) => {
                    let facts = self.session.facts(&relation);
                    let facts = reporting(self.context, &mut self.source, facts).await?;
                    self.transfer.bind(&relation, &facts)?;
                }
                Burst::Held => {
                    let release = self.transfer.release();
                    reporting(self.context, &mut self.source, release).await?;
                    if self.transfer.waits() {
                        return Ok(());
                    }
                }
                Burst::Drained | Burst::Full | Burst::AtCommit | Burst::Paused => return Ok(()),
            }
        }
    }

    pub(super) async fn heartbeat(&mut self) -> Result<(), Failure> {
        if self.source.in_transaction() {
            // Kafka orders it after the rows read so far; it carries no position, so it may wait.
            return Ok(());
        }
        if self.transfer.sink.is_committing()
            && let Some(committer) = self.positions.committer_mut()
        {
            committer.owes_heartbeat = true;
            return Ok(());
        }
        self.transfer
            .hold_heartbeat(self.progress.at(Stage::Received))?;
        let release = self.transfer.release();
        reporting(self.context, &mut self.source, release).await?;
        self.transfer.seal();
        if let Some(committer) = self.positions.committer_mut() {
            committer.enqueued(None, self.transfer.sink.uncommitted());
        }
        self.commit_if_due()
    }

    /// Somebody replayed or discarded dead letters.
    fn heed(&mut self, said: &Audit) -> Result<(), Failure> {
        self.transfer
            .heed(said, self.progress.at(Stage::Received))?;
        self.transfer.seal();
        if let Some(committer) = self.positions.committer_mut() {
            committer.enqueued(None, self.transfer.sink.uncommitted());
        }
        self.commit_if_due()
    }

    /// The one place where the slot hears of a position.
    pub(super) async fn confirm(&mut self, stored: Stored) -> Result<(), Failure> {
        let lsn = stored.resume_point().lsn();
        self.progress.stored(lsn)?;
        if self.context.connector.confirm_to_slot {
            self.source.confirm(stored).await?;
        }
        // Also where the slot is never told: nothing is owed to it then, and nothing is remembered.
        self.progress.confirmed(lsn)?;
        self.tell_progress();
        Ok(())
    }

    /// A clean stop: flush, store, confirm, close.
    async fn finish(mut self, deadline: Instant) -> Result<(), Failure> {
        let left = self.settle(deadline).await?;
        if self.source.in_transaction() {
            warn!("stopped inside a transaction, all of its events will come again");
        } else if left > 0 {
            warn!(
                events = left,
                "stopped before kafka had everything, these events will come again"
            );
        }
        self.source.stop().await?;
        if self.context.connector.slot.drop_on_stop {
            let slot = &self.context.connector.slot.name;
            self.session.drop_slot(slot).await?;
            warn!(
                slot,
                "dropped the slot as slot.drop.on.stop asks, rows written from now on are not seen"
            );
        }
        Ok(())
    }

    /// Before the attempt ends on `failure`, stores and confirms what Kafka has: a poison event or
    /// a configuration error must not make everything before it come again.
    async fn save_what_stands(mut self, failure: Failure) -> Failure {
        let failure = self.transfer.name(failure);
        self.context.received.set(Some(self.source.received()));
        if self.positions.committer().is_some() {
            self.save_transaction(&failure).await;
            return failure;
        }
        if failure.class() != Class::Internal {
            let deadline = if self.context.stop.is_cancelled() {
                self.context.stop_by()
            } else {
                Instant::now() + self.context.worker.shutdown_timeout
            };
            if let Err(second) = self.settle(deadline).await {
                tracing::debug!(error = %second, "could not store the last position");
            }
        }
        failure
    }

    /// Waits until everything produced is acknowledged, stored and confirmed. Returns how many
    /// events were still on their way at the deadline.
    async fn settle(&mut self, deadline: Instant) -> Result<u64, Failure> {
        let Positions::Kept(_) = &self.positions else {
            return self.commit_rest(deadline).await;
        };
        // A sink that has failed says nothing against what was delivered before and waits here.
        let failed = match self.transfer.sink.drain(deadline).await {
            Ok(Some(delivered)) => {
                self.progress.delivered(delivered.resume_point().lsn())?;
                self.positions.offer(delivered);
                None
            }
            Ok(None) => None,
            Err(failure) => Some(failure),
        };
        while self.positions.hurry() {
            let stored = tokio::select! {
                stored = self.positions.stored() => stored?,
                () = sleep_until(deadline) => break,
            };
            self.confirm(stored).await?;
        }
        match failed {
            Some(failure) => Err(failure),
            None => Ok(self.transfer.sink.in_flight().records),
        }
    }

    fn tell_progress(&mut self) {
        let telemetry = &self.context.telemetry;
        // A slot that is never told is not behind: nothing is owed to it.
        let confirms = self.context.connector.confirm_to_slot;
        let at = |stage| Some(self.progress.at(stage));
        let pending = |stage| self.progress.oldest_pending_us(stage);
        telemetry.progress(&observability::Progress {
            received: at(Stage::Received),
            delivered: at(Stage::Delivered),
            stored: at(Stage::Stored),
            confirmed: at(Stage::Confirmed).filter(|_| confirms),
            received_commit_us: self.progress.newest_commit_us(),
            undelivered_since_us: pending(Stage::Delivered),
            unstored_since_us: pending(Stage::Stored),
            unconfirmed_since_us: pending(Stage::Confirmed).filter(|_| confirms),
            in_flight: self.transfer.sink.in_flight().records > 0,
        });
        // What the client struggles with matters while something waits for it; after that it is
        // history, although the client says nothing when it is over.
        let sink = &self.transfer.sink;
        let waits = sink.in_flight().records > 0 || sink.is_committing();
        let trouble = if waits { sink.trouble() } else { None };
        telemetry.trouble(Trouble::Kafka, trouble);
        self.transfer.tell_telemetry();
    }
}

/// Awaits `work` while the server keeps getting its status replies. A stop bounds the wait.
async fn reporting<T>(
    context: &Context,
    source: &mut Source,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut work = std::pin::pin!(work);
    let stopped = async {
        context.stop.cancelled().await;
        sleep_until(context.stop_by()).await;
    };
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = &mut stopped => {
                return Err(Failure::retriable("asked to stop while waiting for kafka or postgres"));
            }
            () = sleep_until(source.status_due()) => {
                source.report().await?;
            }
        }
    }
}
