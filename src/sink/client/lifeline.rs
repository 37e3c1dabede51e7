//! The way back for a client that was told of no broker.
//!
//! A broker that runs but that the controller has not (or no longer) admitted answers questions with
//! topics and without a single broker: after a restart, a long pause, or when the controllers were
//! away. librdkafka believes it and drops its connections; its own return to `bootstrap.servers` is
//! often lost in doing so, and then it has nobody left to ask, for ever and without a word (seen
//! with 2.12.1; <https://github.com/confluentinc/librdkafka/issues/5301>). So whoever waits for a
//! client looks after it.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::client::Client;

use crate::foreign;

/// How often whoever waits for a client looks after it.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// How long a client may know no broker before it is given `bootstrap.servers` again, and between
/// two times. The client keeps a copy each time, so it must not be often.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where one client began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifeline(Arc<State>);

#[derive(Debug, Default)]
struct State {
    servers: OnceLock<CString>,
    sight: Mutex<Sight>,
}

#[derive(Debug, Default)]
struct Sight {
    /// A broker was known, and nothing was said of its loss yet.
    known: bool,
    /// Since when no broker is known, or when the client was last helped.
    lost: Option<Instant>,
}

impl Lifeline {
    /// Ties it to `bootstrap.servers`.
    pub(super) fn tie(&self, servers: &str) {
        if let Ok(servers) = CString::new(servers) {
            // A context belongs to one client, so this happens once.
            let _ = self.0.servers.set(servers);
        }
    }

    /// Helps the client that it is of, if it needs help; to be called now and then while the client
    /// is waited for. Never blocks.
    pub(crate) fn hold<C: ClientContext>(&self, client: &Client<C>) {
        let sight = self.0.sight.lock();
        let mut sight = sight.unwrap_or_else(PoisonError::into_inner);
        if foreign::knows_the_cluster(client) {
            *sight = Sight {
                known: true,
                lost: None,
            };
            return;
        }
        let since = *sight.lost.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE
            && let Some(servers) = self.0.servers.get()
        {
            if std::mem::take(&mut sight.known) {
                tracing::warn!(
                    "kafka: the cluster has named no broker that is fit for work, asking \
                     bootstrap.servers again until it does"
                );
            }
            foreign::add_brokers(client, servers);
            sight.lost = Some(Instant::now());
        }
    }
}

/// A context of a client that can be helped.
pub(crate) trait Tied: ClientContext {
    fn lifeline(&self) -> &Lifeline;
}

/// [`Lifeline::hold`] with the client's own.
pub(crate) fn hold<C: Tied>(client: &Client<C>) {
    client.context().lifeline().hold(client);
}
