//! The shop: a business table, the outbox, and those who place orders.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::Value;

use super::TOPIC;
use super::support::{Kafka, Postgres, Tail, Walpost, cleanup, consumer, kafka};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SQL: [&str; 3] = ["sql/outbox.sql", "sql/publication.sql", "sql/role.sql"];
const CONNECTOR: &str = "connector-configs/minimal.json";
const DATABASE: &str = "orders";
const PASSWORD: &str = "demo";

/// Shown, then run.
pub(super) const FIRST_ORDER: &str = r#"
  BEGIN;
  INSERT INTO orders (customer, item) VALUES ('anna', 'a bicycle');
  INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
  VALUES ('order', 'anna', 'OrderPlaced', '{"item": "a bicycle", "state": "placed", "number": 0}');
  COMMIT;
"#;

pub(super) struct Shop {
    postgres: Arc<Postgres>,
    kafka: Arc<Kafka>,
    client: Client,
    connector: String,
}

/// What the writers did.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Placed {
    pub(super) committed: usize,
    pub(super) rolled_back: usize,
}

/// Writers at work.
pub(super) struct Writers(Vec<JoinHandle<Placed>>);

impl Writers {
    pub(super) fn join(self) -> Placed {
        let add = |sum: Placed, one: Placed| Placed {
            committed: sum.committed + one.committed,
            rolled_back: sum.rolled_back + one.rolled_back,
        };
        let each = self.0.into_iter().map(|writer| writer.join().unwrap());
        each.fold(Placed::default(), add)
    }
}

