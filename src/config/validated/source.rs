//! Where events come from: server, slot, publication, tables, snapshot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::hosts::{Host, SessionTarget};
use crate::config::secret::Secret;

/// How to reach Postgres.
#[derive(Debug, Clone)]
pub struct Database {
    /// `database.hostname` and `database.port`, in the order in which they are tried.
    pub hosts: Vec<Host>,
    /// `database.target.session.attrs`.
    pub target: SessionTarget,
    /// `database.user`.
    pub user: String,
    /// `database.password`.
    pub password: Option<Secret>,
    /// `database.dbname`.
    pub dbname: String,
    /// TLS.
    pub tls: Tls,
    /// `database.tcpKeepAlive`.
    pub tcp_keepalive: bool,
    /// `database.initial.statements`, split.
    pub initial_statements: Vec<String>,
    /// `database.query.timeout.ms`; zero means none.
    pub query_timeout: Duration,
    /// `connection.validation.timeout.ms`: bound on one attempt to connect.
    pub connect_timeout: Duration,
}

/// `database.ssl*`.
#[derive(Debug, Clone)]
pub struct Tls {
    /// `database.sslmode`.
    pub mode: SslMode,
    /// `database.sslrootcert`: PEM.
    pub root_cert: Option<PathBuf>,
    /// `database.sslcert`: PEM.
    pub cert: Option<PathBuf>,
    /// `database.sslkey`: PEM or PKCS#8 DER.
    pub key: Option<PathBuf>,
}

/// libpq's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// Plain first, TLS if the server insists.
    Allow,
    /// TLS first, plain if the server has none.
    Prefer,
    /// TLS, certificate unchecked.
    Require,
    /// TLS, certificate chain checked.
    VerifyCa,
    /// TLS, chain and host name checked.
    VerifyFull,
}

/// The replication slot.
#[derive(Debug, Clone)]
pub struct Slot {
    /// `slot.name`, `[a-z0-9_]{1,63}`.
    pub name: String,
    /// `slot.failover` (Postgres 17 and later).
    pub failover: bool,
    /// `slot.drop.on.stop`.
    pub drop_on_stop: bool,
    /// `slot.stream.params`: further options of START_REPLICATION.
    pub stream_params: Vec<(String, String)>,
    /// `slot.retained.wal.*`.
    pub guard: SlotGuard,
}

/// What to do when the slot holds back too much WAL: bytes from which on, `None` is never.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotGuard {
    /// `slot.retained.wal.warn.bytes`: say so.
    pub warn: Option<u64>,
    /// `slot.retained.wal.unready.bytes`: fail the readiness probe.
    pub unready: Option<u64>,
    /// `slot.retained.wal.drop.bytes`: drop the slot and stop.
    pub drop: Option<u64>,
    /// `slot.retained.wal.drop.after.ms`: for how long it must not have come down before that.
    pub drop_after: Duration,
}

/// The publication.
#[derive(Debug, Clone)]
pub struct Publication {
    /// `publication.name`.
    pub name: String,
    /// `publication.autocreate.mode`.
    pub autocreate: Autocreate,
    /// `publish.via.partition.root`.
    pub via_partition_root: bool,
    /// `publication.mismatch.strategy` is `warn`: run although it cannot deliver.
    pub tolerate_mismatch: bool,
}

/// `publication.autocreate.mode`. All modes that create do so for the outbox tables only; see
/// docs/differences-from-debezium.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autocreate {
    /// Create when missing; for every table of the database only on Debezium's explicit word.
    AllTables,
    /// Create when missing for the included tables, and keep the table set in step.
    Filtered,
    /// Create an empty publication (logical messages need one).
    NoTables,
    /// Never create.
    Disabled,
}

/// Rows that existed before the slot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// `snapshot.mode`.
    pub mode: SnapshotMode,
    /// `snapshot.existing.slot` is `snapshot`: a slot that somebody else made is no reason to leave
    /// existing rows out.
    pub over_existing_slot: bool,
    /// `snapshot.select.statement.overrides.<schema.table>`.
    pub select_overrides: BTreeMap<String, String>,
}

/// `snapshot.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Existing rows first when there is neither slot nor stored position.
    Initial,
    /// Existing rows, then stop.
    InitialOnly,
    /// Only what commits from now on.
    NoData,
    /// As `Initial`, and again when the stored position can no longer be served.
    WhenNeeded,
    /// Existing rows first at every start.
    Always,
}

/// Heartbeats.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// `heartbeat.interval.ms`; `None` is off.
    pub interval: Option<Duration>,
    /// `heartbeat.action.query`.
    pub action_query: Option<String>,
    /// Topic of heartbeat records.
    pub topic: String,
}

/// `offset.mismatch.strategy`: what to do when stored position and slot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetMismatch {
    /// Stop (our default).
    Stop,
    /// Debezium's default: do not look.
    NoValidation,
    /// The stored position wins; the slot is advanced to it.
    TrustOffset,
    /// The slot wins.
    TrustSlot,
    /// The greater of the two wins.
    TrustGreaterLsn,
}
