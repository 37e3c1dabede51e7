//! `make demo`: orders in a real Postgres, records in a real Kafka, a SIGKILL in between, and the
//! proof, read back from Kafka, that nothing is missing and each key is in order.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a demonstration talks, and ends where it fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod proof;
mod shop;

use std::time::{Duration, Instant};

use support::{Record, Tail, Walpost, cleanup, consumer, wait};

use proof::Proof;
use shop::Shop;

const TOPIC: &str = "outbox.event.order";
const WRITERS: u32 = 4;
const ORDERS: u32 = 40_000;
const BACKLOG: u32 = 200_000;

fn main() {
    let begun = Instant::now();
    let keep = std::env::var_os("KEEP").is_some_and(|value| value != "" && value != "0");
    println!("starting Postgres and Kafka …");
    let mut shop = Shop::open();
    let walpost = shop.start_walpost();
    shop.introduce(&walpost);

    let walpost = one_order(&mut shop, walpost);
    let (walpost, records) = killed_under_load(&mut shop, walpost);
    let mut walpost = backlog(&mut shop, walpost, records);

    if keep {
        shop.explain(&mut walpost);
        cleanup::keep();
        walpost.leave_running();
    } else {
        walpost.stop();
        drop(walpost);
        cleanup::finish();
        println!(
            "\nstopped, nothing left running; all of it took {}",
            seconds(begun)
        );
        println!("`KEEP=1 make demo` leaves everything up to look at");
    }
}

fn one_order(shop: &mut Shop, walpost: Walpost) -> Walpost {
    headline("one business transaction, one event");
    println!("{}", shop::FIRST_ORDER.trim_end());
    let mut tail = Tail::new(&shop.bootstrap(), &[TOPIC]);
    shop.first_order();
    let record = tail.at_least(1)[0].clone();
    println!("\n  as a consumer sees it:");
    show(&record);
    walpost
}

/// Returns the running successor and the number of records in Kafka so far.
fn killed_under_load(shop: &mut Shop, mut walpost: Walpost) -> (Walpost, usize) {
    headline("a SIGKILL under load");
    println!(
        "  {WRITERS} writers place {} orders, one transaction each, every fifth rolled back",
        thousands(ORDERS as usize)
    );
    let mut tail = Tail::new(&shop.bootstrap(), &[TOPIC]);
    let writers = shop.place_orders(WRITERS, ORDERS);
    let seen = tail
        .within(ORDERS as usize / 4, Duration::from_secs(120))
        .len();
    walpost.kill();
    println!("  SIGKILL after {} records were in Kafka", thousands(seen));
    drop(walpost);
    let mut walpost = shop.start_walpost();
    walpost.wait_ready();
    println!(
        "  started again, streaming after {}",
        seconds(walpost.started())
    );
    let placed = writers.join();
    let lag = walpost.metrics();
    let behind = lag.get("walpost_lag_bytes", &[("stage", "delivered")]);
    let wanted = placed.committed + 1;
    let caught_up = Instant::now();
    wait::until("every order is in Kafka", Duration::from_secs(120), || {
        proof::distinct(tail.now()) >= wanted
    });
    println!(
        "  all committed orders in Kafka {} after the last commit{}",
        seconds(caught_up),
        behind.map_or(String::new(), |bytes| format!(" (lag then: {bytes} bytes)")),
    );

    headline("the proof, read from Kafka from the beginning");
    let records = consumer::read(&shop.bootstrap(), &[TOPIC]);
    let proof = Proof::of(&records, wanted, placed.rolled_back);
    println!("{proof}");
    assert!(
        proof.holds(),
        "a committed order is missing or out of order"
    );
    (walpost, records.len())
}

fn backlog(shop: &mut Shop, mut walpost: Walpost, before: usize) -> Walpost {
    headline("a backlog, and the lag");
    walpost.stop();
    drop(walpost);
    shop.fill(BACKLOG);
    println!(
        "  walpost stopped cleanly; {} events committed meanwhile, 100 to a transaction",
        thousands(BACKLOG as usize)
    );
    let mut walpost = shop.start_walpost();
    let delivered = |walpost: &mut Walpost| {
        let metrics = walpost.metrics();
        metrics.sum("walpost_events_total", &[("topic", TOPIC)])
    };
    wait::until("the backlog is delivered", Duration::from_secs(180), || {
        delivered(&mut walpost) >= f64::from(BACKLOG)
    });
    let time = walpost.started().elapsed();
    let rate = f64::from(BACKLOG) / time.as_secs_f64();
    println!(
        "  delivered in {:.2} s, {} events a second, start included",
        time.as_secs_f64(),
        thousands(rate as usize)
    );
    let records = consumer::read(&shop.bootstrap(), &[TOPIC]).len();
    assert_eq!(
        records,
        before + BACKLOG as usize,
        "a clean restart neither loses nor repeats"
    );
    println!(
        "  {} more records in Kafka: each event once, none repeated by the clean restart",
        thousands(records - before)
    );
    let lag =
        |walpost: &mut Walpost, name: &str| walpost.metrics().get(name, &[("stage", "confirmed")]);
    wait::until("the slot is told", wait::SOON, || {
        lag(&mut walpost, "walpost_lag_bytes").is_some_and(|bytes| bytes < 100_000.0)
    });
    println!(
        "  lag now, confirmed to the slot: {} bytes, {} s; peak memory of walpost {} MB",
        lag(&mut walpost, "walpost_lag_bytes").unwrap_or_default(),
        lag(&mut walpost, "walpost_lag_seconds").unwrap_or_default(),
        walpost.peak_memory() / 1_000_000
    );
    println!("{}", shop.latency());
    walpost
}

fn headline(text: &str) {
    println!(
        "\n── {text} {}",
        "─".repeat(74_usize.saturating_sub(text.chars().count()))
    );
}

fn show(record: &Record) {
    println!("    topic      {}", record.topic);
    println!("    partition  {}", record.partition);
    println!("    key        {}", record.key_text());
    for (name, value) in &record.headers {
        let value = String::from_utf8_lossy(value.as_deref().unwrap_or_default());
        println!("    header     {name}: {value}");
    }
    println!("    value      {}", record.value_text());
}

fn seconds(since: Instant) -> String {
    format!("{:.2} s", since.elapsed().as_secs_f64())
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
