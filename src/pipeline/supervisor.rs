//! Runs connectors: one thread each, attempts one after the other, until a stop is asked for or an
//! error says that only an operator can help.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use super::attempt::Attempt;
use super::backoff::Backoff;
use super::guard::{Guard, Post, Sentence};
use super::startup::first_time_only;
use crate::config::{Config, Connector, OffsetStorage, Worker};
use crate::error::{Class, Failure};
use crate::lsn::Lsn;
use crate::observability::{About, Observability, State, Telemetry};
use crate::sink::BatchSize;

/// An attempt that lasted this long counts as success: the next failure starts with short waits.
const SETTLED: Duration = Duration::from_secs(60);

/// How to go on past an event that stops the connector, when nothing about it can be put right.
const WITHOUT_IT: &str = "; to go on without the event, set errors.tolerance=all, and \
    errors.deadletterqueue.topic.name to keep it there";

/// An event that Kafka refused: the LSN of its change and its id. The rows of one COPY record share
/// an LSN, and those of a snapshot all have the slot's, so neither alone is enough.
pub(super) type Refused = (Lsn, Option<String>);

/// What an attempt needs from its surroundings, kept over all attempts of one connector.
pub(super) struct Context {
    pub(super) worker: Arc<Worker>,
    /// As the file says it.
    pub(super) configured: Arc<Connector>,
    /// The same, led to the one server that this attempt has chosen.
    pub(super) connector: Arc<Connector>,
    pub(super) telemetry: Telemetry,
    /// Where attempts report to the guard.
    pub(super) post: Post,
    /// Cancelled when the process is asked to stop.
    pub(super) stop: CancellationToken,
    /// See [`Context::stop_by`].
    pub(super) stop_by: OnceLock<Instant>,
    /// A run id for Debezium's context headers.
    pub(super) run_id: String,
    /// The connector has streamed: a refused login is no longer a mistake in the file.
    pub(super) has_worked: bool,
    /// Events that Kafka refused and the policy tolerates, each with the reason.
    pub(super) refused: HashMap<Refused, String>,
    /// The largest batch that the brokers take, learned from refusals.
    pub(super) batch_size: BatchSize,
    /// How far the last stream had read when it failed.
    pub(super) received: Cell<Option<Lsn>>,
    /// With exactly-once delivery: up to here each Postgres transaction is committed by itself, so
    /// that an event that stops the connector does not hold back those before it.
    pub(super) apart: Option<Apart>,
}

/// See [`Context::apart`].
pub(super) struct Apart {
    /// Position of the event that stops the connector, where it has one.
    event: Option<Lsn>,
    /// How far the stream had read then.
    pub(super) until: Lsn,
}

impl Context {
    /// When a stop that was asked for must be done: one deadline for all that is still to do,
    /// running from the first question.
    pub(super) fn stop_by(&self) -> Instant {
        *self
            .stop_by
            .get_or_init(|| Instant::now() + self.worker.shutdown_timeout)
    }
}

/// Runs every connector of `config` until `stop` is cancelled or none is left.
///
/// Returns the process exit code: 0 after clean stops, otherwise that of the first connector (in
/// the order given) that stopped on an error.
///
/// # Errors
/// The listeners cannot be opened, or a thread cannot be started.
pub async fn run(config: Config, stop: CancellationToken) -> Result<u8, Failure> {
    let observability = Observability::new();
    let worker = Arc::new(config.worker);
    let mut connectors = Vec::new();
    for connector in config.connectors {
        let telemetry = observability.connector(About {
            name: connector.name.clone(),
            slot: connector.slot.name.clone(),
            database: connector.database.dbname.clone(),
            offsets: offsets(&worker, &connector),
            dead_letters: dead_letter_topic(&connector),
        });
        connectors.push((Arc::new(connector), telemetry));
    }
    let serving = CancellationToken::new();
    observability
        .serve(&worker.listeners, serving.clone())
        .await?;
    let mut threads = Vec::new();
    for (connector, telemetry) in connectors {
        let (guard, post) = Guard::new(&connector, telemetry.clone(), stop.clone());
        let context = Context {
            worker: worker.clone(),
            configured: Arc::clone(&connector),
            connector,
            telemetry,
            post,
            stop: stop.clone(),
            stop_by: OnceLock::new(),
            run_id: uuid::Uuid::new_v4().to_string(),
            has_worked: false,
            refused: HashMap::new(),
            batch_size: BatchSize::default(),
            received: Cell::new(None),
            apart: None,
        };
        threads.push(spawn(context, guard)?);
    }
    let mut code = 0;
    for (name, done) in threads {
        let outcome = done.await.unwrap_or_else(|_| {
            Err(Failure::internal(format!(
                "the thread of connector {name:?} ended unexpectedly"
            )))
        });
        if let (Err(failure), 0) = (outcome, code) {
            code = failure.class().exit_code();
        }
    }
    serving.cancel();
    Ok(code)
}

