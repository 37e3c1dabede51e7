//! One attempt: from start-up to a clean stop or the first error.

use std::time::Duration;

use tracing::{info, warn};

use super::committer::Committer;
use super::dead_letters::Again;
use super::keeper::{Keeper, Positions};
use super::progress::Progress;
use super::snapshot;
use super::startup::{Ready, prepare};
use super::stream::Stream;
use super::supervisor::Context;
use crate::config::{Connector, Slot, SnapshotMode, Worker};
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};
use crate::offset::{Decision, Partial, SlotFate, Stored};
use crate::sink::{BatchSize, Sink, SinkOptions};
use crate::source::{PartialTransaction, Replication, ServerIdentity, Session, StartOptions};

/// Longest pause between two stored positions, whatever `offset.flush.interval.ms` allows: sooner
/// costs nothing and repeats less.
const STORE_INTERVAL: Duration = Duration::from_millis(50);

/// One attempt of one connector.
pub(super) struct Attempt<'c> {
    context: &'c mut Context,
}

impl<'c> Attempt<'c> {
    pub(super) fn new(context: &'c mut Context) -> Self {
        Self { context }
    }

    /// Runs to a clean stop, or to the first error.
    pub(super) async fn run(self) -> Result<(), Failure> {
        let stop = self.context.stop.clone();
        // Until the stream runs nothing is confirmed, so a stop may leave it at any point: creating
        // a slot can wait for hours on somebody's open transaction, an answer for minutes.
        let begun = tokio::select! {
            biased;
            begun = self.begin() => begun?,
            () = stop.cancelled() => {
                info!("asked to stop before the stream had begun");
                None
            }
        };
        match begun {
            Some(stream) => stream.run().await,
            None => Ok(()),
        }
    }

