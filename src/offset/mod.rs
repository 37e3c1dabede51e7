//! The position that survives a restart.
//!
//! Owns: the offset stores and the start-up decision. Never: Kafka's data topics, the slot.

mod file;
mod gap;
mod kafka;
mod startup;
mod value;

use serde_json::{Map, Value};

use file::FileStore;
use kafka::KafkaStore;
pub use startup::{Decision, Policy, ServerFacts, SlotFacts, SlotFate, decide};
pub use value::{OffsetIdentity, Partial, SnapshotState, StoredOffset};

use crate::config::{Connector, OffsetStorage, Worker};
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};
use crate::sink::{Committed, Delivered, PositionRecord};

/// Proof that a position is durable. Only this module makes one, from a [`crate::sink::Delivered`]
/// that was written, or from a [`crate::sink::Committed`], which it was written with.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored(ResumePoint);

impl Stored {
    /// The durable position.
    pub fn resume_point(&self) -> ResumePoint {
        self.0
    }
}

impl Stored {
    /// The position that was committed with the events before it; `None` when the transaction said
    /// none, as those inside a snapshot.
    pub fn with(committed: &Committed) -> Option<Self> {
        committed.resume_point().map(Stored)
    }
}

/// Where one connector's position is kept.
pub struct OffsetStore {
    connector: String,
    identity: Option<OffsetIdentity>,
    backend: Backend,
}

enum Backend {
    Kafka(Box<KafkaStore>),
    File(FileStore),
}

impl OffsetStore {
    /// Opens the store that worker and connector name; an offsets topic is created when missing.
    ///
    /// # Errors
    /// `Config` when it cannot be used as configured, `Gap` when a file is damaged, `Retriable`
    /// when no broker answers in time.
    pub async fn open(worker: &Worker, connector: &Connector) -> Result<Self, Failure> {
        let own = connector.own_offset_topic.is_some();
        let backend = match &worker.offsets {
            OffsetStorage::File(path) if !own => {
                Backend::File(FileStore::open(path, connector).await?)
            }
            OffsetStorage::File(_) => {
                Backend::Kafka(Box::new(KafkaStore::open(worker, None, connector).await?))
            }
            OffsetStorage::Topic(topic) => Backend::Kafka(Box::new(
                KafkaStore::open(worker, Some(topic), connector).await?,
            )),
        };
        Ok(Self {
            connector: connector.name.clone(),
            identity: None,
            backend,
        })
    }

    /// Opens the store without creating anything; `None` when there is none yet.
    ///
    /// # Errors
    /// As [`OffsetStore::open`].
    pub async fn open_existing(
        worker: &Worker,
        connector: &Connector,
    ) -> Result<Option<Self>, Failure> {
        let topic = match &worker.offsets {
            OffsetStorage::File(path) if connector.own_offset_topic.is_none() => {
                return if path.exists() {
                    Self::open(worker, connector).await.map(Some)
                } else {
                    Ok(None)
                };
            }
            OffsetStorage::File(_) => None,
            OffsetStorage::Topic(topic) => Some(topic),
        };
        let store = KafkaStore::open_existing(worker, topic, connector).await?;
        Ok(store.map(|store| Self {
            connector: connector.name.clone(),
            identity: None,
            backend: Backend::Kafka(Box::new(store)),
        }))
    }

    /// Where positions would be stored, and whether that will do. Creates nothing.
    ///
    /// # Errors
    /// As [`OffsetStore::open`].
    pub async fn survey(worker: &Worker, connector: &Connector) -> Result<String, Failure> {
        let topic = match &worker.offsets {
            OffsetStorage::File(path) if connector.own_offset_topic.is_none() => {
                return file::survey(path);
            }
            OffsetStorage::File(_) => None,
            OffsetStorage::Topic(topic) => Some(topic),
        };
        KafkaStore::survey(worker, topic, connector).await
    }

