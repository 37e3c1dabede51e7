//! An ordinary SQL session. Only the simple query protocol is used, so nothing is prepared and a
//! pooler in session mode does no harm.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::socket::{Attempts, Opened, Role, Stream};
use super::sqlstate::{Doing, ServerError};
use crate::config::{Database, Host};
use crate::error::Failure;
use crate::lsn::Lsn;

/// One ordinary connection. It may be shared: statements queue up behind one another.
pub struct Session {
    client: Client,
    host: Host,
    query_timeout: Option<Duration>,
}

/// Which server this is, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// System identifier, the same for a cluster and all its copies.
    pub system_id: String,
    /// Timeline; a promotion starts a new one.
    pub timeline: u32,
    /// `server_version_num`, for example 150018.
    pub version: u32,
    /// The database this session is in.
    pub database: String,
    /// Current write position; on a standby the replay position.
    pub wal_position: Lsn,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// `wal_sender_timeout`; `None` when it is off.
    pub wal_sender_timeout: Option<Duration>,
}

impl Session {
    /// Connects as `walpost <purpose>`, fixes the session's settings and runs
    /// `database.initial.statements`.
    ///
    /// # Errors
    /// The server cannot be reached (retriable) or refuses us (configuration, about access).
    pub async fn connect(db: &Database, purpose: &str) -> Result<Session, Failure> {
        let mut attempts = Attempts::new(db);
        let session = loop {
            let opened = attempts.next().await?;
            let log_in = async {
                let session = log_in(db, purpose, opened).await?;
                session.serve(attempts.role()).await?;
                Ok(session)
            };
            match attempts.within(log_in).await {
                Ok(session) => break session,
                Err(failure) => attempts.failed(failure)?,
            }
        };
        for statement in &db.initial_statements {
            session
                .run("run a statement of database.initial.statements", statement)
                .await?;
        }
        Ok(session)
    }

    /// The server this session is with, out of all that are configured.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Checks that the server is what it has to be.
    async fn serve(&self, role: Option<Role<'_>>) -> Result<(), Failure> {
        let Some(role) = role else { return Ok(()) };
        let row = self.row("ask the server for its role", Role::QUERY).await?;
        role.check(row.get(0), row.get(1))
    }

    /// Which server this is.
    ///
    /// # Errors
    /// The query fails, or answers nonsense.
    pub async fn identify(&self) -> Result<ServerIdentity, Failure> {
        const ATTEMPT: &str = "identify the server";
        let row = self.row(ATTEMPT, IDENTIFY).await?;
        let field = |index| {
            row.get(index)
                .ok_or_else(|| Failure::internal(format!("{ATTEMPT}: answer {index} is missing")))
        };
        let timeout: u64 = number(ATTEMPT, field(6)?)?;
        Ok(ServerIdentity {
            system_id: field(0)?.to_owned(),
            timeline: number(ATTEMPT, field(1)?)?,
            version: number(ATTEMPT, field(2)?)?,
            database: field(3)?.to_owned(),
            wal_position: number(ATTEMPT, field(4)?)?,
            in_recovery: field(5)? == "t",
            wal_sender_timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
        })
    }

    /// Runs a statement of the operator's, such as `heartbeat.action.query`.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.run("run heartbeat.action.query", sql).await
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements whose rows do not matter.
    pub(super) async fn run(&self, attempt: &str, sql: &str) -> Result<(), Failure> {
        self.rows(attempt, sql).await.map(drop)
    }

    /// Runs a query and returns its rows as text.
    pub(super) async fn rows(
        &self,
        attempt: &str,
        sql: &str,
    ) -> Result<Vec<SimpleQueryRow>, Failure> {
        let answer = within(self.query_timeout, attempt, self.client.simple_query(sql)).await?;
        let messages = answer.map_err(|error| failure(attempt, &error))?;
        Ok(messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .collect())
    }

    /// Runs a query that answers exactly one row.
    pub(super) async fn row(&self, attempt: &str, sql: &str) -> Result<SimpleQueryRow, Failure> {
        let rows = self.rows(attempt, sql).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Failure::internal(format!("{attempt}: the server answered no row")))
    }
}

