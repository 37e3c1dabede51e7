//! What the caller asks for, and how a run is stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::checker::Promise;

/// Set by the first Ctrl-C; the second ends the process at once.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// The round that is running.
pub(crate) static ROUND: AtomicU64 = AtomicU64::new(0);

/// From the environment, as `make` hands it over.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `SEED`, or a new one.
    pub(crate) seed: u64,
    /// `FROM`: the first round, 0.
    pub(crate) from: u64,
    /// `ROUNDS`: how many.
    pub(crate) rounds: u64,
    /// `MODE`: one promise only; both in turn otherwise.
    mode: Option<Promise>,
    /// `SOAK_SECONDS`: how long a soak lasts.
    pub(crate) soak: Duration,
    /// `EVERY`: rounds between two lines of progress.
    pub(crate) every: u64,
}

impl Settings {
    /// Reads the environment, and has Ctrl-C and panics name the seed.
    pub(crate) fn from_environment() -> Self {
        let settings = Self {
            seed: number("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32)),
            from: number("FROM").unwrap_or(0),
            rounds: number("ROUNDS").unwrap_or(100),
            mode: match text("MODE").as_deref() {
                None | Some("both") => None,
                Some("at-least-once") => Some(Promise::AtLeastOnce),
                Some("exactly-once") => Some(Promise::ExactlyOnce),
                Some(other) => panic!("MODE is at-least-once, exactly-once or both, not {other}"),
            },
            soak: Duration::from_secs(number("SOAK_SECONDS").unwrap_or(3600)),
            every: number("EVERY").unwrap_or(25),
        };
        let again = settings.clone();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            hook(panic);
            eprintln!("{}", again.again(ROUND.load(Ordering::Relaxed)));
        }));
        let seed = settings.seed;
        std::thread::spawn(move || listen(seed));
        settings
    }

    /// What an act promises.
    pub(crate) fn promise(&self, act: u64) -> Promise {
        self.mode.unwrap_or(if act.is_multiple_of(2) {
            Promise::AtLeastOnce
        } else {
            Promise::ExactlyOnce
        })
    }

    /// How to run `round` again.
    pub(crate) fn again(&self, round: u64) -> String {
        let mode = match self.mode {
            None => "",
            Some(Promise::AtLeastOnce) => " MODE=at-least-once",
            Some(Promise::ExactlyOnce) => " MODE=exactly-once",
        };
        format!(
            "torture: seed {seed}, round {round}; the same load and faults again:\n    \
             make torture SEED={seed} FROM={round} ROUNDS=1{mode}\n\
             or with all rounds before it:\n    \
             make torture SEED={seed} FROM={from} ROUNDS={rounds}{mode}",
            seed = self.seed,
            from = self.from,
            rounds = round + 1 - self.from.min(round)
        )
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    let parsed = text(name)?.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{name} is a whole number")))
}

/// Ctrl-C: the running round is finished, and everything started is stopped.
fn listen(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        while tokio::signal::ctrl_c().await.is_ok() {
            eprintln!(
                "torture: stopping in round {}; seed {seed}",
                ROUND.load(Ordering::Relaxed)
            );
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        }
    });
}
