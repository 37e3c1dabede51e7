//! Plays one case: a database, a slot and topics of its own, and one process.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::Client;

use super::case::{Case, Outcome, Statement};
use crate::support::{
    Connector, Kafka, Postgres, Record, Tail, Walpost, Worker, consumer, postgres as server, wait,
};

/// Why a case is not what it should be.
pub(super) enum Failure {
    /// The server does not know the case's SQL.
    Sql(String),
    /// Something else than Debezium's records came, or nothing.
    Different(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Different(text)
    }
}

/// The servers all cases share.
pub(super) struct Stage {
    postgres: Arc<Postgres>,
    kafka: Arc<Kafka>,
    worker: Worker,
}

/// Sessions of a case's database, by name; the empty name is the case's own.
struct Sessions<'a> {
    postgres: &'a Postgres,
    database: String,
    open: HashMap<String, Client>,
}

impl Sessions<'_> {
    fn client(&mut self, session: &str) -> &mut Client {
        let (postgres, database) = (self.postgres, &self.database);
        self.open
            .entry(session.to_owned())
            .or_insert_with(|| postgres.connect(database))
    }

    fn run(&mut self, statement: &Statement) -> Result<(), Failure> {
        let result = match statement {
            Statement::Plain(sql) => self.client("").batch_execute(sql),
            Statement::Elsewhere {
                session,
                sql,
                copy: None,
            } => self.client(session).batch_execute(sql),
            Statement::Elsewhere {
                session,
                sql,
                copy: Some(data),
            } => self
                .client(session)
                .copy_in(sql.as_str())
                .and_then(|mut writer| {
                    writer
                        .write_all(data.as_bytes())
                        .expect("a local server takes it");
                    writer.finish().map(drop)
                }),
        };
        result.map_err(|error| Failure::Sql(format!("{statement:?}: {error:?}")))
    }
}

