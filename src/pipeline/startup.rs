//! From nothing to the point where an attempt knows what to do: connections, checks, the decision.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::attempt::open_sink;
use super::attendant::Attendant;
use super::supervisor::Context;
use super::transfer::Transfer;
use crate::config::Connector;
use crate::error::{Class, Failure};
use crate::lsn::{Lsn, ResumePoint};
use crate::observability::State;
use crate::offset::{
    Decision, OffsetIdentity, OffsetStore, Policy, ServerFacts, SlotFacts, SnapshotState,
    StoredOffset, decide,
};
use crate::sink::Sink;
use crate::source::{Replication, ServerIdentity, Session, SlotState};

/// How often a standby looks whether the slot is free.
const STANDBY_INTERVAL: Duration = Duration::from_millis(300);

/// Everything an attempt starts from.
pub(super) struct Ready {
    pub(super) session: Session,
    pub(super) store: OffsetStore,
    pub(super) attendant: Attendant,
    pub(super) transfer: Transfer,
    /// What the catalog no longer has, and how far the rows reach that may have been written before.
    pub(super) outdated: Option<(Lsn, Failure)>,
    pub(super) server: ServerIdentity,
}

/// Connects, checks and decides; waits as a standby while another process holds the slot.
/// `None`: a stop was asked for meanwhile.
pub(super) async fn prepare(context: &mut Context) -> Result<Option<(Ready, Decision)>, Failure> {
    let session = Session::connect(&context.configured.database, "setup").await?;
    // Everything else of the attempt goes to the same server.
    context.connector = Arc::new(context.configured.at(session.host()));
    let context = &*context;
    let connector = &context.connector;
    context.post.chosen(connector);
    let preflight = session.preflight(connector).await.map_err(all_at_once)?;
    let outdated = (!preflight.outdated.is_empty()).then(|| all_at_once(preflight.outdated));
    let policy = Policy {
        starting: !context.has_worked,
        ..Policy::of(connector)
    };
    let mut store = OffsetStore::open(&context.worker, connector)
        .await
        .map_err(|failure| unless_lost(failure, preflight.slot, &preflight.identity, &policy))?;
    let mut waiting_for = None;
    let mut stand_by = |holder: String| {
        if waiting_for.as_ref() != Some(&holder) {
            info!(slot = connector.slot.name, %holder, "waiting as standby while the slot is taken");
            context.post.stands_by(true);
            context.telemetry.state(State::Standby {
                holder: holder.clone(),
            });
            waiting_for = Some(holder);
        }
    };
    let mut claim = Claim::default();
    loop {
        let slot = session.slot(&connector.slot.name).await?;
        let failover = slot.as_ref().and_then(|slot| slot.failover);
        let held = slot.as_ref().is_some_and(|slot| slot.active_pid.is_some());
        match claim.lay(context, &session, held).await? {
            Claimed::Settled => {}
            Claimed::JustLocked => continue,
            Claimed::Taken => {
                stand_by("the instance that is about to take it".to_owned());
                if pause(context).await {
                    return Ok(None);
                }
                continue;
            }
        }
        // Whoever holds the slot also moves the stored position: read it only once it is ours.
        let stored = if held { None } else { store.load().await? };
        let server = session.identify().await?;
        // A promotion while we wait starts a new timeline.
        store.identify(identity(connector, &server));
        if server.in_recovery && !held {
            not_promoted(&server, slot.as_ref(), stored.as_ref())?;
        }
        let slot = slot.map(slot_facts);
        let mut facts = server_facts(&server);
        facts.past_timelines = past_timelines(connector, &server, stored.as_ref()).await?;
        match decide(stored.as_ref(), slot.as_ref(), &facts, &policy) {
            Decision::Stop(failure) => return Err(failure),
            Decision::Wait { holder } => stand_by(holder),
            Decision::Create { .. } | Decision::SnapshotAgain { .. } if !claim.locked => {
                // Until the stream runs the slot itself keeps nobody out: a lock does, so that two
                // instances do not both read the existing rows.
                claim.locked = session.try_lock(&connector.slot.name).await?;
                if claim.locked {
                    continue;
                }
                stand_by("the instance that sets up the slot".to_owned());
            }
            decision => {
                let sink = match claim.sink {
                    Some(sink) => sink,
                    None => open_sink(context)?,
                };
                context.post.stands_by(false);
                if connector.slot.failover && failover == Some(false) {
                    stays_behind(&connector.slot.name);
                }
                let ready = Ready {
                    session,
                    store,
                    attendant: Attendant::start(connector.clone(), context.telemetry.clone()),
                    transfer: Transfer::new(context, sink),
                    outdated: outdated.map(|failure| (server.wal_position, failure)),
                    server,
                };
                return Ok(Some((ready, decision)));
            }
        }
        if pause(context).await {
            return Ok(None);
        }
    }
}

/// Kafka may be away for long. A slot that the server has given up does not come back meanwhile, so
/// that is said although the stored position cannot be read.
fn unless_lost(
    failure: Failure,
    slot: Option<SlotState>,
    server: &ServerIdentity,
    policy: &Policy,
) -> Failure {
    let Some(slot) = slot.map(slot_facts).filter(SlotFacts::is_invalidated) else {
        return failure;
    };
    // The slot was told nothing but stored positions.
    let stored = slot.confirmed.map(|at| StoredOffset {
        position: Some(ResumePoint::slot_start(at)),
        partial: None,
        identity: None,
        snapshot: SnapshotState::None,
    });
    match decide(stored.as_ref(), Some(&slot), &server_facts(server), policy) {
        Decision::Stop(gap) => gap.caused_by(failure),
        _ => failure,
    }
}

