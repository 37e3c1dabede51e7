//! The running stream: events out, status updates in.
//!
//! Four positions meet here and stay apart: `received` is the newest the server has mentioned,
//! `confirmed` is what was stored and what the slot was told; what is delivered and what is stored
//! others know. Only [`Source::confirm`] moves `confirmed`, and only a [`Stored`] moves it.

mod events;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::time::Instant;

use super::connection::Connection;
use super::partitions::Partitions;
use super::protocol::status_update;
use super::relation::Relations;
use super::replication::StartOptions;
use super::row::{Event, Span};
use super::transaction::{PartialTransaction, Transactions};
use crate::config::Database;
use crate::error::Failure;
use crate::lsn::{Lsn, ResumePoint};
use crate::offset::Stored;

/// A server with `wal_sender_timeout` off gets as long as one with its default to answer.
const DEFAULT_SENDER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a polite end of the stream may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A slot being streamed.
pub struct Source {
    connection: Connection,
    backend_pid: i32,
    /// `stream from slot "x"`, for messages.
    attempt: String,
    publication: String,
    relations: Relations,
    transactions: Transactions,
    partitions: Partitions,
    /// Spans of the message being handled; reused.
    spans: Vec<Span>,
    /// Tables of a TRUNCATE still to be handed out, last first.
    truncated: Vec<u32>,
    position: Position,
    status: Status,
}

/// Positions, all in the server's WAL.
#[derive(Debug)]
struct Position {
    received: Lsn,
    confirmed: Option<Lsn>,
    /// The last resume point handed out.
    resumable: Lsn,
    /// LSN of the change being handled.
    change: Lsn,
}

/// The clock of status updates, and of silence.
#[derive(Debug)]
struct Status {
    interval: Duration,
    due: Instant,
    /// Something arrived since the last report.
    heard: bool,
    /// How long the server may take to answer when asked.
    patience: Duration,
    /// When an answer is due, once one was asked for.
    answer_by: Option<Instant>,
}

impl Source {
    pub(super) fn new(
        connection: Connection,
        database: Database,
        options: StartOptions,
        sender_timeout: Option<Duration>,
        backend_pid: i32,
    ) -> Self {
        let patience = sender_timeout.unwrap_or(DEFAULT_SENDER_TIMEOUT);
        Self {
            connection,
            backend_pid,
            attempt: format!("stream from slot \"{}\"", options.slot),
            publication: options.publication,
            relations: Relations::new(options.tables),
            transactions: Transactions::new(options.skip),
            partitions: Partitions::new(database),
            spans: Vec::new(),
            truncated: Vec::new(),
            position: Position {
                received: options.at,
                confirmed: None,
                resumable: options.at,
                change: options.at,
            },
            status: Status {
                interval: status_interval(options.status_interval, sender_timeout),
                due: Instant::now(),
                heard: false,
                patience: patience.max(options.status_interval.saturating_mul(2)),
                answer_by: None,
            },
        }
    }

    /// The server's process that streams to us, as `pg_replication_slots.active_pid` shows it.
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// Waits until [`Source::next_event`] has something to read. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke, or the server did not answer in time (retriable).
    pub async fn fill(&mut self) -> Result<(), Failure> {
        if self.partitions.is_asking() {
            return self.partitions.answer().await;
        }
        loop {
            let answer_by = self.status.answer_by;
            let silence = async {
                match answer_by {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                filled = self.connection.fill() => {
                    filled?;
                    break;
                }
                () = silence => self.judge_silence()?,
            }
        }
        self.status.heard = true;
        self.status.answer_by = None;
        Ok(())
    }

    /// The answer is overdue; but part of a long message counts as one.
    fn judge_silence(&mut self) -> Result<(), Failure> {
        let alive_until = self.connection.buffer.last_read() + self.status.patience;
        if alive_until > Instant::now() {
            self.status.answer_by = Some(alive_until);
            return Ok(());
        }
        Err(Failure::retriable(format!(
            "{}: the server has not answered for {} s; the connection is taken for dead",
            self.attempt,
            self.status.patience.as_secs()
        )))
    }

    /// The next event among the bytes received; `None` asks for [`Source::fill`].
    ///
    /// # Errors
    /// The server reported an error, or what it sent cannot be understood.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Failure> {
        match self.step()? {
            Some(step) => self.event(step).map(Some),
            None => Ok(None),
        }
    }

