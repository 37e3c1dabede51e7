//! The command line: what can be typed. It does nothing by itself.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};
use walpost::config::LoadRequest;
use walpost::lsn::Lsn;
use walpost::observability::LogFormat;
use walpost::pipeline::{LetterFilter, ListFormat};

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped as asked, or nothing wrong found
  1  internal error: please report it
  2  configuration: a property, a right or a missing object; the message says what to do
  3  gap: rows may already be missing; the message says what is known and how to go on
  4  poison: an event that cannot become a record
  5  gave up retrying, which happens only with errors.max.retries or errors.retry.timeout";

const EXAMPLES: &str = "\
Examples:
  walpost validate orders.json                   is the file right?
  walpost check -w worker.properties orders.json  and do database and brokers agree?
  walpost run -w worker.properties orders.json    run it
  walpost offsets show orders.json                how far is it?
  walpost dlq list orders.json                   what could not be published?
  walpost config | less                           what can I say?";

/// Moves committed outbox rows from Postgres to Kafka.
///
/// walpost reads a connector file as Kafka Connect and Debezium read it, and publishes each row of
/// the outbox table as Debezium's Outbox Event Router would.
#[derive(Debug, Parser)]
#[command(version, long_version = long_version(), after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `--version` prints: also what the Kafka client inside was built with.
fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let client = walpost::sink::client_build();
        format!("{}\n{client}", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}

/// How to log. Logs go to standard error.
#[derive(Debug, Clone, Args)]
pub(crate) struct Logging {
    /// Least level to log: error, warn, info, debug, trace.
    ///
    /// The variable WALPOST_LOG takes a finer filter, for example
    /// `info,walpost::source=debug`; this option wins.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<Level>,
    /// Form of a log line.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// A log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What stops a connector.
    Error,
    /// What needs attention.
    Warn,
    /// What happens.
    Info,
    /// What it takes to see why.
    Debug,
    /// Everything.
    Trace,
}

impl Logging {
    /// The level as the log filter spells it.
    pub(crate) fn level(&self) -> Option<&'static str> {
        Some(match self.log_level? {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        })
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run connectors until stopped.
    ///
    /// One process runs one or many. SIGTERM, SIGINT and SIGHUP stop it cleanly: the transaction at
    /// hand is finished, delivered and stored. A second signal stops it at once. When one connector stops by
    /// itself the others go on; the process exits when none is left.
    #[command(after_help = EXIT_CODES)]
    Run(Files),
    /// Try everything that `run` needs, change nothing, say what is wrong and what to do.
    ///
    /// Connects to Postgres and Kafka, looks at the slot, the publication, the tables, the rights and
    /// the stored position, and says what `run` would do.
    #[command(after_help = EXIT_CODES)]
    Check(Files),
    /// Read the configuration only, without connecting anywhere.
    ///
    /// Tells every problem at once. Placeholders are resolved, so the files and variables that they
    /// name must exist.
    #[command(after_help = EXIT_CODES)]
    Validate(Files),
    /// Look at a connector's stored position, or move it.
    Offsets {
        #[command(subcommand)]
        action: Offsets,
    },
    /// Look at the events that could not be published, publish them after all, or give them up.
    ///
    /// Works while the connector runs.
    Dlq {
        #[command(subcommand)]
        action: Dlq,
    },
    /// Print every property: type, default, meaning, and whether it works.
    Config {
        /// Form of the answer.
        #[arg(long, default_value = "md")]
        format: ReferenceFormat,
    },
    /// Ask a health endpoint: exit code 0 when it answers 200, else 1.
    ///
    /// For container health checks, where there is no shell and no other HTTP client.
    #[command(hide = true)]
    Probe {
        /// For example http://127.0.0.1:8083/health/ready
        url: String,
    },
}

/// Which files to read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Files {
    /// Worker file, as Kafka Connect's connect-standalone and connect-distributed take it.
    ///
    /// Worker properties may also stand in the connector's file, which wins, or in CONNECT_*
    /// variables, which come last.
    #[arg(short, long, value_name = "WORKER.properties")]
    pub(crate) worker: Option<PathBuf>,
    /// Connector files: JSON as for Kafka Connect, or .properties.
    #[arg(required = true, value_name = "CONNECTOR")]
    pub(crate) connectors: Vec<PathBuf>,
}

/// The files of one connector.
#[derive(Debug, Clone, Args)]
pub(crate) struct OneFile {
    /// Worker file, as for `run`.
    #[arg(short, long, value_name = "WORKER.properties")]
    pub(crate) worker: Option<PathBuf>,
    /// Connector file, as for `run`.
    #[arg(value_name = "CONNECTOR")]
    pub(crate) connector: PathBuf,
}

