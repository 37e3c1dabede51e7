//! Rows that existed before the slot, read under its exported snapshot and produced like any other.

use std::time::{Duration, Instant};

use tokio::time::interval;
use tracing::{info, warn};

use super::startup::Ready;
use super::supervisor::Context;
use super::transfer::{Burst, Transfer};
use crate::config::Connector;
use crate::error::Failure;
use crate::lsn::ResumePoint;
use crate::observability::{SnapshotView, State};
use crate::offset::{OffsetStore, Stored};
use crate::sink::{Moved, Sink};
use crate::source::{Session, Snapshot};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
const VIEW_INTERVAL: Duration = Duration::from_millis(500);

/// Notes that a snapshot begins.
pub(super) async fn note(ready: &mut Ready) -> Result<(), Failure> {
    if !ready.transfer.sink.has_transactions() {
        return ready.store.begin_snapshot().await;
    }
    let record = ready.store.snapshot_record()?;
    ready.transfer.sink.commit_now(&record).await?;
    Ok(())
}

/// Produces every existing row, waits until Kafka has them all and stores the slot's consistent
/// point: from there the stream takes over without a gap. `None`: a stop was asked for; the
/// snapshot is taken again at the next start.
///
/// In transactions all rows are committed at once, together with that point, unless they are too
/// many for one.
pub(super) async fn take(
    context: &Context,
    ready: &mut Ready,
    snapshot_name: Option<&str>,
    at: ResumePoint,
) -> Result<Option<Stored>, Failure> {
    let taken = read(context, ready, snapshot_name, at).await;
    ready.transfer.sink.abandon().await;
    taken
}

async fn read(
    context: &Context,
    ready: &mut Ready,
    snapshot_name: Option<&str>,
    at: ResumePoint,
) -> Result<Option<Stored>, Failure> {
    let connector = &context.connector;
    let (transfer, store) = (&mut ready.transfer, &mut ready.store);
    let mut parts = Parts::new(connector);
    context.telemetry.state(State::Snapshotting);
    let mut snapshot = Snapshot::open(&connector.database, connector, snapshot_name, at).await?;
    let began = Instant::now();
    let mut views = interval(VIEW_INTERVAL);
    let mut told = Instant::now();
    let mut reading = true;
    loop {
        let has_room = transfer.sink.has_room() && !transfer.waits();
        let holds = transfer.is_holding_record();
        tokio::select! {
            biased;
            () = context.stop.cancelled() => {
                info!("asked to stop during the snapshot, it will be taken again at the next start");
                return Ok(None);
            }
            moved = transfer.sink.progressed() => {
                let stored = match moved? {
                    Moved::Delivered(delivered) => Some(store.store(delivered).await?),
                    Moved::Committed(committed) => {
                        parts.began = None;
                        Stored::with(&committed)
                    }
                    Moved::Room => None,
                };
                if let Some(stored) = stored {
                    let view = view(&snapshot, began);
                    context.telemetry.snapshot(Some(view));
                    info!(rows = view.rows, seconds = began.elapsed().as_secs(), "snapshot complete");
                    return Ok(Some(stored));
                }
            }
            _ = views.tick() => {
                let view = view(&snapshot, began);
                context.telemetry.snapshot(Some(view));
                transfer.tell_telemetry();
                if told.elapsed() >= PROGRESS_INTERVAL {
                    told = Instant::now();
                    info!(
                        rows = view.rows,
                        estimated_rows = view.estimated_rows,
                        rows_per_second = view.rows_per_second as u64,
                        "snapshot under way"
                    );
                }
            }
            () = std::future::ready(()), if has_room && holds => {
                take_burst(transfer, &mut snapshot, &ready.session).await?;
                parts.cut_if_due(&mut transfer.sink, store)?;
            }
            filled = snapshot.fill(), if reading && has_room => {
                filled?;
                if snapshot.ask().await? {
                    take_burst(transfer, &mut snapshot, &ready.session).await?;
                    parts.cut_if_due(&mut transfer.sink, store)?;
                } else {
                    reading = false;
                    transfer.seal_at(at)?;
                    if transfer.sink.has_transactions() {
                        transfer.sink.commit(&store.record(at, None)?)?;
                    }
                }
            }
        }
    }
}

/// Commits the rows so far when they are too many for one transaction, or take too long.
struct Parts {
    longest: Duration,
    began: Option<Instant>,
    told: bool,
}

impl Parts {
    fn new(connector: &Connector) -> Self {
        let options = connector.exactly_once.as_ref();
        Self {
            longest: options.map_or(Duration::MAX, |options| options.timeout / 2),
            began: None,
            told: false,
        }
    }

    fn cut_if_due(&mut self, sink: &mut Sink, store: &OffsetStore) -> Result<(), Failure> {
        if sink.uncommitted() == 0 {
            return Ok(());
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        if !sink.is_cut() && began.elapsed() < self.longest {
            return Ok(());
        }
        if !std::mem::replace(&mut self.told, true) {
            warn!(
                "the existing rows do not fit into one kafka transaction and are committed in parts: \
                 if the snapshot is interrupted, they come again; raise transaction.max.records and \
                 producer.override.transaction.timeout.ms to avoid that"
            );
        }
        sink.commit(&store.snapshot_record()?)
    }
}

async fn take_burst(
    transfer: &mut Transfer,
    snapshot: &mut Snapshot,
    session: &Session,
) -> Result<(), Failure> {
    loop {
        match transfer.burst(snapshot, false)? {
            Burst::Bind(relation) => {
                let facts = session.facts(&relation).await?;
                transfer.bind(&relation, &facts)?;
            }
            Burst::Held => {
                transfer.release().await?;
                if transfer.waits() {
                    break;
                }
            }
            Burst::Drained | Burst::Full | Burst::AtCommit | Burst::Paused => break,
        }
    }
    transfer.seal();
    Ok(())
}

fn view(snapshot: &Snapshot, began: Instant) -> SnapshotView {
    let progress = snapshot.progress();
    let seconds = began.elapsed().as_secs_f64().max(0.001);
    SnapshotView {
        rows: progress.rows,
        estimated_rows: progress.estimated_rows,
        tables_done: progress.tables_done,
        tables: progress.tables_total,
        rows_per_second: progress.rows as f64 / seconds,
    }
}
