//! The servers, the ways to them, and one act: a database, topics and a walpost of their own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::load::{self, Committed};
use crate::plan::{Link, Store, generator};
use crate::settings::Settings;
use crate::support::checker::{Breach, Checker, Promise};
use crate::support::cleanup::Signal;
use crate::support::clock::Clock;
use crate::support::kafka::Options;
use crate::support::{Connector, Kafka, Postgres, Relay, Scene, Tail, Walpost, Worker};
use crate::support::{cleanup, ports};

/// Settings that let faults pass quickly, and make small transactions spill.
const SETTINGS: &[(&str, &str)] = &[
    ("wal_sender_timeout", "3s"),
    ("logical_decoding_work_mem", "64kB"),
    ("deadlock_timeout", "100ms"),
];

/// How long a look at servers that are well may take on a busy machine.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

/// What all acts share.
pub(crate) struct Servers {
    pub(crate) postgres: Arc<Postgres>,
    pub(crate) kafka: Arc<Kafka>,
    to_postgres: Relay,
    to_kafka: Relay,
}

impl Servers {
    pub(crate) fn start() -> Self {
        let port = ports::free();
        let to_kafka = Relay::to(port);
        let kafka = Kafka::start(&Options {
            behind: Some((port, to_kafka.port())),
            // A broker that was frozen for long is not admitted at first.
            properties: &[
                ("broker.session.timeout.ms", "1000"),
                ("broker.heartbeat.interval.ms", "250"),
            ],
            ..Options::default()
        });
        let postgres = Postgres::private(SETTINGS);
        Self {
            to_postgres: Relay::to(postgres.port()),
            to_kafka,
            postgres,
            kafka,
        }
    }

    pub(crate) fn relay(&self, link: Link) -> &Relay {
        match link {
            Link::Postgres => &self.to_postgres,
            Link::Kafka => &self.to_kafka,
        }
    }
}

/// A database with its walpost, kept for a number of rounds.
pub(crate) struct Act {
    pub(crate) scene: Scene,
    pub(crate) store: Store,
    pub(crate) promise: Promise,
    pub(crate) walpost: Walpost,
    pub(crate) checker: Checker,
    pub(crate) committed: Arc<Mutex<Vec<Committed>>>,
    /// Set while a fault may show: events may come again.
    pub(crate) calm: bool,
    /// Neither can be asked while it is away.
    pub(crate) kafka_away: bool,
    pub(crate) postgres_away: bool,
    admin: Option<Client>,
    tail: Tail,
    offsets: Tail,
    offset_file: PathBuf,
    clock: Option<Clock>,
    stored: i64,
    /// Where the slot began: nothing is stored before it moves.
    began: i64,
}

impl Act {
    /// Opens act `number` as the settings and their seed have it.
    pub(crate) fn of(servers: &Servers, settings: &Settings, number: u64) -> Self {
        let promise = settings.promise(number);
        let store = Self::store(settings.seed, number, promise);
        Self::open(servers, settings.seed, number, promise, store, &[])
    }

    /// Opens act `number` of `seed`.
    pub(crate) fn open(
        servers: &Servers,
        seed: u64,
        number: u64,
        promise: Promise,
        store: Store,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut scene = Scene::bare(
            "torture",
            Arc::clone(&servers.postgres),
            Arc::clone(&servers.kafka),
        );
        scene.sql(load::SCHEMA);
        let topics = [scene.topic("a"), scene.topic("b")];
        servers
            .kafka
            .create_topics(&topics.clone().map(|topic| (topic, 3)), &[]);
        let offset_file = cleanup::folder("offsets").join("offsets");
        let (worker, connector) = files(servers, &scene, store, promise, &offset_file);
        let files = crate::support::connector::write_files(&worker, &[&connector]);
        // Every look at a clock of this kind costs a file: not all acts have it.
        let clock = generator(seed ^ 0xC10C, number)
            .bool()
            .then(Clock::new)
            .flatten();
        let mut environment = environment.to_vec();
        environment.extend(clock.iter().flat_map(Clock::environment));
        let mut walpost = Walpost::start_files(files, &environment).allowing("");
        walpost.wait_streaming();
        let direct = servers.kafka.direct_bootstrap();
        let [a, b] = &topics;
        let mut act = Self {
            tail: Tail::new(&direct, &[a, b]),
            offsets: Tail::new(&direct, &[&scene.offset_topic()]),
            offset_file,
            clock,
            store,
            promise,
            walpost,
            checker: Checker::new(promise),
            committed: Arc::default(),
            calm: true,
            kafka_away: false,
            postgres_away: false,
            admin: None,
            stored: 0,
            began: 0,
            scene,
        };
        act.began = act.confirmed().expect("walpost made the slot");
        act
    }

