//! `walpost dlq`: dead letters listed, shown, replayed and discarded by hand, also while the
//! connector runs.

use serde_json::json;
use tokio::sync::mpsc;

use super::offsets::only;
use super::replay::Replay;
use super::transfer::wall_clock_ms;
use crate::config::{Config, Connector, DeadLetters, Worker};
use crate::deadletter::{Action, Audit, Found, Letter, Log, News};
use crate::error::Failure;
use crate::sink::{BatchSize, Sink};

/// Which letters an action is about: those that every given condition takes.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// Event ids, any of them.
    pub events: Vec<String>,
    /// Aggregate ids, any of them.
    pub aggregates: Vec<String>,
    /// Became a letter at this time or later, milliseconds since the Unix epoch.
    pub since_ms: Option<i64>,
    /// Became a letter before this time.
    pub until_ms: Option<i64>,
}

impl LetterFilter {
    /// Whether it takes the letter.
    pub(super) fn takes(&self, found: &Found) -> bool {
        let event = found.letter.event_id.as_deref();
        let aggregate = found.letter.aggregate.as_deref();
        let time = found.time_ms.unwrap_or_default();
        (self.events.is_empty() || self.events.iter().any(|id| Some(&**id) == event))
            && (self.aggregates.is_empty()
                || self
                    .aggregates
                    .iter()
                    .any(|id| Some(id.as_bytes()) == aggregate))
            && self.since_ms.is_none_or(|since| time >= since)
            && self.until_ms.is_none_or(|until| time < until)
    }
}

/// How `dlq list` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// One line a letter, for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Tells what letters there are; with `all` also those that wait no longer. Contents stay out.
///
/// # Errors
/// The topic is not configured or cannot be read; `tell` failed.
pub async fn list_letters(
    config: &Config,
    filter: &LetterFilter,
    all: bool,
    format: ListFormat,
    mut tell: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (log, ..) = open(config)?;
    each(&log, async |found| {
        let wanted = (all || found.settled.is_none()) && filter.takes(&found);
        match format {
            _ if !wanted => Ok(()),
            ListFormat::Text => tell(&line(&found)),
            ListFormat::Json => tell(&format!("{}\n", summary(&found))),
        }
    })
    .await
    .map(note_foreign)
}

/// Shows letters with all that is in them, payloads too.
///
/// # Errors
/// As [`list_letters`], and when there is none.
pub async fn show_letters(
    config: &Config,
    filter: &LetterFilter,
    mut tell: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (log, ..) = open(config)?;
    let mut shown = 0;
    let news = each(&log, async |found| {
        if !filter.takes(&found) {
            return Ok(());
        }
        shown += 1;
        let document: serde_json::Value = serde_json::from_slice(&found.letter.encode())
            .map_err(|error| Failure::internal("show a dead letter").caused_by(error))?;
        let whole = json!({"found": summary(&found), "letter": document});
        tell(&format!("{whole:#}\n"))
    })
    .await?;
    note_foreign(news);
    match shown {
        0 => Err(none()),
        _ => Ok(()),
    }
}

/// Publishes letters that wait, by the configuration as it is now, and releases aggregates of which
/// none waits any more. Returns what was done.
///
/// # Errors
/// `Poison` when one cannot be published still; `Config` when none matches, an earlier letter of the
/// aggregate is in the way or another replay is under way; `Retriable` when a running connector does not answer.
pub async fn replay_letters(config: &Config, filter: &LetterFilter) -> Result<String, Failure> {
    let (log, worker, connector, topics) = open(config)?;
    log.create(true).await?;
    Replay::start(worker, connector, topics, log)
        .await?
        .run(filter)
        .await
}

/// Gives up letters that wait: they are never published, and aggregates of which none waits any
/// more are released. Returns what was done.
///
/// # Errors
/// `Config` when none matches.
pub async fn discard_letters(config: &Config, filter: &LetterFilter) -> Result<String, Failure> {
    let (log, worker, connector, topics) = open(config)?;
    log.create(true).await?;
    let mut audits = Auditor::open(worker, connector, topics).await?;
    let mut audited = Vec::new();
    each(&log, async |found| {
        if found.settled.is_none() && filter.takes(&found) {
            audited.push(audits.of(&found.letter, Action::Discarded));
        }
        Ok(())
    })
    .await?;
    if audited.is_empty() {
        return Err(none());
    }
    audits.write(&audited).await?;
    Ok(format!("discarded {}\n", letters(audited.len())))
}

/// Writes to the audit topic, and a log line for each.
pub(super) struct Auditor {
    pub(super) sink: Sink,
    topic: String,
    by: String,
}

