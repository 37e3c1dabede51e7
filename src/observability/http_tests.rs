use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::*;
use crate::error::Class;
use crate::observability::{About, State as Doing, Telemetry};

/// A served page set; the server ends with it.
struct Server {
    address: SocketAddr,
    telemetry: Telemetry,
    shutdown: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn loopback(port: u16) -> Listener {
    Listener {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

fn start() -> Server {
    let observability = Observability::new();
    let telemetry = observability.connector(About {
        name: "orders".to_owned(),
        slot: "orders_slot".to_owned(),
        database: "shop".to_owned(),
        offsets: "topic connect-offsets".to_owned(),
        dead_letters: None,
    });
    let shutdown = CancellationToken::new();
    let addresses = block_on(observability.serve(&[loopback(0)], shutdown.clone())).unwrap();
    Server {
        address: addresses[0],
        telemetry,
        shutdown,
    }
}

impl Server {
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer = self.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
        split(&answer)
    }

    fn json(&self, path: &str) -> (u16, Value) {
        let (code, body) = self.get(path);
        (code, serde_json::from_str(&body).unwrap())
    }
}

fn split(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn every_page_answers_and_a_free_port_is_found() {
    let server = start();
    assert_ne!(server.address.port(), 0);
    server.telemetry.state(Doing::Streaming);
    for path in [
        "/",
        "/metrics",
        "/health",
        "/health/live",
        "/livez",
        "/health/ready",
        "/readyz",
        "/status",
    ] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
    assert_eq!(server.json("/").1["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn readiness_follows_the_state_in_the_http_code() {
    let server = start();
    let (code, body) = server.json("/health/ready");
    assert_eq!((code, &body["status"]), (503, &Value::from("DOWN")));
    assert_eq!(body["reasons"][0]["connector"], "orders");
    server.telemetry.state(Doing::Standby {
        holder: "pid 7".to_owned(),
    });
    assert_eq!(server.json("/health/ready").0, 200);
    server.telemetry.state(Doing::Retrying {
        error: "connect to kafka:9092".to_owned(),
        attempt: 2,
        next_in: Duration::from_secs(3),
    });
    let (code, body) = server.json("/readyz");
    assert_eq!(code, 503);
    let reason = body["reasons"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("connect to kafka:9092"), "{reason}");
    assert_eq!(server.get("/health/live").0, 200);
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn status_tells_role_positions_and_the_last_error() {
    let server = start();
    server.telemetry.topic("outbox.event.order").add(3, 33);
    server.telemetry.error(Class::Retriable);
    server.telemetry.state(Doing::Retrying {
        error: "connect to kafka:9092".to_owned(),
        attempt: 2,
        next_in: Duration::from_secs(3),
    });
    server.telemetry.progress(&crate::observability::Progress {
        stored: crate::lsn::Lsn::new(0x16_0000_0001),
        ..Default::default()
    });
    let (code, page) = server.json("/status");
    assert_eq!(code, 200);
    let connector = &page["connectors"][0];
    assert_eq!(connector["role"], "none");
    assert_eq!(connector["state"], "retrying");
    assert_eq!(connector["next_attempt"], 2);
    assert_eq!(connector["positions"]["stored"]["lsn"], "16/1");
    assert_eq!(connector["positions"]["received"], Value::Null);
    assert_eq!(connector["lag"]["stored"]["bytes"], Value::Null);
    assert_eq!(connector["topics"]["outbox.event.order"]["events"], 3);
    assert_eq!(connector["last_error"]["class"], "retriable");
    assert_eq!(connector["last_error"]["error"], "connect to kafka:9092");
    assert_eq!(connector["slot"]["name"], "orders_slot");
    server.telemetry.state(Doing::Streaming);
    let page = server.json("/status").1;
    assert_eq!(page["connectors"][0]["role"], "active");
}

#[test]
fn nothing_can_be_written_and_what_is_not_there_is_not_found() {
    let server = start();
    let (code, body) = server.json("/connectors");
    assert_eq!((code, &body["error_code"]), (404, &Value::from(404)));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = server.send(&format!(
            "{method} /status HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(split(&answer).0, 405, "{method}: {answer}");
        assert!(
            answer.to_ascii_lowercase().contains("allow: get,head"),
            "{answer}"
        );
    }
}

#[test]
fn a_scraper_gets_the_format_it_asks_for() {
    let server = start();
    let plain = server.send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(
        plain.contains("content-type: text/plain; version=0.0.4"),
        "{plain}"
    );
    let open = server.send(
        "GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n",
    );
    assert!(
        open.contains("application/openmetrics-text; version=1.0.0"),
        "{open}"
    );
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let server = start();
    let padding = "x".repeat(2 * REQUEST_BYTES_MAX);
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The server may close before it has read all.
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nPadding: {padding}\r\n\r\n").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
    assert_eq!(server.get("/").0, 200);
}

/// Three times as many as are kept open, none of which ever finishes its request.
#[test]
fn clients_that_dawdle_keep_nobody_out() {
    let server = start();
    let dawdlers: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX").unwrap();
            stream
        })
        .collect();
    let asked = std::time::Instant::now();
    assert_eq!(server.get("/health/live").0, 200);
    assert!(asked.elapsed() < CONNECTION_TIMEOUT / 2, "answered at once");
    drop(dawdlers);
}

#[test]
fn a_port_in_use_is_a_configuration_error() {
    let taken = StdListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let serving = Observability::new();
    let error = block_on(serving.serve(&[loopback(port)], CancellationToken::new())).unwrap_err();
    assert_eq!(error.class(), Class::Config);
    let text = error.to_string();
    assert!(
        text.contains("listeners") && text.contains(&port.to_string()),
        "{text}"
    );
}

#[test]
fn an_unknown_host_is_a_configuration_error() {
    let listener = Listener {
        host: "no-such-host.invalid".to_owned(),
        port: 0,
    };
    let serving = Observability::new();
    let error = block_on(serving.serve(&[listener], CancellationToken::new())).unwrap_err();
    assert_eq!(error.class(), Class::Config);
}

#[test]
fn an_empty_host_is_every_address_and_shutdown_frees_the_port() {
    let everywhere = Listener {
        host: String::new(),
        port: 0,
    };
    let shutdown = CancellationToken::new();
    let addresses = block_on(Observability::new().serve(&[everywhere], shutdown.clone())).unwrap();
    let reach = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addresses[0].port());
    drop(TcpStream::connect(reach).unwrap());
    shutdown.cancel();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(reach).is_ok() {
        assert!(std::time::Instant::now() < deadline, "still listening");
        std::thread::yield_now();
    }
}
