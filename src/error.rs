//! The one error type that leaves a module, and its class.
//!
//! The module where an error arises sets its class; the supervisor acts on the class and nobody
//! re-classifies. Texts are lower case without a final period, say what was attempted on what and
//! what to do, and never contain a payload, a key or a secret.

use std::error::Error as StdError;
use std::fmt;

use crate::record::Origin;

/// What an error means for the connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Passes by itself: rebuild source and sink from the stored offset, with backoff.
    Retriable,
    /// Only an operator can fix it: a property, a right, a missing object.
    Config,
    /// One event cannot become a record.
    Poison,
    /// Rows may already be missing; going on would hide it.
    Gap,
    /// A broken invariant of ours.
    Internal,
}

impl Class {
    /// Every class, for metrics that start at 0.
    pub const ALL: [Class; 5] = [
        Class::Retriable,
        Class::Config,
        Class::Poison,
        Class::Gap,
        Class::Internal,
    ];

    /// The label used in logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Class::Retriable => "retriable",
            Class::Config => "config",
            Class::Poison => "poison",
            Class::Gap => "gap",
            Class::Internal => "internal",
        }
    }

    /// The process exit code when a connector stops on this class. `Retriable` is only reached
    /// when retries were told to end.
    pub fn exit_code(self) -> u8 {
        match self {
            Class::Retriable => 5,
            Class::Config => 2,
            Class::Poison => 4,
            Class::Gap => 3,
            Class::Internal => 1,
        }
    }
}

/// An error with its class, what was attempted, and what caused it.
#[derive(Debug)]
pub struct Failure {
    class: Class,
    access: bool,
    server_stopping: bool,
    denied: bool,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    origin: Option<Origin>,
    event: Option<String>,
    topic: Option<String>,
}

impl Failure {
    /// A failure of `class`; `message` says what was attempted on what, and the remedy.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            access: false,
            server_stopping: false,
            denied: false,
            message: message.into(),
            source: None,
            origin: None,
            event: None,
            topic: None,
        }
    }

    /// Shorthand for [`Class::Retriable`].
    pub fn retriable(message: impl Into<String>) -> Self {
        Self::new(Class::Retriable, message)
    }

    /// Shorthand for [`Class::Config`].
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Class::Config, message)
    }

    /// Shorthand for [`Class::Poison`].
    pub fn poison(message: impl Into<String>) -> Self {
        Self::new(Class::Poison, message)
    }

    /// Shorthand for [`Class::Gap`].
    pub fn gap(message: impl Into<String>) -> Self {
        Self::new(Class::Gap, message)
    }

    /// Shorthand for [`Class::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Class::Internal, message)
    }

    /// Keeps the cause. It is printed after the message, so the message must not repeat it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the row it is about, for whoever knows the tables by name.
    #[must_use]
    pub fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Names the event it is about by its id. Several rows can share one LSN, so the origin alone
    /// does not tell them apart.
    #[must_use]
    pub fn of_event(mut self, id: Option<String>) -> Self {
        self.event = id;
        self
    }

    /// Names the topic that refused the event.
    #[must_use]
    pub fn on_topic(mut self, topic: &str) -> Self {
        self.topic = Some(topic.to_owned());
        self
    }

    /// Says in what the failure arose; it is printed in front of the message.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Marks the want of a right on the Kafka cluster, for whoever knows the user's name.
    #[must_use]
    pub fn about_rights(mut self) -> Self {
        self.denied = true;
        self
    }

    /// Whether a right on the Kafka cluster is missing.
    pub fn is_about_rights(&self) -> bool {
        self.denied
    }

    /// Marks a refusal of access: password, database, right, certificate, folder. Wrong from the start it
    /// is configuration; once the same access has worked it is a rotation or a fail-over.
    #[must_use]
    pub fn about_access(mut self) -> Self {
        self.access = true;
        self
    }

    /// The same failure seen by someone whose access has worked before: a refusal of access passes
    /// by itself, everything else keeps its class.
    #[must_use]
    pub fn once_worked(mut self) -> Self {
        if self.access {
            self.class = Class::Retriable;
        }
        self
    }

    /// Marks that the server lets nobody in because it is shutting down.
    #[must_use]
    pub fn about_server_stopping(mut self) -> Self {
        self.server_stopping = true;
        self
    }

    /// Whether the server lets nobody in because it is shutting down.
    pub fn is_server_stopping(&self) -> bool {
        self.server_stopping
    }

    /// Whether it is a refusal of access.
    pub fn is_about_access(&self) -> bool {
        self.access
    }

    /// The row it is about, where one row is to blame.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// The id of the event it is about, where it has one.
    pub fn event(&self) -> Option<&str> {
        self.event.as_deref()
    }

    /// The topic that refused the event.
    pub fn topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }

    /// The class set where the error arose.
    pub fn class(&self) -> Class {
        self.class
    }
}

/// The message followed by each cause, joined by `: `.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let mut cause: Option<&(dyn StdError + 'static)> =
            self.source.as_deref().map(|boxed| boxed as _);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_whole_chain_once() {
        let inner = Failure::retriable("connect to db:5432").caused_by("connection refused");
        let outer = Failure::config("open the slot \"orders\"").caused_by(inner);
        assert_eq!(
            outer.to_string(),
            "open the slot \"orders\": connect to db:5432: connection refused"
        );
        assert_eq!(outer.class(), Class::Config);
    }

    #[test]
    fn only_refused_access_becomes_retriable_once_it_has_worked() {
        let refused = Failure::config("log in").about_access().once_worked();
        assert_eq!(refused.class(), Class::Retriable);
        assert_eq!(
            Failure::config("no table").once_worked().class(),
            Class::Config
        );
    }

    #[test]
    fn exit_codes_are_the_published_ones() {
        let codes: Vec<u8> = Class::ALL.iter().map(|class| class.exit_code()).collect();
        assert_eq!(codes, [5, 2, 4, 3, 1]);
    }
}
