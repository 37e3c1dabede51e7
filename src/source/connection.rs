//! One connection to the server over our own buffer: log-in, simple queries, and the raw messages
//! of a stream. Replication and the snapshot read through it, since both need rows in place and
//! memory that does not depend on how fast they are consumed.

use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, ErrorFields, Message};
use postgres_protocol::message::frontend;
use tokio::io::AsyncWriteExt;

use super::buffer::{Frame, ReadBuffer, ReadError};
use super::protocol::parse_data_row;
use super::row::{Cell, Tuple};
use super::socket::{Attempts, Opened, Role, Stream};
use super::sqlstate::{Doing, ServerError};
use crate::config::Database;
use crate::error::Failure;

/// Writing blocks only when the server takes nothing any more; then it is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A row of a simple query, as text.
pub(super) type TextRow = Vec<Option<String>>;

/// A logged-in connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    pub(super) buffer: ReadBuffer,
    peer: String,
    server_major: u32,
}

/// What the connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `replication=database`.
    Replication,
    /// Reading tables.
    Snapshot,
}

impl Connection {
    /// Connects, logs in and fixes the session's settings.
    pub(super) async fn open(db: &Database, purpose: Purpose) -> Result<Self, Failure> {
        let mut attempts = Attempts::new(db);
        let mut connection = loop {
            let opened = attempts.next().await?;
            let log_in = async {
                let mut connection = Self::log_in(db, purpose, opened).await?;
                connection.serve(attempts.role()).await?;
                Ok(connection)
            };
            match attempts.within(log_in).await {
                Ok(connection) => break connection,
                Err(failure) => attempts.failed(failure)?,
            }
        };
        let settings = super::session_settings(connection.server_major);
        connection
            .query("fix the session's settings", Doing::Anything, &settings)
            .await?;
        Ok(connection)
    }

    pub(super) fn server_major(&self) -> u32 {
        self.server_major
    }

    /// Checks that the server is what it has to be.
    async fn serve(&mut self, role: Option<Role<'_>>) -> Result<(), Failure> {
        let Some(role) = role else { return Ok(()) };
        let attempt = "ask the server for its role";
        let rows = self.query(attempt, Doing::Anything, Role::QUERY).await?;
        let answer = |column: usize| rows.first()?.get(column)?.as_deref();
        role.check(answer(0), answer(1))
    }

    async fn log_in(db: &Database, purpose: Purpose, opened: Opened) -> Result<Self, Failure> {
        let peer = opened.host.to_string();
        let attempt = format!("log in to {peer} as {:?}", db.user);
        let mut connection = Self {
            buffer: ReadBuffer::new(opened.stream.is_roomy()),
            stream: opened.stream,
            peer,
            server_major: 0,
        };
        connection.send(&startup(db, purpose)?).await?;
        connection
            .authenticate(db, opened.end_point, &attempt)
            .await?;
        Ok(connection)
    }

    /// Answers the server's questions until it is ready for a query.
    async fn authenticate(
        &mut self,
        db: &Database,
        end_point: Option<Vec<u8>>,
        attempt: &str,
    ) -> Result<(), Failure> {
        let mut scram = None;
        loop {
            let answer = match self.message().await? {
                Message::AuthenticationOk => None,
                Message::AuthenticationCleartextPassword => Some(cleartext(db, attempt)?),
                Message::AuthenticationMd5Password(body) => {
                    let password = password(db, attempt)?;
                    let hash = md5_hash(db.user.as_bytes(), password.as_bytes(), body.salt());
                    Some(framed(|buffer| {
                        frontend::password_message(hash.as_bytes(), buffer)
                    })?)
                }
                Message::AuthenticationSasl(body) => {
                    let (mechanism, state) = scram_start(db, &body, end_point.as_deref(), attempt)?;
                    let answer = framed(|buffer| {
                        frontend::sasl_initial_response(mechanism, state.message(), buffer)
                    })?;
                    scram = Some(state);
                    Some(answer)
                }
                Message::AuthenticationSaslContinue(body) => {
                    let state = scram.as_mut().ok_or_else(|| unexpected(attempt))?;
                    state
                        .update(body.data())
                        .map_err(|error| scram_failure(attempt, error))?;
                    Some(framed(|buffer| {
                        frontend::sasl_response(state.message(), buffer)
                    })?)
                }
                Message::AuthenticationSaslFinal(body) => {
                    let state = scram.as_mut().ok_or_else(|| unexpected(attempt))?;
                    state
                        .finish(body.data())
                        .map_err(|error| scram_failure(attempt, error))?;
                    None
                }
                Message::ParameterStatus(body) => {
                    if body.name().is_ok_and(|name| name == "server_version") {
                        self.server_major = body.value().map_or(0, super::major_version);
                    }
                    None
                }
                Message::BackendKeyData(_) | Message::NoticeResponse(_) => None,
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => {
                    return Err(server_error(body.fields())?.into_failure(attempt, Doing::Anything));
                }
                _ => {
                    return Err(Failure::config(format!(
                        "{attempt}: the server asks for an authentication method other than \
                         SCRAM-SHA-256, MD5 and password"
                    )));
                }
            };
            if let Some(answer) = answer {
                self.send(&answer).await?;
            }
        }
    }

