//! The replication connection before it streams: creating the slot, starting the stream.

use std::time::Duration;

use super::connection::{Connection, Purpose, TextRow, unexpected_tag};
use super::identifier;
use super::sql::ServerIdentity;
use super::sqlstate::Doing;
use super::stream::Source;
use super::transaction::PartialTransaction;
use crate::config::{Database, Slot, TableFilter};
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};

/// Creating a slot waits for transactions that are open; say so when it takes longer than this.
const SLOT_PATIENCE: Duration = Duration::from_secs(10);

/// First version with `pg_logical_emit_message` in pgoutput.
const MESSAGES_SINCE: u32 = 14;

/// First version with slots that follow a failover.
const FAILOVER_SINCE: u32 = 17;

/// A replication connection that does not stream yet.
pub struct Replication {
    connection: Connection,
    database: Database,
}

/// A slot just created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSlot {
    /// Everything that commits from here on is in the slot, everything before in the snapshot.
    pub consistent_point: ResumePoint,
    /// Name of the exported snapshot; it lives as long as this connection does nothing else.
    pub snapshot_name: String,
}

/// What to stream, and from where.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The slot.
    pub slot: String,
    /// The publication.
    pub publication: String,
    /// Where to start; everything that commits at or after it arrives.
    pub at: Lsn,
    /// Ask for logical messages (Postgres 14 and later; ignored before).
    pub messages: bool,
    /// The tables that are ours.
    pub tables: TableFilter,
    /// Further options of START_REPLICATION.
    pub stream_params: Vec<(String, String)>,
    /// How often to tell the server that we are alive.
    pub status_interval: Duration,
    /// A transaction of which a part was delivered before.
    pub skip: Option<PartialTransaction>,
}

impl Replication {
    /// Connects with `replication=database` and fixes the session's settings.
    ///
    /// # Errors
    /// The server cannot be reached (retriable) or refuses us (configuration, about access).
    pub async fn connect(db: &Database) -> Result<Replication, Failure> {
        Ok(Self {
            connection: Connection::open(db, Purpose::Replication).await?,
            database: db.clone(),
        })
    }

    /// Creates the slot and exports the snapshot that fits it. Waits until every transaction that
    /// is open now has ended.
    ///
    /// # Errors
    /// The server refuses: `wal_level`, no slot free, a right, somebody was faster.
    pub async fn create_slot(&mut self, slot: &Slot) -> Result<CreatedSlot, Failure> {
        self.create(slot, "").await
    }

    /// The same, for a slot that only carries a snapshot and ends with this connection.
    ///
    /// # Errors
    /// As [`Replication::create_slot`].
    pub async fn create_temporary_slot(&mut self, slot: &Slot) -> Result<CreatedSlot, Failure> {
        let unsynchronised = Slot {
            failover: false,
            ..slot.clone()
        };
        self.create(&unsynchronised, "TEMPORARY ").await
    }

    async fn create(&mut self, slot: &Slot, lifetime: &str) -> Result<CreatedSlot, Failure> {
        let attempt = format!("create slot \"{}\"", slot.name);
        let failover = slot.failover && self.connection.server_major() >= FAILOVER_SINCE;
        if slot.failover && !failover {
            tracing::info!(
                slot = slot.name,
                "slot.failover has no effect before Postgres {FAILOVER_SINCE}"
            );
        }
        let options = if failover {
            "(SNAPSHOT 'export', FAILOVER true)"
        } else {
            "EXPORT_SNAPSHOT"
        };
        let sql = format!(
            "CREATE_REPLICATION_SLOT {} {lifetime}LOGICAL pgoutput {options}",
            identifier(&slot.name)
        );
        let creating = self.connection.query(&attempt, Doing::CreatingSlot, &sql);
        tokio::pin!(creating);
        let rows = loop {
            match tokio::time::timeout(SLOT_PATIENCE, &mut creating).await {
                Ok(rows) => break rows?,
                Err(_) => tracing::info!(
                    slot = slot.name,
                    "the slot is not created yet: the server waits for transactions that are \
                     still open"
                ),
            }
        };
        created(&attempt, rows)
    }

    /// Makes sure that this connection leads to the same server as the session that gave
    /// `server`.
    ///
    /// # Errors
    /// It does not (retriable).
    pub async fn expect(&mut self, server: &ServerIdentity) -> Result<(), Failure> {
        const ATTEMPT: &str = "identify the server of the replication connection";
        let rows = self
            .connection
            .query(ATTEMPT, Doing::Anything, "IDENTIFY_SYSTEM")
            .await?;
        let (system_id, timeline) = (first(&rows, 0), first(&rows, 1));
        // A standby follows timelines before its control file shows them.
        let same_timeline = server.in_recovery || timeline == Some(&*server.timeline.to_string());
        if system_id == Some(&*server.system_id) && same_timeline {
            return Ok(());
        }
        Err(Failure::retriable(format!(
            "{ATTEMPT}: it is system {}, timeline {}, but the session beside it is with system {}, \
             timeline {}; name the servers themselves in database.hostname",
            system_id.unwrap_or_default(),
            timeline.unwrap_or_default(),
            server.system_id,
            server.timeline
        )))
    }

