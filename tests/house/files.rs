//! The shape of files: modules, length, a header comment, no `unwrap` in the product, no paths of a single machine.

use std::collections::BTreeSet;

use crate::sources::{Source, files, none, read, root, sources};

/// Longest Rust file, tests included. A file of more than 500 lines should be checked for two topics.
const LINES_MAX: usize = 600;
/// Longest readme: two screens.
const README_LINES_MAX: usize = 120;

#[test]
fn modules_are_named_by_their_file() {
    let found: Vec<String> = files().into_iter().filter(|p| p.ends_with("/mod.rs")).collect();
    none("modules in `mod.rs`; style is `name.rs` beside `name/`", &found);
}

#[test]
fn lengths() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    none("files that hold more than one thing", &found);
    let readme = read("README.md").lines().count();
    assert!(readme <= README_LINES_MAX, "README.md has {readme} lines");
}

#[test]
fn files_say_what_they_are_for() {
    // `tests.rs` next to a module needs no header comment.
    let silent = |path: &str, text: &str| !text.starts_with("//! ") && !path.ends_with("/tests.rs");
    let without = sources().into_iter().filter(|s| silent(&s.path, &s.text)).map(|s| s.path);
    none("files without a comment on top", &without.collect::<Vec<_>>());
}

#[test]
fn no_unwrap_in_the_product() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.code().filter(|(_, line)| !line.trim_start().starts_with("//"));
        let unwraps = lines.filter(|(_, line)| line.contains(".unwrap()"));
        found.extend(unwraps.map(|(n, line)| format!("{}:{n}: {}", source.path, line.trim())));
    }
    none("`unwrap`; write `expect` with the reason why it holds", &found);
}

/// Files that read what the system keeps (`/proc`, control groups) without a bound.
const READERS_OF_THE_SYSTEM: &[&str] =
    &["engine/store/src/threads.rs", "server/quiver/src/control_group.rs", "server/quiver/src/process_info.rs"];

/// Whoever opens a pipe waits, and a device has no end: `quiver-files` refuses the one and bounds the other.
#[test]
fn whole_files_are_read_in_one_place() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !READERS_OF_THE_SYSTEM.contains(&source.path.as_str())) {
        let reads = |line: &str| line.contains("fs::read(") || line.contains("fs::read_to_string(");
        found.extend(source.code().filter(|(_, line)| reads(line)).map(|(n, _)| format!("{}:{n}", source.path)));
    }
    none("files read as a whole; take `quiver_files::read`", &found);
}

/// Each file must be a module of its parent. Files that a source names by `#[path]`.
fn read_by_path(source: &Source) -> Vec<String> {
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let named = source.text.lines().filter_map(|l| l.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    let resolved = |path: &str| {
        let mut parts: Vec<&str> = folder.split('/').collect();
        for part in path.split('/') {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        parts.join("/")
    };
    named.map(resolved).collect::<Vec<_>>()
}

#[test]
fn no_dead_files() {
    let all = sources();
    let known: BTreeSet<&str> = all.iter().map(|s| s.path.as_str()).collect();
    // The submodules of a file included by path are next to it.
    let by_path: BTreeSet<String> = all.iter().flat_map(read_by_path).collect();
    let mut dead = Vec::new();
    for source in &all {
        let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let name = file.trim_end_matches(".rs");
        let top = folder.ends_with("/src") || folder.ends_with("/src/bin");
        let is_root = top && (matches!(name, "lib" | "main") || folder.ends_with("/bin"));
        let is_target = folder.ends_with("/tests") && !folder.contains("/src/") || folder == "benches/benches";
        if is_root || is_target || name == "main" || file == "build.rs" {
            continue;
        }
        let beside = by_path.iter().filter(|p| p.rsplit_once('/').is_some_and(|(of, _)| of == folder)).cloned();
        let parents = [format!("{folder}.rs"), format!("{folder}/lib.rs"), format!("{folder}/main.rs")];
        let parents: Vec<String> = parents.into_iter().chain(beside).collect();
        let declared = |path: &str| {
            let text = &all[all.binary_search_by(|s| s.path.as_str().cmp(path)).expect("known")].text;
            text.lines()
                .any(|l| l.trim().trim_end_matches(';').rsplit("mod ").next() == Some(name) && l.contains("mod "))
        };
        if !parents.iter().any(|p| known.contains(p.as_str()) && declared(p)) {
            dead.push(source.path.clone());
        }
    }
    none("files that no module names", &dead);
}

#[test]
fn nothing_of_one_machine() {
    // Composed, so that this file does not contain what it searches for.
    let home = |name: &str| format!("/{name}/");
    let paths = [home("root"), home("work"), home("home"), home("Users")];
    let mut found = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for (n, line) in text.lines().enumerate() {
            if paths.iter().any(|p| begins_a_path(line, p)) {
                found.push(format!("{path}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    none("paths of one machine", &found);
}

/// Whether a path in a line begins with `folder`, and does not merely continue with it (`src/work/…`).
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '}' | ')' | '*')))
    })
}

#[test]
fn paths_that_begin() {
    let check = |line, expected| assert_eq!(begins_a_path(line, "/opt/"), expected, "{line}");
    check("see /opt/x", true);
    check("\"/opt/x\"", true);
    check("https://example.org/opt/x", false);
    check("${HOME}/opt/x", false);
}
