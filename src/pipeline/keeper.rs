//! Stores delivered positions, one at a time, without holding up the stream.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::committer::Committer;
use crate::error::Failure;
use crate::offset::{OffsetStore, Stored};
use crate::sink::Delivered;

/// How positions become durable.
pub(super) enum Positions {
    /// Each by itself, once Kafka has acknowledged what is before it.
    Kept(Box<Keeper>),
    /// In one Kafka transaction with what is before it.
    Committed(Box<Committer>),
}

impl Positions {
    /// A newer position was delivered.
    pub(super) fn offer(&mut self, delivered: Delivered) {
        match self {
            Self::Kept(keeper) => keeper.offer(delivered),
            // The sink gives none out in transactions.
            Self::Committed(_) => {}
        }
    }

    /// Resolves when a position that is kept by itself has become durable. Cancel-safe.
    pub(super) async fn stored(&mut self) -> Result<Stored, Failure> {
        match self {
            Self::Kept(keeper) => keeper.stored().await,
            Self::Committed(_) => std::future::pending().await,
        }
    }

    /// Ends the pause before the next write; whether there is something left to write.
    pub(super) fn hurry(&mut self) -> bool {
        match self {
            Self::Kept(keeper) => {
                keeper.hurry();
                !keeper.is_idle()
            }
            Self::Committed(_) => false,
        }
    }

    pub(super) fn committer(&self) -> Option<&Committer> {
        match self {
            Self::Kept(_) => None,
            Self::Committed(committer) => Some(committer),
        }
    }

    pub(super) fn committer_mut(&mut self) -> Option<&mut Committer> {
        match self {
            Self::Kept(_) => None,
            Self::Committed(committer) => Some(committer),
        }
    }
}

type Storing = Pin<Box<dyn Future<Output = (OffsetStore, Result<Stored, Failure>)>>>;

enum State {
    Ready(OffsetStore),
    Storing(Storing),
    /// Only while the store changes hands inside [`Keeper::begin`].
    Gone,
}

/// Keeps the newest delivered position and writes it at a bounded rate.
pub(super) struct Keeper {
    state: State,
    waiting: Option<Delivered>,
    last: Option<Instant>,
    interval: Duration,
}

/// A position behind which no commit stands, on a quiet table, is worth a write this often.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

impl Keeper {
    /// Stores at most once per `interval`; the first position at once.
    pub(super) fn new(store: OffsetStore, interval: Duration) -> Self {
        Self {
            state: State::Ready(store),
            waiting: None,
            last: None,
            interval,
        }
    }

    /// Takes a newer position; an older one that is still waiting is covered by it.
    pub(super) fn offer(&mut self, delivered: Delivered) {
        self.waiting = Some(delivered);
    }

    /// Whether nothing is waiting and nothing is being written.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_none() && !matches!(self.state, State::Storing(_))
    }

    /// Resolves when a position has become durable. Cancel-safe: a write under way goes on.
    pub(super) async fn stored(&mut self) -> Result<Stored, Failure> {
        loop {
            if let State::Storing(storing) = &mut self.state {
                let (store, result) = storing.await;
                self.state = State::Ready(store);
                return result;
            }
            let Some(waiting) = &self.waiting else {
                return std::future::pending().await;
            };
            let committed = waiting.resume_point().commit().is_some();
            let interval = if committed {
                self.interval
            } else {
                self.interval.max(IDLE_INTERVAL)
            };
            if let Some(last) = self.last {
                tokio::time::sleep_until(last + interval).await;
            }
            self.begin();
        }
    }

    /// Ends the pause before the next write, for the last one of a run.
    pub(super) fn hurry(&mut self) {
        self.last = None;
    }

    fn begin(&mut self) {
        let Some(delivered) = self.waiting.take() else {
            return;
        };
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Ready(mut store) => {
                self.last = Some(Instant::now());
                State::Storing(Box::pin(async move {
                    let result = store.store(delivered).await;
                    (store, result)
                }))
            }
            other => {
                self.waiting = Some(delivered);
                other
            }
        };
    }
}
