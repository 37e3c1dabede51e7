//! Looks after the database beside the stream: samples the server for the lag, runs the heartbeat
//! query, notices when the publication stops serving our tables. It never moves a position.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, warn};

use crate::config::Connector;
use crate::error::Failure;
use crate::observability::{SAMPLE_INTERVAL, ServerSample, Telemetry, Trouble};
use crate::source::Session;

/// How often the publication is looked at.
const PUBLICATION_INTERVAL: Duration = Duration::from_secs(30);

/// What the attendant asks of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A heartbeat record is due.
    Heartbeat,
    /// The server is shutting down and waits for us: let go of the stream.
    ServerStopping,
}

/// The running attendant; dropping it ends it.
pub(super) struct Attendant {
    calls: mpsc::Receiver<Call>,
    _ends_with_this: DropGuard,
}

impl Attendant {
    /// Starts looking after `connector`'s database over a connection of its own.
    pub(super) fn start(connector: Arc<Connector>, telemetry: Telemetry) -> Self {
        let (sender, calls) = mpsc::channel(2);
        let ended = CancellationToken::new();
        let rounds = Rounds {
            connector,
            telemetry,
            calls: sender,
            session: None,
            told: None,
        };
        let until = ended.clone();
        tokio::spawn(
            async move {
                tokio::select! {
                    () = until.cancelled() => {}
                    () = rounds.run() => {}
                }
            }
            .in_current_span(),
        );
        Self {
            calls,
            _ends_with_this: ended.drop_guard(),
        }
    }

    /// Resolves when there is something for the loop to do. Cancel-safe.
    ///
    /// # Errors
    /// The attendant has ended, which it never does by itself.
    pub(super) async fn call(&mut self) -> Result<Call, Failure> {
        self.calls.recv().await.ok_or_else(|| {
            Failure::internal("the task that looks after the database has ended unexpectedly")
        })
    }
}

struct Rounds {
    connector: Arc<Connector>,
    telemetry: Telemetry,
    calls: mpsc::Sender<Call>,
    session: Option<Session>,
    /// The last thing warned about, so that a lasting condition is said once.
    told: Option<String>,
}

impl Rounds {
    async fn run(mut self) {
        let mut samples = interval(SAMPLE_INTERVAL);
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut publication =
            interval_at(Instant::now() + PUBLICATION_INTERVAL, PUBLICATION_INTERVAL);
        let pause = self.connector.heartbeat.interval;
        let mut beats = interval(pause.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                _ = samples.tick() => self.sample().await,
                _ = beats.tick(), if pause.is_some() => self.beat().await,
                _ = publication.tick() => self.look_at_publication().await,
            };
            if let Err(failure) = outcome {
                self.session = None;
                self.telemetry.server(None);
                if failure.is_server_stopping() {
                    let _ = self.calls.try_send(Call::ServerStopping);
                }
                self.tell(failure.to_string());
            }
        }
    }

    async fn session(&mut self) -> Result<&Session, Failure> {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            self.session = Some(Session::connect(&self.connector.database, "attendant").await?);
        }
        self.session
            .as_ref()
            .ok_or_else(|| Failure::internal("the session just opened is gone"))
    }

    async fn sample(&mut self) -> Result<(), Failure> {
        let connector = self.connector.clone();
        let sample = self.session().await?.sample(&connector.slot.name).await?;
        let slot = sample.slot;
        let status = slot.as_ref().and_then(|slot| slot.wal_status.clone());
        self.telemetry.server(Some(ServerSample {
            wal_position: sample.wal_position,
            clock_us: sample.clock_us,
            wal_status: status.clone(),
            safe_wal_size: slot.as_ref().and_then(|slot| slot.safe_wal_size),
            retained_bytes: slot.as_ref().and_then(|slot| slot.retained_bytes),
            at: std::time::Instant::now(),
        }));
        match status.as_deref() {
            Some("extended") => self.tell(
                "the slot holds back more wal than max_wal_size; deliver faster or raise it".into(),
            ),
            Some(status @ ("unreserved" | "lost")) => self.tell(format!(
                "wal_status of the slot is {status}: the server is about to give it up, or has; \
                 raise max_slot_wal_keep_size"
            )),
            _ => self.told = None,
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), Failure> {
        let connector = self.connector.clone();
        // A full channel means the previous beat is still waiting: one record is enough.
        let _ = self.calls.try_send(Call::Heartbeat);
        let Some(query) = &connector.heartbeat.action_query else {
            return Ok(());
        };
        self.session()
            .await?
            .execute(query)
            .await
            .map_err(|failure| {
                Failure::new(failure.class(), "run heartbeat.action.query").caused_by(failure)
            })
    }

    async fn look_at_publication(&mut self) -> Result<(), Failure> {
        let connector = self.connector.clone();
        match self
            .session()
            .await?
            .publication_trouble(&connector)
            .await?
        {
            Some(trouble) => {
                self.telemetry
                    .trouble(Trouble::Publication, Some(trouble.clone()));
                self.tell(trouble);
            }
            None => self.telemetry.trouble(Trouble::Publication, None),
        }
        Ok(())
    }

    fn tell(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            warn!("{text}");
            self.told = Some(text);
        }
    }
}
