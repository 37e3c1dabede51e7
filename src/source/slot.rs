//! The replication slot as the server's catalog shows it.

use serde_json::Value;

use super::literal;
use super::sql::{Session, number};
use crate::error::Failure;
use crate::lsn::Lsn;

/// A slot as the server describes it. What this server's version does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotState {
    /// Output plugin; `None` for a physical slot.
    pub plugin: Option<String>,
    /// Database it belongs to; `None` for a physical slot.
    pub database: Option<String>,
    /// Process that streams from it.
    pub active_pid: Option<i32>,
    /// Application and address of that process, as far as our rights show them.
    pub active_client: Option<String>,
    /// `confirmed_flush_lsn`.
    pub confirmed: Option<Lsn>,
    /// `restart_lsn`; `None` also when its WAL is lost.
    pub restart: Option<Lsn>,
    /// `wal_status`: `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: Option<String>,
    /// Bytes that may still be written before the slot is in danger of losing WAL.
    pub safe_wal_size: Option<i64>,
    /// Bytes of WAL that the slot keeps on disk.
    pub retained_bytes: Option<u64>,
    /// Why it was invalidated (17 and later; on 16 a recovery conflict).
    pub invalidation_reason: Option<String>,
    /// For how many seconds nobody has used it, by the server's clock (17 and later; `None` also
    /// while it is in use).
    pub inactive_seconds: Option<u64>,
    /// Whether it is synchronised to standbys (17 and later).
    pub failover: Option<bool>,
    /// Whether it is the copy of a primary's slot on a standby, which serves nobody before the
    /// standby is promoted (17 and later).
    pub synced: bool,
    /// Whether it dies with its session.
    pub temporary: bool,
    /// Whether prepared transactions come through it when they are prepared, not when they commit.
    pub two_phase: bool,
}

/// Where the server and the slot stand, for lag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSample {
    /// Current write position; on a standby the replay position.
    pub wal_position: Lsn,
    /// The server's clock, microseconds since the Unix epoch.
    pub clock_us: Option<i64>,
    /// The slot; `None` when there is none.
    pub slot: Option<SlotState>,
}

