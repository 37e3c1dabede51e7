//! What the environment asks for.

use std::time::Duration;

/// `BENCH_*`.
pub(crate) struct Options {
    parts: Vec<String>,
    rows: Option<u64>,
    pub(crate) rounds: usize,
    pub(crate) debezium: bool,
    pub(crate) latency_time: Duration,
    /// Connector properties for walpost over the benchmark's own.
    pub(crate) properties: Vec<(String, String)>,
}

impl Options {
    pub(crate) fn from_environment() -> Self {
        let parts = text("BENCH_PARTS").unwrap_or_else(|| "throughput,formats,latency".to_owned());
        let parts: Vec<String> = parts
            .split(',')
            .map(|part| part.trim().to_owned())
            .collect();
        for part in &parts {
            assert!(
                ["throughput", "formats", "latency"].contains(&part.as_str()),
                "BENCH_PARTS: {part:?} is none of throughput, formats, latency"
            );
        }
        Self {
            parts,
            rows: number("BENCH_ROWS"),
            rounds: usize::try_from(number("BENCH_ROUNDS").unwrap_or(3).max(1)).unwrap(),
            debezium: text("BENCH_DEBEZIUM").is_some_and(|value| value != "0"),
            latency_time: Duration::from_secs(number("BENCH_LATENCY_SECONDS").unwrap_or(10)),
            properties: text("BENCH_PROPERTIES").map_or_else(Vec::new, |list| pairs(&list)),
        }
    }

    /// Whether this part of the benchmark runs.
    pub(crate) fn part(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part == name)
    }

    /// Rows of a backlog.
    pub(crate) fn rows(&self, usual: u64) -> u64 {
        self.rows.unwrap_or(usual)
    }
}

/// `name=value`, separated by blanks.
fn pairs(list: &str) -> Vec<(String, String)> {
    list.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or_else(|| {
                panic!("BENCH_PROPERTIES: {pair:?} is not of the form name=value")
            });
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    text(name).map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a whole number"))
    })
}
