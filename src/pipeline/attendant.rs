//! Looks after the database beside the stream: runs the heartbeat query, notices when the
//! publication stops serving our tables. It never moves a position.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, warn};

use crate::config::Connector;
use crate::error::Failure;
use crate::observability::{Telemetry, Trouble};
use crate::source::Session;

/// How often the publication is looked at.
const PUBLICATION_INTERVAL: Duration = Duration::from_secs(10);

/// The running attendant; dropping it ends it.
pub(super) struct Attendant {
    beats: mpsc::Receiver<()>,
    _ends_with_this: DropGuard,
}

impl Attendant {
    /// Starts looking after `connector`'s database over a connection of its own.
    pub(super) fn start(connector: Arc<Connector>, telemetry: Telemetry) -> Self {
        let (sender, beats) = mpsc::channel(1);
        let ended = CancellationToken::new();
        let rounds = Rounds {
            connector,
            telemetry,
            beats: sender,
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
            beats,
            _ends_with_this: ended.drop_guard(),
        }
    }

    /// Resolves when a heartbeat record is due. Cancel-safe.
    ///
    /// # Errors
    /// The attendant has ended, which it never does by itself.
    pub(super) async fn heartbeat_due(&mut self) -> Result<(), Failure> {
        self.beats.recv().await.ok_or_else(|| {
            Failure::internal("the task that looks after the database has ended unexpectedly")
        })
    }
}

struct Rounds {
    connector: Arc<Connector>,
    telemetry: Telemetry,
    beats: mpsc::Sender<()>,
    session: Option<Session>,
    /// The last thing warned about, so that a lasting condition is said once.
    told: Option<String>,
}

impl Rounds {
    async fn run(mut self) {
        let mut publication =
            interval_at(Instant::now() + PUBLICATION_INTERVAL, PUBLICATION_INTERVAL);
        let pause = self.connector.heartbeat.interval;
        let mut beats = interval(pause.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                _ = beats.tick(), if pause.is_some() => self.beat().await,
                _ = publication.tick() => self.look_at_publication().await,
            };
            if let Err(failure) = outcome {
                self.session = None;
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

    async fn beat(&mut self) -> Result<(), Failure> {
        let connector = self.connector.clone();
        // A full channel means the previous beat is still waiting: one record is enough.
        let _ = self.beats.try_send(());
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
            None => {
                self.telemetry.trouble(Trouble::Publication, None);
                self.told = None;
            }
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
