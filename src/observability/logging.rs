//! Log lines: to stderr, as text or as one JSON object each.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::error::Failure;

/// Holds a filter in the syntax of `tracing`; wins over `--log-level`.
const FILTER_VARIABLE: &str = "WALPOST_LOG";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends all log lines of the process to stderr, librdkafka's among them at their own levels.
/// `WALPOST_LOG` wins over `level`; without either the level is `info`.
///
/// # Errors
/// `Config`: the level or the filter is not valid. `Internal`: called twice.
pub fn init_logging(level: Option<&str>, format: LogFormat) -> Result<(), Failure> {
    let variable = std::env::var(FILTER_VARIABLE).ok();
    let filter = filter(level, variable.as_deref())?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => Box::new(
            fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::stderr().is_terminal()),
        ),
        LogFormat::Json => Box::new(
            fmt::layer()
                .json()
                .flatten_event(true)
                .with_writer(std::io::stderr),
        ),
    };
    // Also turns on the bridge from the `log` crate, through which librdkafka's lines arrive.
    Registry::default()
        .with(lines)
        .with(filter)
        .with(filter_fn(may_be_shown))
        .try_init()
        .map_err(|error| Failure::internal("start logging").caused_by(error))
}

/// A bare level concerns our own lines and librdkafka's; libraries below stay at `warn`, since
/// their debug output describes bytes rather than events.
fn filter(level: Option<&str>, variable: Option<&str>) -> Result<EnvFilter, Failure> {
    if let Some(text) = variable.filter(|text| !text.trim().is_empty()) {
        return EnvFilter::builder().parse(text).map_err(|error| {
            Failure::config(format!(
                "read the log filter {FILTER_VARIABLE}={text}: use for example info or \
                 walpost=debug,librdkafka=info"
            ))
            .caused_by(error)
        });
    }
    let level = level.unwrap_or("info").to_ascii_lowercase();
    if !LEVELS.contains(&level.as_str()) {
        return Err(Failure::config(format!(
            "read the log level \"{level}\": use one of {}",
            LEVELS.join(", ")
        )));
    }
    EnvFilter::builder()
        .parse(match level.as_str() {
            "off" | "error" => level,
            _ => format!("warn,walpost={level},librdkafka={level}"),
        })
        .map_err(|error| Failure::internal("build the log filter").caused_by(error))
}

/// The Postgres client writes statement parameters at debug and server notices at info; either can
/// carry row data, so no filter may let them through.
fn may_be_shown(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("tokio_postgres") || *metadata.level() <= Level::WARN
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Option<&str>, variable: Option<&str>, write: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = Registry::default()
            .with(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_writer(move || writer.clone()),
            )
            .with(filter(level, variable).unwrap())
            .with(filter_fn(may_be_shown));
        with_default(subscriber, write);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_level_concerns_us_and_librdkafka_but_not_the_libraries_below() {
        let text = logged(Some("debug"), None, || {
            tracing::debug!(target: "walpost::source", "ours");
            tracing::debug!(target: "librdkafka", "kafka's");
            tracing::info!(target: "hyper", "hyper's");
        });
        assert!(text.contains("ours") && text.contains("kafka's"), "{text}");
        assert!(!text.contains("hyper's"), "{text}");
    }

    #[test]
    fn the_variable_wins_over_the_level() {
        let text = logged(Some("trace"), Some("walpost=warn"), || {
            tracing::info!(target: "walpost::source", "quiet");
            tracing::warn!(target: "walpost::source", "loud");
        });
        assert!(text.contains("loud") && !text.contains("quiet"), "{text}");
    }

    #[test]
    fn statement_parameters_and_notices_of_the_postgres_client_never_show() {
        let text = logged(None, Some("trace,tokio_postgres::query=trace"), || {
            tracing::debug!(target: "tokio_postgres::query", "parameters: [secret]");
            tracing::info!(target: "tokio_postgres::connection", "NOTICE: secret");
        });
        assert_eq!(text, "");
    }

    #[test]
    fn a_json_line_is_one_object_with_fields_at_the_top() {
        let text = logged(None, None, || {
            tracing::info!(target: "walpost", slot = "orders", "streaming");
        });
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(line["message"], "streaming");
        assert_eq!(line["slot"], "orders");
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn a_wrong_level_or_filter_is_a_configuration_error_that_names_it() {
        let error = filter(Some("loud"), None).unwrap_err();
        assert_eq!(error.class(), crate::error::Class::Config);
        assert!(error.to_string().contains("loud"), "{error}");
        let error = filter(None, Some("walpost=loud")).unwrap_err();
        assert_eq!(error.class(), crate::error::Class::Config);
        assert!(error.to_string().contains("WALPOST_LOG"), "{error}");
    }
}
