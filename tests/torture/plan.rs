//! What a round does: its load and its faults, drawn from the seed and the round's number alone, so
//! that a round that failed can be run again by itself.

use std::fmt;
use std::time::Duration;

use crate::support::relay::Weather;

/// Keys of one act; writers share them.
pub(crate) const KEYS: u8 = 10;

/// Which way a fault lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Postgres,
    Kafka,
}

/// Where positions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Topic,
    File,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// SIGKILL, and a new process at once.
    Kill,
    /// SIGTERM, and a new process once it has ended.
    Terminate,
    /// SIGSTOP for a while.
    Freeze(Duration),
    /// The wall clock jumps by so many seconds, and back again when the round is over. Only into
    /// the past: see [`crate::support::clock`].
    Clock(i64),
    /// The offset file cannot grow by a single byte for a while, as on a full disk.
    DiskFull(Duration),
    /// All connections of a link end at once.
    Cut(Link),
    /// A link behaves badly for a while.
    Storm(Link, Weather, Duration),
    /// A link falls silent; what was open stays silent for ever, and has to be noticed.
    Silence(Link, Duration),
    /// `pg_terminate_backend`.
    EndWalsender,
    /// SIGKILL of the walsender, after which Postgres starts its crash recovery.
    KillWalsender,
    FreezePostgres(Duration),
    RestartPostgres {
        crash: bool,
    },
    FreezeKafka(Duration),
    RestartKafka {
        crash: bool,
    },
}

impl Fault {
    /// For the tally.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Terminate => "terminate",
            Fault::Freeze(_) => "freeze",
            Fault::Clock(_) => "clock jump",
            Fault::DiskFull(_) => "disk full",
            Fault::Cut(Link::Postgres) => "cut postgres",
            Fault::Cut(Link::Kafka) => "cut kafka",
            Fault::Storm(Link::Postgres, weather, _) => match weather {
                Weather::Stall => "stall postgres",
                Weather::HalfOpen => "half-open postgres",
                Weather::Delay(_) => "delay postgres",
                Weather::Throttle(_) => "throttle postgres",
                Weather::Trickle => "bytewise postgres",
                Weather::Down | Weather::Fair => "no way to postgres",
            },
            Fault::Storm(Link::Kafka, weather, _) => match weather {
                Weather::Stall => "stall kafka",
                Weather::HalfOpen => "half-open kafka",
                Weather::Delay(_) => "delay kafka",
                Weather::Throttle(_) => "throttle kafka",
                Weather::Trickle => "bytewise kafka",
                Weather::Down | Weather::Fair => "no way to kafka",
            },
            Fault::Silence(Link::Postgres, _) => "silence postgres",
            Fault::Silence(Link::Kafka, _) => "silence kafka",
            Fault::EndWalsender => "end walsender",
            Fault::KillWalsender => "kill walsender",
            Fault::FreezePostgres(_) => "freeze postgres",
            Fault::RestartPostgres { crash: false } => "restart postgres",
            Fault::RestartPostgres { crash: true } => "crash postgres",
            Fault::FreezeKafka(_) => "freeze kafka",
            Fault::RestartKafka { crash: false } => "restart kafka",
            Fault::RestartKafka { crash: true } => "crash kafka",
        }
    }

    /// How long it lasts; `None` when it is over at once.
    pub(crate) fn lasts(self) -> Option<Duration> {
        match self {
            Fault::Freeze(time)
            | Fault::DiskFull(time)
            | Fault::Storm(_, _, time)
            | Fault::Silence(_, time)
            | Fault::FreezePostgres(time)
            | Fault::FreezeKafka(time) => Some(time),
            _ => None,
        }
    }
}

/// One statement of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Rows of one key, with a padding of so many characters.
    Emit { key: u8, rows: u32, size: u32 },
    /// As `Emit`, in a savepoint that is rolled back.
    Ghost { key: u8, rows: u32 },
    /// The rows written so far are deleted again, which publishes them all the same.
    Delete,
    /// A row of another table, and a logical message.
    Other,
    /// The transaction stays open for a while.
    Sleep(Duration),
}

/// One transaction of a writer.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Transaction { steps: Vec<Step>, commit: bool },
    Ddl(&'static str),
}

/// One round.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) round: u64,
    pub(crate) writers: Vec<Vec<Work>>,
    /// In order of time, counted from the start of the round.
    pub(crate) faults: Vec<(Duration, Fault)>,
}

