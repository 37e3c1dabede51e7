//! A backlog, read by everybody in turn.

use crate::backlog::{Backlog, Delivery, PUBLICATION, Stage};
use crate::ceiling::{self, Gear, Pass, Stream};
use crate::contender::{self, Run};
use crate::options::Options;
use crate::report::{self, Results};
use crate::workload::{FORMATS, PLAIN, Workload};

/// jsonb payload, string key, the router's defaults, at one and at a hundred rows a transaction.
pub(crate) fn plain(stage: &Stage, options: &Options) {
    for (per_transaction, rows) in [(1, 300_000), (100, 400_000)] {
        compare(stage, options, &PLAIN, options.rows(rows), per_transaction);
    }
}

/// The other formats, at a hundred rows a transaction.
pub(crate) fn formats(stage: &Stage, options: &Options) {
    for workload in &FORMATS {
        compare(stage, options, workload, options.rows(200_000), 100);
    }
}

/// One backlog. The readers of a round follow one another, so that what else the machine does
/// meets them alike; ratios are taken within a round.
fn compare(stage: &Stage, options: &Options, workload: &Workload, rows: u64, per_transaction: u64) {
    report::headline(&format!(
        "{}, {per_transaction} row{} a transaction",
        workload.name,
        if per_transaction == 1 { "" } else { "s" }
    ));
    // The discarding readers confirm nothing and share a slot.
    let slots = 2 + 2 * options.rounds;
    let backlog = Backlog::write(stage, workload, rows, per_transaction, slots);
    let mut results = Results::default();
    for round in 0..options.rounds {
        let plain = discard(&backlog, Gear::Plain);
        let batched = discard(&backlog, Gear::Batched);
        let run = |slot: usize, delivery| {
            contender::walpost(&backlog, backlog.slot(2 + 2 * round + slot), delivery)
        };
        let at_least = run(0, Delivery::AtLeastOnce);
        let exactly = run(1, Delivery::ExactlyOnce);
        results.add(plain, batched, at_least, exactly);
        report::round(round + 1, plain, batched, at_least, exactly);
    }
    let debezium: Option<Run> = options
        .debezium
        .then(|| contender::debezium(&backlog, backlog.slot(1)));
    report::table(&results, debezium);
}

fn discard(backlog: &Backlog<'_>, gear: Gear) -> Pass {
    let scene = &backlog.stage.scene;
    let stream = Stream {
        port: scene.postgres.port(),
        database: &scene.name,
        slot: backlog.slot(0),
        publication: PUBLICATION,
    };
    backlog.stage.wait_released(stream.slot);
    ceiling::discard(&stream, backlog.rows, gear)
}
