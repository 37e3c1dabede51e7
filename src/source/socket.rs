//! One open stream to one server: TCP or Unix socket, with TLS as `database.sslmode` asks. Both the
//! replication connection and ordinary sessions are opened here.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
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
use crate::config::{Database, Host, SessionTarget, SslMode};
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

impl Stream {
    /// Whether the kernel holds messages by the megabyte for a slow reader. A Unix socket holds some
    /// hundred, however small they are.
    pub(super) fn is_roomy(&self) -> bool {
        !matches!(self, Stream::Unix(_))
    }
}

/// An open stream, not yet logged in.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// Where it leads.
    pub(super) host: Host,
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

/// Ways to encrypt in libpq's order; the next one is tried only when the server refuses the login.
fn ways(mode: SslMode, host: &Host) -> &'static [Encryption] {
    if host.is_socket() {
        return &[Encryption::Never];
    }
    match mode {
        SslMode::Disable => &[Encryption::Never],
        SslMode::Allow => &[Encryption::Never, Encryption::Always],
        SslMode::Prefer => &[Encryption::IfOffered, Encryption::Never],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Encryption::Always],
    }
}

/// Streams to the configured hosts, and to each address of a host, one after another, until a
/// log-in succeeds on a server that will do or there is nothing left to try.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    db: &'a Database,
    servers: VecDeque<(Host, SessionTarget)>,
    /// Server of the stream handed out last, and what it has to be.
    current: Option<(Host, SessionTarget)>,
    /// Ways to encrypt that are left for it.
    ways: VecDeque<Encryption>,
    unreachable: Option<Failure>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(db: &'a Database) -> Self {
        let rounds: &[SessionTarget] = match db.target {
            SessionTarget::PreferStandby => &[SessionTarget::Standby, SessionTarget::Any],
            ref target => std::slice::from_ref(target),
        };
        let each = |target: &SessionTarget| {
            let target = *target;
            db.hosts.iter().map(move |host| (host.clone(), target))
        };
        Self {
            db,
            servers: rounds.iter().flat_map(each).collect(),
            current: None,
            ways: VecDeque::new(),
            unreachable: None,
        }
    }

    /// The next open stream, or the failure of all that was tried.
    pub(super) async fn next(&mut self) -> Result<Opened, Failure> {
        loop {
            if let (Some((host, _)), Some(encryption)) = (&self.current, self.ways.pop_front()) {
                let host = host.clone();
                match within(self.db, &host, open_stream(self.db, &host, encryption)).await {
                    Ok((stream, end_point)) => {
                        return Ok(Opened {
                            stream,
                            host,
                            end_point,
                        });
                    }
                    Err(failure) => self.failed(failure)?,
                }
                continue;
            }
            let Some((host, target)) = self.servers.pop_front() else {
                return Err(self
                    .unreachable
                    .take()
                    .unwrap_or_else(|| Failure::config("database.hostname names no host")));
            };
            if host.is_socket() || host.address.is_some() {
                self.ways = ways(self.db.tls.mode, &host).iter().copied().collect();
                self.current = Some((host, target));
                continue;
            }
            match within(self.db, &host, addresses(&host)).await {
                Ok(found) => {
                    for host in found.into_iter().rev() {
                        self.servers.push_front((host, target));
                    }
                }
                Err(failure) => self.pass_over(failure),
            }
        }
    }

    /// Takes the failure of a log-in over the stream handed out last. A server that cannot be
    /// reached, or is not what was asked for, is passed over; a refusal can only be changed by
    /// encrypting or not.
    pub(super) fn failed(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure.class() {
            Class::Retriable => {
                self.ways.clear();
                self.pass_over(failure);
                Ok(())
            }
            Class::Config if !self.ways.is_empty() => Ok(()),
            _ => Err(failure),
        }
    }

    fn pass_over(&mut self, failure: Failure) {
        let stopping = failure.is_server_stopping();
        self.unreachable = Some(match self.unreachable.take() {
            None => failure,
            // The addresses of one host often fail in the same words.
            Some(earlier) if earlier.to_string() == failure.to_string() => earlier,
            Some(earlier) => {
                let stopping = stopping || earlier.is_server_stopping();
                let both = Failure::retriable(format!("{earlier}; then {failure}"));
                match stopping {
                    true => both.about_server_stopping(),
                    false => both,
                }
            }
        });
    }

    /// Bounds a log-in over the stream handed out last.
    pub(super) async fn within<T>(
        &self,
        log_in: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match &self.current {
            Some((host, _)) => within(self.db, host, log_in).await,
            None => log_in.await,
        }
    }

    /// What the server of the stream handed out last has to be; `None` when any will do.
    pub(super) fn role(&self) -> Option<Role<'_>> {
        match &self.current {
            Some((host, target)) if *target != SessionTarget::Any => Some(Role {
                host,
                target: *target,
            }),
            _ => None,
        }
    }
}

