//! A Postgres of our own.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use super::cleanup::{self, Service, Signal};
use super::kafka::cache;
use super::{ports, random, wait};

/// The superuser.
pub(crate) const USER: &str = "postgres";

/// Its password. No log, page or message of walpost may ever contain it; see [`super::process`].
pub(crate) const PASSWORD: &str = "planted-database-password";

/// Suits many small tests at once; nothing here has to survive a power failure.
const SETTINGS: &[(&str, &str)] = &[
    ("wal_level", "logical"),
    ("max_connections", "300"),
    ("max_wal_senders", "100"),
    ("max_replication_slots", "150"),
    ("max_prepared_transactions", "10"),
    ("listen_addresses", "127.0.0.1"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "64MB"),
    ("max_wal_size", "1GB"),
    ("log_min_messages", "warning"),
];

/// How to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shutdown {
    /// Waits for the walsenders to be told that their data arrived.
    Fast,
    /// As a crash.
    Immediate,
}

/// One server, possibly stopped.
#[derive(Debug)]
pub(crate) struct Postgres {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Mutex<Vec<(String, String)>>,
    service: Mutex<Option<Service>>,
}

impl Postgres {
    /// The server shared by all tests of the run.
    pub(crate) fn shared() -> Arc<Postgres> {
        static SHARED: LazyLock<Arc<Postgres>> = LazyLock::new(|| Postgres::private(&[]));
        Arc::clone(&SHARED)
    }

    /// A server for one test, which may stop or kill it; `settings` override the kit's.
    pub(crate) fn private(settings: &[(&str, &str)]) -> Arc<Postgres> {
        Self::installed(bin(), settings)
    }

    /// As [`Postgres::private`], of this major version or a newer one.
    pub(crate) fn at_least(major: u32, settings: &[(&str, &str)]) -> Arc<Postgres> {
        Self::installed(&bin_of(major), settings)
    }

    /// A server of another cluster: all others here have one system identifier.
    pub(crate) fn stranger() -> Arc<Postgres> {
        let server = Self::of(bin(), &initialise(bin()), &[]);
        server.start();
        Arc::new(server)
    }

    fn installed(bin: &Path, settings: &[(&str, &str)]) -> Arc<Postgres> {
        let server = Self::over(bin, settings);
        server.start();
        Arc::new(server)
    }

    /// A stopped server over a fresh data folder. All have the same system identifier.
    fn over(bin: &Path, settings: &[(&str, &str)]) -> Self {
        Self::of(bin, &template(bin), settings)
    }

    /// A stopped server over a copy of `data`.
    fn of(bin: &Path, data: &Path, settings: &[(&str, &str)]) -> Self {
        let folder = cleanup::run_folder().join(random::name("postgres"));
        run(Command::new("cp").arg("-a").arg(data).arg(&folder));
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            bin: bin.to_owned(),
            folder,
            port: ports::free(),
            settings: Mutex::new(SETTINGS.iter().chain(settings).map(own).collect()),
            service: Mutex::new(None),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.service
            .lock()
            .unwrap()
            .as_ref()
            .expect("a running server")
            .pid()
    }

    /// The folder of the Unix socket, as `database.hostname` takes it.
    pub(crate) fn socket_folder(&self) -> &Path {
        &self.folder
    }