    /// Runs `sql`, one statement or several, by the simple query protocol; returns all rows.
    pub(super) async fn query(
        &mut self,
        attempt: &str,
        doing: Doing,
        sql: &str,
    ) -> Result<Vec<TextRow>, Failure> {
        self.send_query(sql).await?;
        let mut rows = Vec::new();
        let mut refusal = None;
        let mut spans = Vec::new();
        loop {
            let frame = self.frame().await?;
            match frame.tag {
                b'D' => {
                    spans.clear();
                    let body = self.buffer.bytes(frame.body);
                    parse_data_row(body, &mut spans).map_err(|error| malformed(error.into()))?;
                    let row = Tuple::new(body, &spans);
                    rows.push((0..row.len()).map(|index| text(row.cell(index))).collect());
                }
                b'E' => refusal = Some(self.error(&frame)?),
                b'Z' => break,
                b'T' | b'C' | b'I' | b'N' | b'S' => {}
                tag => return Err(unexpected_tag(attempt, tag)),
            }
        }
        match refusal {
            Some(error) => Err(error.into_failure(attempt, doing)),
            None => Ok(rows),
        }
    }

    /// Sends `sql` and leaves the answer to the caller.
    pub(super) async fn send_query(&mut self, sql: &str) -> Result<(), Failure> {
        let request = framed(|buffer| frontend::query(sql, buffer))?;
        self.send(&request).await
    }

    /// Writes `bytes` out, or fails within a bounded time.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(Failure::retriable(format!("write to {}", self.peer)).caused_by(error))
            }
            Err(_) => Err(Failure::retriable(format!(
                "write to {}: the server has taken nothing for {} s",
                self.peer,
                WRITE_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Waits until a whole message is in the buffer. Cancel-safe.
    pub(super) async fn fill(&mut self) -> Result<(), Failure> {
        match self.buffer.fill(&mut self.stream).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::retriable(format!(
                "read from {}: the server closed the connection",
                self.peer
            ))),
            Err(ReadError::Io(error)) => {
                Err(Failure::retriable(format!("read from {}", self.peer)).caused_by(error))
            }
            Err(error) => Err(malformed(error)),
        }
    }

    /// The next message if it is there already, not yet consumed.
    pub(super) fn peek(&self) -> Result<Option<Frame>, Failure> {
        self.buffer.peek().map_err(|error| malformed(error.into()))
    }

    /// Waits for the next message and consumes it.
    pub(super) async fn frame(&mut self) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = self.peek()? {
                self.buffer.consume(&frame);
                return Ok(frame);
            }
            self.fill().await?;
        }
    }

    /// The error that `frame`, an ErrorResponse, carries.
    pub(super) fn error(&self, frame: &Frame) -> Result<ServerError, Failure> {
        match self.parse(frame)? {
            Message::ErrorResponse(body) => server_error(body.fields()),
            _ => Err(unexpected_tag("read an error of the server", frame.tag)),
        }
    }

    /// What the server remarks in `frame`, a NoticeResponse.
    pub(super) fn notice(&self, frame: &Frame) -> Result<ServerError, Failure> {
        match self.parse(frame)? {
            Message::NoticeResponse(body) => server_error(body.fields()),
            _ => Err(unexpected_tag("read a notice of the server", frame.tag)),
        }
    }

    async fn message(&mut self) -> Result<Message, Failure> {
        let frame = self.frame().await?;
        self.parse(&frame)
    }

    /// A message off the hot path, copied out and parsed by the library.
    fn parse(&self, frame: &Frame) -> Result<Message, Failure> {
        let body = self.buffer.bytes(frame.body.clone());
        let mut copy = BytesMut::with_capacity(body.len() + 5);
        copy.extend_from_slice(&[frame.tag]);
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        copy.extend_from_slice(&length.to_be_bytes());
        copy.extend_from_slice(body);
        match Message::parse(&mut copy) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(unexpected_tag("read a message of the server", frame.tag)),
            Err(error) => {
                Err(unexpected_tag("read a message of the server", frame.tag).caused_by(error))
            }
        }
    }

    /// Ends the session politely; a server that is gone does not mind.
    pub(super) async fn terminate(mut self) {
        let mut request = BytesMut::new();
        frontend::terminate(&mut request);
        if self.send(&request).await.is_ok() {
            // The server closes its end; nothing is left to lose on this one.
            let _ = self.stream.shutdown().await;
        }
    }
}

