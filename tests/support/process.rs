//! A walpost that runs, watched from outside.
//!
//! Every process is held to what a careful operator would ask: no warning or error that the test
//! did not announce, and never one of the planted secrets in anything it says.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::cleanup::{self, Service, Signal};
use super::command::{no_secret, through};
use super::connector::{Connector, Worker, write_files};
use super::http::{self, Answer, Metrics};
use super::{random, wait};

/// A running `walpost run`. Its log goes to a file, so that it may outlive its starter.
#[derive(Debug)]
pub(crate) struct Walpost {
    service: Service,
    log: PathBuf,
    started: Instant,
    allowed: Vec<String>,
    files: Vec<String>,
    environment: Vec<(String, String)>,
    surroundings: Vec<String>,
}

/// Lets a process outlive a write beyond its file size limit, as it would a full disk.
const SURVIVES_FULL_DISK: [&str; 2] = ["env", "--ignore-signal=XFSZ"];

impl Walpost {
    /// Starts `walpost run` with these files.
    pub(crate) fn start(worker: &Worker, connectors: &[&Connector]) -> Self {
        Self::start_files(write_files(worker, connectors), &[])
    }

    /// Starts `walpost run FILES`, with environment variables.
    pub(crate) fn start_files(files: Vec<String>, environment: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self::launch(files, environment.iter().map(own).collect(), Vec::new())
    }

    /// As [`Walpost::start`], by way of a command that changes what the process sees of the machine
    /// (see [`super::surroundings`]).
    pub(crate) fn start_in(
        surroundings: Vec<String>,
        worker: &Worker,
        connectors: &[&Connector],
    ) -> Self {
        Self::launch(write_files(worker, connectors), Vec::new(), surroundings)
    }

    /// Starts once more with the files of a former process.
    pub(crate) fn again(&self) -> Self {
        let mut next = Self::launch(
            self.files.clone(),
            self.environment.clone(),
            self.surroundings.clone(),
        );
        next.allowed.clone_from(&self.allowed);
        next
    }

    fn launch(
        files: Vec<String>,
        environment: Vec<(String, String)>,
        surroundings: Vec<String>,
    ) -> Self {
        let mut arguments: Vec<String> =
            ["run", "--log-format", "json"].map(str::to_owned).to_vec();
        arguments.extend(files.iter().cloned());
        let log = cleanup::run_folder().join(random::name("log"));
        let mut way = surroundings.clone();
        way.extend(SURVIVES_FULL_DISK.map(str::to_owned));
        let mut command = through(&way, &arguments);
        command
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let started = Instant::now();
        Self {
            service: Service::start(&mut command, "KILL"),
            log,
            started,
            allowed: Vec::new(),
            files,
            environment,
            surroundings,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.service.pid()
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Announces warnings and errors that contain `text`.
    #[must_use]
    pub(crate) fn allowing(mut self, text: &str) -> Self {
        self.allow(text);
        self
    }

    /// As [`Walpost::allowing`].
    pub(crate) fn allow(&mut self, text: &str) {
        self.allowed.push(text.to_lowercase());
    }

    /// Everything logged so far.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file the log goes to.
    pub(crate) fn log_file(&self) -> &Path {
        &self.log
    }

    /// Lines of level `WARN` or `ERROR`.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.log();
        let complaints = log.lines().filter(|line| complains(line));
        complaints.map(str::to_owned).collect()
    }

    /// Waits for a log line that contains `text`, in any case of letters.
    #[track_caller]
    pub(crate) fn wait_log(&mut self, text: &str) -> String {
        let wanted = text.to_lowercase();
        let deadline = Instant::now() + wait::SOON;
        loop {
            let ended = self.service.ended().is_some();
            // Only whole lines: the last one may still be written.
            let log = self.log();
            let whole = log.rfind('\n').map_or("", |end| &log[..end]);
            let mut lines = whole.lines();
            if let Some(line) = lines.find(|line| line.to_lowercase().contains(&wanted)) {
                return line.to_owned();
            }
            assert!(!ended, "walpost ended, no line {text:?}:\n{log}");
            assert!(Instant::now() < deadline, "no log line {text:?}:\n{log}");
            thread::sleep(wait::POLL);
        }
    }

    /// Waits for a warning or an error that contains all of `texts`, also of a process that ended.
    #[track_caller]
    pub(crate) fn wait_complaint(&mut self, texts: &[&str]) -> String {
        let deadline = Instant::now() + wait::SOON;
        loop {
            let ended = self.service.ended().is_some();
            let complaints = self.complaints();
            let holds = |line: &&String| texts.iter().all(|text| line.contains(text));
            if let Some(line) = complaints.iter().find(holds) {
                return line.clone();
            }
            assert!(
                !ended && Instant::now() < deadline,
                "no complaint with {texts:?}:\n{}",
                self.log()
            );
            thread::sleep(wait::POLL);
        }
    }

    /// The port that `listeners` with port 0 was given, from the log.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.wait_log("listening");
        let digits = line.split("127.0.0.1:").nth(1).unwrap_or_default();
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits[..end]
            .parse()
            .unwrap_or_else(|_| panic!("no port in {line}"))
    }

