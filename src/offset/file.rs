//! Positions in a file, for one host.
//!
//! A header line with version and checksum, then one JSON line with every connector's position.
//! Replaced as a whole: written beside, synced, renamed, the folder synced. Processes that share the
//! file take turns with a lock file. A damaged or foreign file is never taken for a first start.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::value;
use crate::config::Connector;
use crate::error::Failure;

const FORMAT: &str = "walpost-offsets";
const VERSION: u32 = 1;
/// How a file of Connect's own FileOffsetBackingStore begins: Java's serialisation.
const JAVA: [u8; 2] = [0xAC, 0xED];

/// Positions by key, as in the offsets topic.
type Entries = BTreeMap<String, Map<String, Value>>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    checksum: String,
}

/// What [`FileStore::open`] would find, with nothing created.
pub(super) fn survey(path: &Path) -> Result<String, Failure> {
    let file = path.display();
    if path.exists() {
        return Ok(format!("file {file} is there"));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_none_or(Path::is_dir) {
        return Ok(format!("would create file {file}"));
    }
    Err(Failure::config(format!(
        "offset.storage.file.filename must name a file in a folder that exists, not {file}"
    )))
}

/// The store.
#[derive(Debug, Clone)]
pub(super) struct FileStore {
    path: PathBuf,
    key: String,
}

impl FileStore {
    /// Checks that the file can be read and its folder written.
    pub(super) async fn open(path: &Path, connector: &Connector) -> Result<Self, Failure> {
        let key = value::key(&connector.name, &connector.topic_prefix);
        let store = Self {
            path: path.to_owned(),
            key: String::from_utf8_lossy(&key).into_owned(),
        };
        store
            .on_disk(|store| store.entries(Trouble::AtStart).map(|_| ()))
            .await?;
        Ok(store)
    }

    pub(super) fn describe(&self) -> String {
        format!("file {}", self.path.display())
    }

    pub(super) async fn read(&self) -> Result<Option<Map<String, Value>>, Failure> {
        self.on_disk(|store| Ok(store.entries(Trouble::Later)?.remove(&store.key)))
            .await
    }

    /// Writes a value, or removes it.
    pub(super) async fn write(&self, members: Option<Map<String, Value>>) -> Result<(), Failure> {
        self.on_disk(move |store| {
            let mut entries = store.entries(Trouble::Later)?;
            match members {
                Some(members) => entries.insert(store.key.clone(), members),
                None => entries.remove(&store.key),
            };
            store.replace(&entries)
        })
        .await
    }

    /// Runs `work` under the lock, off the runtime.
    async fn on_disk<T, W>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _lock = store.lock()?;
            work(&store)
        });
        done.await.map_err(|error| {
            Failure::internal(format!("use offset {}", self.describe())).caused_by(error)
        })?
    }

    /// Held until dropped. Beside the file, since the file itself is replaced.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.beside("lock");
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|file| file.lock().map(|()| file));
        opened.map_err(|error| {
            Failure::config(format!(
                "lock {}; offset.storage.file.filename must name a file in a folder that exists \
                 and can be written",
                path.display()
            ))
            // A volume that goes away while running may come back.
            .about_access()
            .caused_by(error)
        })
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        PathBuf::from(name)
    }

    fn entries(&self, when: Trouble) -> Result<Entries, Failure> {
        match fs::read(&self.path) {
            Ok(bytes) => parse(&bytes).map_err(|problem| problem.failure(&self.path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Entries::new()),
            Err(error) => {
                let text = format!("read offset {}", self.describe());
                Err(when.failure(text).caused_by(error))
            }
        }
    }

    fn replace(&self, entries: &Entries) -> Result<(), Failure> {
        let temporary = self.beside("tmp");
        let written = write_synced(&temporary, &render(entries))
            .and_then(|()| fs::rename(&temporary, &self.path))
            .and_then(|()| sync_folder(&self.path));
        written.map_err(|error| {
            Failure::retriable(format!("write offset {}", self.describe())).caused_by(error)
        })
    }
}

/// Whether the file has been usable before.
#[derive(Clone, Copy)]
enum Trouble {
    AtStart,
    Later,
}

