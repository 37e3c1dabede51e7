//! What the records in Kafka prove.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::support::Record;
use super::thousands;

/// The tally over a topic read from its beginning.
#[derive(Debug, Default)]
pub(super) struct Proof {
    committed: usize,
    rolled_back: usize,
    found: usize,
    ghosts: usize,
    repeated: usize,
    keys: usize,
    keys_in_order: usize,
}

impl Proof {
    /// Judges `records` in Kafka's order. Events are told apart by their `id` header, and carry a
    /// number that rises per key.
    pub(super) fn of(records: &[Record], committed: usize, rolled_back: usize) -> Self {
        let mut seen = HashSet::new();
        let mut newest: HashMap<&str, (i64, bool)> = HashMap::new();
        let mut proof = Self {
            committed,
            rolled_back,
            ..Self::default()
        };
        for record in records {
            if !seen.insert(record.header("id")) {
                proof.repeated += 1;
                continue;
            }
            let value = record.json();
            proof.ghosts += usize::from(value["state"] == "rolled back");
            let number = value["number"].as_i64().unwrap_or(-1);
            let (last, in_order) = newest.entry(record.key_text()).or_insert((-1, true));
            *in_order &= number > *last;
            *last = number;
        }
        proof.found = seen.len();
        proof.keys = newest.len();
        proof.keys_in_order = newest.values().filter(|(_, in_order)| *in_order).count();
        proof
    }

    pub(super) fn holds(&self) -> bool {
        self.found == self.committed && self.ghosts == 0 && self.keys == self.keys_in_order
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |number: usize| format!("{:>9}", thousands(number));
        writeln!(f, "  committed in Postgres      {}", row(self.committed))?;
        writeln!(
            f,
            "  found in Kafka             {}   missing {}",
            row(self.found),
            self.committed.saturating_sub(self.found)
        )?;
        writeln!(
            f,
            "  rolled back in Postgres    {}   in Kafka {}",
            row(self.rolled_back),
            self.ghosts
        )?;
        writeln!(
            f,
            "  repeated after the SIGKILL {}   with the same id header, which tells a consumer",
            row(self.repeated)
        )?;
        write!(
            f,
            "  keys                       {}   in order {}",
            row(self.keys),
            thousands(self.keys_in_order)
        )
    }
}

/// How many different events there are.
pub(super) fn distinct(records: &[Record]) -> usize {
    let ids: HashSet<_> = records.iter().map(|record| record.header("id")).collect();
    ids.len()
}