impl Plan {
    /// Round `round` of `seed`.
    pub(crate) fn draw(seed: u64, round: u64, store: Store) -> Self {
        let mut rng = generator(seed, round);
        let mut writers: Vec<Vec<Work>> =
            (0..rng.u8(2..6)).map(|_| transactions(&mut rng)).collect();
        if rng.u8(..10) == 0 {
            let large = Work::Transaction {
                steps: large(&mut rng),
                commit: rng.u8(..5) > 0,
            };
            writers[0].push(large);
        }
        if rng.u8(..6) == 0 {
            writers[1].insert(0, Work::Ddl(rng.choice(DDL).unwrap()));
        }
        let count = [0, 0, 1, 1, 1, 1, 2, 2, 2, 3][rng.usize(..10)];
        let mut faults: Vec<_> = (0..count)
            .map(|_| (milliseconds(&mut rng, 0..300), fault(&mut rng, store)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        Self {
            round,
            writers,
            faults,
        }
    }

    /// A few seconds of steady load with one fault that costs a connection, but no process.
    pub(crate) fn steady(rng: &mut fastrand::Rng, round: u64) -> Self {
        let writer = |rng: &mut fastrand::Rng| {
            let mut work = Vec::new();
            for _ in 0..120 {
                let mut steps = steps(rng);
                steps.push(Step::Sleep(milliseconds(rng, 10..40)));
                let commit = rng.u8(..6) > 0;
                work.push(Work::Transaction { steps, commit });
            }
            work
        };
        let writers = (0..3).map(|_| writer(rng)).collect();
        let down = |link| Fault::Storm(link, Weather::Down, Duration::from_millis(300));
        let fault = [
            Fault::Cut(Link::Postgres),
            Fault::Cut(Link::Kafka),
            Fault::EndWalsender,
            down(Link::Postgres),
            down(Link::Kafka),
        ][usize::try_from(round % 5).unwrap()];
        Self {
            round,
            writers,
            faults: vec![(milliseconds(rng, 500..2_000), fault)],
        }
    }

    /// The same load without its faults.
    pub(crate) fn calm(mut self) -> Self {
        self.faults.clear();
        self
    }

    /// The same, and nothing reaches Kafka for most of the load.
    pub(crate) fn starved(mut self) -> Self {
        let time = Duration::from_millis(300);
        let stall = Fault::Storm(Link::Kafka, Weather::Stall, time);
        self.faults.insert(0, (Duration::ZERO, stall));
        self
    }
}

/// A generator for one round, or for whatever else has a number.
pub(crate) fn generator(seed: u64, number: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number)
}

const DDL: &[&str] = &[
    "alter table outbox add column if not exists extra int default 7",
    "alter table outbox drop column if exists extra",
    "create index if not exists outbox_by_key on outbox (aggregateid)",
    "drop index if exists outbox_by_key",
    "alter table outbox replica identity full",
    "alter table outbox replica identity default",
    "truncate outbox",
    "alter table outbox alter type set default 'U'",
    "alter table outbox alter payload type jsonb using payload",
    "vacuum full outbox",
];

fn transactions(rng: &mut fastrand::Rng) -> Vec<Work> {
    (0..rng.u8(3..10))
        .map(|_| Work::Transaction {
            steps: steps(rng),
            commit: rng.u8(..6) > 0,
        })
        .collect()
}

/// Keys rise, so that writers which share them never wait for each other in a circle.
fn steps(rng: &mut fastrand::Rng) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut key = rng.u8(..KEYS);
    loop {
        let rows = if rng.u8(..8) == 0 { rng.u32(2..40) } else { 1 };
        let size = if rng.u8(..12) == 0 {
            rng.u32(1_000..30_000)
        } else {
            rng.u32(..200)
        };
        steps.push(Step::Emit { key, rows, size });
        match rng.u8(..10) {
            0 | 1 => steps.push(Step::Ghost {
                key,
                rows: rng.u32(1..20),
            }),
            2 => steps.push(Step::Delete),
            3 => steps.push(Step::Other),
            4 | 5 => steps.push(Step::Sleep(milliseconds(rng, 0..30))),
            _ => {}
        }
        key += rng.u8(1..4);
        if key >= KEYS || rng.bool() {
            return steps;
        }
    }
}

/// Larger than the decoding memory, and than several batches.
fn large(rng: &mut fastrand::Rng) -> Vec<Step> {
    (0..KEYS)
        .flat_map(|key| {
            let rows = rng.u32(50..500);
            let emit = Step::Emit {
                key,
                rows,
                size: rng.u32(..300),
            };
            let ghost = Step::Ghost { key, rows: 20 };
            [emit, ghost]
        })
        .collect()
}

fn fault(rng: &mut fastrand::Rng, store: Store) -> Fault {
    let while_ = milliseconds(rng, 50..400);
    match rng.u32(..1000) {
        0..220 => Fault::Kill,
        220..300 => Fault::Terminate,
        300..350 => Fault::Freeze(while_),
        350..370 => Fault::Clock(-rng.i64(1..200_000)),
        370..430 => match store {
            Store::File => Fault::DiskFull(while_),
            Store::Topic => Fault::Storm(Link::Kafka, Weather::Stall, while_),
        },
        430..600 => on_link(rng, Link::Postgres, while_),
        600..780 => on_link(rng, Link::Kafka, while_),
        780..880 => Fault::EndWalsender,
        880..900 => Fault::KillWalsender,
        900..925 => Fault::FreezePostgres(while_),
        // Some last until the broker is no longer admitted to its cluster.
        925..970 => Fault::FreezeKafka(milliseconds(rng, 50..1600)),
        970..980 => Fault::RestartPostgres { crash: false },
        980..992 => Fault::RestartPostgres { crash: true },
        992..996 => Fault::RestartKafka { crash: false },
        _ => Fault::RestartKafka { crash: true },
    }
}

fn on_link(rng: &mut fastrand::Rng, link: Link, time: Duration) -> Fault {
    let weather = match rng.u8(..40) {
        0..9 => return Fault::Cut(link),
        9 => return Fault::Silence(link, time),
        10..18 => Weather::Stall,
        18..24 => Weather::HalfOpen,
        24..28 => Weather::Delay(milliseconds(rng, 1..60)),
        28..32 => Weather::Throttle(rng.u32(2_000..200_000)),
        32..36 => Weather::Trickle,
        _ => Weather::Down,
    };
    Fault::Storm(link, weather, time)
}

fn milliseconds(rng: &mut fastrand::Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transactions: usize = self.writers.iter().map(Vec::len).sum();
        write!(
            f,
            "round {}: {} writers, {transactions} transactions",
            self.round,
            self.writers.len()
        )?;
        for (at, fault) in &self.faults {
            write!(f, "; at {} ms {}", at.as_millis(), fault.kind())?;
            if let Some(time) = fault.lasts() {
                write!(f, " for {} ms", time.as_millis())?;
            }
        }
        Ok(())
    }
}