impl Trouble {
    fn failure(self, text: String) -> Failure {
        match self {
            Trouble::AtStart => Failure::config(text),
            Trouble::Later => Failure::retriable(text),
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

fn render(entries: &Entries) -> Vec<u8> {
    let body: Map<String, Value> = entries
        .iter()
        .map(|(key, members)| (key.clone(), Value::Object(members.clone())))
        .collect();
    let mut body = Value::Object(body).to_string();
    body.push('\n');
    format!("{}\n{body}", header(&body)).into_bytes()
}

fn header(body: &str) -> String {
    format!(
        "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\"checksum\":\"{:016x}\"}}",
        checksum(body.as_bytes())
    )
}

/// FNV-1a, 64 bits: every step is a bijection of the state, so no single changed byte goes unseen.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Damaged(&'static str),
    Newer(u32),
    Java,
    Foreign,
}

impl Problem {
    fn failure(self, path: &Path) -> Failure {
        let path = path.display();
        match self {
            Problem::Damaged(what) => Failure::gap(format!(
                "offset file {path} is damaged ({what}); restore it from a copy, or move it away \
                 and set the position with \"walpost offsets set\""
            )),
            Problem::Newer(version) => Failure::config(format!(
                "offset file {path} has version {version}, this walpost reads {VERSION}; use the \
                 walpost that wrote it"
            )),
            Problem::Java => Failure::config(format!(
                "offset file {path} was written by Kafka Connect; name another file in \
                 offset.storage.file.filename and set the position with \"walpost offsets set\""
            )),
            Problem::Foreign => Failure::config(format!(
                "offset file {path} is no offset file; name another one in \
                 offset.storage.file.filename"
            )),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Entries, Problem> {
    if bytes.starts_with(&JAVA) {
        return Err(Problem::Java);
    }
    if bytes.is_empty() {
        return Err(Problem::Damaged("it is empty"));
    }
    let recognised = bytes
        .windows(FORMAT.len())
        .take(64)
        .any(|window| window == FORMAT.as_bytes());
    let foreign = || match recognised || bytes.iter().all(|byte| *byte == 0) {
        true => Problem::Damaged("its header cannot be read"),
        false => Problem::Foreign,
    };
    let text = std::str::from_utf8(bytes).map_err(|_| foreign())?;
    let (first, body) = text.split_once('\n').ok_or_else(foreign)?;
    let parsed: Header = serde_json::from_str(first).map_err(|_| foreign())?;
    if parsed.format != FORMAT {
        return Err(Problem::Foreign);
    }
    if parsed.version != VERSION && parsed.version > VERSION {
        return Err(Problem::Newer(parsed.version));
    }
    if first != header(body) {
        return Err(Problem::Damaged("its checksum does not match"));
    }
    serde_json::from_str(body).map_err(|_| Problem::Damaged("its content cannot be read"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::error::Class;

    fn store(path: &Path, name: &str) -> FileStore {
        FileStore {
            path: path.to_owned(),
            key: String::from_utf8(value::key(name, "p")).unwrap(),
        }
    }

    fn members(lsn: u64) -> Map<String, Value> {
        json!({ "lsn": lsn }).as_object().unwrap().clone()
    }

    #[tokio::test]
    async fn connectors_share_a_file_without_losing_each_others_position() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offsets");
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let store = store(&path, &format!("c{n}"));
                tokio::spawn(async move {
                    for lsn in 1..=20 {
                        store.write(Some(members(lsn))).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for n in 0..8 {
            let found = store(&path, &format!("c{n}")).read().await.unwrap();
            assert_eq!(found, Some(members(20)));
        }
        let first = store(&path, "c0");
        first.write(None).await.unwrap();
        assert_eq!(first.read().await.unwrap(), None);
        assert!(store(&path, "c1").read().await.unwrap().is_some());
    }

    #[test]
    fn each_changed_byte_is_seen() {
        let entries = Entries::from([("[\"c\",{\"server\":\"p\"}]".to_owned(), members(77))]);
        let good = render(&entries);
        assert_eq!(parse(&good).unwrap(), entries);
        for at in 0..good.len() {
            for flip in [0x01, 0x20, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(parse(&bad).is_err(), "byte {at} changed by {flip:#x}");
            }
        }
        for length in 0..good.len() {
            assert!(parse(&good[..length]).is_err(), "cut to {length}");
        }
    }

    #[tokio::test]
    async fn damaged_and_foreign_files_stop_and_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offsets");
        for (content, class, word) in [
            (&b""[..], Class::Gap, "empty"),
            (&[0; 512], Class::Gap, "damaged"),
            (b"\xAC\xED\x00\x05sr", Class::Config, "Kafka Connect"),
            (b"hello\n", Class::Config, "no offset file"),
            (
                b"{\"format\":\"walpost-offsets\",\"version\":2,\"checksum\":\"x\"}\n{}\n",
                Class::Config,
                "version 2",
            ),
            (
                b"{\"format\":\"walpost-offsets\",\"version\":1,\"chec",
                Class::Gap,
                "damaged",
            ),
        ] {
            fs::write(&path, content).unwrap();
            let failure = store(&path, "c").read().await.unwrap_err();
            let text = failure.to_string();
            assert_eq!(failure.class(), class, "{text}");
            assert!(text.contains(word), "{text}");
            assert!(text.contains(&*path.to_string_lossy()), "{text}");
            assert_eq!(fs::read(&path).unwrap(), content, "it was touched");
        }
    }

    #[tokio::test]
    async fn a_missing_folder_is_a_configuration_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/offsets");
        let failure = store(&path, "c").read().await.unwrap_err();
        assert_eq!(failure.class(), Class::Config);
        assert!(failure.to_string().contains("offset.storage.file.filename"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).is_err());
        }
    }
}
