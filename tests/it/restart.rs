//! Back from any stop.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::cleanup::Signal;
use crate::support::process::Walpost;
use crate::support::{Record, Scene, random, wait};

/// Writers that never stop by themselves: each inserts its own keys with rising numbers, in
/// transactions of one to forty rows, some rolled back. Returns what was committed.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<thread::JoinHandle<HashMap<String, i64>>>,
}

impl Load {
    pub(crate) fn start(scene: &Scene, writers: u64) -> Self {
        Self::with_pauses(scene, writers, 0.004)
    }

    /// Each transaction stays open for at most `longest` seconds before its end.
    pub(crate) fn with_pauses(scene: &Scene, writers: u64, longest: f32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let write = |writer: u64| {
            let (mut client, stop) = (scene.connect(), Arc::clone(&stop));
            let mut rng = random::generator(&format!("{}-{writer}", scene.name));
            thread::spawn(move || {
                let mut committed = HashMap::new();
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("w{writer}-k{}", rng.u8(..5));
                    let next = committed.get(&key).map_or(0, |last| last + 1);
                    let rows = if rng.u8(..8) == 0 { rng.i64(2..40) } else { 1 };
                    let rolled_back = rng.u8(..6) == 0;
                    let end = if rolled_back { "rollback" } else { "commit" };
                    let insert = format!(
                        "begin;
                         insert into outbox (aggregatetype, aggregateid, payload)
                         select 'order', '{key}', jsonb_build_object('n', n, 'ghost', {rolled_back})
                         from generate_series({next}, {next} + {rows} - 1) n order by n;
                         select pg_sleep({}); {end}",
                        rng.f32() * longest
                    );
                    client.batch_execute(&insert).unwrap();
                    if !rolled_back {
                        committed.insert(key, next + rows - 1);
                    }
                }
                committed
            })
        };
        Self {
            writers: (0..writers).map(write).collect(),
            stop,
        }
    }

    /// Ends the load; the last number committed for each key.
    pub(crate) fn finish(self) -> HashMap<String, i64> {
        self.stop.store(true, Ordering::Relaxed);
        self.writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    }
}

/// Nothing lost, nothing that was rolled back.
pub(crate) fn check_complete(records: &[Record], committed: &HashMap<String, i64>) {
    let found: HashSet<(&str, i64)> = records
        .iter()
        .map(|record| (record.key_text(), record.json()["n"].as_i64().unwrap()))
        .collect();
    for (key, last) in committed {
        for number in 0..=*last {
            assert!(
                found.contains(&(key, number)),
                "event {number} of {key} is missing"
            );
        }
    }
    assert!(records.iter().all(|record| record.json()["ghost"] == false));
}

/// As [`check_complete`], and first deliveries of each key are in order.
pub(crate) fn check(records: &[Record], committed: &HashMap<String, i64>) {
    check_complete(records, committed);
    let mut partitions: HashMap<&str, i32> = HashMap::new();
    for record in records {
        let partition = *partitions
            .entry(record.key_text())
            .or_insert(record.partition);
        let number = &record.json()["n"];
        assert_eq!(
            record.partition,
            partition,
            "event {number} of {} moved",
            record.key_text()
        );
    }
    let mut newest: HashMap<&str, i64> = HashMap::new();
    let mut ids = HashSet::new();
    for record in records {
        let value = record.json();
        assert_eq!(value["ghost"], false, "a rolled back event was delivered");
        if ids.insert(record.header("id")) {
            let number = value["n"].as_i64().unwrap();
            let last = newest.entry(record.key_text()).or_insert(-1);
            assert_eq!(
                number,
                *last + 1,
                "first delivery of key {}",
                record.key_text()
            );
            *last = number;
        }
    }
    for (key, last) in committed {
        assert_eq!(newest.get(key.as_str()), Some(last), "last event of {key}");
    }
}

/// Waits until the newest event of each key is in Kafka.
pub(crate) fn wait_delivered(scene: &Scene, committed: &HashMap<String, i64>) {
    let mut tail = scene.tail("order");
    wait::until(
        "every committed event arrives",
        Duration::from_secs(120),
        || {
            let mut newest: HashMap<String, i64> = HashMap::new();
            for record in tail.now() {
                let number = record.json()["n"].as_i64().unwrap();
                let last = newest.entry(record.key_text().to_owned()).or_insert(-1);
                *last = number.max(*last);
            }
            committed
                .iter()
                .all(|(key, last)| newest.get(key) == Some(last))
        },
    );
}