fn startup(db: &Database, purpose: Purpose) -> Result<BytesMut, Failure> {
    let mut parameters = vec![
        ("user", db.user.as_str()),
        ("database", db.dbname.as_str()),
        ("client_encoding", "UTF8"),
    ];
    match purpose {
        Purpose::Replication => parameters.extend([
            ("application_name", "walpost stream"),
            ("replication", "database"),
        ]),
        Purpose::Snapshot => parameters.push(("application_name", "walpost snapshot")),
    }
    framed(|buffer| frontend::startup_message(parameters, buffer))
}

fn text(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Cell::Null | Cell::Unchanged => None,
    }
}

fn framed(build: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<BytesMut, Failure> {
    let mut buffer = BytesMut::new();
    build(&mut buffer)
        .map_err(|error| Failure::config("build a message to the server").caused_by(error))?;
    Ok(buffer)
}

fn password<'a>(db: &'a Database, attempt: &str) -> Result<&'a str, Failure> {
    db.password
        .as_ref()
        .map(|secret| secret.reveal())
        .ok_or_else(|| {
            Failure::config(format!(
                "{attempt}: the server asks for a password; set database.password"
            ))
            .about_access()
        })
}

fn cleartext(db: &Database, attempt: &str) -> Result<BytesMut, Failure> {
    let password = password(db, attempt)?;
    framed(|buffer| frontend::password_message(password.as_bytes(), buffer))
}

fn scram_start(
    db: &Database,
    body: &AuthenticationSaslBody,
    end_point: Option<&[u8]>,
    attempt: &str,
) -> Result<(&'static str, ScramSha256), Failure> {
    let offered: Vec<&str> = body.mechanisms().collect().unwrap_or_default();
    let (mechanism, binding) = if offered.contains(&SCRAM_SHA_256_PLUS)
        && let Some(end_point) = end_point
    {
        let binding = ChannelBinding::tls_server_end_point(end_point.to_vec());
        (SCRAM_SHA_256_PLUS, binding)
    } else if offered.contains(&SCRAM_SHA_256) {
        // "Could have bound, was not offered" lets the server notice a downgrade in between.
        let binding = match end_point {
            Some(_) => ChannelBinding::unrequested(),
            None => ChannelBinding::unsupported(),
        };
        (SCRAM_SHA_256, binding)
    } else {
        return Err(Failure::config(format!(
            "{attempt}: the server offers no SASL mechanism that walpost has (SCRAM-SHA-256)"
        )));
    };
    let password = password(db, attempt)?;
    Ok((mechanism, ScramSha256::new(password.as_bytes(), binding)))
}

fn scram_failure(attempt: &str, error: std::io::Error) -> Failure {
    Failure::config(format!(
        "{attempt}: the server did not prove that it knows the password"
    ))
    .about_access()
    .caused_by(error)
}

fn unexpected(attempt: &str) -> Failure {
    Failure::internal(format!("{attempt}: the server's answers are out of order"))
}

pub(super) fn unexpected_tag(attempt: &str, tag: u8) -> Failure {
    Failure::internal(format!("{attempt}: unexpected message 0x{tag:02x}"))
}

fn malformed(error: ReadError) -> Failure {
    Failure::internal("read a message of the server").caused_by(error)
}

fn server_error(mut fields: ErrorFields<'_>) -> Result<ServerError, Failure> {
    let mut code = None;
    let mut message = None;
    let unreadable =
        |error: std::io::Error| Failure::internal("read an error of the server").caused_by(error);
    while let Some(field) = fields.next().map_err(unreadable)? {
        let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = Some(text()),
            b'M' => message = Some(text()),
            _ => {}
        }
    }
    Ok(ServerError::new(
        code.as_deref().unwrap_or("XX000"),
        message.as_deref().unwrap_or("no message"),
    ))
}
