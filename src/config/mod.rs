//! From files and environment to a [`Config`], with every problem reported at once.
//!
//! Owns every property name, default and error text of the configuration. Opens nothing but the
//! files it is given and the ones that placeholders name, and never prints a secret.

mod check;
mod classes;
mod connector;
mod converters;
mod date_pattern;
mod differences;
mod environment;
mod exactly_once;
mod files;
mod hosts;
mod java;
mod kafka;
mod load;
mod placeholder;
mod problem;
pub mod properties;
mod secret;
mod settings;
mod topics;
mod transforms;
mod validated;
mod value;
mod values;
mod worker;

pub use date_pattern::{DatePattern, DatePatternError};
pub use hosts::{Host, SessionTarget};
pub use java::RegexError;
pub use load::{LoadRequest, Loaded, load};
pub use problem::{Notice, Problem};
pub use secret::Secret;
pub use validated::*;

use problem::Findings;
use settings::{Setting, Settings};

/// Worker properties for [`connector_from_pairs`].
#[derive(Clone, Default)]
pub struct WorkerPairs(pub Vec<(String, String)>);

/// One connector from its properties, without files, environment or placeholders; how to reach
/// Postgres may be missing.
///
/// # Errors
/// Every problem of the connector and of the worker's properties.
pub fn connector_from_pairs(
    origin: &str,
    pairs: Vec<(String, String)>,
    worker: &WorkerPairs,
) -> Result<Connector, Vec<Problem>> {
    let settings = |origin: &str, pairs: Vec<(String, String)>| {
        let mut settings = Settings::new(origin);
        for (name, value) in pairs {
            settings.put(Setting::plain(origin, name, value));
        }
        settings
    };
    let worker = settings("worker", worker.0.clone());
    let connector = settings(origin, pairs);
    let mut loaded = load::assemble(&[worker], &[connector], Findings::default())?;
    // One set of properties went in, so one connector comes out.
    Ok(loaded.config.connectors.remove(0))
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;
