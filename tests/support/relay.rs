//! A TCP relay whose behaviour changes while it runs.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weather {
    /// They pass.
    Fair,
    /// They wait until the weather changes; the sender feels it once the buffers are full.
    Stall,
    /// They vanish, in both directions, for connections that were open or opened meanwhile:
    /// those stay silent for ever, as after a pulled plug. Later ones are well.
    HalfOpen,
    /// Each piece is held back this long.
    Delay(Duration),
    /// At most so many bytes a second, in each direction.
    Throttle(u32),
    /// One byte at a time.
    Trickle,
    /// New connections are refused by closing them, open ones are reset.
    Down,
}

/// A relay from a free port to `target`. It ends with the value.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    inner: Mutex<Inner>,
    /// Bytes carried so far, both directions.
    carried: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    weather: Weather,
    closed: bool,
    connections: Vec<(TcpStream, TcpStream)>,
}

impl Relay {
    /// A relay to `127.0.0.1:target`.
    pub(crate) fn to(target: u16) -> Self {
        Self::at(("127.0.0.1", super::ports::free()), target)
    }

    /// A relay from this address to `127.0.0.1:target`.
    pub(crate) fn at(address: (&str, u16), target: u16) -> Self {
        let port = address.1;
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State {
            inner: Mutex::new(Inner {
                weather: Weather::Fair,
                closed: false,
                connections: Vec::new(),
            }),
            carried: AtomicU64::new(0),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            accept(
                &listener,
                SocketAddr::from(([127, 0, 0, 1], target)),
                &shared,
            )
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Changes the weather, for open connections too.
    pub(crate) fn set(&self, weather: Weather) {
        self.state.inner.lock().unwrap().weather = weather;
        if weather == Weather::Down {
            self.cut();
        }
    }

    /// Closes every open connection; new ones follow the weather.
    pub(crate) fn cut(&self) {
        for (client, server) in self.state.inner.lock().unwrap().connections.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Bytes carried so far, both directions.
    pub(crate) fn carried(&self) -> u64 {
        self.state.carried.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.inner.lock().unwrap().closed = true;
        self.cut();
    }
}

impl State {
    fn weather(&self) -> Option<Weather> {
        let inner = self.inner.lock().unwrap();
        (!inner.closed).then_some(inner.weather)
    }
}

const TICK: Duration = Duration::from_millis(5);

fn accept(listener: &TcpListener, target: SocketAddr, state: &Arc<State>) {
    while let Some(weather) = state.weather() {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(TICK);
                continue;
            }
            Err(_) => continue,
        };
        if weather == Weather::Down {
            continue;
        }
        let Ok(server) = TcpStream::connect(target) else {
            continue;
        };
        for stream in [&client, &server] {
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            // The pumps look at the weather at least this often.
            stream.set_read_timeout(Some(TICK)).unwrap();
        }
        let copy = |stream: &TcpStream| stream.try_clone().unwrap();
        state
            .inner
            .lock()
            .unwrap()
            .connections
            .push((copy(&client), copy(&server)));
        for (from, to) in [(copy(&client), copy(&server)), (server, client)] {
            let state = Arc::clone(state);
            thread::spawn(move || {
                if let Line::Dead = pump(&from, &to, &state) {
                    // It carries no farewell either, and costs nothing until it is cut.
                    let _ = from.set_read_timeout(None);
                    let _ = std::io::copy(&mut &from, &mut std::io::sink());
                    return;
                }
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

/// How a way through the relay ended.
enum Line {
    /// One side closed it.
    Closed,
    /// It was half open: nothing passes any more.
    Dead,
}

/// Carries bytes one way until either side ends.
fn pump(mut from: &TcpStream, mut to: &TcpStream, state: &State) -> Line {
    let mut buffer = vec![0; 64 * 1024];
    while let Some(weather) = state.weather() {
        match weather {
            Weather::HalfOpen => return Line::Dead,
            Weather::Stall => {
                thread::sleep(TICK);
                continue;
            }
            _ => {}
        }
        let most = match weather {
            Weather::Trickle => 1,
            Weather::Throttle(rate) => (rate as usize / 50).clamp(1, buffer.len()),
            _ => buffer.len(),
        };
        let started = Instant::now();
        let count = match from.read(&mut buffer[..most]) {
            Ok(0) => return Line::Closed,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return Line::Closed,
        };
        // The weather may have turned while the read waited.
        match wait_out_stall(state) {
            None => return Line::Closed,
            Some(Weather::HalfOpen) => return Line::Dead,
            Some(Weather::Delay(time)) => thread::sleep(time),
            Some(Weather::Throttle(_)) => {
                thread::sleep(Duration::from_millis(20).saturating_sub(started.elapsed()));
            }
            _ => {}
        }
        if to.write_all(&buffer[..count]).is_err() {
            return Line::Closed;
        }
        state.carried.fetch_add(count as u64, Ordering::Relaxed);
    }
    Line::Closed
}

fn wait_out_stall(state: &State) -> Option<Weather> {
    loop {
        match state.weather()? {
            Weather::Stall => thread::sleep(TICK),
            weather => return Some(weather),
        }
    }
}
