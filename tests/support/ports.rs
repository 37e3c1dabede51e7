//! Ports for servers.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{LazyLock, Mutex};

/// A port nobody listens on, and no other run draws as long as this process lives. From outside
/// the range that outgoing connections use, so that it is still free when the server that is to
/// have it starts, or starts again.
pub(crate) fn free() -> u16 {
    /// Abstract sockets, each named after a port, which the kernel forgets with the process.
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    static RANGE: LazyLock<Range<u16>> = LazyLock::new(|| quiet(outgoing()));
    loop {
        let port = fastrand::u16(RANGE.clone());
        let name = SocketAddr::from_abstract_name(format!("walpost-port-{port}")).unwrap();
        if let Ok(taken) = UnixListener::bind_addr(&name)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            TAKEN.lock().unwrap().push(taken);
            return port;
        }
    }
}

/// The ports that the kernel gives to outgoing connections.
fn outgoing() -> Range<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let limits: Vec<u16> = text
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|limit| limit.parse().ok())
        .collect();
    match limits[..] {
        [first, last] if first < last => first..last,
        // Linux's own default.
        _ => 32_768..60_999,
    }
}

/// The wider side of `outgoing`, without the ports of well-known services below.
fn quiet(outgoing: Range<u16>) -> Range<u16> {
    let below = 15_000..outgoing.start.max(15_000);
    let above = outgoing.end.saturating_add(1)..u16::MAX;
    let wider = if above.len() > below.len() {
        above
    } else {
        below
    };
    // A kernel may be told to use them all; then nothing is quiet.
    if wider.len() < 1_000 {
        15_000..32_000
    } else {
        wider
    }
}
