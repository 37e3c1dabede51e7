//! `walpost offsets`: stored position, slot and server side by side; set and reset.

use std::fmt::Write as _;

use super::attempt::sink_options;
use crate::config::{Config, Connector, Worker};
use crate::error::Failure;
use crate::lsn::Lsn;
use crate::offset::OffsetStore;
use crate::sink::{BatchSize, Sink};
use crate::source::{ServerIdentity, Session, SlotState};

/// What `offsets show` prints.
///
/// # Errors
/// Postgres or the offset store cannot be reached.
pub async fn show_offset(config: &Config) -> Result<String, Failure> {
    let (worker, connector) = only(config)?;
    let mut store = OffsetStore::open(worker, connector).await?;
    let stored = store.load().await?;
    let session = Session::connect(&connector.database, "offsets").await?;
    let server = session.identify().await?;
    let slot = session.slot(&connector.slot.name).await?;
    let position = stored
        .as_ref()
        .and_then(|stored| stored.position)
        .map(|at| at.lsn());
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<18}{value}");
    };
    line("connector", connector.name.clone());
    line("store", store.describe());
    line(
        "stored position",
        position.map_or_else(|| "none".into(), |lsn| lsn.to_string()),
    );
    line("slot", describe_slot(&connector.slot.name, slot.as_ref()));
    line("server position", describe_server(&server));
    if let Some(lsn) = position {
        line(
            "behind server",
            format!("{} bytes", server.wal_position.bytes_since(lsn)),
        );
    }
    Ok(text)
}

/// Writes `at` as the stored position.
///
/// # Errors
/// The slot is in use, or Postgres or the offset store cannot be reached.
pub async fn set_offset(config: &Config, at: Lsn) -> Result<String, Failure> {
    let (worker, connector) = only(config)?;
    let mut store = free_store(worker, connector, "set").await?;
    let before = before(&mut store).await?;
    store.set(at).await?;
    Ok(format!(
        "{}: stored position was {}, is now {at}\n",
        store.describe(),
        before.as_deref().unwrap_or("none")
    ))
}

/// Removes the stored position.
///
/// # Errors
/// The slot is in use, or Postgres or the offset store cannot be reached.
pub async fn reset_offset(config: &Config) -> Result<String, Failure> {
    let (worker, connector) = only(config)?;
    let mut store = free_store(worker, connector, "reset").await?;
    let before = before(&mut store).await?;
    store.reset().await?;
    Ok(format!(
        "{}: stored position was {}, is now none; the next start streams from where the slot stands, \
         or is the first if there is no slot\n",
        store.describe(),
        before.as_deref().unwrap_or("none")
    ))
}

async fn before(store: &mut OffsetStore) -> Result<Option<String>, Failure> {
    let stored = store.load().await?;
    Ok(stored
        .and_then(|stored| stored.position)
        .map(|at| at.lsn().to_string()))
}

pub(super) fn only(config: &Config) -> Result<(&Worker, &Connector), Failure> {
    match config.connectors.as_slice() {
        [connector] => Ok((&config.worker, connector)),
        _ => Err(Failure::config("give exactly one connector file")),
    }
}

/// The store of a connector that is not running: a running one would overwrite the change.
async fn free_store(
    worker: &Worker,
    connector: &Connector,
    verb: &str,
) -> Result<OffsetStore, Failure> {
    let session = Session::connect(&connector.database, "offsets").await?;
    let server = session.identify().await?;
    if let Some(pid) = session
        .slot(&connector.slot.name)
        .await?
        .and_then(|slot| slot.active_pid)
    {
        return Err(Failure::config(format!(
            "{verb} the stored position of {:?}: slot {:?} is in use by server process {pid}; \
             stop the connector first",
            connector.name, connector.slot.name
        )));
    }
    let mut store = OffsetStore::open(worker, connector).await?;
    store.identify(super::startup::identity(connector, &server));
    if connector.exactly_once.is_some() {
        // A process that stands still could otherwise commit an older position afterwards.
        let options = sink_options(worker, connector, BatchSize::default());
        Sink::open(&options)?.fence().await?;
    }
    Ok(store)
}

fn describe_slot(name: &str, slot: Option<&SlotState>) -> String {
    let Some(slot) = slot else {
        return format!("{name}: does not exist");
    };
    let position = |lsn: Option<Lsn>| lsn.map_or_else(|| "unknown".into(), |lsn| lsn.to_string());
    let mut text = format!(
        "{name}: confirmed {}, restart {}, wal_status {}",
        position(slot.confirmed),
        position(slot.restart),
        slot.wal_status.as_deref().unwrap_or("unknown"),
    );
    if let Some(bytes) = slot.retained_bytes {
        let _ = write!(text, ", retains {bytes} bytes");
    }
    if let Some(bytes) = slot.safe_wal_size {
        let _ = write!(text, ", {bytes} bytes until it is at risk");
    }
    if let Some(reason) = &slot.invalidation_reason {
        let _ = write!(text, ", invalidated ({reason})");
    }
    if slot.failover == Some(true) {
        text.push_str(", follows a fail-over");
    }
    match slot.active_pid {
        Some(pid) => {
            let _ = write!(text, ", in use by server process {pid}");
        }
        None => text.push_str(", free"),
    }
    text
}

fn describe_server(server: &ServerIdentity) -> String {
    format!(
        "{} (system {}, timeline {}, database {})",
        server.wal_position, server.system_id, server.timeline, server.database
    )
}
