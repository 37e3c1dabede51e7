//! The ceiling: a bare reader that takes a slot's stream as fast as it comes and keeps nothing.
//!
//! Independent of walpost's own source, so that a fault there cannot lower the bar. It shares only
//! the wire format's building blocks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use crate::support::postgres as server;

/// When to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gear {
    /// As soon as a byte is there.
    Plain,
    /// After a nap, so that the server is not interrupted for every message.
    Batched,
}

/// How long the batched reader lets the kernel collect.
const NAP: Duration = Duration::from_millis(1);

/// As much as one read takes at most.
const BUFFER: usize = 4 << 20;

/// What the reader saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// Rows a second from the end of the first read to the last row.
    pub(crate) rate: f64,
    pub(crate) reads: u64,
}

/// Where the stream is.
pub(crate) struct Stream<'a> {
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) slot: &'a str,
    pub(crate) publication: &'a str,
}

/// Reads `rows` rows of the stream and throws them away. Confirms nothing, so the slot can be read
/// again.
pub(crate) fn discard(stream: &Stream<'_>, rows: u64, gear: Gear) -> Pass {
    let mut reader = Reader::open(stream);
    let mut first = None;
    let mut seen = 0;
    loop {
        if gear == Gear::Batched {
            std::thread::sleep(NAP);
        }
        reader.read();
        while let Some(body) = reader.next(b'd') {
            // 25 bytes of XLogData header before the message.
            match body {
                [b'w', ..] => seen += u64::from(body.get(25) == Some(&b'I')),
                [b'k', .., 1] => reader.reply(),
                _ => {}
            }
        }
        let now = Instant::now();
        let (began, before) = *first.get_or_insert((now, seen));
        if seen >= rows {
            assert_eq!(seen, rows, "the stream holds the backlog once");
            return Pass {
                rate: (seen - before) as f64 / (now - began).as_secs_f64(),
                reads: reader.reads,
            };
        }
    }
}

struct Reader {
    socket: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    reads: u64,
}

impl Reader {
    fn open(stream: &Stream<'_>) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", stream.port)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut reader = Self {
            socket,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            reads: 0,
        };
        reader.log_in(stream.database);
        let start = format!(
            "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names '{}')",
            stream.slot, stream.publication
        );
        reader.send(|message| frontend::query(&start, message).unwrap());
        reader.wait(b'W');
        reader.reads = 0;
        reader
    }

    fn log_in(&mut self, database: &str) {
        let parameters = [
            ("user", server::USER),
            ("database", database),
            ("replication", "database"),
        ];
        self.send(|message| frontend::startup_message(parameters, message).unwrap());
        self.wait(b'R');
        let mut scram =
            ScramSha256::new(server::PASSWORD.as_bytes(), ChannelBinding::unsupported());
        let begin = scram.message().to_vec();
        self.send(|message| {
            frontend::sasl_initial_response(SCRAM_SHA_256, &begin, message).unwrap();
        });
        let challenge = self.wait(b'R');
        scram.update(&challenge[4..]).unwrap();
        let answer = scram.message().to_vec();
        self.send(|message| frontend::sasl_response(&answer, message).unwrap());
        self.wait(b'Z');
    }

    fn send(&mut self, build: impl FnOnce(&mut BytesMut)) {
        let mut message = BytesMut::new();
        build(&mut message);
        self.socket.write_all(&message).unwrap();
    }

    /// A status update that confirms nothing.
    fn reply(&mut self) {
        let mut update = vec![b'r'];
        update.extend([0; 33]);
        self.send(|message| frontend::CopyData::new(&update[..]).unwrap().write(message));
    }

    fn wait(&mut self, tag: u8) -> Vec<u8> {
        loop {
            if let Some(body) = self.next(tag) {
                return body.to_vec();
            }
            self.read();
        }
    }

    /// One read, behind what is left of the last one.
    fn read(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = self.socket.read(&mut self.buffer[self.end..]).unwrap();
        assert!(count > 0, "the server closed the connection");
        self.end += count;
        self.reads += 1;
    }

    /// The next whole message with this tag; others are passed over, an error is the end.
    fn next(&mut self, tag: u8) -> Option<&[u8]> {
        loop {
            let held = &self.buffer[self.start..self.end];
            let length = u32::from_be_bytes(held.get(1..5)?.try_into().unwrap()) as usize;
            held.get(..=length)?;
            let found = held[0];
            let body = self.start + 5..self.start + 1 + length;
            self.start = body.end;
            assert!(
                found != b'E',
                "{}",
                String::from_utf8_lossy(&self.buffer[body])
            );
            if found == tag {
                return Some(&self.buffer[body]);
            }
        }
    }
}