    /// GET `path` on its HTTP port.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        let port = self.port();
        let answer = wait::value("HTTP answers", wait::SOON, || http::get(port, path));
        no_secret(&answer.body);
        answer
    }

    pub(crate) fn metrics(&mut self) -> Metrics {
        let port = self.port();
        let metrics = wait::value("metrics", wait::SOON, || Metrics::scrape(port));
        no_secret(metrics.text());
        metrics
    }

    /// Waits until `/health/ready` answers 200.
    #[track_caller]
    pub(crate) fn wait_ready(&mut self) {
        self.wait_readiness(200);
    }

    /// Waits until the first connector streams: ready, and past any snapshot.
    #[track_caller]
    pub(crate) fn wait_streaming(&mut self) {
        self.wait_ready();
        wait::until("the connector streams", Duration::from_secs(60), || {
            self.get("/status").json()["connectors"][0]["state"] == "streaming"
        });
    }

    /// Waits until `/health/ready` answers `status`.
    #[track_caller]
    pub(crate) fn wait_readiness(&mut self, status: u16) {
        let port = self.port();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = http::get(port, "/health/ready");
            if answer
                .as_ref()
                .is_some_and(|answer| answer.status == status)
            {
                return;
            }
            if let Some(ended) = self.service.ended() {
                panic!("walpost ended ({ended}):\n{}", self.log());
            }
            assert!(
                Instant::now() < deadline,
                "readiness is not {status} but {answer:?}:\n{}",
                self.log()
            );
            thread::sleep(wait::POLL);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.service.signal(signal);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.service.ended().is_none()
    }

    /// SIGTERM; returns the exit code and how long it took.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> (Option<i32>, Duration) {
        let asked = Instant::now();
        self.signal(Signal::TERM);
        let status = self.wait_exit(Duration::from_secs(20));
        (status.code(), asked.elapsed())
    }

    /// SIGTERM, and the process must end well.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        let (code, _) = self.terminate();
        assert_eq!(code, Some(0), "a clean stop:\n{}", self.log());
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.service.kill();
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.service.ended() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "walpost still runs after {limit:?}:\n{}",
                self.log()
            );
            thread::sleep(wait::POLL);
        }
    }

    /// Waits for an end with `code`, and announces the complaints that explain it.
    #[track_caller]
    pub(crate) fn expect_exit(&mut self, code: i32, texts: &[&str]) {
        let status = self.wait_exit(Duration::from_secs(60));
        let log = self.log();
        assert_eq!(status.code(), Some(code), "{log}");
        let complaints = self.complaints().join("\n").to_lowercase();
        for text in texts {
            assert!(
                complaints.contains(&text.to_lowercase()),
                "{text:?} is not said:\n{log}"
            );
        }
        self.allow("");
    }

    /// Lets the process run on when this value, and the run, end.
    pub(crate) fn leave_running(self) {
        std::mem::forget(self);
    }

    /// Makes every write of the process to a file fail, or takes that back.
    pub(crate) fn fill_disk(&self, full: bool) {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let limit = Rlimit {
            current: full.then_some(0),
            maximum: None,
        };
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        // The process may have ended meanwhile.
        let _ = prlimit(pid, Resource::Fsize, limit);
    }

    /// Resident memory now, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        proc_status(self.pid(), "VmRSS:") * 1024
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Highest resident memory so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        proc_status(self.pid(), "VmHWM:") * 1024
    }

    /// Processor time used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        // The kernel's USER_HZ is 100 on every Linux in use.
        Duration::from_millis(ticks * 10)
    }

    fn unannounced(&self) -> Vec<String> {
        let announced = |line: &String| {
            let line = line.to_lowercase();
            self.allowed.iter().any(|text| line.contains(text))
        };
        self.complaints()
            .into_iter()
            .filter(|line| !announced(line))
            .collect()
    }
}

impl Drop for Walpost {
    fn drop(&mut self) {
        if self.service.ended().is_none() {
            self.kill();
        }
        if thread::panicking() {
            eprintln!("walpost {} said:\n{}", self.pid(), self.log());
            return;
        }
        no_secret(&self.log());
        let unannounced = self.unannounced();
        assert!(
            unannounced.is_empty(),
            "complaints the test did not announce:\n{}",
            unannounced.join("\n")
        );
    }
}

/// JSON lines carry their level; anything else on stderr (a panic) is a complaint, but for the
/// remarks on a configuration.
fn complains(line: &str) -> bool {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
    match parsed
        .as_ref()
        .ok()
        .and_then(|value| value["level"].as_str())
    {
        Some(level) => matches!(level, "WARN" | "ERROR"),
        None => !line.trim().is_empty() && !line.starts_with("notice: "),
    }
}

fn proc_status(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}
