//! walpost's HTTP port as a probe or a scraper sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// GET `path` on a local port; `None` when nobody answers.
pub(crate) fn get(port: u16, path: &str) -> Option<Answer> {
    let agent = ureq::Agent::new_with_config(
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(5)))
            .build(),
    );
    let mut response = agent
        .get(format!("http://127.0.0.1:{port}{path}"))
        .call()
        .ok()?;
    let header = response.headers().get("content-type");
    let content_type = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    Some(Answer {
        status: response.status().as_u16(),
        content_type,
        body: response.body_mut().read_to_string().ok()?,
    })
}

/// A scrape: samples by name with labels, as written.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    samples: BTreeMap<String, f64>,
    text: String,
}

impl Metrics {
    pub(crate) fn scrape(port: u16) -> Option<Self> {
        let answer = get(port, "/metrics").filter(|answer| answer.status == 200)?;
        let samples = answer
            .body
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').expect("name and value");
                (name.to_owned(), value.parse().expect("a number"))
            })
            .collect();
        Some(Self {
            samples,
            text: answer.body,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The one sample of `name` that has all of `labels`; absent when there is none.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.matching(name, labels);
        let value = found.next();
        assert!(
            found.next().is_none(),
            "several samples of {name} {labels:?}"
        );
        value
    }

    /// The sum over all samples of `name` that have all of `labels`.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).sum()
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
        let wanted: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        self.samples.iter().filter_map(move |(sample, value)| {
            let (found, rest) = sample.split_once('{').unwrap_or((sample, ""));
            let fits = found == name && wanted.iter().all(|label| rest.contains(label.as_str()));
            fits.then_some(*value)
        })
    }
}