fn offsets(worker: &Worker, connector: &Connector) -> String {
    match (&connector.own_offset_topic, &worker.offsets) {
        (Some(topic), _) => format!("topic {topic}"),
        (None, OffsetStorage::Topic(topic)) => format!("topic {}", topic.name),
        (None, OffsetStorage::File(path)) => format!("file {}", path.display()),
    }
}

fn dead_letter_topic(connector: &Connector) -> Option<String> {
    let errors = &connector.errors;
    let letters = errors.dead_letters.as_ref().filter(|_| errors.tolerate);
    letters.map(|letters| letters.topic.clone())
}

type Done = tokio::sync::oneshot::Receiver<Result<(), Failure>>;

/// Each connector has its own thread and runtime, so that one which naps to let its socket buffer
/// fill does not hold up another.
fn spawn(context: Context, guard: Guard) -> Result<(String, Done), Failure> {
    let name = context.connector.name.clone();
    let (sender, done) = tokio::sync::oneshot::channel();
    let span = info_span!("connector", name = %name);
    thread::Builder::new()
        .name(format!("connector {name}"))
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let outcome = match runtime {
                Ok(runtime) => {
                    let outcome = runtime.block_on(
                        async move {
                            // Beside the work, so that a long wait is not taken for a stuck loop.
                            tokio::spawn(context.telemetry.clone().beating());
                            supervise(context, guard).await
                        }
                        .instrument(span),
                    );
                    // A question to a broker or a name server may still block a thread of the
                    // pool; nobody waits for its answer any more.
                    runtime.shutdown_background();
                    outcome
                }
                Err(error) => {
                    Err(Failure::internal("start the connector's runtime").caused_by(error))
                }
            };
            // The receiver lives as long as `run`, so there is always somebody to tell.
            drop(sender.send(outcome));
        })
        .map_err(|error| Failure::internal("start the connector's thread").caused_by(error))?;
    Ok((name, done))
}

/// Runs the attempts under the eyes of the guard, which may end them.
async fn supervise(mut context: Context, mut guard: Guard) -> Result<(), Failure> {
    loop {
        let reason = tokio::select! {
            outcome = attempts(&mut context) => return outcome,
            reason = guard.watch() => reason,
        };
        // The attempt is gone, and with it our hold on the slot.
        match guard.execute(&context.configured, &reason).await {
            Sentence::Dropped(failure) => {
                context.telemetry.error(failure.class());
                return give_up(&context, failure);
            }
            Sentence::Spared(why) => {
                error!(
                    slot = context.connector.slot.name,
                    "{reason}; did not drop it: {why}"
                );
            }
        }
    }
}

