//! What a process sees of the machine, changed for it alone with Linux namespaces.
//!
//! `unshare` (util-linux) makes them. Inside a locked container it may not; ask [`possible`].

use std::path::PathBuf;
use std::process::Command;

use super::{cleanup, wait};

fn unshare(options: &[&str]) -> Vec<String> {
    let words = ["unshare", "--map-root-user"].iter().chain(options);
    words.map(|word| (*word).to_owned()).collect()
}

/// Whether namespaces can be made here; says so if not.
pub(crate) fn possible() -> bool {
    let words = unshare(&["--mount", "--pid", "--fork", "true"]);
    let made = Command::new(&words[0])
        .args(&words[1..])
        .status()
        .is_ok_and(|status| status.success());
    if !made {
        eprintln!("not run: this machine lets nobody make namespaces with `unshare`");
    }
    made
}

/// A hosts file in place of the machine's, and no name server.
#[derive(Debug)]
pub(crate) struct Hosts {
    file: PathBuf,
    no_server: PathBuf,
}

impl Hosts {
    /// One that knows no name but `localhost`.
    pub(crate) fn new() -> Self {
        let folder = cleanup::folder("hosts");
        let hosts = Self {
            file: folder.join("hosts"),
            no_server: folder.join("resolv.conf"),
        };
        std::fs::write(&hosts.no_server, "nameserver 127.0.0.1\n")
            .expect("the run's folder is writable");
        hosts.set(&[]);
        hosts
    }

    /// Gives names other addresses, also for processes that run already.
    pub(crate) fn set(&self, names: &[(&str, &str)]) {
        let lines = names
            .iter()
            .map(|(name, address)| format!("{address} {name}\n"));
        // Into the same file: it is mounted, not its name.
        std::fs::write(
            &self.file,
            format!("127.0.0.1 localhost\n{}", lines.collect::<String>()),
        )
        .expect("the run's folder is writable");
    }

    /// For [`super::Walpost::start_in`].
    pub(crate) fn surroundings(&self) -> Vec<String> {
        let mut words = unshare(&["--mount", "bash", "-c"]);
        words.push(
            "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/resolv.conf && exec \"${@:2}\""
                .to_owned(),
        );
        words.extend([&self.file, &self.no_server].map(|file| file.display().to_string()));
        words
    }
}

/// The process is number 1 of a world of its own, as in a container; for
/// [`super::Walpost::start_in`]. See [`inside`].
pub(crate) fn alone() -> Vec<String> {
    unshare(&["--pid", "--fork", "--kill-child"])
}

/// The process that `outer`, started [`alone`], has become the parent of.
pub(crate) fn inside(outer: u32) -> u32 {
    let children = format!("/proc/{outer}/task/{outer}/children");
    wait::value("the process is started", wait::SOON, || {
        let text = std::fs::read_to_string(&children).ok()?;
        text.split_whitespace().next()?.parse().ok()
    })
}
