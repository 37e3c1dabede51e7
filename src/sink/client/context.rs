//! librdkafka's logs and errors, carried into ours.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::{Lifeline, Tied};
use crate::error::Class;
use crate::sink::refusal::{code_of, verdict};

/// What librdkafka keeps to itself while it retries.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    heard: Mutex<Heard>,
    /// Whether anything was heard, so that a delivery need not take the lock to see that nothing
    /// was.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Heard {
    /// The newest error.
    noted: Option<Noted>,
    /// The newest disconnect or request without an answer: no errors to librdkafka, and all there
    /// is to say of a record that then found no broker in its time.
    remark: Option<String>,
}

#[derive(Debug, Clone)]
struct Noted {
    code: RDKafkaErrorCode,
    text: String,
    since: Instant,
}

impl Trouble {
    fn held(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a log line that tells how a line to a broker fares. It is for the text of a failure
    /// only: most are over with the next connection, and are no trouble.
    pub(crate) fn remark(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let of_a_line = matches!(facility, "FAIL" | "REQTMOUT") && !text.contains(NO_TOKEN);
        if of_a_line && !matches!(level, RDKafkaLogLevel::Debug) {
            self.held().remark = Some(text.to_owned());
            self.any.store(true, Ordering::Release);
        }
    }

    /// Notes an error; logs it unless it is the one already known.
    fn note(&self, code: RDKafkaErrorCode, text: &str) {
        if code == RDKafkaErrorCode::PartitionEOF {
            // Asked for by whoever reads a topic to its end; no trouble.
            return;
        }
        let mut held = self.held();
        self.any.store(true, Ordering::Release);
        match held.noted.as_mut() {
            // It follows from what was said before, and says less.
            Some(_) if code == RDKafkaErrorCode::AllBrokersDown => {}
            Some(noted) if noted.code == code => {
                tracing::debug!("kafka: {text}");
                text.clone_into(&mut noted.text);
            }
            _ => {
                tracing::warn!("kafka: {text}");
                let known = held.noted.as_ref();
                let since = known.map_or_else(Instant::now, |noted| noted.since);
                let text = text.to_owned();
                held.noted = Some(Noted { code, text, since });
            }
        }
    }

    /// Forgets it: something was delivered.
    pub(crate) fn clear(&self) {
        if self.any.load(Ordering::Acquire) {
            let mut held = self.held();
            self.any.store(false, Ordering::Release);
            if std::mem::take(&mut *held).noted.is_some() {
                tracing::info!("kafka: delivering again");
            }
        }
    }

    /// The error and for how long there has been trouble.
    pub(crate) fn current(&self) -> Option<(String, Duration)> {
        self.held()
            .noted
            .as_ref()
            .map(|noted| (noted.text.clone(), noted.since.elapsed()))
    }

    /// The error, or what else was heard since something was delivered.
    fn heard(&self) -> Option<String> {
        let held = self.held();
        let error = held.noted.as_ref().map(|noted| &noted.text);
        error.or(held.remark.as_ref()).cloned()
    }

    /// What was heard as an aside behind what was attempted; empty when nothing was.
    pub(crate) fn aside(&self) -> String {
        self.heard()
            .map_or(String::new(), |text| format!(" ({text})"))
    }

    /// The error, if only an operator can end it.
    pub(crate) fn hopeless(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.held()
            .noted
            .as_ref()
            .filter(|noted| verdict(noted.code).0 == Class::Config)
            .map(|noted| (noted.code, noted.text.clone()))
    }
}

/// A context that only listens; the producer's own does more.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    trouble: Arc<Trouble>,
    lifeline: Lifeline,
}

impl Ears {
    /// For one of several clients whose trouble is told together.
    pub(crate) fn of(trouble: &Arc<Trouble>) -> Self {
        Self {
            trouble: Arc::clone(trouble),
            lifeline: Lifeline::default(),
        }
    }
}

impl ClientContext for Ears {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.trouble.remark(level, facility, message);
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        hear(&self.trouble, &error, reason);
    }
}

impl Tied for Ears {
    fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }
}

impl rdkafka::consumer::ConsumerContext for Ears {}

/// For a client that asks and never produces.
impl rdkafka::producer::ProducerContext for Ears {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &rdkafka::producer::DeliveryResult<'_>, (): ()) {}
}

/// How librdkafka begins to say that a token could not be had; the endpoint's answer follows.
const NO_TOKEN: &str = "Failed to acquire SASL OAUTHBEARER token";

/// Notes an error that was reported outside any record.
pub(crate) fn hear(trouble: &Trouble, error: &KafkaError, reason: &str) {
    // A reader has to name a group, but no group is ever joined: its coordinator may be away.
    if reason.starts_with("GroupCoordinator") || reason.starts_with("FindCoordinator") {
        tracing::debug!(target: "librdkafka", "{reason}");
        return;
    }
    if reason.starts_with(NO_TOKEN) {
        // Asked for again by itself; what the endpoint answered may hold anything.
        let text = "no token from sasl.oauthbearer.token.endpoint.url, asking again";
        trouble.note(RDKafkaErrorCode::OperationTimedOut, text);
        return;
    }
    trouble.note(code_of(error), reason);
}

/// librdkafka reports what matters as an error too; its log lines repeat it in other words and per
/// attempt, so they are only for a closer look.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Debug => tracing::trace!(target: "librdkafka", "{facility}: {message}"),
        _ => tracing::debug!(target: "librdkafka", "{facility}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_endpoint_s_answer_is_neither_repeated_nor_final() {
        let trouble = Trouble::default();
        let error = KafkaError::Global(RDKafkaErrorCode::Authentication);
        hear(
            &trouble,
            &error,
            &format!("{NO_TOKEN}: {{\"echo\": \"secret\"}}"),
        );
        let (text, _) = trouble.current().unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert!(trouble.hopeless().is_none(), "it is asked again");
    }

    #[test]
    fn the_telling_error_is_kept_until_something_is_delivered() {
        let trouble = Trouble::default();
        assert_eq!(trouble.current(), None);
        trouble.note(RDKafkaErrorCode::Authentication, "bad password");
        trouble.note(RDKafkaErrorCode::AllBrokersDown, "all brokers are down");
        assert_eq!(trouble.current().unwrap().0, "bad password");
        assert!(trouble.hopeless().is_some());
        trouble.note(RDKafkaErrorCode::BrokerTransportFailure, "refused");
        assert_eq!(trouble.current().unwrap().0, "refused");
        assert!(trouble.hopeless().is_none(), "it passes by itself");
        trouble.clear();
        assert_eq!(trouble.current(), None);
    }

    #[test]
    fn a_silent_line_is_named_where_no_error_was_heard() {
        let trouble = Trouble::default();
        trouble.remark(RDKafkaLogLevel::Info, "GETPID", "acquired");
        trouble.remark(RDKafkaLogLevel::Debug, "FAIL", "whatever");
        assert_eq!(trouble.heard(), None);
        trouble.remark(RDKafkaLogLevel::Warning, "REQTMOUT", "timed out");
        trouble.remark(RDKafkaLogLevel::Info, "FAIL", "disconnected");
        assert_eq!(trouble.heard().unwrap(), "disconnected");
        assert_eq!(trouble.current(), None, "it is no error of its own");
        trouble.note(RDKafkaErrorCode::Authentication, "bad password");
        assert_eq!(trouble.heard().unwrap(), "bad password");
        trouble.clear();
        assert_eq!(trouble.heard(), None);
    }
}