/// Attempts until one ends cleanly or with an error that is not to be retried.
async fn attempts(context: &mut Context) -> Result<(), Failure> {
    let errors = context.connector.errors.clone();
    let mut backoff = Backoff::new(errors.max_backoff);
    let mut failing_since = None;
    loop {
        context.telemetry.state(State::Starting);
        let began = Instant::now();
        let batch_size = context.batch_size.learned();
        let outcome = Attempt::new(context).run().await;
        context.post.streams(None);
        let failure = match outcome {
            Ok(()) => {
                context.telemetry.state(State::Stopped {
                    class: None,
                    error: None,
                });
                info!("stopped");
                return Ok(());
            }
            Err(failure) => with_user(context, first_time_only(context, failure)),
        };
        context.telemetry.error(failure.class());
        if began.elapsed() > SETTLED {
            backoff.reset();
            failing_since = None;
        }
        if context.stop.is_cancelled() {
            return finish_stopping(context, failure);
        }
        let step = if context.batch_size.learned() == batch_size {
            next_step(context, &failure)
        } else {
            // Nothing to wait for: smaller batches are all that was needed, a few times at most.
            info!(error = %failure, "reading again from the stored position, in smaller batches");
            Step::Again
        };
        match step {
            Step::Again => continue,
            Step::AfterBackoff => {}
            Step::GiveUp => return give_up(context, failure),
        }
        let failing_for = failing_since.get_or_insert_with(Instant::now).elapsed();
        let out_of_time = errors.retry_timeout.is_some_and(|most| failing_for >= most);
        let out_of_attempts = errors
            .max_retries
            .is_some_and(|most| backoff.attempts() >= most);
        if out_of_time || out_of_attempts {
            return give_up(context, failure);
        }
        let wait = backoff.next();
        warn!(
            error = %failure,
            attempt = backoff.attempts(),
            next_in_ms = wait.as_millis() as u64,
            "interrupted, will start again from the stored position"
        );
        context.telemetry.retry();
        context.telemetry.state(State::Retrying {
            error: failure.to_string(),
            attempt: backoff.attempts(),
            next_in: wait,
        });
        tokio::select! {
            () = context.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
        if context.stop.is_cancelled() {
            context.telemetry.state(State::Stopped {
                class: None,
                error: None,
            });
            info!("stopped while waiting to start again");
            return Ok(());
        }
    }
}

/// Adds the Kafka user's name to the want of a right: a certificate's is only known to the broker.
fn with_user(context: &Context, failure: Failure) -> Failure {
    if !failure.is_about_rights() {
        return failure;
    }
    match crate::sink::user(&context.connector.producer) {
        Some(user) => failure.within(&format!("as kafka user {user:?}")),
        None => failure,
    }
}

enum Step {
    Again,
    AfterBackoff,
    GiveUp,
}

fn next_step(context: &mut Context, failure: &Failure) -> Step {
    match failure.class() {
        Class::Retriable => Step::AfterBackoff,
        Class::Poison => match failure.origin() {
            Some(origin) if context.connector.errors.tolerate => {
                let refused = (origin.lsn, failure.event().map(str::to_owned));
                refuse(context, refused, failure)
            }
            _ => stop_behind_the_rest(context, failure),
        },
        Class::Config | Class::Gap | Class::Internal => Step::GiveUp,
    }
}

/// An event stops the connector. With exactly-once delivery it has taken the events of its Kafka
/// transaction with it: those of earlier Postgres transactions are delivered first, each by itself.
fn stop_behind_the_rest(context: &mut Context, failure: &Failure) -> Step {
    let event = failure.origin().map(|origin| origin.lsn);
    let again = context
        .apart
        .as_ref()
        .is_some_and(|apart| apart.event == event);
    if context.connector.exactly_once.is_none() || again {
        return Step::GiveUp;
    }
    let Some(until) = context.received.take() else {
        return Step::GiveUp;
    };
    info!("an event stops the connector; delivering what is before it first");
    context.apart = Some(Apart { event, until });
    Step::Again
}

/// Kafka refused a tolerated event: the next attempt leaves it out.
fn refuse(context: &mut Context, refused: Refused, failure: &Failure) -> Step {
    let letters = dead_letter_topic(&context.connector);
    // Its dead letter is refused too: there is no other place for it.
    if letters.is_some() && letters.as_deref() == failure.topic() {
        return stop_behind_the_rest(context, failure);
    }
    // A snapshot under a new slot shows the same row at another position.
    let refused_before = context.refused.keys().any(|(_, id)| *id == refused.1);
    let reason = failure.to_string();
    if context.refused.insert(refused, reason).is_some() {
        return stop_behind_the_rest(context, failure);
    }
    match letters {
        Some(_) => info!(error = %failure, "kafka refuses an event, reading again to set it aside"),
        None => {
            error!(error = %failure, "kafka refuses an event, skipping it as errors.tolerance=all asks");
            context.telemetry.dropped("poison", 1);
        }
    }
    if refused_before {
        Step::AfterBackoff
    } else {
        Step::Again
    }
}

fn give_up(context: &Context, failure: Failure) -> Result<(), Failure> {
    let remedy = match failure.class() {
        Class::Poison if !context.connector.errors.tolerate => WITHOUT_IT,
        _ => "",
    };
    error!(error = %format_args!("{failure}{remedy}"), class = failure.class().label(), "stopped");
    context.telemetry.state(State::Stopped {
        class: Some(failure.class()),
        error: Some(format!("{failure}{remedy}")),
    });
    Err(failure)
}

/// An error while stopping: what passes by itself does not spoil the stop, since everything not
/// yet confirmed is delivered again at the next start.
fn finish_stopping(context: &Context, failure: Failure) -> Result<(), Failure> {
    if failure.class() != Class::Retriable {
        return give_up(context, failure);
    }
    warn!(error = %failure, "stopped without a last confirmation, the events since the stored position will come again");
    context.telemetry.state(State::Stopped {
        class: None,
        error: None,
    });
    Ok(())
}