const IDENTIFY: &str = "SELECT (pg_control_system()).system_identifier, \
    CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint()) \
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END, \
    current_setting('server_version_num'), current_database(), \
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, \
    pg_is_in_recovery(), \
    (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout')";

/// Parses a value that the server's catalog printed.
pub(super) fn number<T: std::str::FromStr>(attempt: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| {
        Failure::internal(format!(
            "{attempt}: the server answered what is not a {}",
            std::any::type_name::<T>()
        ))
    })
}

async fn within<T>(
    limit: Option<Duration>,
    attempt: &str,
    answer: impl Future<Output = T>,
) -> Result<T, Failure> {
    match limit {
        None => Ok(answer.await),
        Some(limit) => tokio::time::timeout(limit, answer).await.map_err(|_| {
            Failure::retriable(format!(
                "{attempt}: no answer within {} ms (database.query.timeout.ms)",
                limit.as_millis()
            ))
        }),
    }
}

async fn log_in(db: &Database, purpose: &str, opened: Opened) -> Result<Session, Failure> {
    let attempt = format!("log in to {} as {:?}", opened.host, db.user);
    let encrypted = matches!(opened.stream, Stream::Tls(_));
    let mut config = tokio_postgres::Config::new();
    config
        .user(&db.user)
        .dbname(&db.dbname)
        .application_name(format!("walpost {purpose}"))
        // The stream is ready: nothing is left to negotiate, only its binding to be used.
        .ssl_negotiation(SslNegotiation::Direct)
        .ssl_mode(if encrypted {
            SslMode::Require
        } else {
            SslMode::Disable
        });
    if let Some(password) = &db.password {
        config.password(password.reveal());
    }
    let (host, end_point) = (opened.host, opened.end_point);
    let (client, connection) = config
        .connect_raw(opened.stream, ReadyTls { end_point })
        .await
        .map_err(|error| login_failure(db, &attempt, &error))?;
    let server_major = connection
        .parameter("server_version")
        .map_or(0, super::major_version);
    // It ends with the client; its errors come out of the statement that hits them.
    tokio::spawn(async move { connection.await.ok() });
    let session = Session {
        client,
        host,
        query_timeout: (!db.query_timeout.is_zero()).then_some(db.query_timeout),
    };
    let settings = super::session_settings(server_major);
    session.run("fix the session's settings", &settings).await?;
    Ok(session)
}

fn login_failure(db: &Database, attempt: &str, error: &tokio_postgres::Error) -> Failure {
    let of_the_server = error.as_db_error().is_some();
    let of_the_line =
        error.is_closed() || cause(error).is_some_and(|cause| cause.is::<io::Error>());
    if of_the_server || of_the_line {
        return failure(attempt, error);
    }
    let advice = match db.password {
        None => "the server asks for a password; set database.password",
        Some(_) => "the server's way to authenticate is none of SCRAM-SHA-256, MD5 and password",
    };
    Failure::config(format!("{attempt}: {advice}")).about_access()
}

/// An error of the driver, classified; texts that may carry row data stay out.
fn failure(attempt: &str, error: &tokio_postgres::Error) -> Failure {
    if let Some(db) = error.as_db_error() {
        return ServerError::new(db.code().code(), db.message())
            .into_failure(attempt, Doing::Anything);
    }
    let failure = Failure::retriable(attempt);
    match cause(error) {
        Some(cause) => failure.caused_by(cause.to_string()),
        None => failure.caused_by(error.to_string()),
    }
}

fn cause(error: &tokio_postgres::Error) -> Option<&(dyn std::error::Error + 'static)> {
    std::error::Error::source(error)
}

/// Hands the driver a stream that is already encrypted.
struct ReadyTls {
    end_point: Option<Vec<u8>>,
}

/// The stream with its channel binding.
struct Bound {
    stream: Stream,
    end_point: Option<Vec<u8>>,
}

impl TlsConnect<Stream> for ReadyTls {
    type Stream = Bound;
    type Error = io::Error;
    type Future = Ready<io::Result<Bound>>;

    fn connect(self, stream: Stream) -> Self::Future {
        ready(Ok(Bound {
            stream,
            end_point: self.end_point,
        }))
    }
}

impl TlsStream for Bound {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.end_point {
            Some(end_point) => ChannelBinding::tls_server_end_point(end_point.clone()),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Bound {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Bound {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