    /// The newest position that the server has mentioned.
    pub fn received(&self) -> Lsn {
        self.position.received
    }

    /// The position that the slot was told, in this session.
    pub fn confirmed(&self) -> Option<Lsn> {
        self.position.confirmed
    }

    /// When [`Source::report`] must be called at the latest.
    pub fn status_due(&self) -> Instant {
        self.status.due
    }

    /// Whether a transaction is partly read.
    pub fn in_transaction(&self) -> bool {
        self.transactions.is_open()
    }

    /// What a restart at the last resume point may leave out once all that was handed out is
    /// delivered: the part of the open transaction, or what was left out at the start of this stream.
    pub fn partial(&self) -> Option<PartialTransaction> {
        self.transactions
            .inside()
            .or_else(|| self.transactions.partial())
    }

    /// Tells the server what was received and what is confirmed, and that we are alive. When
    /// nothing was heard since the last report, an answer is asked for.
    ///
    /// # Errors
    /// The connection broke (retriable).
    pub async fn report(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let ask_reply = !self.status.heard;
        self.send_status(ask_reply).await?;
        if ask_reply && self.status.answer_by.is_none() {
            self.status.answer_by = Some(now + self.status.patience);
        }
        self.status.heard = false;
        Ok(())
    }

    /// Tells the slot that everything before a stored position may be forgotten. A position that
    /// is not newer than the last one changes nothing.
    ///
    /// # Errors
    /// The connection broke (retriable).
    pub async fn confirm(&mut self, stored: Stored) -> Result<(), Failure> {
        self.confirm_at(stored.resume_point()).await
    }

    /// Apart for the tests of this module, which have no store.
    pub(super) async fn confirm_at(&mut self, point: ResumePoint) -> Result<(), Failure> {
        if self.position.confirmed >= Some(point.lsn()) {
            return Ok(());
        }
        self.position.confirmed = Some(point.lsn());
        self.send_status(false).await
    }

    async fn send_status(&mut self, ask_reply: bool) -> Result<(), Failure> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_micros()).ok())
            .unwrap_or(0);
        let confirmed = self.position.confirmed.map_or(0, Lsn::as_u64);
        let received = self.position.received.as_u64().max(confirmed);
        let update = status_update(received, confirmed, now, ask_reply);
        self.connection.send(&update).await?;
        self.status.due = Instant::now() + self.status.interval;
        Ok(())
    }

    /// Ends the stream: last status, then the server's agreement, within a few seconds.
    ///
    /// # Errors
    /// The connection broke before the last status was sent; nothing else matters any more.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.send_status(false).await?;
        let mut done = BytesMut::new();
        frontend::copy_done(&mut done);
        self.connection.send(&done).await?;
        let drained = tokio::time::timeout(STOP_TIMEOUT, self.drain()).await;
        if !matches!(drained, Ok(Ok(()))) {
            // Everything that matters was said; the server frees the slot when the line ends.
            tracing::debug!("{}: the server did not end it politely", self.attempt);
        }
        self.connection.terminate().await;
        Ok(())
    }

    /// Reads away what was on its way, up to the end of the command.
    async fn drain(&mut self) -> Result<(), Failure> {
        while self.connection.frame().await?.tag != b'Z' {}
        Ok(())
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("attempt", &self.attempt)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// Well before the server would take us for dead, whatever the configuration says.
fn status_interval(wanted: Duration, sender_timeout: Option<Duration>) -> Duration {
    sender_timeout.map_or(wanted, |timeout| wanted.min(timeout / 3))
}
