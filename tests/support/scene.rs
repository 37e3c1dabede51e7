//! The usual stage: a database with an outbox, a slot name, topics, all with names of their own.

use std::sync::Arc;
use std::time::Duration;

use postgres::Client;

use super::connector::{Connector, Worker};
use super::consumer::{self, Record, Tail};
use super::process::Walpost;
use super::{Kafka, Postgres, postgres as server, random, wait};

/// The table that Debezium's router expects by default.
pub(crate) const OUTBOX: &str = "
    create table outbox (
        id uuid primary key default gen_random_uuid(),
        aggregatetype text not null,
        aggregateid text,
        type text not null default 'T',
        payload jsonb
    );
    create table other (id bigint generated always as identity primary key, note text);";

/// One test's database and names.
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) postgres: Arc<Postgres>,
    pub(crate) kafka: Arc<Kafka>,
    client: Client,
}

impl Scene {
    /// A scene on the shared servers.
    pub(crate) fn new(stem: &str) -> Self {
        Self::on(stem, Postgres::shared(), Kafka::shared())
    }

    /// A scene on the given servers, with [`OUTBOX`].
    pub(crate) fn on(stem: &str, postgres: Arc<Postgres>, kafka: Arc<Kafka>) -> Self {
        let mut scene = Self::bare(stem, postgres, kafka);
        scene.sql(OUTBOX);
        scene
    }

    /// A scene with an empty database.
    pub(crate) fn bare(stem: &str, postgres: Arc<Postgres>, kafka: Arc<Kafka>) -> Self {
        let name = random::name(stem);
        postgres
            .connect("postgres")
            .batch_execute(&format!("create database {name}"))
            .unwrap();
        let client = postgres.connect(&name);
        Self {
            name,
            postgres,
            kafka,
            client,
        }
    }

    /// The connector of this scene; `route.topic.replacement` puts its name before the topic.
    pub(crate) fn connector(&self) -> Connector {
        let port = self.postgres.port().to_string();
        let topic = format!("{}.${{routedByValue}}", self.name);
        Connector::new(
            &self.name,
            &[
                (
                    "connector.class",
                    "io.debezium.connector.postgresql.PostgresConnector",
                ),
                ("database.hostname", "127.0.0.1"),
                ("database.port", &port),
                ("database.user", server::USER),
                ("database.password", server::PASSWORD),
                ("database.dbname", &self.name),
                ("topic.prefix", &self.name),
                ("slot.name", &self.name),
                ("publication.name", &self.name),
                ("publication.autocreate.mode", "filtered"),
                ("table.include.list", "public.outbox"),
                ("transforms", "outbox"),
                (
                    "transforms.outbox.type",
                    "io.debezium.transforms.outbox.EventRouter",
                ),
                ("transforms.outbox.route.topic.replacement", &topic),
            ],
        )
    }