/// What keeps other instances out until the slot itself does.
#[derive(Default)]
struct Claim {
    /// We have the lock of the slot's set-up.
    locked: bool,
    /// Exactly once: the producer that has fenced all others off.
    sink: Option<Sink>,
}

/// What came of a [`Claim`].
enum Claimed {
    /// Go on and decide.
    Settled,
    /// Look at the slot again: its state may be from before the lock.
    JustLocked,
    /// Another instance has the lock.
    Taken,
}

impl Claim {
    /// Exactly once: fences all other producers off, which must come before the stored position is
    /// read, and which nobody may do while another instance has the slot or is about to take it.
    async fn lay(
        &mut self,
        context: &Context,
        session: &Session,
        held: bool,
    ) -> Result<Claimed, Failure> {
        let slot = &context.connector.slot.name;
        if context.connector.exactly_once.is_none() {
            return Ok(Claimed::Settled);
        }
        if held {
            self.sink = None;
            if std::mem::take(&mut self.locked) {
                session.unlock(slot).await?;
            }
            return Ok(Claimed::Settled);
        }
        if !self.locked {
            self.locked = session.try_lock(slot).await?;
            return Ok(match self.locked {
                true => Claimed::JustLocked,
                false => Claimed::Taken,
            });
        }
        if self.sink.is_none() {
            let sink = open_sink(context)?;
            sink.fence().await?;
            self.sink = Some(sink);
        }
        Ok(Claimed::Settled)
    }
}

/// Waits before the next look; whether a stop was asked for meanwhile.
async fn pause(context: &Context) -> bool {
    tokio::select! {
        () = context.stop.cancelled() => true,
        () = sleep(STANDBY_INTERVAL) => false,
    }
}

/// The slot was made before `slot.failover` was set, which only says how it is made.
fn stays_behind(slot: &str) {
    warn!(
        slot,
        "slot.failover is set, but the slot was created without it and stays behind in a fail-over; \
         stop the connector and run ALTER_REPLICATION_SLOT {slot} (FAILOVER true) on a replication \
         connection"
    );
}

/// The server's history, where it was promoted since the position was stored.
pub(super) async fn past_timelines(
    connector: &Connector,
    server: &ServerIdentity,
    stored: Option<&StoredOffset>,
) -> Result<Vec<(u32, Lsn)>, Failure> {
    let before = stored.and_then(|stored| stored.identity.as_ref());
    if before.is_none_or(|before| before.timeline >= server.timeline) {
        return Ok(Vec::new());
    }
    let mut replication = Replication::connect(&connector.database).await?;
    let past = replication.past_timelines(server.timeline).await;
    replication.close().await;
    Ok(past)
}

/// During a switch-over a name can lead to a standby for a while. What is missing there is no gap:
/// it comes with the promotion, or with the primary. A standby with a slot of its own may serve us.
pub(super) fn not_promoted(
    server: &ServerIdentity,
    slot: Option<&SlotState>,
    stored: Option<&StoredOffset>,
) -> Result<(), Failure> {
    let ahead = stored
        .and_then(|stored| stored.position)
        .is_some_and(|at| at.lsn() > server.wal_position);
    let lacks = if slot.is_some_and(|slot| slot.synced) {
        "its copy of the slot serves nobody yet"
    } else if slot.is_none() && stored.is_some() {
        "it has no copy of the slot"
    } else if ahead {
        "it has not replayed the stored position"
    } else {
        return Ok(());
    };
    Err(Failure::retriable(format!(
        "the server is a standby at {}, and {lacks}; waiting until it is promoted or \
         database.hostname leads to the primary",
        server.wal_position
    )))
}

/// A refused login is a mistake in the file only until the connector has worked once.
pub(super) fn first_time_only(context: &Context, failure: Failure) -> Failure {
    if context.has_worked {
        failure.once_worked()
    } else {
        failure
    }
}

/// Who writes the stored position, so that another cluster's is recognised.
pub(super) fn identity(connector: &Connector, server: &ServerIdentity) -> OffsetIdentity {
    OffsetIdentity {
        system_id: server.system_id.clone(),
        timeline: server.timeline,
        slot: connector.slot.name.clone(),
        database: server.database.clone(),
    }
}

/// Several findings as one failure, so that all are read at once. Waiting helps only when it
/// helps with all of them, so the first class that is not retriable counts.
pub(super) fn all_at_once(mut failures: Vec<Failure>) -> Failure {
    let about_access = failures
        .iter()
        .filter(|failure| failure.class() != Class::Retriable)
        .all(Failure::is_about_access);
    if failures.len() == 1
        && let Some(only) = failures.pop()
    {
        return only;
    }
    let class = failures
        .iter()
        .map(Failure::class)
        .find(|class| *class != Class::Retriable)
        .unwrap_or(Class::Retriable);
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    let failure = Failure::new(
        class,
        format!(
            "{} things stand in the way: {}",
            texts.len(),
            texts.join("; ")
        ),
    );
    match about_access {
        true => failure.about_access(),
        false => failure,
    }
}

/// What the start-up decision needs of the server.
pub(super) fn server_facts(server: &ServerIdentity) -> ServerFacts {
    ServerFacts {
        system_id: server.system_id.clone(),
        timeline: server.timeline,
        database: server.database.clone(),
        wal_position: server.wal_position,
        past_timelines: Vec::new(),
    }
}

/// What the start-up decision needs of the slot.
pub(super) fn slot_facts(slot: SlotState) -> SlotFacts {
    SlotFacts {
        plugin: slot.plugin,
        database: slot.database,
        holder: slot.active_pid.map(|pid| match &slot.active_client {
            Some(client) => format!("{client}, server process {pid}"),
            None => format!("server process {pid}"),
        }),
        confirmed: slot.confirmed,
        wal_status: slot.wal_status,
        invalidation_reason: slot.invalidation_reason,
    }
}
