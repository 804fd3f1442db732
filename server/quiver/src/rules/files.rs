//! Names of files with `*`, `?` and `[a-z]`, as Go's `filepath.Glob` takes them.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// Finds the files that match, in order.
pub(crate) fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        let Some(name) = name.to_str().filter(|n| n.contains(['*', '?', '['])) else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        let wanted: Vec<char> = name.chars().collect();
        found = found.iter().flat_map(|folder| entries(folder, &wanted)).collect();
    }
    found.retain(|path| path.exists());
    found.sort();
    found
}

/// Keeps the files that were not found before: one that several patterns name is read once.
pub(crate) fn unseen(found: Vec<PathBuf>, seen: &mut HashSet<PathBuf>) -> Vec<PathBuf> {
    let plain = |path: &Path| path.components().filter(|c| *c != Component::CurDir).collect::<PathBuf>();
    found.into_iter().filter(|path| seen.insert(plain(path))).collect()
}

fn entries(folder: &Path, wanted: &[char]) -> Vec<PathBuf> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(here) else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    names.filter(|name| fits(wanted, &name.chars().collect::<Vec<_>>())).map(|name| folder.join(name)).collect()
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some('*'), _) => fits(&pattern[1..], name) || (!name.is_empty() && fits(pattern, &name[1..])),
        (Some('?'), Some(_)) => fits(&pattern[1..], &name[1..]),
        (Some('['), Some(c)) => match pattern.iter().position(|p| *p == ']') {
            Some(end) => in_class(&pattern[1..end], *c) && fits(&pattern[end + 1..], &name[1..]),
            None => false,
        },
        (Some(p), Some(c)) => p == c && fits(&pattern[1..], &name[1..]),
        _ => false,
    }
}

fn in_class(class: &[char], c: char) -> bool {
    let (class, negated) = match class.split_first() {
        Some(('^', rest)) => (rest, true),
        _ => (class, false),
    };
    let ranges = class.windows(3).any(|w| w[1] == '-' && (w[0]..=w[2]).contains(&c));
    (ranges || class.contains(&c)) != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |pattern: &str, name: &str, expected: bool| {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(fits(&chars(pattern), &chars(name)), expected, "{pattern} {name}");
        };
        check("*.yml", "a.yml", true);
        check("*.yml", "a.yaml", false);
        check("r?[0-9].y*", "ra7.y", true);
        check("[^a]*", "abc", false);
        check("", "", true);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(matching(&here.join("Car*.toml")), [here.join("Cargo.toml")]);
        assert!(matching(&here.join("none*")).is_empty());
        let mut seen = HashSet::new();
        let mut new = |path: &str| unseen(vec![path.into()], &mut seen).len();
        assert_eq!([new("a/b"), new("a/b"), new("./a/./b"), new("b")], [1, 0, 0, 1]);
    }
}
