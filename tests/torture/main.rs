//! `make torture`: random faults under a random load, and after each round the comparison of what
//! Kafka holds with what was committed. With `check` or `soak`, see these modules.
//!
//! The seed fixes load and faults of every round. A round that fails is printed, with the command
//! that runs it again.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool of its own that talks and ends where it fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod check;
mod load;
mod plan;
mod round;
mod settings;
mod soak;
mod stage;
mod tally;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plan::Plan;
use settings::Settings;
use stage::{Act, Servers};
use support::checker::Violation;
use support::cleanup;
use tally::Tally;

/// Rounds that share a database, topics and offsets.
const ACT: u64 = 50;

fn main() -> ExitCode {
    let settings = Settings::from_environment();
    let code = match std::env::args().nth(1).as_deref() {
        Some("check") => check::every_breach_is_found(&settings),
        Some("soak") => soak::stays_flat(&settings),
        _ => tortured(&settings),
    };
    cleanup::finish();
    code
}

fn tortured(settings: &Settings) -> ExitCode {
    println!(
        "torture: seed {}, rounds {} to {}, walpost {}",
        settings.seed,
        settings.from,
        settings.from + settings.rounds - 1,
        support::command::binary().display()
    );
    match torture(settings) {
        Ok(tally) => {
            println!("{tally}");
            println!(
                "torture: nothing lost, nothing out of order; seed {}",
                settings.seed
            );
            ExitCode::SUCCESS
        }
        Err(report) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the rounds; the first that finds something ends it.
fn torture(settings: &Settings) -> Result<Tally, String> {
    let servers = Servers::start();
    if support::clock::Clock::new().is_none() {
        println!("torture: no libfaketime here, so no clock jumps; `make services` installs it");
    }
    let mut tally = Tally::default();
    let mut act: Option<Act> = None;
    for number in settings.from..settings.from + settings.rounds {
        if settings::STOP.load(Ordering::Relaxed) {
            println!("torture: stopped before round {number}");
            break;
        }
        settings::ROUND.store(number, Ordering::Relaxed);
        if number.is_multiple_of(ACT)
            && let Some(over) = act.take()
        {
            over.close();
        }
        let act = act.get_or_insert_with(|| Act::of(&servers, settings, number / ACT));
        let plan = Plan::draw(settings.seed, number, act.store);
        let before = (act.checker.events, act.checker.repeats);
        let begun = Instant::now();
        let recovery = round::run(act, &servers, &plan);
        let found = act.checker.found();
        if !found.is_empty() {
            return Err(report(settings, act, &plan, &found));
        }
        tally.add(
            &plan,
            begun.elapsed(),
            recovery,
            act.checker.events - before.0,
            act.checker.repeats - before.1,
        );
        if (number + 1).is_multiple_of(settings.every) {
            println!("{tally}");
        }
    }
    if let Some(act) = act {
        act.close();
    }
    Ok(tally)
}

/// What a failed round shows.
fn report(settings: &Settings, act: &Act, plan: &Plan, found: &[Violation]) -> String {
    let mut text = format!(
        "\ntorture: FAILED in {plan}\n  {:?}, positions in a {:?}\n",
        act.promise, act.store
    );
    for violation in found.iter().take(20) {
        text.push_str(&format!("  {violation}\n"));
    }
    if found.len() > 20 {
        text.push_str(&format!("  and {} more\n", found.len() - 20));
    }
    let log = act.walpost.log();
    let lines: Vec<&str> = log.lines().collect();
    text.push_str("the end of walpost's log:\n");
    for line in &lines[lines.len().saturating_sub(60)..] {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&settings.again(plan.round));
    text
}