/// What to do with the stored position. The connector must not be running for `set` and `reset`.
#[derive(Debug, Subcommand)]
pub(crate) enum Offsets {
    /// Show the stored position beside the slot's and the server's.
    Show(OneFile),
    /// Store a position, so that the next run goes on from there.
    ///
    /// Events before it are not published any more; events after it that were published already
    /// come again.
    #[command(after_help = "Example:\n  walpost offsets set orders.json 16/B374D848")]
    Set {
        #[command(flatten)]
        file: OneFile,
        /// The position: end of a commit, as `X/Y`.
        #[arg(value_name = "LSN")]
        lsn: Lsn,
    },
    /// Forget the stored position, so that the next run starts as if it were the first.
    Reset(OneFile),
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List dead letters: when, where, why, and whether they wait; not what is in them.
    List {
        #[command(flatten)]
        file: OneFile,
        #[command(flatten)]
        which: Which,
        /// Also those that were replayed or discarded.
        #[arg(long)]
        all: bool,
        /// Form of the answer.
        #[arg(long, default_value = "text")]
        format: LetterFormat,
    },
    /// Show dead letters with everything that is in them, payloads too.
    Show {
        #[command(flatten)]
        file: OneFile,
        #[command(flatten)]
        which: Which,
    },
    /// Publish dead letters, in order, by the configuration as it is now.
    ///
    /// An aggregate of which no letter waits any more is released: its events are published again.
    #[command(after_help = "Example:\n  walpost dlq replay orders.json --aggregate 4711")]
    Replay {
        #[command(flatten)]
        file: OneFile,
        #[command(flatten)]
        which: Which,
        /// Every letter that waits.
        #[arg(long, required_unless_present_any = CONDITIONS, conflicts_with_all = CONDITIONS)]
        all: bool,
    },
    /// Give dead letters up: they are never published.
    ///
    /// An aggregate of which no letter waits any more is released.
    #[command(
        after_help = "Example:\n  walpost dlq discard orders.json --event 0192f0c1-0000-7000-8000-000000000000"
    )]
    Discard {
        #[command(flatten)]
        file: OneFile,
        #[command(flatten)]
        which: Which,
        /// Every letter that waits.
        #[arg(long, required_unless_present_any = CONDITIONS, conflicts_with_all = CONDITIONS)]
        all: bool,
    },
}

/// The options of [`Which`].
const CONDITIONS: [&str; 4] = ["event", "aggregate", "since", "until"];

/// Which dead letters; with several conditions, those that meet all of them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Which {
    /// Of this event, or of any of these.
    #[arg(long, value_name = "ID")]
    event: Vec<String>,
    /// Of this aggregate, or of any of these.
    #[arg(long, value_name = "ID")]
    aggregate: Vec<String>,
    /// Set aside at this moment or later: `2026-01-31T12:00:00Z`, or `2h` for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<i64>,
    /// Set aside before this moment.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<i64>,
}

impl From<Which> for LetterFilter {
    fn from(which: Which) -> Self {
        Self {
            events: which.event,
            aggregates: which.aggregate,
            since_ms: which.since,
            until_ms: which.until,
        }
    }
}

/// Milliseconds since the Unix epoch.
fn moment(text: &str) -> Result<i64, String> {
    let time = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .ok_or_else(|| "expected a moment like 2026-01-31T12:00:00Z or a span like 2h".to_owned())
}

/// Form of `dlq list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LetterFormat {
    /// One line a letter.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LetterFormat> for ListFormat {
    fn from(format: LetterFormat) -> Self {
        match format {
            LetterFormat::Text => ListFormat::Text,
            LetterFormat::Json => ListFormat::Json,
        }
    }
}

/// Form of the property reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReferenceFormat {
    /// Markdown, as in docs/configuration.md.
    Md,
    /// JSON, for programs.
    Json,
}

impl Files {
    /// What the loader is to read.
    pub(crate) fn request(&self) -> LoadRequest {
        request(self.worker.clone(), self.connectors.clone())
    }
}

impl OneFile {
    /// What the loader is to read.
    pub(crate) fn request(&self) -> LoadRequest {
        request(self.worker.clone(), vec![self.connector.clone()])
    }
}

fn request(worker_file: Option<PathBuf>, connector_files: Vec<PathBuf>) -> LoadRequest {
    // Variables that are not text cannot be named in a placeholder or be a property.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    LoadRequest {
        worker_file,
        connector_files,
        environment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_documented_lines_parse() {
        for line in [
            "walpost run -w worker.properties a.json b.properties",
            "walpost check a.json --log-level debug",
            "walpost validate a.json",
            "walpost offsets show a.json",
            "walpost offsets set -w w.properties a.json 16/B374D848",
            "walpost offsets reset a.json",
            "walpost dlq list -w w.properties a.json --since 2h --format json",
            "walpost dlq show a.json --event 1 --event 2",
            "walpost dlq replay a.json --aggregate 7 --until 2026-01-31T12:00:00Z",
            "walpost dlq discard a.json --all",
            "walpost config --format json",
            "walpost --log-format json run a.json",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "walpost",
            "walpost run",
            "walpost offsets set a.json 12",
            "walpost dlq replay a.json",
            "walpost dlq discard a.json --all --event 1",
            "walpost dlq list a.json --since tomorrow",
            "walpost runn a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn help_teaches_examples_and_exit_codes() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("walpost validate orders.json"));
        assert!(help.contains("gap: rows may already be missing"));
    }
}
