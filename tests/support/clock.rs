//! A wall clock that jumps, for one process: libfaketime between it and the C library.
//!
//! The monotonic clock goes on as it does on a real machine whose date is set. The C library's own
//! condition variables, which librdkafka uses, wait by the true clock for a time computed from this
//! one: with a clock ahead they would wait that long, with one behind they return at once.

use std::path::{Path, PathBuf};

use super::cleanup;

/// The clock of the processes started with [`Clock::environment`].
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock that is right; `None` where libfaketime is not installed.
    pub(crate) fn new() -> Option<Self> {
        let clock = Self {
            library: library()?,
            file: cleanup::folder("clock").join("offset"),
        };
        clock.jump(0);
        Some(clock)
    }

    /// What a process needs to see this clock.
    pub(crate) fn environment(&self) -> [(&str, &str); 4] {
        [
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.file)),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }

    /// Sets it so many seconds beside the true time, at once.
    pub(crate) fn jump(&self, seconds: i64) {
        // Replaced as a whole, so that nobody reads half of it.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n")).expect("the run's folder is writable");
        std::fs::rename(&next, &self.file).expect("the run's folder is writable");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Where Debian's package puts the library for processes with threads.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library| library.exists())
}
