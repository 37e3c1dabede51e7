//! A connector file of any shape, read to the end: placeholders, properties, router, converters.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use walpost::config::{self, LoadRequest};

static FILES: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("walpost-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    [folder.join("fuzz.json"), folder.join("fuzz.properties")]
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    let file = &FILES[usize::from(kind % 2)];
    std::fs::write(file, text).expect("the temporary folder is writable");
    let _ = config::load(&LoadRequest {
        worker_file: None,
        connector_files: vec![file.clone()],
        environment: vec![("NAME".to_owned(), "value".to_owned())],
    });
});