/// The row of the slot as JSON, so that columns which a version lacks are simply absent.
const SLOT: &str = "SELECT to_jsonb(s)::text, \
    concat_ws(' from ', nullif(a.application_name, ''), a.client_addr::text), \
    pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
    ELSE pg_current_wal_lsn() END, s.restart_lsn), \
    extract(epoch FROM clock_timestamp() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::bigint \
    FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid \
    WHERE s.slot_name = ";

const POSITION: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
    ELSE pg_current_wal_lsn() END, \
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

impl Session {
    /// The slot's state, or `None` when there is no such slot.
    ///
    /// # Errors
    /// The query fails.
    pub async fn slot(&self, name: &str) -> Result<Option<SlotState>, Failure> {
        let attempt = format!("look up slot \"{name}\"");
        let rows = self
            .rows(&attempt, &format!("{SLOT}{}", literal(name)))
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let slot: Value = serde_json::from_str(row.get(0).unwrap_or_default())
            .map_err(|error| Failure::internal(attempt.as_str()).caused_by(error))?;
        let client = row.get(1).filter(|client| !client.is_empty());
        Ok(Some(SlotState {
            retained_bytes: row
                .get(2)
                .and_then(|bytes| bytes.parse::<i128>().ok())
                // A slot just created can be ahead of the position read a moment before.
                .map(|bytes| u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)),
            inactive_seconds: row
                .get(3)
                .and_then(|seconds| seconds.parse::<i64>().ok())
                .map(|seconds| u64::try_from(seconds).unwrap_or(0)),
            ..state(&slot, client)
        }))
    }

    /// Where server and slot stand now.
    ///
    /// # Errors
    /// A query fails.
    pub async fn sample(&self, slot: &str) -> Result<ServerSample, Failure> {
        const ATTEMPT: &str = "read the server's position";
        // The position first: measured later, the slot can only look better than it is.
        let row = self.row(ATTEMPT, POSITION).await?;
        Ok(ServerSample {
            wal_position: number(ATTEMPT, row.get(0).unwrap_or_default())?,
            clock_us: row.get(1).and_then(|text| text.parse().ok()),
            slot: self.slot(slot).await?,
        })
    }

    /// Takes the lock of whoever sets up the slot, for as long as this session lives; `false` when
    /// another session has it.
    ///
    /// # Errors
    /// The query fails.
    pub async fn try_lock(&self, slot: &str) -> Result<bool, Failure> {
        const ATTEMPT: &str = "take the lock of the slot's set-up";
        let sql = format!(
            "SELECT pg_try_advisory_lock(hashtext('walpost'), hashtext({}))",
            literal(slot)
        );
        Ok(self.row(ATTEMPT, &sql).await?.get(0) == Some("t"))
    }

    /// Takes the lock of whoever replays the dead letters of `connector`, for as long as this session
    /// lives; `false` when another session has it.
    ///
    /// # Errors
    /// The query fails.
    pub async fn try_lock_letters(&self, connector: &str) -> Result<bool, Failure> {
        let sql = format!(
            "SELECT pg_try_advisory_lock(hashtext('walpost dead letters'), hashtext({}))",
            literal(connector)
        );
        let row = self.row("take the lock of a replay", &sql).await?;
        Ok(row.get(0) == Some("t"))
    }

    /// Gives back the lock that [`Session::try_lock`] took.
    ///
    /// # Errors
    /// The query fails.
    pub async fn unlock(&self, slot: &str) -> Result<(), Failure> {
        let sql = format!(
            "SELECT pg_advisory_unlock(hashtext('walpost'), hashtext({}))",
            literal(slot)
        );
        self.row("give back the lock of the slot's set-up", &sql)
            .await?;
        Ok(())
    }

    /// Drops the slot.
    ///
    /// # Errors
    /// It does not exist, is active, or the right is missing.
    pub async fn drop_slot(&self, name: &str) -> Result<(), Failure> {
        let sql = format!("SELECT pg_drop_replication_slot({})", literal(name));
        self.run(&format!("drop slot \"{name}\""), &sql).await
    }

    /// Moves the slot forward without reading what it passes over.
    ///
    /// # Errors
    /// The slot is ahead of `to`, active, or `to` is beyond the server's position.
    pub async fn advance_slot(&self, name: &str, to: Lsn) -> Result<(), Failure> {
        let sql = format!(
            "SELECT pg_replication_slot_advance({}, '{to}')",
            literal(name)
        );
        self.run(&format!("advance slot \"{name}\" to {to}"), &sql)
            .await
    }
}

fn state(slot: &Value, client: Option<&str>) -> SlotState {
    let text = |name: &str| slot.get(name).and_then(Value::as_str).map(str::to_owned);
    let position = |name: &str| text(name).and_then(|text| text.parse().ok());
    let flag = |name: &str| slot.get(name).and_then(Value::as_bool);
    let conflict =
        || (flag("conflicting") == Some(true)).then(|| "conflict with recovery".to_owned());
    SlotState {
        plugin: text("plugin"),
        database: text("database"),
        active_pid: slot
            .get("active_pid")
            .and_then(Value::as_i64)
            .and_then(|pid| i32::try_from(pid).ok()),
        active_client: client.map(str::to_owned),
        confirmed: position("confirmed_flush_lsn"),
        restart: position("restart_lsn"),
        wal_status: text("wal_status"),
        safe_wal_size: slot.get("safe_wal_size").and_then(Value::as_i64),
        retained_bytes: None,
        inactive_seconds: None,
        invalidation_reason: text("invalidation_reason").or_else(conflict),
        failover: flag("failover"),
        synced: flag("synced").unwrap_or(false),
        temporary: flag("temporary").unwrap_or(false),
        two_phase: flag("two_phase").unwrap_or(false),
    }
}
