//! Keeps an eye on the server and the slot for as long as the connector runs, whether an attempt
//! streams or waits for Kafka: lag, the WAL that the slot holds back, the thresholds of
//! `slot.retained.wal.*`. It moves no position. The only thing it does to the slot is to drop it,
//! when the operator has asked for that.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::config::Connector;
use crate::error::{Class, Failure};
use crate::observability::{SAMPLE_INTERVAL, ServerSample, Telemetry, Trouble};
use crate::source::{ServerSample as Sampled, Session, SlotState};
use judge::{Judge, Verdict};

/// How long a walsender may take to notice that we have let go of the slot.
const RELEASE: Duration = Duration::from_secs(30);

/// A slot that could not be dropped is left alone for so long: each try costs the attempt.
const RESPITE: Duration = Duration::from_secs(60);

/// What the attempts let the guard know.
#[derive(Debug, Clone, Default)]
pub(super) struct Focus {
    /// The connector led to the server of the attempt; `None` before the first connection.
    connector: Option<Arc<Connector>>,
    /// Another process has the slot, and looks after it.
    standby: bool,
    /// The server's process that streams to us.
    stream: Option<i32>,
}

/// The attempts' side: says where they are, hears what concerns the stream.
#[derive(Debug)]
pub(super) struct Post {
    focus: watch::Sender<Focus>,
    stopping: Arc<Notify>,
}

impl Post {
    /// An attempt has chosen its server. Whether another process has the slot it does not know yet.
    pub(super) fn chosen(&self, connector: &Arc<Connector>) {
        self.focus.send_modify(|focus| {
            focus.connector = Some(Arc::clone(connector));
            focus.standby = false;
        });
    }

    /// Another process has the slot, or no longer.
    pub(super) fn stands_by(&self, standby: bool) {
        self.focus.send_modify(|focus| focus.standby = standby);
    }

    /// A stream has begun, served by this process of the server; `None`: it has ended.
    pub(super) fn streams(&self, backend_pid: Option<i32>) {
        self.focus.send_modify(|focus| focus.stream = backend_pid);
    }

    /// Resolves when the server is shutting down and waits for us: let go of the stream.
    pub(super) async fn server_stopping(&self) {
        self.stopping.notified().await;
    }
}

/// See the module.
pub(super) struct Guard {
    focus: watch::Receiver<Focus>,
    stopping: Arc<Notify>,
    telemetry: Telemetry,
    stop: CancellationToken,
    judge: Judge,
    session: Option<(Arc<Connector>, Session)>,
    /// Until then a verdict is not carried out.
    spared_until: Option<Instant>,
    /// The last thing warned about, so that a lasting condition is said once.
    told: Option<&'static str>,
}

/// What comes of a slot that was condemned.
pub(super) enum Sentence {
    /// It is dropped; this is what to stop with.
    Dropped(Failure),
    /// It is not, for this reason.
    Spared(String),
}

impl Guard {
    /// A guard for `connector`, and the post at which attempts report to it.
    pub(super) fn new(
        connector: &Connector,
        telemetry: Telemetry,
        stop: CancellationToken,
    ) -> (Self, Post) {
        let (sender, focus) = watch::channel(Focus::default());
        let stopping = Arc::new(Notify::new());
        let guard = Self {
            focus,
            stopping: Arc::clone(&stopping),
            telemetry,
            stop,
            judge: Judge::new(connector.slot.guard.clone()),
            session: None,
            spared_until: None,
            told: None,
        };
        let post = Post {
            focus: sender,
            stopping,
        };
        (guard, post)
    }

