//! From Kafka's Java property names to librdkafka clients.
//!
//! Owns: the translation and the context that carries librdkafka's logs and errors into ours. Used
//! for every client: producer, topic administration, offsets. Never: a default of the producer
//! itself (see [`super::producer`]), a secret in a text.

mod cluster;
mod context;
mod jaas;
mod lifeline;
mod properties;
mod reading;
mod security;

use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;

pub(crate) use cluster::{Admin, Plan, answers, find, look, reach};
pub(crate) use context::{Ears, Trouble, hear, log};
pub(crate) use lifeline::{LOOK, Lifeline, Tied, hold};
pub(crate) use reading::{Ends, bear, follow_topic, read_topic};

use crate::config::KafkaProperties;
use crate::error::Failure;

/// What a client is for; some properties only exist for one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Produces.
    Producer,
    /// Creates and describes topics.
    Admin,
    /// Reads topics of our own.
    Consumer,
}

/// Whom a client logs in as, where its properties tell.
pub(super) fn user(java: &KafkaProperties) -> Option<String> {
    let login = java
        .get("sasl.jaas.config")
        .and_then(|text| jaas::parse(text).ok());
    let named = |login: &jaas::Login| {
        let names = ["username", "clientId", "client_id", "oauth.client.id"];
        names
            .iter()
            .find_map(|name| login.option(name))
            .map(str::to_owned)
    };
    let own = java.get("sasl.username").map(str::to_owned);
    login.as_ref().and_then(named).or(own)
}

/// Settings of one client in librdkafka's names.
pub(crate) struct Settings {
    config: ClientConfig,
    /// librdkafka name and the Java name it came from, for messages.
    names: Vec<(String, String)>,
    /// What a user should know about properties that do not act as in Java.
    notices: Vec<String>,
}

impl Settings {
    /// Translates `java` for a client of `role`.
    pub(crate) fn translate(
        java: &KafkaProperties,
        role: Role,
        client_id: &str,
    ) -> Result<Self, Failure> {
        let mut out = Translation::default();
        out.set("client.id", "client.id", client_id);
        // Java sets SO_KEEPALIVE on every connection.
        out.set("socket.keepalive.enable", "", "true");
        out.set("connections.max.idle.ms", "", "540000");
        // Java's request.timeout.ms. librdkafka waits twice as long for an answer on a dead line:
        // as long as a stored position may take, which would then fail instead of being sent again.
        out.set("socket.timeout.ms", "", "30000");
        security::translate(java, &mut out);
        for (name, value) in &java.0 {
            if !security::owns(name) {
                properties::translate(name, value, role, &mut out);
            }
        }
        if java.get("bootstrap.servers").is_none_or(str::is_empty) {
            out.problems.push(
                "bootstrap.servers is missing; give host:port of one or more brokers".to_owned(),
            );
        }
        out.finish()
    }

    /// Sets a librdkafka property of our own, over what the user said.
    pub(crate) fn force(&mut self, name: &str, value: &str) {
        self.config.set(name, value);
    }

    /// Sets a librdkafka property unless the user did.
    pub(crate) fn default(&mut self, name: &str, value: &str) {
        if self.config.get(name).is_none() {
            self.config.set(name, value);
        }
    }

    /// The value of a librdkafka property, when set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.config.get(name)
    }

    /// Logs, once, what does not act as in Java.
    pub(crate) fn log_notices(&self) {
        for notice in &self.notices {
            tracing::info!("{notice}");
        }
    }

    /// The client.
    pub(crate) fn create<C, T>(&self, context: C) -> Result<T, Failure>
    where
        C: Tied,
        T: FromClientConfigAndContext<C>,
    {
        let servers = self.get("bootstrap.servers");
        context.lifeline().tie(servers.unwrap_or_default());
        self.config
            .create_with_context(context)
            .map_err(|error| self.refused(&error))
    }

    /// librdkafka names the property but may quote its value, so only the name is passed on.
    fn refused(&self, error: &KafkaError) -> Failure {
        match error {
            KafkaError::ClientConfig(_, _, name, _) => {
                let java = self.java_name(name);
                Failure::config(format!(
                    "the Kafka client does not accept the value of {java}"
                ))
            }
            KafkaError::ClientCreation(reason) => {
                Failure::config(format!("create the Kafka client: {}", reason.trim()))
            }
            other => Failure::config(format!("create the Kafka client: {other}")),
        }
    }

    fn java_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.names
            .iter()
            .find(|(ours, java)| ours == name && !java.is_empty())
            .map_or(name, |(_, java)| java)
    }
}

/// A translation under way; every problem is collected.
#[derive(Default)]
struct Translation {
    set: Vec<(String, String, String)>,
    notices: Vec<String>,
    problems: Vec<String>,
}

impl Translation {
    /// `name` in librdkafka, from `java`, which may be empty for a default of ours.
    fn set(&mut self, name: &str, java: &str, value: &str) {
        self.set
            .push((name.to_owned(), java.to_owned(), value.to_owned()));
    }

    fn notice(&mut self, text: String) {
        self.notices.push(text);
    }

    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    fn finish(self) -> Result<Settings, Failure> {
        if !self.problems.is_empty() {
            return Err(Failure::config(self.problems.join("; ")));
        }
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        let mut names = Vec::new();
        for (name, java, value) in self.set {
            config.set(&name, value);
            names.push((name, java));
        }
        Ok(Settings {
            config,
            names,
            notices: self.notices,
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