impl Auditor {
    /// A producer of its own: it shares no transaction with a running connector.
    pub(super) async fn open(
        worker: &Worker,
        connector: &Connector,
        topics: &DeadLetters,
    ) -> Result<Self, Failure> {
        let mut options = super::attempt::sink_options(worker, connector, BatchSize::default());
        options.client_id = format!("walpost-dlq-{}", connector.name);
        options.exactly_once = None;
        let mut sink = Sink::open(&options)?;
        let topic = topics.audit_topic();
        sink.prepare(&topic).await?;
        let user = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
        Ok(Self {
            sink,
            topic,
            by: format!("walpost dlq, user {user}"),
        })
    }

    /// That `action` is done with `letter`.
    pub(super) fn of(&self, letter: &Letter, action: Action) -> Audit {
        Audit::of(letter, action, &self.by, wall_clock_ms())
    }

    /// A request to the running connector to pause for the aggregate.
    pub(super) fn hold(&self, connector: &str, aggregate: &[u8]) -> Audit {
        Audit::on(
            connector,
            aggregate,
            Action::Hold,
            &self.by,
            wall_clock_ms(),
        )
    }

    /// Writes records and waits until Kafka has them.
    pub(super) async fn write(&mut self, audits: &[Audit]) -> Result<(), Failure> {
        for audit in audits {
            super::replay::send(&mut self.sink, &audit.record(&self.topic), None).await?;
        }
        super::replay::flush(&mut self.sink).await?;
        for audit in audits.iter().filter(|audit| audit.action.settles()) {
            tracing::info!(
                event = audit.event_id,
                table = audit.table,
                lsn = audit.lsn,
                topic = audit.outcome,
                "{} a dead letter",
                audit.action.label()
            );
        }
        Ok(())
    }
}

/// The topics of the only connector.
fn open(config: &Config) -> Result<(Log, &Worker, &Connector, &DeadLetters), Failure> {
    let (worker, connector) = only(config)?;
    let Some(topics) = &connector.errors.dead_letters else {
        return Err(Failure::config(format!(
            "connector {:?} has no dead letters: set errors.deadletterqueue.topic.name",
            connector.name
        )));
    };
    Ok((Log::new(connector, topics), worker, connector, topics))
}

/// Hands every letter to `take`, in order, while the topic is read.
pub(super) async fn each(
    log: &Log,
    mut take: impl AsyncFnMut(Found) -> Result<(), Failure>,
) -> Result<News, Failure> {
    let (sender, mut found) = mpsc::channel(64);
    // Nobody receives any more only after a failure, which ends the command.
    let reading = log.read(move |letter| drop(sender.blocking_send(letter)));
    let taking = async move {
        while let Some(letter) = found.recv().await {
            take(letter).await?;
        }
        Ok(())
    };
    let (news, taken) = tokio::join!(reading, taking);
    taken.and(news)
}

pub(super) fn none() -> Failure {
    Failure::config("no dead letter matches; `walpost dlq list --all` shows what there is")
}

pub(super) fn letters(count: usize) -> String {
    match count {
        1 => "1 dead letter".to_owned(),
        count => format!("{count} dead letters"),
    }
}

fn note_foreign(news: News) {
    if news.foreign > 0 {
        tracing::info!(
            records = news.foreign,
            "left out records of the topic that are no dead letters of walpost"
        );
    }
}

fn state(found: &Found) -> &'static str {
    found.settled.map_or("waiting", Action::label)
}

fn time(found: &Found) -> String {
    let ms = u64::try_from(found.time_ms.unwrap_or_default()).unwrap_or_default();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    humantime::format_rfc3339_millis(time).to_string()
}

fn line(found: &Found) -> String {
    let letter = &found.letter;
    let aggregate = letter
        .aggregate
        .as_deref()
        .map_or("-".into(), String::from_utf8_lossy);
    format!(
        "{} {} {} {} aggregate={aggregate} event={} table={} {}\n",
        time(found),
        letter.lsn,
        state(found),
        letter.cause.label(),
        letter.event_id.as_deref().unwrap_or("-"),
        letter.table().as_deref().unwrap_or("-"),
        letter.reason,
    )
}

fn summary(found: &Found) -> serde_json::Value {
    let letter = &found.letter;
    json!({
        "time": time(found),
        "state": state(found),
        "cause": letter.cause.label(),
        "event_id": letter.event_id,
        "aggregate": letter.aggregate.as_deref().map(String::from_utf8_lossy),
        "table": letter.table(),
        "lsn": letter.lsn.to_string(),
        "reason": letter.reason,
        "letter": found.id.to_string(),
        "partition": found.partition,
        "offset": found.offset,
    })
}
