//! `make torture-check`: a walpost that breaks its promises has to be found out.

use std::process::ExitCode;

use crate::plan::{Plan, Store};
use crate::settings::Settings;
use crate::stage::{Act, Servers};
use crate::support::checker::Breach::{self, Ahead, Lost, Reordered, Repeated};
use crate::support::checker::Promise::{self, AtLeastOnce, ExactlyOnce};
use crate::support::checker::Violation;
use crate::{report, round, support};

use Needs::{Faults, FaultsAndFile, Nothing};

/// Tells the binary, if it was built for that, which promise to break.
const VARIABLE: &str = "WALPOST_SABOTAGE";

/// Rounds within which a breach has to be found.
const ROUNDS: u64 = 20;

/// What a kind of sabotage needs to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Faults,
    /// And positions in a file. What keeps records from Kafka keeps a position in a topic from it as
    /// well, and only luck shows that it came too early; a file is there at once.
    FaultsAndFile,
}

/// What the binary is told, what it needs to show, and what has to be found. In exactly-once nothing
/// but a committed transaction moves a position, so there is no "early".
const KINDS: &[(Promise, &str, Needs, &[Breach])] = &[
    (AtLeastOnce, "lose", Nothing, &[Ahead, Lost]),
    (AtLeastOnce, "reorder", Nothing, &[Reordered]),
    (AtLeastOnce, "double", Nothing, &[Repeated]),
    (AtLeastOnce, "early", FaultsAndFile, &[Ahead, Lost]),
    (ExactlyOnce, "lose", Faults, &[Ahead, Lost]),
    (ExactlyOnce, "reorder", Faults, &[Reordered]),
    (ExactlyOnce, "double", Faults, &[Repeated]),
];

/// First an honest walpost, in which nothing may be found, then each kind of sabotage.
pub(crate) fn every_breach_is_found(settings: &Settings) -> ExitCode {
    let binary = std::fs::read(support::command::binary()).unwrap();
    let needle = VARIABLE.as_bytes();
    if !binary.windows(needle.len()).any(|part| part == needle) {
        eprintln!("torture-check: this walpost was built without --features sabotage");
        return ExitCode::FAILURE;
    }
    let servers = Servers::start();
    let mut code = ExitCode::SUCCESS;
    let mut failed = |text: String| {
        eprintln!("{text}");
        code = ExitCode::FAILURE;
    };
    for promise in [AtLeastOnce, ExactlyOnce] {
        match look(settings, &servers, promise, "none", Faults, 10) {
            None => println!("torture-check: {promise:?}: an honest walpost passes"),
            Some((_, _, report)) => failed(report),
        }
    }
    for &(promise, kind, needs, expected) in KINDS {
        match look(settings, &servers, promise, kind, needs, ROUNDS) {
            None => failed(format!(
                "torture-check: {promise:?}: {kind:?} was not found in {ROUNDS} rounds; seed {}",
                settings.seed
            )),
            Some((round, found, report)) => {
                if found.iter().any(|found| expected.contains(&found.breach)) {
                    println!(
                        "torture-check: {promise:?}: {kind:?} was found in round {round}: {}",
                        found[0]
                    );
                } else {
                    failed(report);
                }
            }
        }
    }
    code
}

/// The first round in which something was found, and what.
fn look(
    settings: &Settings,
    servers: &Servers,
    promise: Promise,
    kind: &str,
    needs: Needs,
    rounds: u64,
) -> Option<(u64, Vec<Violation>, String)> {
    let environment = [(VARIABLE, kind)];
    let store = match needs {
        FaultsAndFile => Store::File,
        _ => Act::store(settings.seed, 0, promise),
    };
    let mut act = Act::open(servers, settings.seed, 0, promise, store, &environment);
    for number in 0..rounds {
        let plan = Plan::draw(settings.seed, number, act.store);
        let plan = match needs {
            Nothing => plan.calm(),
            _ => plan.starved(),
        };
        round::run(&mut act, servers, &plan);
        let found = act.checker.found();
        if !found.is_empty() {
            let report = report(settings, &act, &plan, &found);
            return Some((number, found, report));
        }
    }
    act.close();
    None
}
