//! Walpost's commands, run to their end.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::connector::{Connector, Worker, write_files};
use super::{kafka, postgres, wait};

/// Text that must stay inside: passwords that the kit's servers really use, and a marker that
/// tests put into payloads, keys and headers of events that go wrong.
pub(crate) const PLANTED: [&str; 4] = [
    postgres::PASSWORD,
    kafka::PASSWORD,
    PAYLOAD_MARKER,
    "planted-",
];

/// Put this into an event to prove that no message repeats it.
pub(crate) const PAYLOAD_MARKER: &str = "planted-payload";

/// The binary under test: this build's, or `WALPOST_BIN`.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("WALPOST_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_walpost")),
        PathBuf::from,
    )
}

/// A command that sees none of the runner's settings.
fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env_clear();
    for name in ["PATH", "HOME", "TMPDIR", "RUST_BACKTRACE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// As [`command`], by way of a program that becomes it or starts it.
pub(super) fn through(program: &[String], arguments: &[String]) -> Command {
    let plain = command(arguments);
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env_clear();
    for (name, value) in plain.get_envs() {
        command.envs(value.map(|value| (name, value)));
    }
    command
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Both streams, for a search.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Panics unless the command ended with `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Panics unless all of `texts` were said.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        let said = self.text();
        for text in texts {
            assert!(said.contains(text), "{text:?} is not in {self:#?}");
        }
        self
    }
}

/// Runs `walpost ARGUMENTS` to its end.
pub(crate) fn run(arguments: &[&str]) -> Finished {
    run_with(arguments, &[])
}

/// As [`run`], with environment variables.
pub(crate) fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> Finished {
    let finished = run_unchecked(arguments, environment);
    no_secret(&finished.text());
    finished
}

/// As [`run_with`], for a command that is asked to print what no other may.
fn run_unchecked(arguments: &[&str], environment: &[(&str, &str)]) -> Finished {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let mut child = command(&arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stderr = child.stderr.take().unwrap();
    let errors = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let mut out = child.stdout.take().unwrap();
    let output = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(wait::POLL);
    };
    Finished {
        code,
        stdout: output.join().unwrap().expect("UTF-8"),
        stderr: errors.join().unwrap().expect("UTF-8"),
    }
}

/// `walpost COMMAND` with files of these contents.
pub(crate) fn run_files(words: &[&str], worker: &Worker, connectors: &[&Connector]) -> Finished {
    let files = write_files(worker, connectors);
    run(&with_files(words, &files))
}

/// As [`run_files`], for a command that is asked to print what no other may.
pub(crate) fn show_files(words: &[&str], worker: &Worker, connectors: &[&Connector]) -> Finished {
    let files = write_files(worker, connectors);
    run_unchecked(&with_files(words, &files), &[])
}

fn with_files<'a>(words: &[&'a str], files: &'a [String]) -> Vec<&'a str> {
    let files = files.iter().map(String::as_str);
    words.iter().copied().chain(files).collect()
}

/// Panics if `text` repeats something planted.
pub(crate) fn no_secret(text: &str) {
    for planted in PLANTED {
        if let Some(at) = text.find(planted) {
            let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
            let line = text[from..].lines().next().unwrap_or_default();
            panic!("a planted secret was said: {line}");
        }
    }
}
