//! Rows that existed before the slot, read under its exported snapshot and produced like any other.

use std::time::{Duration, Instant};

use tokio::time::interval;
use tracing::info;

use super::startup::Ready;
use super::supervisor::Context;
use super::transfer::{Burst, Transfer};
use crate::error::Failure;
use crate::lsn::ResumePoint;
use crate::observability::{SnapshotView, State};
use crate::offset::Stored;
use crate::source::{Session, Snapshot};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
const VIEW_INTERVAL: Duration = Duration::from_millis(500);

/// Produces every existing row, waits until Kafka has them all and stores the slot's consistent
/// point: from there the stream takes over without a gap. `None`: a stop was asked for; the
/// snapshot is taken again at the next start.
pub(super) async fn take(
    context: &Context,
    transfer: &mut Transfer,
    ready: &mut Ready,
    snapshot_name: Option<&str>,
    at: ResumePoint,
) -> Result<Option<Stored>, Failure> {
    let connector = &context.connector;
    context.telemetry.state(State::Snapshotting);
    let mut snapshot = Snapshot::open(&connector.database, connector, snapshot_name, at).await?;
    let began = Instant::now();
    let mut views = interval(VIEW_INTERVAL);
    let mut told = Instant::now();
    let mut reading = true;
    loop {
        let has_room = transfer.sink.has_room();
        tokio::select! {
            biased;
            () = context.stop.cancelled() => {
                info!("asked to stop during the snapshot, it will be taken again at the next start");
                return Ok(None);
            }
            progressed = transfer.sink.progressed() => {
                if let Some(delivered) = progressed? {
                    let stored = ready.store.store(delivered).await?;
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
            filled = snapshot.fill(), if reading && has_room => {
                filled?;
                if snapshot.ask().await? {
                    take_burst(transfer, &mut snapshot, &ready.session).await?;
                } else {
                    reading = false;
                    transfer.seal_at(at);
                }
            }
        }
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
            Burst::Held => transfer.release().await?,
            Burst::Drained | Burst::Full | Burst::AtCommit => break,
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
