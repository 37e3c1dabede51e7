//! A throw-away Postgres.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::ports;
use crate::config::{
    Database, Host, NameFilter, Pattern, Secret, SessionTarget, Slot, SslMode, TableFilter, Tls,
};
use crate::lsn::Lsn;
use crate::source::{Replication, Session, Source, StartOptions};

/// Started with `wal_level=logical` on a free port; stopped and removed with the value.
pub(super) struct Server {
    dir: TempDir,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn start(settings: &[&str]) -> Self {
        let server = Self::init();
        server.launch(settings);
        server
    }

    fn init() -> Self {
        let dir = TempDir::with_prefix("walpost-pg").unwrap();
        // Postgres refuses to run as root, so its user must reach the folder.
        run(Command::new("chmod").arg("777").arg(dir.path()));
        let server = Self {
            port: ports::free(),
            dir,
        };
        let data = server.data();
        run(server
            .tool("initdb")
            .args(["--no-sync", "-U", "postgres", "-A", "trust", "-D"])
            .arg(&data));
        server
    }

    /// With the certificate `name` of the folder `certificates`, which also holds `ca.crt`.
    pub(super) fn start_with_tls(certificates: &Path, name: &str) -> Self {
        let server = Self::init();
        let copy = |from: &str, to: &str, mode: &str| {
            let target = server.dir.path().join(to);
            std::fs::copy(certificates.join(from), &target).unwrap();
            if is_root() {
                run(Command::new("chown").arg("postgres").arg(&target));
            }
            run(Command::new("chmod").arg(mode).arg(&target));
            target.display().to_string()
        };
        let cert = copy(&format!("{name}.crt"), "server.crt", "644");
        let key = copy(&format!("{name}.key"), "server.key", "600");
        let ca = copy("ca.crt", "ca.crt", "644");
        server.launch(&[
            "ssl=on",
            &format!("ssl_cert_file={cert}"),
            &format!("ssl_key_file={key}"),
            &format!("ssl_ca_file={ca}"),
        ]);
        server
    }

    fn launch(&self, settings: &[&str]) {
        let socket = self.dir.path().display();
        let mut options = format!(
            "-p {} -k {socket} -c listen_addresses=127.0.0.1 -c wal_level=logical -c fsync=off \
             -c max_wal_senders=20 -c max_replication_slots=20",
            self.port
        );
        for setting in settings {
            options.push_str(&format!(" -c {setting}"));
        }
        let log = self.dir.path().join("log");
        let started = self
            .tool("pg_ctl")
            .args(["-w", "-D"])
            .arg(self.data())
            .arg("-l")
            .arg(&log)
            .args(["-o", &options, "start"])
            .output()
            .unwrap();
        assert!(
            started.status.success(),
            "Postgres did not start on port {}: {}{}",
            self.port,
            String::from_utf8_lossy(&started.stderr),
            std::fs::read_to_string(&log).unwrap_or_default()
        );
    }

    pub(super) fn stop(&self) {
        run(self
            .tool("pg_ctl")
            .args(["-w", "-m", "fast", "-D"])
            .arg(self.data())
            .arg("stop"));
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Replaces pg_hba.conf and reloads.
    pub(super) fn host_based_access(&self, lines: &str) {
        std::fs::write(self.data().join("pg_hba.conf"), lines).unwrap();
        run(self.tool("pg_ctl").arg("reload").arg("-D").arg(self.data()));
    }

    fn tool(&self, name: &str) -> Command {
        let program = bin_dir().join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.dir.path());
        command
    }

    pub(super) fn socket_dir(&self) -> String {
        self.dir.path().display().to_string()
    }

    pub(super) fn database(&self) -> Database {
        Database {
            hosts: vec![Host::new("127.0.0.1", self.port)],
            target: SessionTarget::Any,
            user: "postgres".to_owned(),
            password: Some(Secret::new("secret")),
            dbname: "postgres".to_owned(),
            tls: Tls {
                mode: SslMode::Prefer,
                root_cert: None,
                cert: None,
                key: None,
            },
            tcp_keepalive: true,
            initial_statements: Vec::new(),
            query_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(20),
        }
    }

    pub(super) async fn session(&self) -> Session {
        Session::connect(&self.database(), "test").await.unwrap()
    }

    /// Creates the slot `s` and streams the tables that match `include` from it.
    pub(super) async fn stream(&self, include: &str) -> Source {
        let mut replication = Replication::connect(&self.database()).await.unwrap();
        let created = replication.create_slot(&slot("s")).await.unwrap();
        let at = created.consistent_point.lsn();
        replication.start(options(include, at)).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.tool("pg_ctl");
        stop.args(["-w", "-m", "immediate", "-D"])
            .arg(self.data())
            .arg("stop");
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

pub(super) fn slot(name: &str) -> Slot {
    Slot {
        name: name.to_owned(),
        failover: false,
        drop_on_stop: false,
        stream_params: Vec::new(),
        guard: crate::config::SlotGuard::default(),
    }
}

pub(super) fn tables(include: &str) -> TableFilter {
    TableFilter {
        schemas: NameFilter::default(),
        tables: NameFilter {
            include: vec![Pattern::new(include).unwrap()],
            exclude: Vec::new(),
        },
        partitions: true,
    }
}

pub(super) fn options(include: &str, at: Lsn) -> StartOptions {
    StartOptions {
        slot: "s".to_owned(),
        publication: "p".to_owned(),
        at,
        messages: true,
        tables: tables(include),
        stream_params: Vec::new(),
        status_interval: Duration::from_secs(10),
        skip: None,
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.starts_with(b"0\n")
}

/// `PG_BIN`, or the newest version that Debian's packages installed.
fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("PG_BIN") {
        return PathBuf::from(dir);
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir(Path::new("/usr/lib/postgresql"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(|bin| bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().unwrap()
}
