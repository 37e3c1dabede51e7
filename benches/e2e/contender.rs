//! A process that moves the backlog to Kafka, measured from outside.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::audit;
use crate::backlog::{Backlog, Delivery, PARTITIONS};
use crate::support::cleanup::{self, Service};
use crate::support::kafka;
use crate::support::{Connector, Worker, ports};
use crate::usage;

/// Longer than any contender needs.
const LIMIT: Duration = Duration::from_secs(600);

/// What one process did with one backlog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Events a second between the first record seen in Kafka and the last.
    pub(crate) rate: f64,
    /// Events a second from the start of the process.
    pub(crate) whole_rate: f64,
    /// Processor seconds of the process for a million events, over the time of `rate`.
    pub(crate) cpu_per_million: f64,
    /// The same for the broker.
    pub(crate) broker_cpu_per_million: f64,
    /// From the start of the process to the first record in Kafka.
    pub(crate) first: Duration,
    /// Highest resident memory.
    pub(crate) peak: u64,
}

/// walpost as in production: offsets in Kafka, the slot confirmed, a clean stop at the end.
pub(crate) fn walpost(backlog: &Backlog<'_>, slot: &str, delivery: Delivery) -> Run {
    let (prefix, topic) = backlog.stage.topic("walpost");
    let watch = Watch::new(backlog, &topic);
    let mut walpost = backlog
        .stage
        .walpost(backlog.workload, slot, &prefix, delivery);
    let run = watch.follow(walpost.pid(), walpost.started(), || {
        assert!(walpost.is_running(), "walpost ended:\n{}", walpost.log());
    });
    backlog.wait_confirmed(slot);
    walpost.stop();
    audit::records(backlog, &topic);
    run
}

/// Debezium on a standalone Connect worker, tuned for throughput.
pub(crate) fn debezium(backlog: &Backlog<'_>, slot: &str) -> Run {
    let (prefix, topic) = backlog.stage.topic("debezium");
    let (worker, connector) = backlog.stage.files(backlog.workload, slot, &prefix);
    let folder = cleanup::folder("connect");
    let (worker, connector) = tuned(&folder, &worker, connector);
    let log = folder.join("connect.log");
    let watch = Watch::new(backlog, &topic);
    let started = Instant::now();
    let mut command = kafka::java();
    command
        .env(
            "_JAVA_OPTIONS",
            "-Xmx2g -XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4",
        )
        .arg("org.apache.kafka.connect.cli.ConnectStandalone")
        .args([worker, connector])
        .stdin(Stdio::null())
        .stdout(File::create(&log).unwrap())
        .stderr(File::options().append(true).open(&log).unwrap());
    let mut service = Service::start(&mut command, "KILL");
    let run = watch.follow(service.pid(), started, || {
        if let Some(status) = service.ended() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("Kafka Connect ended ({status}):\n{said}");
        }
    });
    service.kill();
    audit::records(backlog, &topic);
    run
}

/// Debezium's files, with the settings that serve throughput best.
fn tuned(
    folder: &Path,
    worker: &Worker,
    connector: Connector,
) -> (std::path::PathBuf, std::path::PathBuf) {
    let plugins = kafka::cache().join("debezium-3.6.1.Final");
    assert!(
        plugins.join("complete").exists(),
        "no Debezium in {}: run `tests/services/install.sh debezium`",
        plugins.display()
    );
    let port = ports::free();
    let offsets = folder.join("offsets");
    let worker = worker
        .clone()
        .without("offset.storage.topic")
        .without("offset.storage.partitions")
        .without("offset.storage.replication.factor")
        .without("group.id")
        .set("offset.storage.file.filename", offsets.to_str().unwrap())
        .set("offset.flush.interval.ms", "1000")
        .set("listeners", &format!("http://127.0.0.1:{port}"))
        .set("plugin.path", plugins.to_str().unwrap())
        .set(
            "key.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        )
        .set(
            "value.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        );
    let connector = connector
        .set("plugin.name", "pgoutput")
        .set("max.batch.size", "8192")
        .set("max.queue.size", "32768")
        .set("poll.interval.ms", "50")
        .set("producer.override.linger.ms", "50")
        .set("producer.override.batch.size", "1048576")
        .set("producer.override.enable.idempotence", "true")
        .set("producer.override.acks", "all");
    (worker.write(folder), connector.write(folder))
}

/// Counts the records of a topic while they arrive.
struct Watch {
    consumer: BaseConsumer,
    topic: String,
    rows: i64,
    broker: u32,
}

impl Watch {
    fn new(backlog: &Backlog<'_>, topic: &str) -> Self {
        let kafka = &backlog.stage.scene.kafka;
        let watch = Self {
            consumer: ClientConfig::new()
                .set("bootstrap.servers", kafka.bootstrap())
                .create()
                .unwrap(),
            topic: topic.to_owned(),
            rows: i64::try_from(backlog.rows).unwrap(),
            broker: kafka.pid(),
        };
        // Connects, so that the first look is not late.
        assert_eq!(watch.count(), 0);
        watch
    }

    /// Records of open transactions are left out.
    fn count(&self) -> i64 {
        (0..PARTITIONS)
            .map(|partition| {
                let range =
                    self.consumer
                        .fetch_watermarks(&self.topic, partition, Duration::from_secs(10));
                range.map_or(0, |(low, high)| high - low)
            })
            .sum()
    }

    fn follow(&self, pid: u32, started: Instant, mut alive: impl FnMut()) -> Run {
        let (first_count, first) = self.wait_for(1, Duration::from_millis(3), &mut alive);
        let (cpu, broker_cpu) = (usage::cpu(pid), usage::cpu(self.broker));
        // Offsets also count the marks at the end of transactions, which are few; that each row is
        // one record is audited afterwards.
        let (_, last) = self.wait_for(self.rows, Duration::from_millis(10), &mut alive);
        let events = (self.rows - first_count) as f64;
        let per_million = |used: Duration| used.as_secs_f64() / events * 1e6;
        Run {
            rate: events / (last - first).as_secs_f64(),
            whole_rate: self.rows as f64 / (last - started).as_secs_f64(),
            cpu_per_million: per_million(usage::cpu(pid) - cpu),
            broker_cpu_per_million: per_million(usage::cpu(self.broker) - broker_cpu),
            first: first - started,
            peak: usage::peak_memory(pid),
        }
    }

    fn wait_for(&self, wanted: i64, pause: Duration, alive: &mut impl FnMut()) -> (i64, Instant) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let asked = Instant::now();
            let count = self.count();
            if count >= wanted {
                return (count, asked);
            }
            alive();
            assert!(asked < deadline, "{count} records of {wanted} in {LIMIT:?}");
            std::thread::sleep(pause);
        }
    }
}