    /// Everything up to the running stream; `None` when there is nothing to stream.
    async fn begin(self) -> Result<Option<Stream<'c>>, Failure> {
        let Some((mut ready, decision)) = prepare(self.context).await? else {
            return Ok(None);
        };
        match ready.outdated {
            Some((until, _)) if decision.streams() => info!(
                %until,
                "the database no longer has what the file names: reading what was written before, \
                 then stopping"
            ),
            Some((_, failure)) if !matches!(decision, Decision::Stop(_)) => return Err(failure),
            _ => {}
        }
        let (session, store) = (&ready.session, &ready.store);
        let resumes = matches!(decision, Decision::Resume { .. });
        let (at, partial) = match decision {
            Decision::Create { snapshot } => {
                return self.create(ready, snapshot).await;
            }
            Decision::SnapshotAgain { slot, reason } => {
                let always = self.context.connector.snapshot.mode == SnapshotMode::Always;
                match slot {
                    SlotFate::Keep(_) if always => info!("{reason}"),
                    _ => warn!("{reason}"),
                }
                match slot {
                    SlotFate::Keep(at) => return self.snapshot_over(ready, at).await,
                    SlotFate::PassOver => return self.snapshot_past(ready).await,
                    SlotFate::Replace => {
                        session.drop_slot(&self.context.connector.slot.name).await?;
                    }
                    SlotFate::Create => {}
                }
                return self.create(ready, true).await;
            }
            Decision::Done => {
                info!(
                    "the snapshot was taken before, nothing is left to do in snapshot.mode=initial_only"
                );
                return Ok(None);
            }
            Decision::Adopt { at } => {
                info!(
                    slot = self.context.connector.slot.name,
                    lsn = %at.lsn(),
                    "no stored position: streaming from where the slot stands; rows older than the \
                     slot are not published again, insert them anew if they are needed"
                );
                (at, None)
            }
            Decision::Resume {
                at,
                partial,
                advance_slot_to,
            } => {
                if let Some(to) = advance_slot_to {
                    warn!(lsn = %to, "advancing the slot to the stored position, as offset.mismatch.strategy asks");
                    session
                        .advance_slot(&self.context.connector.slot.name, to)
                        .await?;
                }
                info!(lsn = %at.lsn(), store = store.describe(), "resuming from the stored position");
                (at, partial)
            }
            Decision::Stop(failure) => return Err(failure),
            Decision::Wait { .. } => {
                return Err(Failure::internal("start-up ended while the slot was taken"));
            }
        };
        let report = session.ensure_publication(&self.context.connector).await?;
        if resumes && !report.statements.is_empty() {
            warn!(
                statements = report.statements.join("; "),
                "changed the publication although the slot was there: rows that were written while \
                 it lacked their table are not sent, insert them anew if they are needed"
            );
        }
        let replication = self.replication(&ready.server).await?;
        let again = Again::From(at.lsn(), partial);
        ready
            .transfer
            .open_dead_letters(self.context, again)
            .await?;
        self.stream(ready, replication, at, partial, None).await
    }

    /// Publication first, then the slot: pgoutput looks a publication up as it was at each
    /// position, so one that is younger than the slot would be missing for the first rows.
    async fn create(
        self,
        mut ready: Ready,
        with_snapshot: bool,
    ) -> Result<Option<Stream<'c>>, Failure> {
        let connector = self.context.connector.clone();
        ready.session.ensure_publication(&connector).await?;
        let mut replication = self.replication(&ready.server).await?;
        if with_snapshot {
            // Written before the slot exists, so that a crash from here on is not mistaken for a
            // slot that somebody else prepared.
            snapshot::note(&mut ready).await?;
        }
        let only = connector.snapshot.mode == SnapshotMode::InitialOnly;
        let created = if only {
            replication.create_temporary_slot(&connector.slot).await?
        } else {
            replication.create_slot(&connector.slot).await?
        };
        let at = created.consistent_point;
        info!(
            slot = connector.slot.name,
            lsn = %at.lsn(),
            temporary = only,
            "created the slot; it holds back wal until it is read, drop it with \
             `SELECT pg_drop_replication_slot(...)` when it is no longer needed"
        );
        let again = match with_snapshot {
            true => Again::Snapshot(at.lsn()),
            false => Again::From(at.lsn(), None),
        };
        ready
            .transfer
            .open_dead_letters(self.context, again)
            .await?;
        let mut begun = None;
        if with_snapshot {
            let name = Some(&*created.snapshot_name);
            let taken = snapshot::take(self.context, &mut ready, name, at).await?;
            let Some(stored) = taken else {
                return Ok(None);
            };
            begun = Some(stored);
        }
        if only {
            info!("the snapshot is complete, stopping as snapshot.mode=initial_only asks");
            return Ok(None);
        }
        self.stream(ready, replication, at, None, begun).await
    }

    /// Reads the existing rows again although the slot is there, then streams from where the slot
    /// stands: what changed between the two comes twice, nothing is left out.
    async fn snapshot_over(
        self,
        mut ready: Ready,
        slot_position: Lsn,
    ) -> Result<Option<Stream<'c>>, Failure> {
        let at = ResumePoint::slot_start(slot_position);
        ready
            .session
            .ensure_publication(&self.context.connector)
            .await?;
        let again = Again::Snapshot(at.lsn());
        ready
            .transfer
            .open_dead_letters(self.context, again)
            .await?;
        snapshot::note(&mut ready).await?;
        let taken = snapshot::take(self.context, &mut ready, None, at).await?;
        let Some(stored) = taken else {
            return Ok(None);
        };
        if self.context.connector.snapshot.mode == SnapshotMode::InitialOnly {
            return Ok(None);
        }
        let replication = self.replication(&ready.server).await?;
        self.stream(ready, replication, at, None, Some(stored))
            .await
    }

    /// Reads the existing rows although the slot is there, then streams what commits after that. A
    /// temporary slot says where the snapshot stands; it ends with its connection, so that it holds
    /// back no wal afterwards.
    async fn snapshot_past(self, mut ready: Ready) -> Result<Option<Stream<'c>>, Failure> {
        ready
            .session
            .ensure_publication(&self.context.connector)
            .await?;
        snapshot::note(&mut ready).await?;
        let mut temporary = self.replication(&ready.server).await?;
        let slot = &self.context.connector.slot;
        let created = temporary
            .create_temporary_slot(&Slot {
                name: format!("{:.54}_snapshot", slot.name),
                ..slot.clone()
            })
            .await?;
        let (name, at) = (Some(&*created.snapshot_name), created.consistent_point);
        let again = Again::Snapshot(at.lsn());
        ready
            .transfer
            .open_dead_letters(self.context, again)
            .await?;
        let taken = snapshot::take(self.context, &mut ready, name, at).await?;
        drop(temporary);
        let Some(stored) = taken else {
            return Ok(None);
        };
        let replication = self.replication(&ready.server).await?;
        self.stream(ready, replication, at, None, Some(stored))
            .await
    }

    /// Connects for the stream, to the server on which the decision was made: behind a proxy even
    /// one address can lead to two.
    async fn replication(&self, server: &ServerIdentity) -> Result<Replication, Failure> {
        let mut replication = Replication::connect(&self.context.connector.database).await?;
        replication.expect(server).await?;
        Ok(replication)
    }

    async fn stream(
        self,
        ready: Ready,
        replication: Replication,
        at: ResumePoint,
        partial: Option<Partial>,
        begun: Option<Stored>,
    ) -> Result<Option<Stream<'c>>, Failure> {
        let connector = self.context.connector.clone();
        let options = StartOptions {
            slot: connector.slot.name.clone(),
            publication: connector.publication.name.clone(),
            at: at.lsn(),
            messages: connector.wants_messages(),
            tables: connector.tables.clone(),
            stream_params: connector.slot.stream_params.clone(),
            status_interval: connector.status_interval,
            skip: partial.and_then(partial_transaction),
        };
        let mut source = replication.start(options).await?;
        self.context.post.streams(Some(source.backend_pid()));
        announce(&connector.slot, at.lsn(), &ready.session).await?;
        if connector.exactly_once.is_some() {
            // From here on the slot itself keeps others out, and only a process that still answers.
            ready.session.unlock(&connector.slot.name).await?;
        }
        if std::mem::replace(&mut self.context.has_worked, true) {
            self.context.telemetry.reconnected();
        }
        let mut progress = Progress::starting_at(at.lsn());
        if let Some(stored) = begun
            && connector.confirm_to_slot
        {
            source.confirm(stored).await?;
            progress.received(at.lsn());
        }
        let positions = match &connector.exactly_once {
            Some(options) => {
                let apart = self.context.apart.as_ref().map(|apart| apart.until);
                let committer = Committer::new(ready.store, options, at, apart);
                Positions::Committed(Box::new(committer))
            }
            None => {
                let interval = self.context.worker.flush_interval.min(STORE_INTERVAL);
                Positions::Kept(Box::new(Keeper::new(ready.store, interval)))
            }
        };
        Ok(Some(Stream {
            context: self.context,
            source,
            transfer: ready.transfer,
            positions,
            session: ready.session,
            attendant: ready.attendant,
            progress,
            outdated: ready.outdated,
        }))
    }
}

