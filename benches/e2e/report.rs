//! What is printed.

use std::time::Duration;

use crate::ceiling::Pass;
use crate::contender::Run;
use crate::latency::Latency;

/// The rounds of one backlog.
#[derive(Debug, Default)]
pub(crate) struct Results {
    rounds: Vec<Round>,
}

/// One round.
#[derive(Debug, Clone, Copy)]
struct Round {
    plain: Pass,
    batched: Pass,
    at_least: Run,
    exactly: Run,
}

impl Results {
    pub(crate) fn add(&mut self, plain: Pass, batched: Pass, at_least: Run, exactly: Run) {
        self.rounds.push(Round {
            plain,
            batched,
            at_least,
            exactly,
        });
    }

    /// The median of each figure of a run over the rounds.
    fn run(&self, pick: fn(&Round) -> &Run) -> Run {
        let run = |figure: fn(&Run) -> f64| self.median(|round| figure(pick(round)));
        Run {
            rate: run(|run| run.rate),
            whole_rate: run(|run| run.whole_rate),
            cpu_per_million: run(|run| run.cpu_per_million),
            broker_cpu_per_million: run(|run| run.broker_cpu_per_million),
            first: Duration::from_secs_f64(run(|run| run.first.as_secs_f64())),
            peak: run(|run| run.peak as f64) as u64,
        }
    }

    /// The median over the rounds.
    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

pub(crate) fn machine() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    println!("{cores} cores, load {load} before the start; everything runs on this machine");
}

pub(crate) fn servers(postgres: u32, kafka: &str) {
    println!(
        "Postgres {postgres} (wal_level=logical, fsync off, shared_buffers 256 MB), Kafka {kafka} (one KRaft node, three partitions)"
    );
}

pub(crate) fn headline(text: &str) {
    println!("\n== {text}");
}

pub(crate) fn backlog(rows: u64, per_transaction: u64, payload: i32, time: Duration) {
    println!(
        "backlog: {rows} rows, {per_transaction} a transaction, payload {payload} bytes, written \
         in {:.1} s",
        time.as_secs_f64()
    );
}

pub(crate) fn round(number: usize, plain: Pass, batched: Pass, run: Run, exactly: Run) {
    println!(
        "round {number}: discard plain {}/s ({} reads), batched {}/s ({} reads); walpost {}/s, \
         {:.2} of batched; exactly once {}/s, {:.2} of that",
        thousands(plain.rate),
        plain.reads,
        thousands(batched.rate),
        batched.reads,
        thousands(run.rate),
        run.rate / batched.rate,
        thousands(exactly.rate),
        exactly.rate / run.rate,
    );
}

/// Medians over the rounds; ratios are medians of the ratios within a round.
pub(crate) fn table(results: &Results, debezium: Option<Run>) {
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}",
        "", "events/s", "of batch.", "from 0 s", "CPU s/M", "broker", "peak", "first"
    );
    let plain = results.median(|round| round.plain.rate);
    let batched = results.median(|round| round.batched.rate);
    let of_batched = results.median(|round| round.plain.rate / round.batched.rate);
    println!(
        "{:<26} {:>9} {:>9.2}",
        "discard, plain",
        thousands(plain),
        of_batched
    );
    println!(
        "{:<26} {:>9} {:>9.2}",
        "discard, batched",
        thousands(batched),
        1.0
    );
    let walpost = results.run(|round| &round.at_least);
    let exactly = results.run(|round| &round.exactly);
    let ratio = results.median(|round| round.at_least.rate / round.batched.rate);
    contender("walpost", &walpost, ratio);
    let ratio = results.median(|round| round.exactly.rate / round.batched.rate);
    contender("walpost, exactly once", &exactly, ratio);
    let kept = results.median(|round| round.exactly.rate / round.at_least.rate);
    println!("exactly once against at least once: {kept:.2} of the events/s");
    if let Some(debezium) = debezium {
        contender("Debezium, tuned", &debezium, debezium.rate / batched);
        println!(
            "walpost against Debezium: {:.1} times the events/s, {:.1} times the events per CPU \
             second, {:.0} times less memory",
            walpost.rate / debezium.rate,
            debezium.cpu_per_million / walpost.cpu_per_million,
            debezium.peak as f64 / walpost.peak as f64
        );
    }
}

fn contender(name: &str, run: &Run, ratio: f64) {
    println!(
        "{name:<26} {:>9} {ratio:>9.2} {:>9} {:>10.2} {:>10.2} {:>6.1} MB {:>6.2} s",
        thousands(run.rate),
        thousands(run.whole_rate),
        run.cpu_per_million,
        run.broker_cpu_per_million,
        run.peak as f64 / f64::from(1 << 20),
        run.first.as_secs_f64(),
    );
}

pub(crate) fn latency_header() {
    println!(
        "{:<34} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "", "samples", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
}

pub(crate) fn latency(name: &str, latency: &Latency) {
    let at = |share| latency.at(share).as_secs_f64() * 1e3;
    println!(
        "{name:<34} {:>8} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
        latency.samples(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

pub(crate) fn latency_ratio(bare: &Latency, walpost: &Latency) {
    let ratio = |share| walpost.at(share).as_secs_f64() / bare.at(share).as_secs_f64();
    println!(
        "walpost against bare: p50 {:.2} times, p99 {:.2} times",
        ratio(0.5),
        ratio(0.99)
    );
}

fn thousands(rate: f64) -> String {
    format!("{:.1} k", rate / 1e3)
}
