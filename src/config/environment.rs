//! Worker properties from the environment, as the images of Connect and Debezium spell them.

use super::files::Pairs;

/// Short names of the Debezium image.
const SHORT: [(&str, &str); 9] = [
    ("BOOTSTRAP_SERVERS", "bootstrap.servers"),
    ("GROUP_ID", "group.id"),
    ("CONFIG_STORAGE_TOPIC", "config.storage.topic"),
    ("OFFSET_STORAGE_TOPIC", "offset.storage.topic"),
    ("STATUS_STORAGE_TOPIC", "status.storage.topic"),
    ("KEY_CONVERTER", "key.converter"),
    ("VALUE_CONVERTER", "value.converter"),
    ("REST_PORT", "rest.port"),
    ("HOST_NAME", "rest.host.name"),
];

/// The worker properties in `environment`. `CONNECT_*` wins over a short name.
pub(super) fn worker_pairs(environment: &[(String, String)]) -> Pairs {
    let mut pairs = Pairs::new();
    let mut put = |name: String, value: &str| {
        pairs.retain(|(known, _)| *known != name);
        pairs.push((name, value.to_owned()));
    };
    for (variable, value) in environment {
        // Kubernetes sets REST_PORT=tcp://… for a service that is called `rest`.
        if let Some((_, name)) = SHORT.iter().find(|(short, _)| short == variable)
            && !value.starts_with("tcp://")
        {
            put((*name).to_owned(), value);
        }
    }
    for (variable, value) in environment {
        if let Some(rest) = variable.strip_prefix("CONNECT_")
            && !is_service_link(rest)
        {
            put(property_name(rest), value);
        }
    }
    pairs
}

/// `_` is a dot, `__` an underscore, `___` a hyphen.
fn property_name(variable: &str) -> String {
    variable
        .to_lowercase()
        .replace("___", "-")
        .replace("__", "\u{0}")
        .replace('_', ".")
        .replace('\u{0}', "_")
}

/// Kubernetes adds such variables for a service that is called `connect`.
fn is_service_link(rest: &str) -> bool {
    ["SERVICE_HOST", "SERVICE_PORT", "PORT"]
        .iter()
        .any(|link| rest == *link || rest.starts_with(&format!("{link}_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(variables: &[(&str, &str)]) -> Pairs {
        let environment: Pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        worker_pairs(&environment)
    }

    #[test]
    fn variables_become_properties() {
        let found = pairs(&[
            ("CONNECT_BOOTSTRAP_SERVERS", "a:1"),
            ("BOOTSTRAP_SERVERS", "b:1"),
            ("CONNECT_PRODUCER_COMPRESSION_TYPE", "zstd"),
            ("GROUP_ID", "g"),
            ("PATH", "/bin"),
            ("CONNECT_PORT_8083_TCP", "tcp://10.0.0.1:8083"),
            ("CONNECT_SERVICE_HOST", "10.0.0.1"),
        ]);
        let expected = [
            ("group.id", "g"),
            ("bootstrap.servers", "a:1"),
            ("producer.compression.type", "zstd"),
        ];
        let expected: Pairs = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(property_name("A_B__C___D"), "a.b_c-d");
    }
}
