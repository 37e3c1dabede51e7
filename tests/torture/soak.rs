//! `make soak`: a steady load and a reconnect every few seconds; memory and file descriptors of one
//! walpost stay where they are.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::plan::{Plan, generator};
use crate::settings::{self, Settings};
use crate::stage::{Act, Servers};
use crate::{report, round};

/// Of the whole time, before anything is measured: caches fill, the allocator finds its size.
const WARM_UP: f64 = 0.15;

/// Growth of the median from the first to the last third that is not noise.
const MEMORY_GROWTH: u64 = 4 * 1024 * 1024;
const DESCRIPTOR_GROWTH: usize = 2;

/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(60);

/// One look at the process, with nothing on its way.
#[derive(Debug, Clone, Copy)]
struct Sample {
    memory: u64,
    peak: u64,
    descriptors: usize,
}

impl Sample {
    fn of(act: &Act) -> Self {
        Self {
            memory: act.walpost.memory(),
            peak: act.walpost.peak_memory(),
            descriptors: act.walpost.descriptors(),
        }
    }
}

/// Runs for `SOAK_SECONDS`.
pub(crate) fn stays_flat(settings: &Settings) -> ExitCode {
    let length = settings.soak;
    println!(
        "soak: seed {}, {} s, walpost {}",
        settings.seed,
        length.as_secs(),
        crate::support::command::binary().display()
    );
    let servers = Servers::start();
    let mut act = Act::of(&servers, settings, 0);
    let begun = Instant::now();
    let (mut samples, mut printed) = (Vec::new(), Instant::now());
    let (mut slices, mut worst) = (0, Duration::ZERO);
    while begun.elapsed() < length && !settings::STOP.load(Ordering::Relaxed) {
        let plan = Plan::steady(&mut generator(settings.seed, slices), slices);
        settings::ROUND.store(slices, Ordering::Relaxed);
        worst = worst.max(round::run(&mut act, &servers, &plan));
        let found = act.checker.found();
        if !found.is_empty() {
            eprintln!("{}", report(settings, &act, &plan, &found));
            return ExitCode::FAILURE;
        }
        slices += 1;
        let sample = Sample::of(&act);
        if begun.elapsed() >= length.mul_f64(WARM_UP) {
            samples.push(sample);
        }
        if printed.elapsed() >= PROGRESS {
            printed = Instant::now();
            println!(
                "soak: {} s, {} reconnects, {} events, {} came again, {:.1} MB (peak {:.1}), \
                 {} descriptors, worst recovery {:.2} s",
                begun.elapsed().as_secs(),
                slices,
                act.checker.events,
                act.checker.repeats,
                megabytes(sample.memory),
                megabytes(sample.peak),
                sample.descriptors,
                worst.as_secs_f64()
            );
        }
    }
    let verdict = judge(&samples);
    act.close();
    match verdict {
        Ok(text) => {
            println!("soak: {text}; seed {}", settings.seed);
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("soak: FAILED, {text}; seed {}", settings.seed);
            ExitCode::FAILURE
        }
    }
}

/// Compares the first third of the samples with the last.
fn judge(samples: &[Sample]) -> Result<String, String> {
    let third = samples.len() / 3;
    if third < 3 {
        return Err("too short to tell; SOAK_SECONDS=120 is the least that makes sense".to_owned());
    }
    let (early, late) = (&samples[..third], &samples[samples.len() - third..]);
    let (before, after) = (
        median(early, |s| s.memory as usize),
        median(late, |s| s.memory as usize),
    );
    let descriptors = (
        median(early, |s| s.descriptors),
        median(late, |s| s.descriptors),
    );
    let text = format!(
        "memory {:.1} MB, then {:.1} MB (peak {:.1} MB, then {:.1} MB), descriptors {}, then {}, \
         over {} samples",
        megabytes(before as u64),
        megabytes(after as u64),
        megabytes(early[third - 1].peak),
        megabytes(late[third - 1].peak),
        descriptors.0,
        descriptors.1,
        samples.len()
    );
    let grown = after.saturating_sub(before) as u64 > MEMORY_GROWTH.max(before as u64 / 20)
        || descriptors.1 > descriptors.0 + DESCRIPTOR_GROWTH;
    if grown { Err(text) } else { Ok(text) }
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> usize) -> usize {
    let mut values: Vec<usize> = samples.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
