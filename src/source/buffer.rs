//! The read buffer and its gears.
//!
//! The walsender does one `send` for each message, and a reader that wakes for each of them costs
//! the *sender* half its speed. So a quiet stream is read at once, and a busy one only after a nap
//! in which the kernel collects hundreds of messages; they are then taken in few reads and parsed
//! in place. While rows pour in the nap is longer: whatever follows a read, down to the requests
//! that a broker serves, is then done for as many more rows at once.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::cursor::Malformed;
use super::protocol::{MESSAGE_HEADER, split_message};

/// Bytes taken by one wake-up at most, and what the buffer shrinks back to.
const USUAL: usize = 1 << 20;

/// How long the reader of a busy stream lets the kernel collect.
const NAP: Duration = Duration::from_millis(1);

/// The same while rows pour in. At one row a transaction this takes a third off the processor time
/// of walpost for a row, and half off the broker's.
const LONG_NAP: Duration = Duration::from_millis(8);

/// A row a millisecond never waits for a nap.
const BUSY: Rate = Rate {
    bytes_per_ms: 4 << 10,
    burst: 32 << 10,
};

/// Tens of thousands of rows a second: a backlog, where speed counts and a millisecond does not.
const POURING: Rate = Rate {
    bytes_per_ms: 16 << 10,
    burst: 128 << 10,
};

/// One message of the server in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) tag: u8,
    /// Where its body stands in the buffer, until the next fill.
    pub(super) body: Range<usize>,
}

/// Bytes received and not yet consumed.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    gear: Gear,
    last_read: Instant,
}

impl ReadBuffer {
    /// For a connection whose kernel buffer holds a long nap's messages, or does not.
    pub(super) fn new(is_roomy: bool) -> Self {
        let now = Instant::now();
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            gear: Gear::new(now, is_roomy),
            last_read: now,
        }
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// When bytes last came in; a long message is a sign of life long before it is whole.
    pub(super) fn last_read(&self) -> Instant {
        self.last_read
    }

    /// The first whole message, which stays in the buffer until it is consumed.
    pub(super) fn peek(&self) -> Result<Option<Frame>, Malformed> {
        Ok(match self.announced()? {
            Some((tag, length)) if length <= self.end - self.start => Some(Frame {
                tag,
                body: self.start + MESSAGE_HEADER..self.start + length,
            }),
            _ => None,
        })
    }

    /// Moves past `frame`; its bytes stay readable until the next fill.
    pub(super) fn consume(&mut self, frame: &Frame) {
        self.start = frame.body.end;
    }