    /// Where the seed has an act keep its positions: the offsets ride with the events in exactly-once.
    pub(crate) fn store(seed: u64, number: u64, promise: Promise) -> Store {
        let file = generator(seed ^ 0xAC7, number).u8(..3) == 0;
        match promise {
            Promise::AtLeastOnce if file => Store::File,
            _ => Store::Topic,
        }
    }

    /// Ends walpost and removes what the act left on the servers.
    pub(crate) fn close(mut self) {
        self.walpost.stop();
        // A fault may have ended the first connection.
        self.scene.reconnect();
        self.scene.drop_slot();
        for aggregate in ["a", "b"] {
            self.scene.kafka.delete_topic(&self.scene.topic(aggregate));
        }
    }

    /// Takes in what has come to Kafka, waiting for it at most so long.
    pub(crate) fn look(&mut self, patience: Duration) {
        for record in self.tail.drain(patience) {
            self.checker.take(&record, self.calm);
        }
    }

    /// Runs SQL on a connection that may have to be made again.
    fn ask(&mut self, sql: &str) -> Option<Vec<(String, i64)>> {
        let client = match &mut self.admin {
            Some(client) => client,
            none => none.insert(self.scene.postgres.try_connect(&self.scene.name).ok()?),
        };
        let Ok(rows) = client.query(sql, &[]) else {
            self.admin = None;
            return None;
        };
        Some(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// As [`Act::ask`], of a server that is well.
    pub(crate) fn ask_surely(&mut self, sql: &str) -> Vec<(String, i64)> {
        let deadline = Instant::now() + LOOK;
        loop {
            if let Some(rows) = self.ask(sql) {
                return rows;
            }
            assert!(Instant::now() < deadline, "Postgres does not answer: {sql}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Evaluates `what` for each walsender.
    pub(crate) fn walsenders(&mut self, what: &str) -> Vec<String> {
        if self.postgres_away {
            return Vec::new();
        }
        let sql = format!("select ({what})::text, 0::bigint from pg_stat_replication");
        let rows = self.ask(&sql).unwrap_or_default();
        rows.into_iter().map(|(value, _)| value).collect()
    }

    /// The slot's `confirmed_flush_lsn`.
    pub(crate) fn confirmed(&mut self) -> Option<i64> {
        let slot = self.scene.name.clone();
        let sql = format!(
            "select '', (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots
             where slot_name = '{slot}' and confirmed_flush_lsn is not null"
        );
        self.ask(&sql)?.first().map(|(_, lsn)| *lsn)
    }

    /// The stored position, as far as it is known; 0 before the first.
    pub(crate) fn stored(&mut self, patience: Duration) -> i64 {
        let found = match self.store {
            Store::Topic => {
                let records = self.offsets.drain(patience);
                let values = records.iter().filter_map(|record| {
                    serde_json::from_slice::<serde_json::Value>(record.value.as_deref()?).ok()
                });
                values.filter_map(|value| value["lsn"].as_i64()).max()
            }
            Store::File => {
                let text = std::fs::read_to_string(&self.offset_file).unwrap_or_default();
                let body: serde_json::Value = text
                    .lines()
                    .nth(1)
                    .and_then(|line| serde_json::from_str(line).ok())
                    .unwrap_or_default();
                let mut values = body.as_object().into_iter().flat_map(|map| map.values());
                values.find_map(|value| value["lsn"].as_i64())
            }
        };
        self.stored = self.stored.max(found.unwrap_or(0));
        self.stored
    }

    /// Walpost can send nothing now: neither slot nor stored position may be ahead of Kafka.
    pub(crate) fn probe(&mut self, when: &str) {
        if self.kafka_away || self.postgres_away {
            return;
        }
        let Some(confirmed) = self.confirmed() else {
            return;
        };
        let deadline = Instant::now() + LOOK;
        let mut stored = self.stored(Duration::ZERO);
        while stored < confirmed && confirmed > self.began {
            if Instant::now() > deadline {
                let text =
                    format!("{when} the slot was told {confirmed}, but only {stored} was stored");
                return self.checker.breach(Breach::Ahead, text);
            }
            stored = self.stored(Duration::from_millis(5));
        }
        let reached = stored.max(confirmed);
        let promised: Vec<(String, i64)> = {
            let committed = self.committed.lock().unwrap();
            let covered = committed.iter().filter(|done| done.position <= reached);
            covered.flat_map(|done| done.newest.clone()).collect()
        };
        self.look(Duration::ZERO);
        while let Some((key, number)) = promised
            .iter()
            .find(|(key, number)| !self.checker.has(key, *number))
        {
            if Instant::now() > deadline {
                let text = format!(
                    "{when} slot {confirmed} and stored position {stored} were past event {number} \
                     of {key}, which Kafka does not have"
                );
                return self.checker.breach(Breach::Ahead, text);
            }
            self.look(Duration::from_millis(5));
        }
    }

    /// Sets walpost's wall clock beside the true time, in acts where that can be done.
    pub(crate) fn set_clock(&self, seconds: i64) {
        if let Some(clock) = &self.clock {
            clock.jump(seconds);
        }
    }

    /// Starts walpost again with the same files.
    pub(crate) fn start_again(&mut self) {
        if self.walpost.log().contains("panicked at") {
            let text = "walpost panicked, see its log".to_owned();
            return self.checker.breach(Breach::Stuck, text);
        }
        let next = self.walpost.again();
        let former = std::mem::replace(&mut self.walpost, next);
        let log = former.log_file().to_owned();
        drop(former);
        std::fs::remove_file(log).unwrap();
    }

    /// Undoes whatever a fault did.
    pub(crate) fn heal(&mut self, servers: &Servers) {
        self.set_clock(0);
        self.walpost.fill_disk(false);
        self.walpost.signal(Signal::CONT);
        servers.heal(self);
    }
}

impl Servers {
    fn heal(&self, act: &mut Act) {
        for link in [Link::Postgres, Link::Kafka] {
            self.relay(link).set(crate::support::relay::Weather::Fair);
        }
        self.postgres.thaw();
        self.kafka.thaw();
        act.postgres_away = false;
        act.kafka_away = false;
    }
}

/// The files of an act's walpost. Waits are short, so that what takes long is walpost.
fn files(
    servers: &Servers,
    scene: &Scene,
    store: Store,
    promise: Promise,
    offset_file: &std::path::Path,
) -> (Worker, Connector) {
    let kafka = format!("127.0.0.1:{}", servers.relay(Link::Kafka).port());
    let mut worker = scene
        .worker()
        .set("bootstrap.servers", &kafka)
        .set("request.timeout.ms", "3000")
        .set("task.shutdown.graceful.timeout.ms", "1000");
    if store == Store::File {
        for property in ["topic", "partitions", "replication.factor"] {
            worker = worker.without(&format!("offset.storage.{property}"));
        }
        let file = offset_file.to_str().expect("a UTF-8 path");
        worker = worker.set("offset.storage.file.filename", file);
    }
    let postgres = servers.relay(Link::Postgres).port().to_string();
    let mut connector = scene
        .connector()
        .set("database.port", &postgres)
        .set("retriable.restart.connector.wait.ms", "300")
        .set("status.update.interval.ms", "500")
        .set("connection.validation.timeout.ms", "5000")
        .set("database.query.timeout.ms", "10000")
        .set("producer.override.request.timeout.ms", "3000");
    if promise == Promise::ExactlyOnce {
        worker = worker.set("exactly.once.source.support", "enabled");
        // Small enough that large transactions are cut, with a position inside them.
        connector = connector
            .set("exactly.once.support", "required")
            .set("transaction.max.records", "400");
    }
    (worker, connector)
}
