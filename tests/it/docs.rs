//! What the documents name exists.

use std::fs;
use std::path::{Path, PathBuf};

/// `docs/guarantees.md` names, for each promise, the tests that break without it.
#[test]
fn every_test_that_a_guarantee_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let sources = sources(&root.join("src")) + &sources(&root.join("tests"));
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| text.contains("::"))
        .filter_map(|text| text.rsplit("::").next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(named.len() > 40, "the page names its tests");
    for name in named {
        assert!(
            sources.contains(&format!("fn {name}(")),
            "docs/guarantees.md names {name}, which is no test"
        );
    }
}

/// The text of all Rust files below `folder`.
pub(crate) fn sources(folder: &Path) -> String {
    let files = rust_files(folder).into_iter();
    files
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
