//! Nothing outlives the run.
//!
//! Rust has no hook that runs when a process is killed, and a parent-death signal fires when the
//! *thread* that started a child ends, which in a test runner is the end of one test. So a small
//! shell waits for the end of a pipe that only this process holds, and then stops every process
//! and removes every folder it was told of.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use super::{random, wait};

const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
declare -A stop folders
while read -r verb what how; do
    case $verb in
        started) stop[$what]=$how ;;
        ended) unset "stop[$what]" ;;
        folder) folders[$what]=1 ;;
        keep) exit 0 ;;
    esac
done
for pid in "${!stop[@]}"; do
    kill -s CONT "$pid"
    kill -s "${stop[$pid]}" "$pid"
done 2>/dev/null
for ((i = 0; i < 100; i++)); do
    alive=0
    for pid in "${!stop[@]}"; do kill -0 "$pid" 2>/dev/null && alive=1; done
    [ $alive = 0 ] && break
    sleep 0.05
done
for pid in "${!stop[@]}"; do kill -s KILL "$pid" 2>/dev/null; done
for folder in "${!folders[@]}"; do rm -rf -- "$folder"; done
"#;

static JANITOR: LazyLock<Mutex<(Child, Option<ChildStdin>)>> = LazyLock::new(|| {
    let mut child = Command::new("bash")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("bash starts");
    let stdin = child.stdin.take();
    Mutex::new((child, stdin))
});

fn tell(line: &str) {
    if let Some(stdin) = JANITOR.lock().unwrap().1.as_mut() {
        writeln!(stdin, "{line}").expect("the cleanup process listens");
    }
}

/// Stops everything still running and waits for it, as the end of the process would.
pub(crate) fn finish() {
    let mut janitor = JANITOR.lock().unwrap();
    janitor.1 = None;
    janitor
        .0
        .wait()
        .expect("the cleanup process can be awaited");
}

/// Leaves everything running when this process ends.
pub(crate) fn keep() {
    tell("keep");
}

/// The run's folder; readable for the user that runs Postgres.
pub(crate) fn run_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = std::env::temp_dir().join(random::name("walpost"));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&folder, readable).expect("the folder is ours");
        tell(&format!("folder {}", folder.display()));
        folder
    });
    &FOLDER
}

/// Sends `signal` to a process that may have ended.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A new folder inside the run's.
pub(crate) fn folder(stem: &str) -> PathBuf {
    let folder = run_folder().join(random::name(stem));
    std::fs::create_dir(&folder).expect("the run's folder is writable");
    folder
}

/// A child process that cannot outlive the run.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    ended: bool,
}

impl Service {
    /// Starts `command`. At the end of the run it is stopped with `stop`, a signal's name.
    pub(crate) fn start(command: &mut Command, stop: &str) -> Self {
        // A group of its own: Ctrl-C reaches the runner, and the runner's end reaches the child.
        let child = command
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        tell(&format!("started {} {stop}", child.id()));
        Self {
            child,
            ended: false,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends `signal`, unless the process has ended and was seen to.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.ended {
            // Already dead but not yet waited for is as good as reached.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// The exit status, once the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("the child is ours")?;
        if !self.ended {
            self.ended = true;
            tell(&format!("ended {}", self.child.id()));
        }
        Some(status)
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self, what: &str, limit: Duration) -> ExitStatus {
        wait::value(&format!("{what} ends"), limit, || self.ended())
    }

    /// SIGKILL, and waits for it to be true.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait("a killed process", wait::SOON);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::CONT);
            self.kill();
        }
    }
}
