//! Puts files and environment together: precedence, worker properties inside connector files,
//! and what several connectors may not share.

use std::path::PathBuf;

use super::check::{self, Unknown};
use super::files::{self, Pairs};
use super::placeholder::Placeholders;
use super::problem::{Findings, Notice, Problem};
use super::properties::{FAMILIES, Kind};
use super::settings::{Setting, Settings};
use super::validated::{Config, Connector};
use super::{connector, differences, environment, worker};

/// Name of the environment in messages.
const ENVIRONMENT: &str = "environment";

/// What to load.
#[derive(Clone, Default)]
pub struct LoadRequest {
    /// The worker file, `.properties`.
    pub worker_file: Option<PathBuf>,
    /// The connectors' files, JSON or `.properties`.
    pub connector_files: Vec<PathBuf>,
    /// The environment, for `CONNECT_*` and `${env:…}`.
    pub environment: Vec<(String, String)>,
}

/// A configuration and what there is to say about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Remarks for the operator.
    pub notices: Vec<Notice>,
}

/// Loads a configuration: connector file before worker file before environment.
///
/// # Errors
/// Every problem found, none of which shows a secret.
pub fn load(request: &LoadRequest) -> Result<Loaded, Vec<Problem>> {
    let mut findings = Findings::default();
    let variables = environment::worker_pairs(&request.environment);
    let worker_file = request.worker_file.as_ref().map(|path| {
        let pairs = files::worker(path, &mut findings);
        (path.display().to_string(), pairs)
    });
    let files: Vec<(String, Pairs)> = request
        .connector_files
        .iter()
        .map(|path| {
            let pairs = files::connector(path, &mut findings);
            (path.display().to_string(), pairs)
        })
        .collect();
    if !findings.problems.is_empty() {
        // Half a file would only raise problems that are not there.
        return Err(findings.problems);
    }
    let mut layers = vec![(ENVIRONMENT.to_owned(), variables)];
    layers.extend(worker_file);
    let declared: Pairs = layers
        .iter()
        .chain(&files)
        .flat_map(|(_, pairs)| pairs.clone())
        .collect();
    let placeholders = Placeholders::new(&request.environment, &declared);
    let resolved = |layers: &[(String, Pairs)], findings: &mut Findings| -> Vec<Settings> {
        layers
            .iter()
            .map(|(origin, pairs)| settings(origin, pairs, &placeholders, findings))
            .collect()
    };
    let layers = resolved(&layers, &mut findings);
    let connectors = resolved(&files, &mut findings);
    for settings in &connectors {
        require_database(settings, &mut findings);
    }
    assemble(&layers, &connectors, findings)
}

fn require_database(settings: &Settings, findings: &mut Findings) {
    for name in ["database.hostname", "database.user", "database.dbname"] {
        if settings
            .get(name)
            .is_none_or(|value| value.trim().is_empty())
        {
            findings.problem(settings.origin(), name, "is required");
        }
    }
}

fn settings(
    origin: &str,
    pairs: &Pairs,
    placeholders: &Placeholders,
    findings: &mut Findings,
) -> Settings {
    let mut settings = Settings::new(origin);
    for (name, written) in pairs {
        let mut problems = Vec::new();
        let value = placeholders.resolve(written, &mut problems);
        for text in problems {
            findings.problem(origin, name, text);
        }
        if value != *written && value.ends_with('\n') && is_secret(name) {
            findings.notice(
                origin,
                name,
                "ends in a line break, which is kept; write the file without one",
            );
        }
        settings.put(Setting {
            name: name.clone(),
            value,
            written: written.clone(),
            origin: origin.to_owned(),
        });
    }
    settings
}

fn is_secret(name: &str) -> bool {
    let name = ["producer.override.", "producer."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    FAMILIES
        .iter()
        .filter_map(|family| family.find(name))
        .any(|property| property.kind == Kind::Secret)
}

/// From resolved settings to a configuration. `layers` are the worker's, the weakest first.
pub(super) fn assemble(
    layers: &[Settings],
    connectors: &[Settings],
    mut findings: Findings,
) -> Result<Loaded, Vec<Problem>> {
    let mut worker_settings = Settings::new("worker");
    for layer in layers {
        layer
            .iter()
            .cloned()
            .for_each(|setting| worker_settings.put(setting));
    }
    for layer in layers {
        // A variable that merely starts with CONNECT_ may belong to something else.
        let unknown = match layer.origin() {
            ENVIRONMENT => Unknown::Warn,
            _ => Unknown::of(&[&worker_settings]),
        };
        check::worker(layer, unknown, &mut findings);
    }
    refuse_disagreement(connectors, &mut findings);
    for settings in connectors {
        let unknown = Unknown::of(&[settings, &worker_settings]);
        check::connector(settings, unknown, &mut findings);
        differences::tell(settings, &mut findings);
    }
    for setting in connectors.iter().flat_map(Settings::iter) {
        if check::belongs_to_worker(&setting.name) {
            worker_settings.put(setting.clone());
        }
    }
    let worker = worker::read(&worker_settings, &mut findings);
    let connectors: Vec<Connector> = connectors
        .iter()
        .map(|settings| connector::read(settings, &worker_settings, &worker, &mut findings))
        .collect();
    refuse_sharing(&connectors, &mut findings);
    if !findings.problems.is_empty() {
        return Err(findings.problems);
    }
    Ok(Loaded {
        config: Config { worker, connectors },
        notices: findings.notices,
    })
}

/// A worker property holds for the whole process.
fn refuse_disagreement(connectors: &[Settings], findings: &mut Findings) {
    for (index, settings) in connectors.iter().enumerate() {
        for setting in settings.iter() {
            let earlier = connectors[..index].iter().find(|earlier| {
                earlier
                    .get(&setting.name)
                    .is_some_and(|value| value != setting.value)
            });
            if let Some(earlier) = earlier
                && check::belongs_to_worker(&setting.name)
            {
                findings.problem(
                    settings.origin(),
                    &setting.name,
                    format!(
                        "differs from {}; a worker property holds for all connectors of the \
                         process, so say it once, or run two processes",
                        earlier.origin()
                    ),
                );
            }
        }
    }
}

fn refuse_sharing(connectors: &[Connector], findings: &mut Findings) {
    for (index, connector) in connectors.iter().enumerate() {
        for earlier in &connectors[..index] {
            if connector.name == earlier.name {
                findings.problem(
                    &connector.origin,
                    "name",
                    format!(
                        "{:?} is also the name in {}",
                        connector.name, earlier.origin
                    ),
                );
            }
            let (one, other) = (&connector.database, &earlier.database);
            // Slot names are unique in a server, whatever the database.
            if connector.slot.name == earlier.slot.name
                && one.hosts.iter().any(|host| other.hosts.contains(host))
            {
                findings.problem(
                    &connector.origin,
                    "slot.name",
                    format!(
                        "{:?} is also the slot in {}, on the same server; give each connector its \
                         own",
                        connector.slot.name, earlier.origin
                    ),
                );
            }
        }
    }
}