/// Says what the slot costs, and what frees it: a slot that is forgotten fills the disk.
async fn announce(slot: &Slot, at: Lsn, session: &Session) -> Result<(), Failure> {
    let state = session.slot(&slot.name).await?;
    info!(
        slot = slot.name,
        lsn = %at,
        retained_bytes = state.and_then(|state| state.retained_bytes),
        "streaming; the slot holds back wal until it is read, so once walpost is retired run: \
         SELECT pg_drop_replication_slot('{}')",
        slot.name
    );
    if slot.drop_on_stop {
        warn!(
            slot = slot.name,
            "slot.drop.on.stop is true: the slot is dropped at every orderly stop, and events \
             written until the next start are lost"
        );
    }
    Ok(())
}

/// What to leave out of the transaction in which Debezium stopped. When it did not say which one
/// that is, all of it comes again.
fn partial_transaction(partial: Partial) -> Option<PartialTransaction> {
    Some(PartialTransaction {
        xid: partial.xid?,
        lsn: partial.lsn,
        events: partial
            .events
            .map_or(1, |events| u32::try_from(events).unwrap_or(u32::MAX)),
    })
}

/// The other way round: what of a transaction is committed already.
pub(super) fn as_partial(inside: PartialTransaction) -> Partial {
    Partial {
        xid: Some(inside.xid),
        lsn: inside.lsn,
        events: Some(u64::from(inside.events)),
    }
}

/// How the connector produces.
pub(super) fn sink_options(
    worker: &Worker,
    connector: &Connector,
    batch_size: BatchSize,
) -> SinkOptions {
    SinkOptions {
        producer: connector.producer.clone(),
        admin: worker.client.clone(),
        topic_creation: connector
            .topic_creation
            .clone()
            .filter(|_| worker.topic_creation),
        limits: connector.limits,
        batch_size,
        exactly_once: connector.exactly_once.clone(),
        client_id: format!("connector-producer-{}-0", connector.name),
    }
}

pub(super) fn open_sink(context: &Context) -> Result<Sink, Failure> {
    Sink::open(&sink_options(
        &context.worker,
        &context.connector,
        context.batch_size.clone(),
    ))
}