    /// Whose position is stored from now on: written beside it, checked at the next start.
    pub fn identify(&mut self, identity: OffsetIdentity) {
        self.identity = Some(identity);
    }

    /// The position of an earlier run.
    ///
    /// # Errors
    /// `Gap` when there is one that cannot be understood.
    pub async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        let members = match &self.backend {
            Backend::Kafka(store) => store.read().await?,
            Backend::File(store) => store.read().await?,
        };
        members
            .map(|members| {
                StoredOffset::decode(&members).map_err(|problem| {
                    Failure::gap(format!(
                        "the stored position of {:?} in {} cannot be used: {problem}; set it with \
                         \"walpost offsets set\" or forget it with \"walpost offsets reset\"",
                        self.connector,
                        self.describe()
                    ))
                })
            })
            .transpose()
    }

    /// Makes a delivered position durable.
    ///
    /// # Errors
    /// Nothing is known of the position then; the slot must not hear of it.
    pub async fn store(&mut self, delivered: Delivered) -> Result<Stored, Failure> {
        let at = delivered.resume_point();
        self.write(Some(value::encode(at, self.identity.as_ref())))
            .await?;
        Ok(Stored(at))
    }

    /// The record of a position, to be committed together with the events before it: `at`, and what
    /// of the transaction after it is among them.
    ///
    /// # Errors
    /// `Config` when positions are kept in a file.
    pub fn record(
        &self,
        at: ResumePoint,
        partial: Option<Partial>,
    ) -> Result<PositionRecord, Failure> {
        let identity = self.identity.as_ref();
        let members = match partial {
            Some(partial) => value::encode_partial(at, partial, identity),
            None => value::encode(at, identity),
        };
        self.in_transaction(members, Some(at))
    }

    /// The record that a snapshot has begun and not ended.
    ///
    /// # Errors
    /// As [`OffsetStore::record`].
    pub fn snapshot_record(&self) -> Result<PositionRecord, Failure> {
        self.in_transaction(value::encode_unfinished(self.identity.as_ref()), None)
    }

    fn in_transaction(
        &self,
        members: Map<String, Value>,
        at: Option<ResumePoint>,
    ) -> Result<PositionRecord, Failure> {
        match &self.backend {
            Backend::Kafka(store) => Ok(store.record(members, at)),
            Backend::File(_) => Err(Failure::config(
                "exactly once needs the positions in a topic: a file is no part of a Kafka \
                 transaction; set offset.storage.topic",
            )),
        }
    }

    /// Notes that a snapshot begins, before its slot is created, so that a crash during it is seen.
    /// The first [`OffsetStore::store`] after it ends the note.
    ///
    /// # Errors
    /// The snapshot must not begin.
    pub async fn begin_snapshot(&mut self) -> Result<(), Failure> {
        self.write(Some(value::encode_unfinished(self.identity.as_ref())))
            .await
    }

    /// Forgets the position.
    ///
    /// # Errors
    /// It may still be there.
    pub async fn reset(&mut self) -> Result<(), Failure> {
        match &self.backend {
            Backend::Kafka(store) => store.forget().await,
            Backend::File(store) => store.write(None).await,
        }
    }

    /// Sets the position by an operator's hand.
    ///
    /// # Errors
    /// It may not be set.
    pub async fn set(&mut self, at: Lsn) -> Result<(), Failure> {
        let at = ResumePoint::restored(at, None);
        self.write(Some(value::encode(at, self.identity.as_ref())))
            .await
    }

    /// Where it is kept, for messages: a topic or a file.
    pub fn describe(&self) -> String {
        match &self.backend {
            Backend::Kafka(store) => store.describe(),
            Backend::File(store) => store.describe(),
        }
    }

    async fn write(&self, members: Option<Map<String, Value>>) -> Result<(), Failure> {
        match &self.backend {
            Backend::Kafka(store) => store.write(members).await,
            Backend::File(store) => store.write(members).await,
        }
    }
}
