//! The sums that are printed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::plan::Plan;

/// What all rounds so far gave.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rounds: u64,
    time: Duration,
    faults: BTreeMap<&'static str, u64>,
    events: u64,
    repeats: u64,
    worst: Duration,
    worst_round: u64,
}

impl Tally {
    pub(crate) fn add(
        &mut self,
        plan: &Plan,
        time: Duration,
        recovery: Duration,
        events: u64,
        repeats: u64,
    ) {
        self.rounds += 1;
        self.time += time;
        for (_, fault) in &plan.faults {
            *self.faults.entry(fault.kind()).or_default() += 1;
        }
        self.events += events;
        self.repeats += repeats;
        if recovery > self.worst {
            (self.worst, self.worst_round) = (recovery, plan.round);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        let kinds: Vec<String> = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        write!(
            f,
            "{} rounds, {:.2} s each; {} events, {} came again; worst recovery {:.2} s (round {}); \
             {faults} faults: {}",
            self.rounds,
            self.time.as_secs_f64() / self.rounds.max(1) as f64,
            self.events,
            self.repeats,
            self.worst.as_secs_f64(),
            self.worst_round,
            kinds.join(", ")
        )
    }
}