impl Stage {
    pub(super) fn new(postgres: Arc<Postgres>, kafka: Arc<Kafka>) -> Self {
        let worker = Worker::new(&[
            ("bootstrap.servers", &kafka.bootstrap()),
            ("group.id", "golden"),
            ("listeners", "http://127.0.0.1:0"),
            ("offset.storage.topic", "golden-offsets"),
            ("offset.storage.partitions", "1"),
            ("offset.storage.replication.factor", "1"),
            (
                "key.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
            (
                "value.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
        ]);
        kafka.create_topic("golden-offsets", 1, &[("cleanup.policy", "compact")]);
        Self {
            postgres,
            kafka,
            worker,
        }
    }

    /// Plays `case` with `properties` (`name=value` words) on top; the first difference, if any.
    pub(super) fn play(&self, case: &Case, properties: &str) -> Result<(), Failure> {
        let database = format!("golden_{}", case.name.replace('-', "_"));
        let create = format!("create database \"{database}\"");
        self.postgres
            .connect("postgres")
            .batch_execute(&create)
            .map_err(|error| error.to_string())?;
        let mut sessions = Sessions {
            postgres: &self.postgres,
            database,
            open: HashMap::new(),
        };
        let result = self.play_in(case, properties, &mut sessions);
        // What is left would hold back WAL and cost every other walsender time.
        let _ = sessions.client("").batch_execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots
             where database = current_database() and not active",
        );
        result
    }

    fn play_in(
        &self,
        case: &Case,
        properties: &str,
        sessions: &mut Sessions<'_>,
    ) -> Result<(), Failure> {
        for sql in &case.setup {
            sessions.run(&Statement::Plain(sql.clone()))?;
        }
        if case.slot {
            let slot = &case.config["slot.name"];
            let create = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
            sessions.run(&Statement::Plain(create))?;
        }
        for statement in &case.before {
            sessions.run(statement)?;
        }
        let topics: Vec<(String, i32)> = case
            .topics
            .iter()
            .map(|topic| (topic.clone(), case.partitions))
            .collect();
        if !topics.is_empty() {
            self.kafka.create_topics(&topics, &[("retention.ms", "-1")]);
        }
        let connector = self.connector(case, properties, &sessions.database);
        let mut walpost = Walpost::start(&self.worker, &[&connector]).allowing("");
        let streams = wait_streaming(&mut walpost, sessions, &case.config["slot.name"])?;

        let names: Vec<&str> = case.topics.iter().map(String::as_str).collect();
        let mut tail = Tail::new(&self.kafka.bootstrap(), &names);
        let last = case.steps.len().saturating_sub(1);
        let mut so_far = case.records_before_steps;
        if streams || case.outcome == Outcome::Ok {
            for (index, step) in case.steps.iter().enumerate() {
                if let Some(count) = so_far {
                    await_count(&mut tail, count, &mut walpost)?;
                }
                for statement in &step.sql {
                    sessions.run(statement)?;
                }
                so_far = if index < last {
                    step.records_after
                } else {
                    None
                };
            }
        }
        if case.outcome == Outcome::Ok {
            await_count(&mut tail, case.records.len(), &mut walpost)?;
            let end = Instant::now() + Duration::from_millis(800);
            while Instant::now() < end && tail.now().len() == case.records.len() {
                std::thread::sleep(wait::POLL);
            }
        } else {
            await_failure(&mut walpost)?;
        }
        let log = walpost.log();
        let ended = !walpost.is_running();
        walpost.kill();
        if case.outcome == Outcome::Ok && ended && case.config["snapshot.mode"] != "initial_only" {
            return Err(format!("ended: {}", last_complaint(&log)).into());
        }
        compare(case, &self.records_of(case)).map_err(|text| {
            let complaint = last_complaint(&log);
            let gap = if complaint.is_empty() { "" } else { "\n    " };
            Failure::Different(format!("{text}{gap}{complaint}"))
        })
    }

    fn connector(&self, case: &Case, properties: &str, database: &str) -> Connector {
        let port = self.postgres.port().to_string();
        let given = case
            .config
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let extra = properties
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        let own = [
            ("database.hostname", "127.0.0.1"),
            ("database.port", &port),
            ("database.user", server::USER),
            ("database.password", server::PASSWORD),
            ("database.dbname", database),
            ("tasks.max", "1"),
        ];
        let all: Vec<_> = given.chain(own).chain(extra).collect();
        Connector::new(&case.name, &all)
    }

    /// All records in topics that the case is about.
    fn records_of(&self, case: &Case) -> Vec<Record> {
        let prefix = format!("{}.", case.config["topic.prefix"]);
        let regex = case
            .topics_regex
            .as_ref()
            .map(|text| fancy_regex::Regex::new(text).unwrap());
        let topics = self.kafka.topics();
        let ours: Vec<&str> = topics
            .keys()
            .map(String::as_str)
            .filter(|topic| {
                topic.starts_with(&prefix)
                    || case.topics.iter().any(|named| named == topic)
                    || regex
                        .as_ref()
                        .is_some_and(|regex| regex.is_match(topic).unwrap())
            })
            .collect();
        consumer::read(&self.kafka.bootstrap(), &ours)
    }
}

/// True once the slot's walsender streams; false when the process ended before.
fn wait_streaming(
    walpost: &mut Walpost,
    sessions: &mut Sessions<'_>,
    slot: &str,
) -> Result<bool, String> {
    let query = format!(
        "select count(*) from pg_stat_replication r join pg_replication_slots s on s.active_pid = r.pid
         where s.slot_name = '{slot}' and r.state in ('catchup', 'streaming')"
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if !walpost.is_running() {
            return Ok(false);
        }
        let row = sessions
            .client("")
            .query_one(&query, &[])
            .map_err(|error| error.to_string())?;
        if row.get::<_, i64>(0) > 0 {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Err(format!(
                "does not stream: {}",
                last_complaint(&walpost.log())
            ));
        }
        std::thread::sleep(wait::POLL);
    }
}

fn await_count(tail: &mut Tail, count: usize, walpost: &mut Walpost) -> Result<(), String> {
    let mut deadline = Instant::now() + Duration::from_secs(20);
    let mut ended = false;
    loop {
        if !ended && !walpost.is_running() {
            // What it delivered before may still have to be read.
            ended = true;
            deadline = Instant::now() + Duration::from_secs(3);
        }
        let seen = tail.now().len();
        if seen >= count {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "{seen} of {count} records, {}: {}",
                if ended { "ended" } else { "still running" },
                last_complaint(&walpost.log())
            ));
        }
        std::thread::sleep(wait::POLL);
    }
}

/// A failure is a non-zero exit.
fn await_failure(walpost: &mut Walpost) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while walpost.is_running() {
        if Instant::now() > deadline {
            return Err(format!(
                "still running, no failure: {}",
                last_complaint(&walpost.log())
            ));
        }
        std::thread::sleep(wait::POLL);
    }
    match walpost.wait_exit(wait::SOON).code() {
        Some(2..=4) => Ok(()),
        code => Err(format!(
            "exit code {code:?}: {}",
            last_complaint(&walpost.log())
        )),
    }
}

fn compare(case: &Case, found: &[Record]) -> Result<(), String> {
    for (index, expected) in case.records.iter().enumerate() {
        let Some(record) = found.get(index) else {
            break;
        };
        if let Some(difference) = expected.difference(record) {
            return Err(format!("record {index}: {difference}"));
        }
    }
    if found.len() != case.records.len() {
        return Err(format!(
            "{} records, not {}",
            found.len(),
            case.records.len()
        ));
    }
    Ok(())
}

/// The newest warning or error of a log, shortened.
fn last_complaint(log: &str) -> String {
    let newest = log.lines().rev().find(|line| {
        line.contains("\"ERROR\"") || line.contains("\"WARN\"") || !line.starts_with('{')
    });
    newest.unwrap_or_default().chars().take(600).collect()
}