    /// The data folder, for `pg_hba.conf` and certificates.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    /// Replaces `pg_hba.conf`; takes effect at the next start or reload.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        run(Command::new("chmod").arg("0600").arg(&path));
        if let Some(user) = other_user() {
            run(Command::new("chown").arg(user).arg(&path));
        }
    }

    /// Changes a setting; takes effect at the next start.
    pub(crate) fn set(&self, name: &str, value: &str) {
        let setting = (name.to_owned(), value.to_owned());
        self.settings.lock().unwrap().push(setting);
    }

    /// Starts a stopped server and waits until it answers.
    pub(crate) fn start(&self) {
        self.start_only();
        wait::until("Postgres answers", wait::SOON, || {
            if let Some(status) = self.service.lock().unwrap().as_mut().unwrap().ended() {
                panic!("Postgres did not start ({status}):\n{}", self.log());
            }
            self.try_connect("postgres").is_ok()
        });
    }

    fn start_only(&self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("server.log"))
            .unwrap();
        let mut command = as_server(&self.bin.join("postgres"));
        command
            .arg("-D")
            .arg(&self.folder)
            .args(["-p", &self.port.to_string()])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", self.folder.display()));
        for (name, value) in self.settings.lock().unwrap().iter() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .current_dir("/");
        let mut service = self.service.lock().unwrap();
        assert!(service.is_none(), "the server runs already");
        *service = Some(Service::start(&mut command, "QUIT"));
    }

    /// A standby of this server, which must be as fresh as [`Postgres::primary`] gives it, under the
    /// name `standby`. It has the same history: it began as a copy of the same folder, and reads
    /// everything since from the primary.
    pub(crate) fn standby(&self, settings: &[(&str, &str)]) -> Arc<Postgres> {
        let standby = Self::over(&self.bin, settings);
        let upstream = format!(
            "host=127.0.0.1 port={} user={USER} password={PASSWORD} dbname=postgres \
             application_name=standby",
            self.port
        );
        standby.set("primary_conninfo", &upstream);
        standby.set("primary_slot_name", "standby");
        standby.set("hot_standby_feedback", "on");
        standby.set("wal_receiver_status_interval", "100ms");
        standby.set("wal_retrieve_retry_interval", "200ms");
        standby.write_file("standby.signal", "");
        standby.start();
        Arc::new(standby)
    }

    /// A server that a standby can follow; of version 17 or later, and then standbys carry its
    /// failover slots and get rows before these slots do.
    pub(crate) fn primary(major: u32, settings: &[(&str, &str)]) -> Arc<Postgres> {
        let mut own = vec![("wal_keep_size", "256MB")];
        if major >= 17 {
            own.push(("synchronized_standby_slots", "standby"));
        }
        own.extend(settings);
        let server = Self::at_least(major, &own);
        server
            .connect("postgres")
            .batch_execute("select pg_create_physical_replication_slot('standby', true)")
            .unwrap();
        server
    }

    /// Makes a standby a primary.
    pub(crate) fn promote(&self) {
        let promoted = self
            .connect("postgres")
            .query_one("select pg_promote()", &[])
            .unwrap();
        assert!(promoted.get::<_, bool>(0), "promoted in time");
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.service.lock().unwrap().is_some()
    }

    /// Stops the server; returns how long it took.
    pub(crate) fn stop(&self, how: Shutdown) -> Duration {
        let mut service = self
            .service
            .lock()
            .unwrap()
            .take()
            .expect("a running server");
        let asked = Instant::now();
        service.signal(match how {
            Shutdown::Fast => Signal::INT,
            Shutdown::Immediate => Signal::QUIT,
        });
        service.wait("Postgres", Duration::from_secs(60));
        asked.elapsed()
    }

    pub(crate) fn restart(&self, how: Shutdown) {
        self.stop(how);
        self.start();
    }

    /// SIGSTOP for the server and all its backends: connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal_all(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Each backend leads a group of its own, so they are found by their parent.
    fn signal_all(&self, signal: Signal) {
        let server = self.pid();
        let backends = format!("/proc/{server}/task/{server}/children");
        let backends = std::fs::read_to_string(backends).unwrap_or_default();
        let backends = backends.split_whitespace().map(|pid| pid.parse().unwrap());
        for pid in std::iter::once(server).chain(backends) {
            cleanup::signal(pid, signal);
        }
    }

    /// A superuser's connection to `database` over the Unix socket.
    pub(crate) fn connect(&self, database: &str) -> Client {
        self.try_connect(database)
            .unwrap_or_else(|error| panic!("connect to {database:?}: {error}"))
    }

    /// As [`Postgres::connect`], for a server that may be away.
    pub(crate) fn try_connect(&self, database: &str) -> Result<Client, postgres::Error> {
        Client::configure()
            .host_path(&self.folder)
            .port(self.port)
            .user(USER)
            .dbname(database)
            .connect(NoTls)
    }

    /// The major version.
    pub(crate) fn major(&self) -> u32 {
        let row = self
            .connect("postgres")
            .query_one(
                "select current_setting('server_version_num')::int / 10000",
                &[],
            )
            .unwrap();
        u32::try_from(row.get::<_, i32>(0)).unwrap()
    }
}

