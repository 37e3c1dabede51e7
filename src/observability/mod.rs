//! Logs, metrics, health and status: what an operator sees from outside.
//!
//! Owns: the log format, the names of all metrics, the HTTP server, the verdicts "live" and
//! "ready". It is told through [`Telemetry`] and never asks: nothing here touches Postgres, Kafka
//! or the loop, so a probe answers at once whatever else is stuck. Never: a payload, a key, a
//! secret; no function here takes one.

mod board;
mod clock;
mod exposition;
mod health;
mod http;
mod logging;
mod metrics;
mod probe;
mod status;
mod telemetry;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

pub use board::Stage;
pub use logging::{LogFormat, init_logging};
pub use probe::probe;
pub use telemetry::{
    About, Progress, SAMPLE_INTERVAL, ServerSample, SnapshotView, State, Telemetry, TopicCounter,
    Trouble,
};

use crate::config::Listener;
use crate::error::Failure;
use clock::Now;
use telemetry::Reporter;

/// What the process shows of itself: its connectors and when it started. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Observability {
    process: Arc<Process>,
}

#[derive(Debug)]
struct Process {
    started: Instant,
    started_unix_us: i64,
    connectors: Mutex<Vec<Arc<Reporter>>>,
}

impl Default for Observability {
    fn default() -> Self {
        Self::new()
    }
}

impl Observability {
    /// No connectors yet. The process counts as started now.
    pub fn new() -> Self {
        let now = Now::read();
        Self {
            process: Arc::new(Process {
                started: now.monotonic,
                started_unix_us: now.unix_us,
                connectors: Mutex::default(),
            }),
        }
    }

    /// Makes the connector visible and returns the handle through which it reports.
    pub fn connector(&self, about: About) -> Telemetry {
        let reporter = Arc::new(Reporter::new(about, Now::read()));
        self.process
            .connectors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&reporter));
        Telemetry::new(reporter)
    }

    /// Binds every listener and serves metrics, health and status until `shutdown`, on a thread of
    /// its own, so that a stuck loop cannot keep a probe from saying so. Returns the addresses.
    ///
    /// # Errors
    /// `Config`: a host does not resolve, or an address is taken or not ours.
    pub async fn serve(
        &self,
        listeners: &[Listener],
        shutdown: CancellationToken,
    ) -> Result<Vec<SocketAddr>, Failure> {
        http::serve(self.clone(), listeners, shutdown).await
    }

    fn connectors(&self) -> Vec<Arc<Reporter>> {
        self.process
            .connectors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