    /// Watches until the slot has to go; says why. Cancel-safe.
    pub(super) async fn watch(&mut self) -> String {
        let mut looks = interval(SAMPLE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                // A new server or a new stream is looked at at once.
                changed = self.focus.changed() => {
                    if changed.is_err() {
                        // The attempts are over, and whoever polls us with them.
                        return std::future::pending().await;
                    }
                }
            }
            let focus = self.focus.borrow_and_update().clone();
            let Some(connector) = focus.connector.clone().filter(|_| !focus.standby) else {
                continue;
            };
            match self.sample(&connector).await {
                Ok(sample) => {
                    let verdict = self.judge(&connector, &focus, sample);
                    let spared = self.spared_until.is_some_and(|end| Instant::now() < end);
                    if let Some(reason) = verdict.condemned
                        && !spared
                        && !self.stop.is_cancelled()
                    {
                        return reason;
                    }
                }
                Err(failure) => self.blind(&focus, &failure),
            }
        }
    }

    /// Drops the slot. The attempt has been abandoned, but its walsender may still be there.
    pub(super) async fn execute(&mut self, connector: &Connector, reason: &str) -> Sentence {
        let focus = self.focus.borrow().clone();
        let name = &connector.slot.name;
        self.spared_until = Some(Instant::now() + RESPITE);
        let Some(pinned) = focus.connector else {
            return Sentence::Spared("its server is not known yet".to_owned());
        };
        let deadline = Instant::now() + RELEASE;
        loop {
            let outcome = self.try_to_drop(&pinned, focus.stream).await;
            match outcome {
                Ok(last) => return Sentence::Dropped(dropped(name, reason, &last)),
                Err(failure)
                    if failure.class() == Class::Retriable && Instant::now() < deadline => {}
                Err(failure) => return Sentence::Spared(failure.to_string()),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn try_to_drop(
        &mut self,
        connector: &Arc<Connector>,
        our_stream: Option<i32>,
    ) -> Result<Sampled, Failure> {
        let name = &connector.slot.name;
        let session = self.session(connector).await?;
        let last = session.sample(name).await?;
        let Some(slot) = &last.slot else {
            return Err(Failure::config(format!("slot {name:?} is gone already")));
        };
        match slot.active_pid {
            None => session.drop_slot(name).await.map(|()| last),
            pid if pid == our_stream => Err(Failure::retriable(format!(
                "slot {name:?} is still in use by our own stream"
            ))),
            Some(_) => Err(Failure::config(format!(
                "slot {name:?} is in use by another process"
            ))),
        }
    }

    async fn session(&mut self, connector: &Arc<Connector>) -> Result<&Session, Failure> {
        let usable = self
            .session
            .as_ref()
            .is_some_and(|(at, session)| Arc::ptr_eq(at, connector) && !session.is_closed());
        if !usable {
            let session = Session::connect(&connector.database, "guard").await?;
            self.session = Some((Arc::clone(connector), session));
        }
        match &self.session {
            Some((_, session)) => Ok(session),
            None => Err(Failure::internal("the session just opened is gone")),
        }
    }

    async fn sample(&mut self, connector: &Arc<Connector>) -> Result<Sampled, Failure> {
        let session = self.session(connector).await?;
        session.sample(&connector.slot.name).await
    }

    fn judge(&mut self, connector: &Connector, focus: &Focus, sample: Sampled) -> Verdict {
        let at = std::time::Instant::now();
        let slot = sample.slot.as_ref().filter(|slot| is_ours(slot, connector));
        let ours =
            slot.is_some_and(|slot| slot.active_pid.is_none() || slot.active_pid == focus.stream);
        let verdict = self.judge.look(slot, ours, at);
        self.telemetry.server(Some(ServerSample {
            wal_position: sample.wal_position,
            clock_us: sample.clock_us,
            wal_status: slot.and_then(|slot| slot.wal_status.clone()),
            safe_wal_size: slot.and_then(|slot| slot.safe_wal_size),
            retained_bytes: slot.and_then(|slot| slot.retained_bytes),
            invalidation_reason: slot.and_then(|slot| slot.invalidation_reason.clone()),
            inactive_seconds: slot
                .filter(|slot| slot.active_pid.is_none())
                .and_then(|slot| slot.inactive_seconds),
            seconds_to_limit: verdict.seconds_to_limit,
            at,
        }));
        self.telemetry
            .trouble(Trouble::Slot, verdict.unready.clone());
        match &verdict.warning {
            Some((kind, text)) => self.tell(kind, text),
            None => self.told = None,
        }
        verdict
    }

    /// The server cannot be asked.
    fn blind(&mut self, focus: &Focus, failure: &Failure) {
        self.session = None;
        self.telemetry.server(None);
        if failure.is_server_stopping() {
            self.stopping.notify_waiters();
        }
        // Without a stream the attempts say themselves what is wrong.
        match focus.stream {
            Some(_) => self.tell("blind", &failure.to_string()),
            None => debug!(error = %failure, "cannot look at the slot"),
        }
    }

    fn tell(&mut self, kind: &'static str, text: &str) {
        if self.told != Some(kind) {
            warn!("{text}");
            self.told = Some(kind);
        }
    }
}

/// A slot of another kind or database is none of our business.
fn is_ours(slot: &SlotState, connector: &Connector) -> bool {
    slot.plugin.as_deref() == Some("pgoutput")
        && slot.database.as_ref() == Some(&connector.database.dbname)
}

fn dropped(name: &str, reason: &str, last: &Sampled) -> Failure {
    let confirmed = last.slot.as_ref().and_then(|slot| slot.confirmed);
    let missing = match confirmed {
        Some(confirmed) => format!(
            "it was confirmed up to {confirmed}, the server is at {}, up to {} bytes of changes \
             will be missing",
            last.wal_position,
            last.wal_position.bytes_since(confirmed)
        ),
        None => format!("the server is at {}", last.wal_position),
    };
    Failure::gap(format!(
        "dropped slot {name:?} as slot.retained.wal.drop.bytes asks, so that the server does not \
         run out of disk: {reason}; {missing}; publish every row of the table again with \
         snapshot.mode=when_needed, or go on without these rows with \"walpost offsets reset\" and \
         snapshot.mode=no_data"
    ))
}