    /// The worker of this scene, with an offsets topic of its own.
    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&[
            ("bootstrap.servers", &self.kafka.bootstrap()),
            ("group.id", &self.name),
            ("listeners", "http://127.0.0.1:0"),
            ("offset.storage.topic", &self.offset_topic()),
            ("offset.storage.partitions", "1"),
            ("offset.storage.replication.factor", "1"),
        ])
    }

    /// [`Scene::worker`], delivering exactly once or at least once.
    pub(crate) fn worker_for(&self, exactly_once: bool) -> Worker {
        match exactly_once {
            true => self.worker().set("exactly.once.source.support", "enabled"),
            false => self.worker(),
        }
    }

    pub(crate) fn offset_topic(&self) -> String {
        format!("{}-offsets", self.name)
    }

    /// Starts walpost with this scene's files and waits until it streams.
    pub(crate) fn start(&self) -> Walpost {
        let mut walpost = self.spawn();
        walpost.wait_streaming();
        walpost
    }

    /// Starts walpost with this scene's files.
    pub(crate) fn spawn(&self) -> Walpost {
        Walpost::start(&self.worker(), &[&self.connector()])
    }

    /// Runs SQL by the simple query protocol.
    #[track_caller]
    pub(crate) fn sql(&mut self, sql: &str) {
        if let Err(error) = self.client.batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    }

    /// The scene's own connection.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Another connection to the scene's database.
    pub(crate) fn connect(&self) -> Client {
        self.postgres.connect(&self.name)
    }

    /// Connects again, after the server was restarted.
    pub(crate) fn reconnect(&mut self) {
        self.client = self.connect();
    }

    /// Connects to another database of the scene's server.
    pub(crate) fn reconnect_to(&mut self, database: &str) {
        self.client = self.postgres.connect(database);
    }

    /// Inserts one event with the payload `{"n": n}`.
    pub(crate) fn event(&mut self, key: &str, n: i64) {
        self.events("order", key, n, n);
    }

    /// Inserts the events `from..=to` in one transaction.
    pub(crate) fn events(&mut self, aggregate: &str, key: &str, from: i64, to: i64) {
        self.client
            .execute(
                "insert into outbox (aggregatetype, aggregateid, payload)
                 select $1, $2, jsonb_build_object('n', n)
                 from generate_series($3::bigint, $4::bigint) n order by n",
                &[&aggregate, &key, &from, &to],
            )
            .unwrap();
    }

    /// Kafka's topic for events of `aggregate`.
    pub(crate) fn topic(&self, aggregate: &str) -> String {
        format!("{}.{aggregate}", self.name)
    }

    /// Follows the topic of `aggregate`.
    pub(crate) fn tail(&self, aggregate: &str) -> Tail {
        Tail::new(&self.kafka.bootstrap(), &[&self.topic(aggregate)])
    }

    /// All records of `aggregate` so far.
    pub(crate) fn records(&self, aggregate: &str) -> Vec<Record> {
        consumer::read(&self.kafka.bootstrap(), &[&self.topic(aggregate)])
    }

    /// One value of type `bigint`; `None` for NULL or no row.
    pub(crate) fn number(&mut self, sql: &str) -> Option<i64> {
        let row = self
            .client
            .query_opt(sql, &[])
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        row.and_then(|row| row.get(0))
    }

    /// The server's current write position.
    pub(crate) fn position(&mut self) -> i64 {
        self.number("select (pg_current_wal_lsn() - '0/0')::bigint")
            .unwrap()
    }

    /// The slot's `confirmed_flush_lsn`; `None` without a slot.
    pub(crate) fn confirmed(&mut self) -> Option<i64> {
        let slot = self.name.clone();
        self.number(&format!(
            "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots
             where slot_name = '{slot}'"
        ))
    }

    /// Waits until the slot has confirmed `position`.
    #[track_caller]
    pub(crate) fn wait_confirmed(&mut self, position: i64) {
        self.wait_confirmed_within(wait::SOON, position);
    }

    /// As [`Scene::wait_confirmed`], where it may take longer.
    #[track_caller]
    pub(crate) fn wait_confirmed_within(&mut self, limit: Duration, position: i64) {
        wait::until("the slot is confirmed", limit, || {
            self.confirmed()
                .is_some_and(|confirmed| confirmed >= position)
        });
    }

    /// Creates the scene's slot and publication as an operator might, before walpost does.
    pub(crate) fn create_slot(&mut self) {
        let name = self.name.clone();
        self.sql(&format!("create publication {name} for table outbox"));
        self.sql(&format!(
            "select pg_create_logical_replication_slot('{name}', 'pgoutput')"
        ));
    }

    /// Drops the slot once nobody holds it.
    pub(crate) fn drop_slot(&mut self) {
        let name = self.name.clone();
        wait::until("the slot can be dropped", wait::SOON, || {
            let drop = format!("select pg_drop_replication_slot('{name}')");
            self.client.batch_execute(&drop).is_ok()
        });
    }
}

impl Drop for Scene {
    /// A slot left behind would keep the shared server's WAL, and each walsender decodes all of it.
    fn drop(&mut self) {
        if std::thread::panicking() || Arc::strong_count(&self.postgres) == 1 {
            return;
        }
        let name = &self.name;
        let _ = self.client.batch_execute(&format!(
            "select pg_terminate_backend(active_pid) from pg_replication_slots
             where database = '{name}' and active_pid is not null"
        ));
        let drop = format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots
             where database = '{name}' and not active"
        );
        let _ = self.client.batch_execute(&drop);
    }
}
