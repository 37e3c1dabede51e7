//! The HTTP server: read-only pages, bounded in size, time and number of connections.
//!
//! It runs on a thread of its own with a runtime of its own.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Observability;
use super::exposition::Format;
use super::health::Health;
use super::metrics::render;
use super::status::Status;
use crate::config::Listener;
use crate::error::Failure;

/// One request and its answer take at most this long; then the connection is closed.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Request line and headers together.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// With more, the longest open is closed: whoever asks last is answered, so that clients which
/// dawdle cannot keep a probe out.
const CONNECTIONS_MAX: usize = 64;

/// Pause after a failed accept, which is a shortage (of descriptors, say) that needs time to pass.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Binds all `listeners`, then serves in the background until `shutdown`.
pub(super) async fn serve(
    observability: Observability,
    listeners: &[Listener],
    shutdown: CancellationToken,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut sockets = Vec::new();
    for listener in listeners {
        sockets.extend(bind(listener).await?);
    }
    let mut addresses = Vec::with_capacity(sockets.len());
    for socket in &sockets {
        let address = socket
            .local_addr()
            .map_err(|error| Failure::internal("read a listener's address").caused_by(error))?;
        tracing::info!(%address, "listening");
        addresses.push(address);
    }
    if sockets.is_empty() {
        return Ok(addresses);
    }
    let (started, outcome) = oneshot::channel();
    std::thread::Builder::new()
        .name("walpost-http".to_owned())
        .spawn(move || run(sockets, router(observability), &shutdown, started))
        .map_err(|error| Failure::internal("start the HTTP thread").caused_by(error))?;
    match outcome.await {
        Ok(Ok(())) => Ok(addresses),
        Ok(Err(error)) => Err(Failure::internal("start the HTTP server").caused_by(error)),
        Err(_) => Err(Failure::internal("the HTTP thread ended as it began")),
    }
}

/// One socket for each address that the host name has. An address family that this machine lacks
/// is passed over as long as another one works.
async fn bind(listener: &Listener) -> Result<Vec<StdListener>, Failure> {
    let wanted = candidates(listener).await?;
    let mut bound: Vec<StdListener> = Vec::new();
    let mut absent = None;
    let mut port = listener.port;
    for ip in wanted {
        match listen(SocketAddr::new(ip, port)) {
            Ok(socket) => {
                // The other addresses of one name share the port that was free for the first.
                port = socket.local_addr().map_or(port, |address| address.port());
                bound.push(socket);
                if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
                    break; // takes IPv4 too
                }
            }
            Err(error) if is_absent_family(&error) => absent = Some(error),
            Err(error) => return Err(refused(listener, error)),
        }
    }
    match absent {
        Some(error) if bound.is_empty() => Err(refused(listener, error)),
        _ => Ok(bound),
    }
}

async fn candidates(listener: &Listener) -> Result<Vec<IpAddr>, Failure> {
    if listener.host.is_empty() {
        return Ok(vec![
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv4Addr::UNSPECIFIED.into(),
        ]);
    }
    let host = listener.host.trim_matches(['[', ']']);
    let mut addresses: Vec<IpAddr> = lookup_host((host, listener.port))
        .await
        .map_err(|error| refused(listener, error))?
        .map(|address| address.ip())
        .collect();
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(refused(listener, ErrorKind::AddrNotAvailable.into()));
    }
    Ok(addresses)
}

fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = StdListener::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// `EAFNOSUPPORT` and `EADDRNOTAVAIL`: what a machine without IPv6 answers.
fn is_absent_family(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

fn refused(listener: &Listener, error: io::Error) -> Failure {
    let Listener { host, port } = listener;
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "another process uses this port; choose another, or 0 for any",
        ErrorKind::PermissionDenied => "this port needs a privilege; choose one above 1023",
        _ => "use an address of this machine",
    };
    Failure::config(format!(
        "listen on http://{host}:{port} (property listeners): {remedy}"
    ))
    .caused_by(error)
}

/// The body of the HTTP thread.
fn run(
    sockets: Vec<StdListener>,
    router: Router,
    shutdown: &CancellationToken,
    started: oneshot::Sender<io::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody waits any more when the caller was cancelled.
            let _ = started.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let mut accepting = JoinSet::new();
        let mut registered = Ok(());
        for socket in sockets {
            match TcpListener::from_std(socket) {
                Ok(listener) => {
                    accepting.spawn(accept(listener, router.clone()));
                }
                Err(error) => registered = Err(error),
            }
        }
        let failed = registered.is_err();
        let _ = started.send(registered);
        if !failed {
            shutdown.cancelled().await;
        }
    });
}

async fn accept(listener: TcpListener, router: Router) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                    tracing::debug!("closed the HTTP connection that was open longest");
                }
                let conversation = tokio::spawn(converse(stream, router.clone()));
                open.push_back(conversation.abort_handle());
            }
            Err(error) => {
                tracing::debug!(%error, "accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One request and its answer. A client that goes away or dawdles is no concern of ours.
async fn converse(stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "serve an HTTP connection"),
        Err(_) => tracing::debug!("an HTTP client took too long"),
    }
}

fn router(observability: Observability) -> Router {
    Router::new()
        .route("/", get(root))
        .route("/metrics", get(metrics))
        .route("/health", get(live))
        .route("/health/live", get(live))
        .route("/livez", get(live))
        .route("/health/ready", get(ready))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(observability)
}

/// What Connect answers here, as far as it applies: probes and tools look at `version`.
async fn root() -> Response {
    Json(serde_json::json!({
        "name": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
    }))
    .into_response()
}

async fn metrics(State(observability): State<Observability>, headers: HeaderMap) -> Response {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    match render(&observability, format) {
        Ok(page) => ([(header::CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "write the metrics"),
    }
}

async fn live(State(observability): State<Observability>) -> Response {
    verdict(Health::live(&observability))
}

async fn ready(State(observability): State<Observability>) -> Response {
    verdict(Health::ready(&observability))
}

async fn status(State(observability): State<Observability>) -> Response {
    Json(Status::new(&observability)).into_response()
}

fn verdict(health: Health) -> Response {
    let code = if health.is_good() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(health)).into_response()
}

async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "no such page")
}

async fn method_not_allowed() -> Response {
    error(
        StatusCode::METHOD_NOT_ALLOWED,
        "this page can only be read: use GET",
    )
}

/// In the shape of Connect's error answers.
fn error(code: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({ "error_code": code.as_u16(), "message": message });
    (code, Json(body)).into_response()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