#[test]
fn thirty_kills_under_load_lose_nothing_and_keep_each_key_in_order() {
    let scene = Scene::new("kills");
    let mut rng = random::generator("kills");
    // Rows of a snapshot come in the table's order; the promise is about the stream.
    let mut walpost = scene.start();
    let load = Load::with_pauses(&scene, 50, 0.3);
    for _ in 0..30 {
        // From before the connection to well into the stream.
        let moment = Instant::now() + Duration::from_millis(rng.u64(0..1200));
        wait::until("the moment to kill", wait::SOON, || {
            Instant::now() >= moment
        });
        walpost.kill();
        walpost.allow("active");
        walpost = walpost.again();
    }
    walpost.wait_ready();
    let committed = load.finish();
    wait_delivered(&scene, &committed);
    let records = scene.records("order");
    assert!(records.len() > 500, "the load was real");
    check(&records, &committed);
}

/// Progress that is only in memory at the stop comes again.
#[test]
fn a_clean_stop_repeats_nothing() {
    let mut scene = Scene::new("restart");
    let mut walpost = scene.start();
    for round in 0..4 {
        scene.events("order", "k", round * 250 + 1, round * 250 + 250);
        // Right after the first of them arrived: most are still on their way.
        let mut tail = scene.tail("order");
        tail.at_least(usize::try_from(round * 250).unwrap() + 1);
        walpost.stop();
        walpost = walpost.again();
        walpost.wait_ready();
    }
    let mut tail = scene.tail("order");
    tail.exactly(1000, Duration::from_secs(1));
}

#[test]
fn sigterm_is_answered_in_every_state() {
    let mut scene = Scene::new("restart");
    // Idle, with SIGINT, and with the SIGHUP of a terminal that is closed.
    let mut walpost = scene.start();
    walpost.signal(Signal::INT);
    assert_eq!(walpost.wait_exit(Duration::from_secs(10)).code(), Some(0));
    let mut walpost = walpost.again();
    walpost.wait_streaming();
    walpost.signal(Signal::HUP);
    assert_eq!(walpost.wait_exit(Duration::from_secs(10)).code(), Some(0));
    // At once after the start.
    let mut walpost = walpost.again();
    walpost.wait_log("listening");
    assert_eq!(walpost.terminate().0, Some(0), "{}", walpost.log());
    // Under load.
    walpost.allow("snapshot");
    let load = Load::start(&scene, 2);
    let mut walpost = walpost.again();
    walpost.wait_ready();
    scene.tail("order").at_least(50);
    let (code, time) = walpost.terminate();
    assert_eq!(code, Some(0), "{}", walpost.log());
    assert!(time < Duration::from_secs(10), "{time:?}");
    load.finish();
    // The slot is free at once.
    let slot = scene.name.clone();
    let active =
        format!("select count(*) from pg_replication_slots where slot_name = '{slot}' and active");
    wait::until("the slot is free", Duration::from_secs(2), || {
        scene.number(&active) == Some(0)
    });
}

#[test]
fn a_second_signal_ends_at_once() {
    let kafka = crate::support::Kafka::start(&crate::support::kafka::Options::default());
    let mut scene = Scene::on("restart", crate::support::Postgres::shared(), kafka);
    let mut walpost = scene.start();
    scene.event("k", 1);
    scene.tail("order").at_least(1);
    scene.kafka.freeze();
    scene.event("k", 2);
    walpost.allow("");
    walpost.signal(Signal::TERM);
    let log = |walpost: &Walpost| walpost.log().len();
    let before = log(&walpost);
    wait::until("the first signal is noticed", wait::SOON, || {
        log(&walpost) > before || !walpost.is_running()
    });
    let asked = Instant::now();
    walpost.signal(Signal::TERM);
    walpost.wait_exit(Duration::from_secs(5));
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    scene.kafka.thaw();
}

/// With no stored position, the slot's own is the best one known: never the end of the WAL.
#[test]
fn a_lost_offset_is_made_good_by_the_slot() {
    let mut scene = Scene::new("restart");
    let folder = crate::support::cleanup::folder("offsets");
    let file = folder.join("offsets.json");
    let worker = scene
        .worker()
        .without("offset.storage.topic")
        .without("offset.storage.partitions")
        .without("offset.storage.replication.factor")
        .set("offset.storage.file.filename", file.to_str().unwrap());
    let mut walpost = Walpost::start(&worker, &[&scene.connector()]);
    walpost.wait_ready();
    for n in 1..=10 {
        scene.event("k", n);
    }
    scene.tail("order").at_least(10);
    walpost.stop();
    for n in 11..=15 {
        scene.event("k", n);
    }
    std::fs::remove_file(&file).unwrap();
    let mut walpost = walpost.again();
    walpost.wait_ready();
    let said = walpost.log().matches("no stored position").count();
    assert_eq!(said, 1, "{}", walpost.log());
    let mut tail = scene.tail("order");
    let numbers: Vec<_> = tail
        .exactly(15, Duration::from_millis(500))
        .iter()
        .map(|record| record.json()["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
}