    /// Where each timeline before `timeline` ended. Empty, with a warning, when the server has lost
    /// its history.
    pub async fn past_timelines(&mut self, timeline: u32) -> Vec<(u32, Lsn)> {
        let attempt = format!("read the history of timeline {timeline}");
        let sql = format!("TIMELINE_HISTORY {timeline}");
        match self.connection.query(&attempt, Doing::Anything, &sql).await {
            Ok(rows) => past_timelines(first(&rows, 1).unwrap_or_default()),
            Err(failure) => {
                tracing::warn!(
                    error = %failure,
                    "cannot check whether the promoted server had every commit of its predecessor"
                );
                Vec::new()
            }
        }
    }

    /// Ends the connection without having streamed.
    pub async fn close(self) {
        self.connection.terminate().await;
    }

    /// Starts streaming. An exported snapshot ends here.
    ///
    /// # Errors
    /// The slot is held by somebody else or cannot serve (retriable, gap).
    pub async fn start(mut self, options: StartOptions) -> Result<Source, Failure> {
        let (timeout, backend_pid) = self.walsender().await?;
        let attempt = format!("stream from slot \"{}\" at {}", options.slot, options.at);
        let sql = start_statement(&options, self.connection.server_major());
        self.connection.send_query(&sql).await?;
        loop {
            let frame = self.connection.frame().await?;
            match frame.tag {
                b'W' => {
                    return Ok(Source::new(
                        self.connection,
                        self.database,
                        options,
                        timeout,
                        backend_pid,
                    ));
                }
                b'E' => {
                    let error = self.connection.error(&frame)?;
                    return Err(error.into_failure(&attempt, Doing::Streaming));
                }
                b'N' | b'S' => {}
                tag => return Err(unexpected_tag(&attempt, tag)),
            }
        }
    }

    /// `wal_sender_timeout`, and the process that serves us.
    async fn walsender(&mut self) -> Result<(Option<Duration>, i32), Failure> {
        const ATTEMPT: &str = "read wal_sender_timeout";
        let sql = "SELECT setting, pg_catalog.pg_backend_pid() FROM pg_catalog.pg_settings \
                   WHERE name = 'wal_sender_timeout'";
        let rows = self.connection.query(ATTEMPT, Doing::Anything, sql).await?;
        let answer = |column| first(&rows, column).ok_or_else(|| Failure::internal(ATTEMPT));
        let milliseconds: u64 = super::sql::number(ATTEMPT, answer(0)?)?;
        let pid = super::sql::number(ATTEMPT, answer(1)?)?;
        let timeout = (milliseconds > 0).then(|| Duration::from_millis(milliseconds));
        Ok((timeout, pid))
    }
}

fn first(rows: &[TextRow], column: usize) -> Option<&str> {
    rows.first()?.get(column)?.as_deref()
}

/// A line of a history file is a timeline, the position at which it ended, and a reason.
fn past_timelines(history: &str) -> Vec<(u32, Lsn)> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    history.lines().filter_map(line).collect()
}

fn created(attempt: &str, rows: Vec<TextRow>) -> Result<CreatedSlot, Failure> {
    let missing = || Failure::internal(format!("{attempt}: the server's answer is incomplete"));
    let consistent_point = first(&rows, 1)
        .and_then(|text| text.parse().ok())
        .ok_or_else(missing)?;
    Ok(CreatedSlot {
        consistent_point: ResumePoint::slot_start(consistent_point),
        snapshot_name: first(&rows, 2).ok_or_else(missing)?.to_owned(),
    })
}

/// A string constant of the replication grammar, which knows no escapes but the doubled quote.
fn constant(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn start_statement(options: &StartOptions, server_major: u32) -> String {
    let mut parameters = vec![
        ("proto_version".to_owned(), "1".to_owned()),
        (
            "publication_names".to_owned(),
            identifier(&options.publication),
        ),
    ];
    if options.messages && server_major >= MESSAGES_SINCE {
        parameters.push(("messages".to_owned(), "true".to_owned()));
    }
    parameters.extend(options.stream_params.iter().cloned());
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{} {}", identifier(name), constant(value)))
        .collect();
    format!(
        "START_REPLICATION SLOT {} LOGICAL {} ({})",
        identifier(&options.slot),
        options.at,
        parameters.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_says_where_each_timeline_ended() {
        let history = "1\t0/1500840\tno recovery target specified\n\n2\t1/0\tbefore 2026\n";
        let ends = [(1, "0/1500840"), (2, "1/0")].map(|(past, end)| (past, end.parse().unwrap()));
        assert_eq!(past_timelines(history), ends);
        assert_eq!(past_timelines("# a comment\n"), []);
    }

    #[test]
    fn names_with_quotes_survive_the_start_statement() {
        let options = StartOptions {
            slot: "s1".to_owned(),
            publication: "it's \"p\"".to_owned(),
            at: "16/B374D848".parse().unwrap(),
            messages: true,
            tables: TableFilter::default(),
            stream_params: vec![("origin".to_owned(), "any".to_owned())],
            status_interval: Duration::from_secs(10),
            skip: None,
        };
        assert_eq!(
            start_statement(&options, 15),
            "START_REPLICATION SLOT \"s1\" LOGICAL 16/B374D848 (\"proto_version\" '1', \
             \"publication_names\" '\"it''s \"\"p\"\"\"', \"messages\" 'true', \"origin\" 'any')"
        );
        assert!(!start_statement(&options, 13).contains("messages"));
    }
}
