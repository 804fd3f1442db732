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
        (Some('['), Some(c)) => {
            class(&pattern[1..], *c).is_some_and(|(holds, behind)| holds && fits(behind, &name[1..]))
        }
        (Some('\\'), Some(c)) => pattern.get(1) == Some(c) && fits(&pattern[2..], &name[1..]),
        (Some(p), Some(c)) => p == c && fits(&pattern[1..], &name[1..]),
        _ => false,
    }
}

/// Reads what follows `[` up to its `]`: whether it holds a character, and what stands behind it; none where it has no end.
fn class(pattern: &[char], c: char) -> Option<(bool, &[char])> {
    let (mut rest, negated) = match pattern.split_first() {
        Some(('^', rest)) => (rest, true),
        _ => (pattern, false),
    };
    let (mut holds, mut is_empty) = (false, true);
    loop {
        // One that begins is not empty: a `]` at once is no end of it.
        if !is_empty && rest.first() == Some(&']') {
            return Some((holds != negated, &rest[1..]));
        }
        let (low, behind) = bound(rest)?;
        let (high, behind) = match behind.split_first() {
            Some(('-', behind)) => bound(behind)?,
            _ => (low, behind),
        };
        holds |= (low..=high).contains(&c);
        (rest, is_empty) = (behind, false);
    }
}

/// Reads one end of a range of characters; a `\` takes away what the next one means.
fn bound(pattern: &[char]) -> Option<(char, &[char])> {
    match pattern {
        ['\\', c, rest @ ..] => Some((*c, rest)),
        ['\\' | '-' | ']', ..] | [] => None,
        [c, rest @ ..] => Some((*c, rest)),
    }
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
        check("[^a]*", "bc", true);
        check("*", ".hidden", true);
        check("*a*b*", "xaxbx", true);
        check("*a*b*", "xbxax", false);
        check("?", "", false);
        check("?", "é", true);
        check("", "a", false);
        check("A", "a", false);
        // A `-` between two characters is none of those that the class holds.
        check("[a-c]", "b", true);
        check("[a-c]", "-", false);
        check("[a-cx-z]", "y", true);
        check("[a-cx-z]", "d", false);
        check("[^a-c]", "-", true);
        check("[c-a]", "b", false);
        // What a backslash stands before means itself.
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("\\\\", "\\", true);
        check("[\\]]", "]", true);
        check("[\\-x]", "-", true);
        check("[a\\-c]", "b", false);
        // What has no end holds nothing.
        check("[", "[", false);
        check("[a", "a", false);
        check("[]", "]", false);
        check("[a-]", "a", false);
        check("\\", "\\", false);
        check("", "", true);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(matching(&here.join("Car*.toml")), [here.join("Cargo.toml")]);
        assert!(matching(&here.join("none*")).is_empty());
        let mut seen = HashSet::new();
        let mut new = |path: &str| unseen(vec![path.into()], &mut seen).len();
        assert_eq!([new("a/b"), new("a/b"), new("./a/./b"), new("b")], [1, 0, 0, 1]);
    }
}