impl Shop {
    pub(super) fn open() -> Self {
        let starting = std::thread::spawn(Kafka::shared);
        let postgres = Postgres::shared();
        let kafka = starting.join().unwrap();
        let create = format!("create database {DATABASE}");
        postgres.connect("postgres").batch_execute(&create).unwrap();
        let mut client = postgres.connect(DATABASE);
        for file in SQL {
            let sql = std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
            client
                .batch_execute(&sql)
                .unwrap_or_else(|error| panic!("{file}: {error:?}"));
        }
        client
            .batch_execute(&format!(
                "create table orders (
                     id bigint generated always as identity primary key,
                     customer text not null, item text not null);
                 alter role walpost password '{PASSWORD}'"
            ))
            .unwrap();
        kafka.create_topic(TOPIC, 4, &[]);
        let connector = connector(&postgres, &kafka);
        Self {
            postgres,
            kafka,
            client,
            connector,
        }
    }

    pub(super) fn bootstrap(&self) -> String {
        self.kafka.bootstrap()
    }

    /// Starts walpost and waits until it streams.
    pub(super) fn start_walpost(&self) -> Walpost {
        let environment = [("WALPOST_DB_PASSWORD", PASSWORD)];
        let mut walpost =
            Walpost::start_files(vec![self.connector.clone()], &environment).allowing("");
        walpost.wait_ready();
        walpost
    }

    pub(super) fn introduce(&mut self, walpost: &Walpost) {
        let version: String = self
            .client
            .query_one("show server_version", &[])
            .unwrap()
            .get(0);
        let release = version.split(' ').next().unwrap_or_default();
        println!(
            "  Postgres {release:<8} 127.0.0.1:{}, wal_level=logical",
            self.postgres.port()
        );
        println!(
            "  Kafka {:<11} {}, one KRaft node",
            kafka::VERSION,
            self.kafka.bootstrap()
        );
        println!("  outbox            {}", SQL.join(", "));
        println!(
            "  walpost           {CONNECTOR} with these ports, process {}",
            walpost.pid()
        );
    }

    pub(super) fn first_order(&mut self) {
        self.client.batch_execute(FIRST_ORDER).unwrap();
    }

    /// Starts `writers` sessions that place `orders` orders between them. Each writer has its own
    /// customers, so that a customer's numbers rise in commit order.
    pub(super) fn place_orders(&self, writers: u32, orders: u32) -> Writers {
        let place = |writer: u32| {
            let mut client = self.postgres.connect(DATABASE);
            std::thread::spawn(move || {
                let mut placed = Placed::default();
                for number in 0..orders / writers {
                    let customer = format!("customer-{writer}-{}", number % 25);
                    let rolled_back = number % 5 == 4;
                    let state = if rolled_back { "rolled back" } else { "placed" };
                    place_order(&mut client, &customer, number, state);
                    placed.rolled_back += usize::from(rolled_back);
                    placed.committed += usize::from(!rolled_back);
                }
                placed
            })
        };
        Writers((0..writers).map(place).collect())
    }

    /// Commits `count` events, a hundred to a transaction.
    pub(super) fn fill(&mut self, count: u32) {
        self.client
            .batch_execute(&format!(
                "do $$ begin
                     for batch in 0 .. {count} / 100 - 1 loop
                         insert into outbox (aggregatetype, aggregateid, type, payload)
                         select 'order', 'backlog-' || n % 50, 'OrderPlaced',
                                jsonb_build_object('state', 'placed', 'number', batch * 100 + n,
                                                   'note', repeat('x', 150))
                         from generate_series(1, 100) n order by n;
                         commit;
                     end loop;
                 end $$"
            ))
            .unwrap();
    }

    /// Commit to consumer, one event at a time.
    pub(super) fn latency(&mut self) -> String {
        let mut tail = Tail::new(&self.bootstrap(), &[TOPIC]);
        // Hundreds of thousands come first, with pauses that look like an end.
        let mut seen = consumer::read(&self.bootstrap(), &[TOPIC]).len();
        tail.at_least(seen);
        let mut times: Vec<Duration> = (0..200)
            .map(|number| {
                place_order(&mut self.client, "latency", number, "placed");
                let committed = Instant::now();
                seen += 1;
                tail.at_least(seen);
                committed.elapsed()
            })
            .collect();
        times.sort();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
        format!(
            "  latency from commit to consumer, {} single orders: p50 {:.1} ms, p99 {:.1} ms",
            times.len(),
            at(50),
            at(99)
        )
    }

    /// How to look at what is left running.
    pub(super) fn explain(&self, walpost: &mut Walpost) {
        let (socket, port) = (
            self.postgres.socket_folder().display(),
            self.postgres.port(),
        );
        println!("\nleft running; look at it:");
        println!("  psql -h {socket} -p {port} -U postgres {DATABASE}");
        println!(
            "  java -cp '{}/kafka-{}/libs/*' org.apache.kafka.tools.consumer.ConsoleConsumer \\",
            kafka::cache().display(),
            kafka::VERSION
        );
        println!(
            "      --bootstrap-server {} --topic {TOPIC} --from-beginning",
            self.bootstrap()
        );
        println!(
            "  curl http://127.0.0.1:{}/status     also /metrics, /health/ready",
            walpost.port()
        );
        println!("  tail -f {}", walpost.log_file().display());
        println!("an order, to see it arrive:");
        println!("  INSERT INTO outbox (aggregatetype, aggregateid, type, payload)");
        println!("  VALUES ('order', 'anna', 'OrderPlaced', '{{\"item\": \"a bell\"}}');");
        println!("stop and remove it:");
        println!(
            "  kill {} {} {}; sleep 3; rm -rf {}",
            walpost.pid(),
            self.postgres.pid(),
            self.kafka.pid(),
            cleanup::run_folder().display()
        );
    }
}

fn place_order(client: &mut Client, customer: &str, number: u32, state: &str) {
    let end = if state == "placed" {
        "commit"
    } else {
        "rollback"
    };
    client
        .batch_execute(&format!(
            "begin;
             insert into orders (customer, item) values ('{customer}', 'item {number}');
             insert into outbox (aggregatetype, aggregateid, type, payload)
             values ('order', '{customer}', 'OrderPlaced',
                     '{{\"state\": \"{state}\", \"number\": {number}}}');
             {end}"
        ))
        .unwrap();
}

/// The project's own minimal file; only addresses are put in.
fn connector(postgres: &Postgres, kafka: &Kafka) -> String {
    let text = std::fs::read_to_string(format!("{ROOT}/{CONNECTOR}")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let config = file["config"].as_object_mut().unwrap();
    for (property, value) in [
        ("bootstrap.servers", kafka.bootstrap()),
        ("database.hostname", "127.0.0.1".to_owned()),
        ("database.port", postgres.port().to_string()),
        ("listeners", "http://127.0.0.1:0".to_owned()),
    ] {
        config.insert(property.to_owned(), Value::String(value));
    }
    let path = cleanup::folder("demo").join("minimal.json");
    std::fs::write(&path, serde_json::to_string_pretty(&file).unwrap()).unwrap();
    path.into_os_string().into_string().unwrap()
}
