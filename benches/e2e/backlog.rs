//! The stage of a run: one server of each kind, one database, and a backlog with its slots.

use std::time::Instant;

use postgres::Client;

use crate::options::Options;
use crate::report;
use crate::support::connector::write_files;
use crate::support::kafka::{self, Kafka};
use crate::support::postgres::Postgres;
use crate::support::process::Walpost;
use crate::support::{Connector, Scene, Worker, random, wait};
use crate::workload::Workload;

/// The publication of every backlog.
pub(crate) const PUBLICATION: &str = "bench";

/// The partitions of every topic.
pub(crate) const PARTITIONS: i32 = 3;

/// The server's settings: as the tests', with room for a backlog and without what would disturb.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "256MB"),
    ("max_wal_size", "16GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("log_min_messages", "error"),
];

/// What walpost promises to readers of committed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    AtLeastOnce,
    ExactlyOnce,
}

/// Servers and database.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    properties: Vec<(String, String)>,
}

/// Rows written and not yet read.
pub(crate) struct Backlog<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) workload: &'a Workload,
    pub(crate) rows: u64,
    slots: Vec<String>,
    /// The end of the WAL once all was written.
    end: i64,
}

impl Stage {
    /// Starts the servers.
    pub(crate) fn open(options: &Options) -> Self {
        let postgres = Postgres::private(SETTINGS);
        let kafka = Kafka::start(&kafka::Options::default());
        let stage = Self {
            scene: Scene::bare("bench", postgres, kafka),
            properties: options.properties.clone(),
        };
        report::servers(stage.scene.postgres.major(), kafka::VERSION);
        stage
    }

    pub(crate) fn connect(&self) -> Client {
        self.scene.connect()
    }

    /// Creates table and publication.
    pub(crate) fn prepare(&self, workload: &Workload) {
        let publication = format!(
            "drop publication if exists {PUBLICATION}; create publication {PUBLICATION} for table outbox"
        );
        let mut client = self.connect();
        client.batch_execute(&workload.create()).unwrap();
        client.batch_execute(&publication).unwrap();
    }

    pub(crate) fn create_slot(&self) -> String {
        let slot = random::name("slot");
        self.connect()
            .batch_execute(&format!(
                "select pg_create_logical_replication_slot('{slot}', 'pgoutput')"
            ))
            .unwrap();
        slot
    }

    pub(crate) fn drop_slot(&self, slot: &str) {
        let mut client = self.connect();
        let drop = format!("select pg_drop_replication_slot('{slot}')");
        wait::until("the slot is free", wait::SOON, || {
            client.batch_execute(&drop).is_ok()
        });
    }

    /// Waits until nobody reads `slot`.
    pub(crate) fn wait_released(&self, slot: &str) {
        let mut client = self.connect();
        let active = "select active from pg_replication_slots where slot_name = $1";
        wait::until("the slot is free", wait::SOON, || {
            !client
                .query_one(active, &[&slot])
                .unwrap()
                .get::<_, bool>(0)
        });
    }

    /// A new topic prefix with its one topic, created before anybody writes.
    pub(crate) fn topic(&self, stem: &str) -> (String, String) {
        let prefix = random::name(stem);
        let topic = format!("{prefix}.order");
        self.scene.kafka.create_topic(&topic, PARTITIONS, &[]);
        (prefix, topic)
    }

    /// The files of a contender that reads `slot` and writes under `prefix`.
    pub(crate) fn files(
        &self,
        workload: &Workload,
        slot: &str,
        prefix: &str,
    ) -> (Worker, Connector) {
        let replacement = format!("{prefix}.${{routedByValue}}");
        let mut connector = self
            .scene
            .connector()
            .set("slot.name", slot)
            .set("publication.name", PUBLICATION)
            .set("publication.autocreate.mode", "disabled")
            .set("snapshot.mode", "no_data")
            .set("topic.prefix", prefix)
            .set(
                "key.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            )
            .set(
                "value.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            )
            .router("route.topic.replacement", &replacement);
        connector.name = prefix.to_owned();
        for (property, value) in workload.properties {
            connector = connector.set(property, value);
        }
        let worker = self
            .scene
            .worker()
            .set("group.id", prefix)
            .set("offset.storage.topic", &format!("{prefix}-offsets"));
        (worker, connector)
    }

    /// What walpost is given for `name`, or else `default`.
    pub(crate) fn property<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        let given = self.properties.iter().find(|(found, _)| found == name);
        given.map_or(default, |(_, value)| value)
    }

    /// Starts walpost on `slot`.
    pub(crate) fn walpost(
        &self,
        workload: &Workload,
        slot: &str,
        prefix: &str,
        delivery: Delivery,
    ) -> Walpost {
        let (worker, connector) = self.files(workload, slot, prefix);
        let worker = match delivery {
            Delivery::AtLeastOnce => worker,
            Delivery::ExactlyOnce => worker.set("exactly.once.source.support", "enabled"),
        };
        let connector = self
            .properties
            .iter()
            .fold(connector, |connector, (name, value)| {
                connector.set(name, value)
            });
        Walpost::start_files(write_files(&worker, &[&connector]), &[])
            // What differs from Debezium is said at each start.
            .allowing("notice:")
    }

    /// How far `slot` is confirmed.
    pub(crate) fn confirmed(&self, client: &mut Client, slot: &str) -> i64 {
        let confirmed = "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots
                         where slot_name = $1";
        client.query_one(confirmed, &[&slot]).unwrap().get(0)
    }
}

impl<'a> Backlog<'a> {
    /// Creates `slots` slots and then writes the rows.
    pub(crate) fn write(
        stage: &'a Stage,
        workload: &'a Workload,
        rows: u64,
        per_transaction: u64,
        slots: usize,
    ) -> Self {
        stage.prepare(workload);
        let slots = (0..slots).map(|_| stage.create_slot()).collect();
        let mut client = stage.connect();
        // Here only: the walsender sends what is flushed, and an asynchronous commit is flushed late.
        client
            .batch_execute("set synchronous_commit = off")
            .unwrap();
        let begun = Instant::now();
        client
            .batch_execute(&workload.fill(rows, per_transaction))
            .unwrap();
        let end = "select (pg_current_wal_lsn() - '0/0')::bigint";
        let end = client.query_one(end, &[]).unwrap().get(0);
        // So that the first reader does not pay for flushing what the writer left.
        client.batch_execute("checkpoint").unwrap();
        let size = "select avg(octet_length(payload::text))::int from outbox";
        let size: i32 = client.query_one(size, &[]).unwrap().get(0);
        report::backlog(rows, per_transaction, size, begun.elapsed());
        Self {
            stage,
            workload,
            rows,
            slots,
            end,
        }
    }

    pub(crate) fn slot(&self, index: usize) -> &str {
        &self.slots[index]
    }

    /// Waits until `slot` has been told that the whole backlog is stored.
    pub(crate) fn wait_confirmed(&self, slot: &str) {
        let mut client = self.stage.connect();
        wait::until("the slot is confirmed", wait::SOON, || {
            self.stage.confirmed(&mut client, slot) >= self.end
        });
    }
}

impl Drop for Backlog<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for slot in &self.slots {
                self.stage.drop_slot(slot);
            }
        }
    }
}
