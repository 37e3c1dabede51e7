//! One open stream to one server: TCP or Unix socket, with TLS as `database.sslmode` asks. Both the
//! replication connection and ordinary sessions are opened here.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::tls;
use crate::config::{Database, SslMode};
use crate::error::{Class, Failure};

/// A peer that vanished without a word is noticed after 30 + 3 × 10 seconds of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// What a busy reader lets the kernel collect while it naps; see [`super::buffer`].
const RECEIVE_BUFFER: u32 = 4 << 20;

/// Bytes that were sent and stay unacknowledged for so long end the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// A stream to the server.
#[derive(Debug)]
pub(super) enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// An open stream, not yet logged in.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// Where it leads, for messages: `host:port`.
    pub(super) peer: String,
    /// Channel binding data when it is encrypted and the certificate allows it.
    pub(super) end_point: Option<Vec<u8>>,
}

/// Whether an attempt encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Never,
    IfOffered,
    Always,
}

/// Attempts in libpq's order; the next one is made only when the server refuses the login.
fn attempts(mode: SslMode, host: &str) -> &'static [Encryption] {
    if host.starts_with('/') {
        return &[Encryption::Never];
    }
    match mode {
        SslMode::Disable => &[Encryption::Never],
        SslMode::Allow => &[Encryption::Never, Encryption::Always],
        SslMode::Prefer => &[Encryption::IfOffered, Encryption::Never],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Encryption::Always],
    }
}

/// Streams to the configured hosts, one after another, until a log-in succeeds or there is nothing
/// left to try.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    db: &'a Database,
    left: VecDeque<(&'a str, Encryption)>,
    /// Host of the stream handed out last.
    current: &'a str,
    unreachable: Option<Failure>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(db: &'a Database) -> Self {
        let each = |host: &'a String| {
            let host = host.as_str();
            attempts(db.tls.mode, host)
                .iter()
                .map(move |encryption| (host, *encryption))
        };
        Self {
            db,
            left: db.hosts.iter().flat_map(each).collect(),
            current: "",
            unreachable: None,
        }
    }

    /// The next open stream, or the failure of all that was tried.
    pub(super) async fn next(&mut self) -> Result<Opened, Failure> {
        while let Some((host, encryption)) = self.left.pop_front() {
            self.current = host;
            match within(self.db, host, open_stream(self.db, host, encryption)).await {
                Ok((stream, end_point)) => {
                    return Ok(Opened {
                        stream,
                        peer: peer(self.db, host),
                        end_point,
                    });
                }
                Err(failure) => self.failed(failure)?,
            }
        }
        Err(self
            .unreachable
            .take()
            .unwrap_or_else(|| Failure::config("database.hostname names no host")))
    }

    /// Takes the failure of a log-in over the stream handed out last. A host that cannot be reached
    /// is passed over; a refusal can only be changed by encrypting or not.
    pub(super) fn failed(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure.class() {
            Class::Retriable => {
                let current = self.current;
                self.left.retain(|(host, _)| *host != current);
                self.unreachable = Some(match self.unreachable.take() {
                    None => failure,
                    Some(earlier) => Failure::retriable(format!("{earlier}; then {failure}")),
                });
                Ok(())
            }
            Class::Config
                if self
                    .left
                    .front()
                    .is_some_and(|(host, _)| *host == self.current) =>
            {
                Ok(())
            }
            _ => Err(failure),
        }
    }

    /// Bounds a log-in over the stream handed out last.
    pub(super) async fn within<T>(
        &self,
        log_in: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        within(self.db, self.current, log_in).await
    }
}

async fn within<T>(
    db: &Database,
    host: &str,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(db.connect_timeout, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::retriable(format!(
            "connect to {}: no answer within {} ms (connection.validation.timeout.ms)",
            peer(db, host),
            db.connect_timeout.as_millis()
        ))),
    }
}

fn peer(db: &Database, host: &str) -> String {
    if host.starts_with('/') {
        socket_path(host, db.port)
    } else {
        format!("{host}:{}", db.port)
    }
}

fn socket_path(folder: &str, port: u16) -> String {
    format!("{folder}/.s.PGSQL.{port}")
}

async fn open_stream(
    db: &Database,
    host: &str,
    encryption: Encryption,
) -> Result<(Stream, Option<Vec<u8>>), Failure> {
    if host.starts_with('/') {
        let path = socket_path(host, db.port);
        let stream = UnixStream::connect(&path)
            .await
            .map_err(|error| Failure::retriable(format!("connect to {path}")).caused_by(error))?;
        return Ok((Stream::Unix(stream), None));
    }
    let reach =
        |error| Failure::retriable(format!("connect to {host}:{}", db.port)).caused_by(error);
    let mut tcp = connect(host, db.port, db.tcp_keepalive)
        .await
        .map_err(reach)?;
    if encryption == Encryption::Never {
        return Ok((Stream::Tcp(tcp), None));
    }
    if !tls_offered(&mut tcp).await.map_err(reach)? {
        if encryption == Encryption::IfOffered {
            return Ok((Stream::Tcp(tcp), None));
        }
        return Err(Failure::config(format!(
            "connect to {host}:{}: database.sslmode asks for TLS, but the server has none",
            db.port
        ))
        .about_access());
    }
    let connector = TlsConnector::from(Arc::new(tls::client_config(&db.tls)?));
    let stream = connector
        .connect(tls::server_name(host)?, tcp)
        .await
        .map_err(|error| tls::handshake_failure(host, error))?;
    let end_point = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|certificate| tls::server_end_point(certificate));
    Ok((Stream::Tls(Box::new(stream)), end_point))
}

/// Connects to the first address of `host` that answers.
async fn connect(host: &str, port: u16, keepalive: bool) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // Before connecting, since the window's scale is agreed on then.
        if let Some(size) = receive_buffer() {
            socket.set_recv_buffer_size(size)?;
        }
        match socket.connect(address).await {
            Ok(tcp) => {
                prepare(&tcp, keepalive)?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A fixed size switches the kernel's own tuning off, which is a gain only where the system allows
/// a large one; elsewhere the tuning gets further.
fn receive_buffer() -> Option<u32> {
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    let limit: u32 = limit.trim().parse().ok()?;
    (limit >= RECEIVE_BUFFER / 4).then_some(limit.min(RECEIVE_BUFFER))
}

fn prepare(tcp: &TcpStream, keepalive: bool) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    if keepalive {
        let probes = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        socket.set_tcp_keepalive(&probes)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    }
    Ok(())
}

async fn tls_offered(tcp: &mut TcpStream) -> io::Result<bool> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    tcp.write_all(&request).await?;
    // One byte exactly: what follows it must come through TLS, or somebody in between wrote it.
    match tcp.read_u8().await? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _ => Err(io::Error::other(
            "the server answered neither yes nor no to TLS; is it Postgres?",
        )),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