/// The folder with `initdb` and `postgres`: `WALPOST_TEST_PG_BIN`, else the distribution's newest.
fn bin() -> &'static Path {
    static BIN: LazyLock<PathBuf> = LazyLock::new(|| {
        let found = std::env::var_os("WALPOST_TEST_PG_BIN").map(PathBuf::from);
        let bin = found.or_else(newest_installed).expect(
            "no Postgres here: run `make services`, or set WALPOST_TEST_PG_BIN to the folder that \
             holds initdb and postgres",
        );
        reachable(bin)
    });
    &BIN
}

/// The same for a server of this major version or a newer one.
fn bin_of(major: u32) -> PathBuf {
    static FOUND: LazyLock<Mutex<HashMap<u32, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut found = FOUND.lock().unwrap();
    let bin = found.entry(major).or_insert_with(|| {
        if version(bin()) >= major {
            return bin().to_owned();
        }
        let bin = cache().join(format!("postgres-{major}")).join("bin");
        assert!(
            bin.join("initdb").exists(),
            "no Postgres {major} in {}: run `make services`",
            bin.display()
        );
        reachable(bin)
    });
    bin.clone()
}

fn version(bin: &Path) -> u32 {
    let output = as_server(&bin.join("postgres"))
        .arg("--version")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().unwrap()
}

fn newest_installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let major: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("initdb").exists().then_some((major, bin))
        })
        .max()
        .map(|(_, bin)| bin)
}

/// Root's home is closed to the user that has to run the server: then the binaries move.
fn reachable(bin: PathBuf) -> PathBuf {
    let Some(_) = other_user() else { return bin };
    let runs = as_server(&bin.join("postgres"))
        .arg("--version")
        .current_dir("/")
        .output()
        .is_ok_and(|output| output.status.success());
    if runs {
        return bin;
    }
    let copy = cleanup::run_folder().join(random::name("postgres-installation"));
    run(Command::new("cp")
        .arg("-a")
        .arg(bin.parent().unwrap())
        .arg(&copy));
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(&copy));
    copy.join("bin")
}

/// An initialised data folder, copied for each server: `initdb` takes a second, a copy does not.
fn template(bin: &Path) -> PathBuf {
    static TEMPLATES: LazyLock<Mutex<HashMap<PathBuf, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut templates = TEMPLATES.lock().unwrap();
    let made = templates
        .entry(bin.to_owned())
        .or_insert_with(|| initialise(bin));
    made.clone()
}

fn initialise(bin: &Path) -> PathBuf {
    let folder = cleanup::folder("template");
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    let password = folder.join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    if let Some(user) = other_user() {
        run(Command::new("chown").arg(user).args([&data, &password]));
    }
    run(as_server(&bin.join("initdb"))
        .arg("-D")
        .arg(&data)
        .args(["-U", USER, "--encoding=UTF8", "--locale=C", "--no-sync"])
        .args([
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--pwfile",
        ])
        .arg(&password)
        .current_dir("/"));
    data
}

/// Postgres refuses to run as root: the user it runs as instead.
fn other_user() -> Option<&'static str> {
    static USER: LazyLock<Option<String>> = LazyLock::new(|| {
        rustix::process::geteuid().is_root().then(|| {
            let wanted = std::env::var("WALPOST_TEST_PG_USER").ok();
            let has_postgres = std::fs::read_to_string("/etc/passwd")
                .is_ok_and(|users| users.lines().any(|line| line.starts_with("postgres:")));
            wanted.unwrap_or_else(|| if has_postgres { "postgres" } else { "nobody" }.to_owned())
        })
    });
    USER.as_deref()
}

/// A command that runs as the user that the servers run as.
pub(crate) fn as_server(program: &Path) -> Command {
    match other_user() {
        None => Command::new(program),
        Some(user) => {
            // `setpriv` becomes the program, so that the child's pid is the server's.
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--reuid={user}"))
                .args([&format!("--regid={}", group_of(user)), "--clear-groups"])
                .arg(program);
            command
        }
    }
}

fn group_of(user: &str) -> String {
    let output = Command::new("id").args(["-g", user]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a command that has to succeed.
fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
