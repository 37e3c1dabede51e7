//! The `walpost` binary: reads the command line, dispatches, and turns the outcome into an exit
//! code. Results go to standard output, everything else to standard error.

mod cli;

use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use walpost::config::{self, Connector, LoadRequest, Loaded, properties};
use walpost::error::{Class, Failure};
use walpost::observability::{self, init_logging};
use walpost::pipeline::{self, Finding};

use cli::{Cli, Command, Dlq, Offsets, ReferenceFormat};

fn main() -> ExitCode {
    walpost::foreign::share_arenas();
    let cli = Cli::parse();
    let logging = init_logging(cli.logging.level(), cli.logging.log_format);
    match logging.and_then(|()| dispatch(cli)) {
        Ok(code) => code,
        Err(failure) => {
            tell(&format!("error: {failure}"));
            ExitCode::from(failure.class().exit_code())
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Config { format } => {
            answer(&match format {
                ReferenceFormat::Md => properties::markdown(),
                ReferenceFormat::Json => format!("{:#}\n", properties::json()),
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Validate(files) => with(&files.request(), |loaded| {
            answer(
                &loaded
                    .config
                    .connectors
                    .iter()
                    .map(summary)
                    .collect::<String>(),
            )
        }),
        Command::Run(files) => block_on(async {
            // Before anything else, so that a stop during start-up is a clean one too.
            let stop = CancellationToken::new();
            stop_on_signals(&stop)?;
            let mut config = None;
            let read = with(&files.request(), |loaded| {
                config = Some(loaded.config);
                Ok(())
            })?;
            match config {
                Some(config) => pipeline::run(config, stop).await.map(ExitCode::from),
                None => Ok(read),
            }
        }),
        Command::Check(files) => with(&files.request(), |loaded| {
            let findings = block_on(async { Ok(pipeline::check(&loaded.config).await) })?;
            report(&findings)
        }),
        Command::Offsets { action } => match action {
            Offsets::Show(file) => with(&file.request(), |loaded| {
                answer(&block_on(pipeline::show_offset(&loaded.config))?)
            }),
            Offsets::Set { file, lsn } => with(&file.request(), |loaded| {
                answer(&block_on(pipeline::set_offset(&loaded.config, lsn))?)
            }),
            Offsets::Reset(file) => with(&file.request(), |loaded| {
                answer(&block_on(pipeline::reset_offset(&loaded.config))?)
            }),
        },
        Command::Dlq { action } => dead_letters(action),
        Command::Probe { url } => {
            // Docker reserves every code but 0 and 1 for itself.
            Ok(match observability::probe(&url) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    tell(&format!("error: {failure}"));
                    ExitCode::FAILURE
                }
            })
        }
    }
}

fn dead_letters(action: Dlq) -> Result<ExitCode, Failure> {
    match action {
        Dlq::List {
            file,
            which,
            all,
            format,
        } => with(&file.request(), |loaded| {
            let (config, which) = (&loaded.config, which.into());
            block_on(pipeline::list_letters(
                config,
                &which,
                all,
                format.into(),
                answer,
            ))
        }),
        Dlq::Show { file, which } => with(&file.request(), |loaded| {
            block_on(pipeline::show_letters(
                &loaded.config,
                &which.into(),
                answer,
            ))
        }),
        Dlq::Replay { file, which, .. } => with(&file.request(), |loaded| {
            answer(&block_on(pipeline::replay_letters(
                &loaded.config,
                &which.into(),
            ))?)
        }),
        Dlq::Discard { file, which, .. } => with(&file.request(), |loaded| {
            answer(&block_on(pipeline::discard_letters(
                &loaded.config,
                &which.into(),
            ))?)
        }),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal("start the runtime").caused_by(error))?
        .block_on(work)
}

/// The first SIGTERM, SIGINT or SIGHUP asks for a clean stop, the second ends the process at once
/// with the code that a shell gives to a process killed by that signal.
fn stop_on_signals(stop: &CancellationToken) -> Result<(), Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::internal("listen for signals").caused_by(error))
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = match ignores_hangup() {
        true => None,
        false => Some(listen(SignalKind::hangup())?),
    };
    let stop = stop.clone();
    tokio::spawn(async move {
        loop {
            let number = tokio::select! {
                _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
                _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                () = hung_up(&mut hangup) => SignalKind::hangup().as_raw_value(),
            };
            if stop.is_cancelled() {
                std::process::exit(128 + number);
            }
            stop.cancel();
        }
    });
    Ok(())
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether whoever started us wants us to outlive the terminal, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Prints one line a finding; the exit code is that of the gravest one.
fn report(findings: &[Finding]) -> Result<ExitCode, Failure> {
    let mut code = 0;
    let mut text = String::new();
    for finding in findings {
        let (mark, outcome) = match &finding.outcome {
            Ok(outcome) => ("ok", outcome.clone()),
            Err(failure) => {
                code = if code == 0 {
                    failure.class().exit_code()
                } else {
                    code
                };
                ("FAIL", failure.to_string())
            }
        };
        text.push_str(&format!(
            "{mark:<5}{}: {}: {outcome}\n",
            finding.connector, finding.subject
        ));
    }
    answer(&text)?;
    Ok(ExitCode::from(code))
}

/// Loads the configuration, tells what there is to tell, and goes on if it is valid.
fn with<T: Into<Ended>>(
    request: &LoadRequest,
    go_on: impl FnOnce(Loaded) -> Result<T, Failure>,
) -> Result<ExitCode, Failure> {
    match config::load(request) {
        Ok(loaded) => {
            for notice in &loaded.notices {
                tracing::info!("{notice}");
            }
            go_on(loaded).map(|ended| ended.into().0)
        }
        Err(problems) => {
            for problem in &problems {
                tell(&format!("error: {problem}"));
            }
            Ok(ExitCode::from(Class::Config.exit_code()))
        }
    }
}

/// How a command ended that got as far as being carried out.
struct Ended(ExitCode);

impl From<()> for Ended {
    fn from((): ()) -> Self {
        Ended(ExitCode::SUCCESS)
    }
}

impl From<ExitCode> for Ended {
    fn from(code: ExitCode) -> Self {
        Ended(code)
    }
}

fn summary(connector: &Connector) -> String {
    let hosts = connector.database.hosts.iter();
    let hosts: Vec<String> = hosts.map(ToString::to_string).collect();
    format!(
        "{}: valid: connector {:?}, database {:?} at {}, slot {:?}, publication {:?}\n",
        connector.origin,
        connector.name,
        connector.database.dbname,
        hosts.join(","),
        connector.slot.name,
        connector.publication.name,
    )
}

/// Writes a result. A reader that has gone away wants no more of it.
fn answer(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::internal("write the result to standard output").caused_by(error))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error; when even that is closed there is nobody to tell.
fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
