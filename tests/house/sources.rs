//! The files of the repository as git knows them, tracked or new, and which Rust files are tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the root").to_owned()
}

/// Paths of all files relative to the root, sorted, without ignored and deleted ones.
pub(crate) fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let paths = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let found: BTreeSet<String> = paths.lines().filter(|p| root().join(p).is_file()).map(str::to_owned).collect();
    assert!(found.len() > 200, "only {} files found", found.len());
    found.into_iter().collect()
}

/// Text of a file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A Rust file.
pub(crate) struct Source {
    /// Path relative to the root.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    /// Lines of the product with their numbers: those before the tests; none if the whole file is a test.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = if self.is_test() { 0 } else { self.tests_at().unwrap_or(self.text.len()) };
        self.text[..end].lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Where the tests at the end of the file begin. A declaration of a test module in another file may be anywhere.
    fn tests_at(&self) -> Option<usize> {
        self.text.find("\n#[cfg(test)]\nmod tests {").map(|at| at + 1)
    }

    /// Whether the whole file is a test: it, or a directory that contains it, is a test module.
    pub(crate) fn is_test(&self) -> bool {
        let mut parts = self.path.trim_end_matches(".rs").split('/');
        !self.path.starts_with("engine/") && !self.path.starts_with("server/")
            || parts.any(|part| matches!(part, "tests" | "testing" | "testproto"))
    }
}

/// All Rust files.
pub(crate) fn sources() -> Vec<Source> {
    let rust = files().into_iter().filter(|p| p.ends_with(".rs"));
    rust.map(|path| Source { text: read(&path), path }).collect()
}

/// Fails with all findings.
pub(crate) fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
