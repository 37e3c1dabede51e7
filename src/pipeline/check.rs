//! `walpost check`: try all that `run` needs, change nothing, say what is wrong and what to do.

use super::startup;
use crate::config::{Config, Connector, DeadLetters, Worker};
use crate::deadletter::Log;
use crate::error::Failure;
use crate::offset::{Decision, OffsetStore, Policy, decide};
use crate::sink::{BatchSize, Sink};
use crate::source::{Preflight, Replication, ServerIdentity, Session};

/// One line of the report.
#[derive(Debug)]
pub struct Finding {
    /// The connector it is about.
    pub connector: String,
    /// What was looked at.
    pub subject: &'static str,
    /// What was found.
    pub outcome: Result<String, Failure>,
}

/// Looks at everything; each finding stands by itself.
pub async fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for connector in &config.connectors {
        let mut report = |subject, outcome| {
            findings.push(Finding {
                connector: connector.name.clone(),
                subject,
                outcome,
            });
        };
        look(&config.worker, connector, &mut report).await;
    }
    findings
}

async fn look(
    worker: &Worker,
    connector: &Connector,
    report: &mut impl FnMut(&'static str, Result<String, Failure>),
) {
    let kafka = probe(worker, connector).await;
    let kafka_answers = kafka.is_ok();
    report("kafka", kafka);
    let session = match Session::connect(&connector.database, "check").await {
        Ok(session) => session,
        Err(failure) => return report("postgres", Err(failure)),
    };
    let server = match session.identify().await {
        Ok(server) => server,
        Err(failure) => return report("postgres", Err(failure)),
    };
    report("postgres", Ok(describe(&session, &server)));
    let connector = &connector.at(session.host());
    let replication = Replication::connect(&connector.database).await;
    report(
        "replication",
        replication.map(|_| "a replication connection opens".to_owned()),
    );
    match session.preflight(connector).await {
        Ok(preflight) if preflight.outdated.is_empty() => {
            report("database objects", Ok(preflight.summary()));
        }
        Ok(Preflight {
            outdated: failures, ..
        })
        | Err(failures) => {
            for failure in failures {
                report("database objects", Err(failure));
            }
        }
    }
    if kafka_answers {
        report("offsets", OffsetStore::survey(worker, connector).await);
    }
    if kafka_answers && let Some(topics) = connector.errors.dead_letters.as_ref() {
        report("dead letters", dead_letters(connector, topics).await);
    }
    if kafka_answers {
        report("start-up", decision(worker, connector, &session).await);
    }
}

fn describe(session: &Session, server: &ServerIdentity) -> String {
    format!(
        "{} {}, version {}, database {}, timeline {}, wal at {}",
        if server.in_recovery {
            "standby"
        } else {
            "primary"
        },
        session.host(),
        server.version,
        server.database,
        server.timeline,
        server.wal_position
    )
}

async fn probe(worker: &Worker, connector: &Connector) -> Result<String, Failure> {
    let options = super::attempt::sink_options(worker, connector, BatchSize::default());
    Sink::open(&options)?.probe().await?;
    Ok("a broker answers and lets us in".to_owned())
}

/// Whether the dead-letter topic is there; nothing is created.
async fn dead_letters(connector: &Connector, topics: &DeadLetters) -> Result<String, Failure> {
    Ok(match Log::new(connector, topics).exists().await? {
        true => format!("topic {:?} is there", topics.topic),
        false => format!("would create topic {:?}", topics.topic),
    })
}

/// What `run` would do now.
async fn decision(
    worker: &Worker,
    connector: &Connector,
    session: &Session,
) -> Result<String, Failure> {
    let stored = match OffsetStore::open_existing(worker, connector).await? {
        Some(mut store) => store.load().await?,
        None => None,
    };
    let server = session.identify().await?;
    let slot = session.slot(&connector.slot.name).await?;
    if server.in_recovery {
        startup::not_promoted(&server, slot.as_ref(), stored.as_ref())?;
    }
    let slot = slot.map(startup::slot_facts);
    let mut facts = startup::server_facts(&server);
    facts.past_timelines = startup::past_timelines(connector, &server, stored.as_ref()).await?;
    match decide(
        stored.as_ref(),
        slot.as_ref(),
        &facts,
        &Policy::of(connector),
    ) {
        Decision::Stop(failure) => Err(failure),
        Decision::Create { snapshot: true } => {
            Ok("would create the slot, publish the existing rows, then stream".to_owned())
        }
        Decision::Create { snapshot: false } => Ok("would create the slot and stream".to_owned()),
        Decision::Adopt { at } => Ok(format!(
            "would stream from where the slot stands, {}",
            at.lsn()
        )),
        Decision::Resume { at, .. } => Ok(format!("would resume from {}", at.lsn())),
        Decision::Wait { holder } => Ok(format!(
            "would wait as standby: the slot is in use by {holder}"
        )),
        Decision::SnapshotAgain { reason, .. } => {
            Ok(format!("would start the snapshot again: {reason}"))
        }
        Decision::Done => Ok("nothing left to do in snapshot.mode=initial_only".to_owned()),
    }
}