/// What a server has to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Role<'a> {
    host: &'a Host,
    target: SessionTarget,
}

impl Role<'_> {
    /// Asks a server for the two answers that [`Role::check`] takes, `t` or `f`, `on` or `off`.
    pub(super) const QUERY: &'static str =
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')";

    /// Whether the server will do.
    pub(super) fn check(
        self,
        in_recovery: Option<&str>,
        read_only: Option<&str>,
    ) -> Result<(), Failure> {
        let standby = in_recovery == Some("t");
        let read_only = standby || read_only == Some("on");
        let (will_do, is) = match self.target {
            SessionTarget::Any | SessionTarget::PreferStandby => (true, ""),
            SessionTarget::ReadWrite => (!read_only, "it takes no writes"),
            SessionTarget::ReadOnly => (read_only, "it takes writes"),
            SessionTarget::Primary => (!standby, "it is a standby"),
            SessionTarget::Standby => (standby, "it is a primary"),
        };
        if will_do {
            return Ok(());
        }
        Err(Failure::retriable(format!(
            "connect to {}: {is}, and database.target.session.attrs asks for {}",
            self.host,
            self.target.word()
        )))
    }
}

/// Several hosts share the time: one that swallows everything must not use it up.
async fn within<T>(
    db: &Database,
    host: &Host,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let hosts = u32::try_from(db.hosts.len()).unwrap_or(u32::MAX).max(1);
    let limit = db.connect_timeout / hosts;
    match tokio::time::timeout(limit, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::retriable(format!(
            "connect to {host}: no answer within {} ms (connection.validation.timeout.ms)",
            limit.as_millis()
        ))),
    }
}

/// The host once for each of its addresses.
async fn addresses(host: &Host) -> Result<Vec<Host>, Failure> {
    let reach = |error| Failure::retriable(format!("connect to {host}")).caused_by(error);
    let found: Vec<Host> = tokio::net::lookup_host((host.name.as_str(), host.port))
        .await
        .map_err(reach)?
        .map(|address| Host {
            address: Some(address),
            ..host.clone()
        })
        .collect();
    if found.is_empty() {
        let nothing = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        return Err(reach(nothing));
    }
    Ok(found)
}

async fn open_stream(
    db: &Database,
    host: &Host,
    encryption: Encryption,
) -> Result<(Stream, Option<Vec<u8>>), Failure> {
    let reach = |error| Failure::retriable(format!("connect to {host}")).caused_by(error);
    let Some(address) = host.address else {
        let stream = UnixStream::connect(host.to_string()).await.map_err(reach)?;
        return Ok((Stream::Unix(stream), None));
    };
    // Before anything is opened where it will be needed for certain: a certificate that is not
    // there is named even when the server would refuse.
    let prepared = match encryption {
        Encryption::Never | Encryption::IfOffered => None,
        Encryption::Always => Some(tls::client_config(&db.tls)?),
    };
    let mut tcp = connect(address, db.tcp_keepalive).await.map_err(reach)?;
    if encryption == Encryption::Never {
        return Ok((Stream::Tcp(tcp), None));
    }
    if !tls_offered(&mut tcp).await.map_err(reach)? {
        if encryption == Encryption::IfOffered {
            return Ok((Stream::Tcp(tcp), None));
        }
        return Err(Failure::config(format!(
            "connect to {host}: database.sslmode asks for TLS, but the server has none"
        ))
        .about_access());
    }
    let config = match prepared {
        Some(config) => config,
        None => tls::client_config(&db.tls)?,
    };
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector
        .connect(tls::server_name(&host.name)?, tcp)
        .await
        .map_err(|error| tls::handshake_failure(&host.name, error))?;
    let end_point = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|certificate| tls::server_end_point(certificate));
    Ok((Stream::Tls(Box::new(stream)), end_point))
}

async fn connect(address: SocketAddr, keepalive: bool) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Before connecting, since the window's scale is agreed on then.
    if let Some(size) = receive_buffer() {
        socket.set_recv_buffer_size(size)?;
    }
    let tcp = socket.connect(address).await?;
    prepare(&tcp, keepalive)?;
    Ok(tcp)
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