    /// Reads until a whole message is there; `false` when the server closed the connection.
    /// Cancel-safe: what was read stays.
    pub(super) async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<bool, ReadError> {
        while self.peek()?.is_none() {
            if self.read(stream).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One wake-up: all that has arrived, as far as the buffer has room.
    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, ReadError> {
        self.make_room()?;
        if let Some(nap) = self.gear.nap(Instant::now()) {
            // The thread, not the task: parked in its poll, it would be woken by each message that
            // comes, which is what the nap is to spare. It is this connector's own thread, and
            // nothing else on it minds a few milliseconds while rows pour in.
            std::thread::sleep(nap);
        }
        let free = self.bytes.get_mut(self.end..).unwrap_or_default();
        let room = free.len();
        let count = read_available(stream, free).await?;
        self.end += count;
        self.last_read = Instant::now();
        self.gear.note(self.last_read, count, count == room);
        Ok(count)
    }

    /// Moves a partial message to the front and makes room for all of it.
    fn make_room(&mut self) -> Result<(), Malformed> {
        let wanted = self
            .announced()?
            .map_or(USUAL, |(_, length)| length.max(USUAL));
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.bytes.len() != wanted && self.end <= wanted {
            self.bytes.resize(wanted, 0);
            self.bytes.shrink_to(wanted);
        }
        Ok(())
    }

    /// Tag and whole length of the first message, once its header is there.
    fn announced(&self) -> Result<Option<(u8, usize)>, Malformed> {
        split_message(self.bytes(self.start..self.end))
    }
}

/// Why reading failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the server's bytes are not the Postgres protocol: {0}")]
    Malformed(#[from] Malformed),
}

/// Waits for the first byte, then takes what is there without waiting again.
async fn read_available(
    stream: &mut (impl AsyncRead + Unpin),
    free: &mut [u8],
) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(free);
    poll_fn(|context| {
        loop {
            let before = buffer.filled().len();
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    let after = buffer.filled().len();
                    if after == before || buffer.remaining() == 0 {
                        return Poll::Ready(Ok(after));
                    }
                }
                // Bytes first; the error comes again with the next read.
                Poll::Ready(Err(_)) | Poll::Pending if before > 0 => {
                    return Poll::Ready(Ok(before));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// How long to nap before the next read.
#[derive(Debug)]
struct Gear {
    busy: Bucket,
    pouring: Bucket,
    is_roomy: bool,
    /// The last read found more than it had room for.
    more_waits: bool,
}

impl Gear {
    fn new(now: Instant, is_roomy: bool) -> Self {
        Self {
            busy: Bucket::new(BUSY, now),
            pouring: Bucket::new(POURING, now),
            is_roomy,
            more_waits: false,
        }
    }

    fn note(&mut self, now: Instant, bytes: usize, more_waits: bool) {
        self.busy.add(now, bytes as u64);
        self.pouring.add(now, bytes as u64);
        self.more_waits = more_waits;
    }

    fn nap(&mut self, now: Instant) -> Option<Duration> {
        self.busy.drain(now);
        self.pouring.drain(now);
        if self.more_waits || !self.busy.is_full() {
            None
        } else if self.is_roomy && self.pouring.is_full() {
            Some(LONG_NAP)
        } else {
            Some(NAP)
        }
    }
}

/// A rate, and how many bytes beyond it may come in a burst.
#[derive(Debug, Clone, Copy)]
struct Rate {
    bytes_per_ms: u64,
    burst: u64,
}

/// Leaks at a rate; full means that more comes than that.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    level: u64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            level: 0,
            at: now,
        }
    }

    fn drain(&mut self, now: Instant) {
        let micros = u64::try_from(now.saturating_duration_since(self.at).as_micros());
        let leaked = micros
            .unwrap_or(u64::MAX)
            .saturating_mul(self.rate.bytes_per_ms)
            / 1000;
        self.level = self.level.saturating_sub(leaked);
        self.at = now;
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        self.drain(now);
        self.level = (self.level + bytes).min(2 * self.rate.burst);
    }

    fn is_full(&self) -> bool {
        self.level > self.rate.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    async fn frames(mut input: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut buffer = ReadBuffer::new(true);
        let mut found = Vec::new();
        while buffer.fill(&mut input).await.unwrap() {
            while let Some(frame) = buffer.peek().unwrap() {
                buffer.consume(&frame);
                found.push((frame.tag, buffer.bytes(frame.body).to_vec()));
            }
        }
        found
    }

    #[tokio::test]
    async fn a_message_longer_than_the_buffer_fits_and_the_buffer_shrinks_again() {
        let long = vec![7; 3 * USUAL];
        let mut input = message(b'd', &long);
        for _ in 0..3 {
            input.extend(message(b'd', b"x"));
        }
        let mut input = &input[..];
        let mut buffer = ReadBuffer::new(true);
        assert!(buffer.fill(&mut input).await.unwrap());
        let frame = buffer.peek().unwrap().unwrap();
        assert_eq!(frame.body.len(), long.len());
        buffer.consume(&frame);
        assert!(buffer.fill(&mut input).await.unwrap());
        assert!(buffer.bytes.capacity() <= 2 * USUAL);
    }

    #[tokio::test]
    async fn an_impossible_length_is_refused_before_memory_is_taken() {
        for length in [0u32, 3, u32::MAX] {
            let mut input = vec![b'd'];
            input.extend(length.to_be_bytes());
            let mut buffer = ReadBuffer::new(true);
            assert!(buffer.fill(&mut &input[..]).await.is_err());
            assert!(buffer.bytes.capacity() <= USUAL);
        }
    }

    /// The naps of a stream at this rate, a read after each.
    fn naps(is_roomy: bool, bytes_per_ms: usize) -> Vec<Option<Duration>> {
        let mut now = Instant::now();
        let mut gear = Gear::new(now, is_roomy);
        let mut naps = Vec::new();
        for _ in 0..1000 {
            let nap = gear.nap(now);
            let waited = nap.unwrap_or(Duration::from_millis(1));
            now += waited;
            gear.note(now, bytes_per_ms * waited.as_millis() as usize, false);
            naps.push(nap);
        }
        naps
    }

    #[test]
    fn the_more_comes_the_longer_a_nap() {
        let quiet = naps(true, 700);
        assert_eq!(quiet, [None; 1000], "a row a millisecond must not wait");
        let steady = |naps: Vec<Option<Duration>>| {
            let last = *naps.last().unwrap();
            assert!(naps[100..].iter().all(|nap| *nap == last), "{naps:?}");
            last
        };
        assert_eq!(steady(naps(true, 6 << 10)), Some(NAP));
        assert_eq!(steady(naps(true, 40 << 10)), Some(LONG_NAP));
        assert_eq!(steady(naps(false, 40 << 10)), Some(NAP));
    }

    #[test]
    fn nothing_naps_behind_a_burst_or_before_what_is_there_already() {
        let start = Instant::now();
        let mut gear = Gear::new(start, true);
        gear.note(start, 500_000, false);
        assert_eq!(gear.nap(start), Some(LONG_NAP));
        gear.note(start, 500_000, true);
        assert_eq!(gear.nap(start), None);
        gear.note(start, 500_000, false);
        assert_eq!(gear.nap(start + Duration::from_millis(20)), None);
    }

    proptest::proptest! {
        #[test]
        fn messages_come_out_as_sent_however_they_are_cut(
            bodies: Vec<Vec<u8>>,
            piece in 1usize..64,
        ) {
            let input: Vec<u8> = bodies.iter().flat_map(|body| message(b'd', body)).collect();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time().start_paused(true).build().unwrap();
            let (whole, cut) = runtime.block_on(async {
                let (mut writer, mut reader) = tokio::io::duplex(piece);
                let copy = input.clone();
                let writing = tokio::spawn(async move {
                    tokio::io::AsyncWriteExt::write_all(&mut writer, &copy).await.unwrap();
                });
                let mut buffer = ReadBuffer::new(true);
                let mut cut = Vec::new();
                while buffer.fill(&mut reader).await.unwrap() {
                    while let Some(frame) = buffer.peek().unwrap() {
                        buffer.consume(&frame);
                        cut.push((frame.tag, buffer.bytes(frame.body).to_vec()));
                    }
                }
                writing.await.unwrap();
                (frames(&input).await, cut)
            });
            proptest::prop_assert_eq!(&whole, &cut);
            proptest::prop_assert_eq!(whole.len(), bodies.len());
        }
    }
}
