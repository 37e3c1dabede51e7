//! Connector and worker files, as an operator would write them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::cleanup;
use super::tls::Authority;

/// A connector file in the making.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) name: String,
    config: Map<String, Value>,
}

impl Connector {
    pub(crate) fn new(name: &str, properties: &[(&str, &str)]) -> Self {
        let config = properties
            .iter()
            .map(|(property, value)| ((*property).to_owned(), json!(value)));
        Self {
            name: name.to_owned(),
            config: config.collect(),
        }
    }

    /// The same file under another connector name.
    #[must_use]
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets one property.
    #[must_use]
    pub(crate) fn set(mut self, property: &str, value: &str) -> Self {
        self.config.insert(property.to_owned(), json!(value));
        self
    }

    /// Sets an option of the router.
    #[must_use]
    pub(crate) fn router(self, option: &str, value: &str) -> Self {
        self.set(&format!("transforms.outbox.{option}"), value)
    }

    /// Removes one property.
    #[must_use]
    pub(crate) fn without(mut self, property: &str) -> Self {
        self.config.remove(property);
        self
    }

    pub(crate) fn get(&self, property: &str) -> &str {
        self.config
            .get(property)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The file's text, in the shape `{"name": …, "config": {…}}`.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(&json!({"name": self.name, "config": self.config})).unwrap()
    }

    /// Writes the file into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join(format!("{}.json", self.name));
        std::fs::write(&path, self.json()).unwrap();
        path
    }
}

/// A worker file in the making.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    properties: Vec<(String, String)>,
}

impl Worker {
    pub(crate) fn new(properties: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            properties: properties.iter().map(own).collect(),
        }
    }

    /// Sets one property.
    #[must_use]
    pub(crate) fn set(self, property: &str, value: &str) -> Self {
        let mut worker = self.without(property);
        worker
            .properties
            .push((property.to_owned(), value.to_owned()));
        worker
    }

    /// Removes one property.
    #[must_use]
    pub(crate) fn without(mut self, property: &str) -> Self {
        self.properties.retain(|(name, _)| name != property);
        self
    }

    /// Kafka over TLS at `bootstrap`; `protocol` is `SSL` or `SASL_SSL`.
    #[must_use]
    pub(crate) fn over_tls(self, protocol: &str, bootstrap: &str, authority: &Authority) -> Self {
        self.set("bootstrap.servers", bootstrap)
            .set("security.protocol", protocol)
            .set("ssl.truststore.type", "PEM")
            .set(
                "ssl.truststore.location",
                &authority.certificate().display().to_string(),
            )
    }

    /// A user of Kafka's `PLAIN` or `SCRAM-…`.
    #[must_use]
    pub(crate) fn sasl(self, mechanism: &str, user: &str, password: &str) -> Self {
        let module = match mechanism {
            "PLAIN" => "plain.PlainLoginModule",
            _ => "scram.ScramLoginModule",
        };
        let jaas = format!(
            "org.apache.kafka.common.security.{module} required username=\"{user}\" \
             password=\"{password}\";"
        );
        self.set("sasl.mechanism", mechanism)
            .set("sasl.jaas.config", &jaas)
    }

    pub(crate) fn get(&self, property: &str) -> &str {
        let found = self.properties.iter().find(|(name, _)| name == property);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Writes the file into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let lines: Vec<String> = self
            .properties
            .iter()
            .map(|(name, value)| format!("{name}={}\n", value.replace('\\', "\\\\")))
            .collect();
        let path = folder.join("worker.properties");
        std::fs::write(&path, lines.concat()).unwrap();
        path
    }
}

/// Writes the files of one process; gives the arguments that name them.
pub(crate) fn write_files(worker: &Worker, connectors: &[&Connector]) -> Vec<String> {
    let folder = cleanup::folder("config");
    let text = |path: PathBuf| path.into_os_string().into_string().expect("a UTF-8 path");
    let mut arguments = vec!["-w".to_owned(), text(worker.write(&folder))];
    for connector in connectors {
        arguments.push(text(connector.write(&folder)));
    }
    arguments
}
