//! File patterns with `*`, `?` and `[a-z]`, as Go's `filepath.Glob` has them.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// Finds the matching files, sorted.
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

/// Keeps the files that are not in `seen`: a file that matches several patterns is read once.
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

/// Whether a name matches a pattern. Takes time proportional to the product of their lengths, since only the last `*`
/// is retried.
fn fits(mut pattern: &[char], mut name: &[char]) -> bool {
    // What follows the last `*` in the pattern, and what follows its match in the name.
    let mut star: Option<(&[char], &[char])> = None;
    loop {
        if let Some(('*', behind)) = pattern.split_first() {
            (star, pattern) = (Some((behind, name)), behind);
        } else if pattern.is_empty() && name.is_empty() {
            return true;
        } else if let Some(behind) = held(pattern, name) {
            (pattern, name) = (behind, &name[1..]);
        } else {
            let Some((behind, [_, rest @ ..])) = star else { return false };
            (star, pattern, name) = (Some((behind, rest)), behind, rest);
        }
    }
}

/// Matches the first character of a name; returns the rest of the pattern.
fn held<'p>(pattern: &'p [char], name: &[char]) -> Option<&'p [char]> {
    let (c, (first, behind)) = (name.first()?, pattern.split_first()?);
    match first {
        '?' => Some(behind),
        '[' => class(behind, *c).filter(|(holds, _)| *holds).map(|(_, behind)| behind),
        '\\' => behind.split_first().filter(|(own, _)| *own == c).map(|(_, behind)| behind),
        own => (own == c).then_some(behind),
    }
}

/// Parses a class after its `[`: whether it contains a character, and the rest of the pattern. `None` if it has no
/// end.
fn class(pattern: &[char], c: char) -> Option<(bool, &[char])> {
    let (mut rest, negated) = match pattern.split_first() {
        Some(('^', rest)) => (rest, true),
        _ => (pattern, false),
    };
    let (mut holds, mut is_empty) = (false, true);
    loop {
        // A `]` right at the beginning does not end the class.
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

/// Parses one end of a character range; `\` escapes the next character.
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
        // A `-` between two characters is not a member of the class.
        check("[a-c]", "b", true);
        check("[a-c]", "-", false);
        check("[a-cx-z]", "y", true);
        check("[a-cx-z]", "d", false);
        check("[^a-c]", "-", true);
        check("[c-a]", "b", false);
        // An escaped character stands for itself.
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("\\\\", "\\", true);
        check("[\\]]", "]", true);
        check("[\\-x]", "-", true);
        check("[a\\-c]", "b", false);
        // A class without an end matches nothing.
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

    /// Patterns come from users who may change a policy: with backtracking one with many stars took years for a name
    /// of 60 letters.
    #[test]
    fn many_stars() {
        let pattern: Vec<char> = "*a".repeat(40).chars().chain("*b".chars()).collect();
        let name: Vec<char> = "a".repeat(250).chars().collect();
        assert!(!fits(&pattern, &name));
        assert!(fits(&pattern, &[&name[..], &['b']].concat()));
    }

    /// The definition for patterns without classes: `*` matches any characters.
    fn model(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|taken| model(rest, &name[taken..])),
            ['?', rest @ ..] => !name.is_empty() && model(rest, &name[1..]),
            [own, rest @ ..] => name.first() == Some(own) && model(rest, &name[1..]),
        }
    }

    /// All texts of these letters up to a length.
    fn texts(letters: &[char], longest: usize) -> Vec<Vec<char>> {
        let mut out = vec![Vec::new()];
        let mut last = out.clone();
        for _ in 0..longest {
            let longer = |text: &Vec<char>| letters.iter().map(|c| [&text[..], &[*c]].concat()).collect::<Vec<_>>();
            last = last.iter().flat_map(longer).collect();
            out.extend(last.iter().cloned());
        }
        out
    }

    #[test]
    fn stars_mean_any_characters() {
        let names = texts(&['a', 'b'], 4);
        for pattern in texts(&['a', 'b', '*', '?'], 4) {
            for name in &names {
                assert_eq!(fits(&pattern, name), model(&pattern, name), "{pattern:?} {name:?}");
            }
        }
    }

    #[test]
    fn files_of_folders() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yml", "a.yml", "a.yaml", "x/c.yml", "y/c.yml", "y/z/d.yml", ".h.yml", "[1].yml"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| {
            let found = matching(&dir.path().join(pattern));
            let names = found.iter().map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string());
            names.collect::<Vec<_>>()
        };
        for (pattern, expected) in [
            ("*.yml", &[".h.yml", "[1].yml", "a.yml", "b.yml"][..]),
            ("?.y*ml", &["a.yaml", "a.yml", "b.yml"][..]),
            ("*/c.yml", &["x/c.yml", "y/c.yml"][..]),
            ("*/*/*.yml", &["y/z/d.yml"][..]),
            ("[x-y]/*", &["x/c.yml", "y/c.yml", "y/z"][..]),
            ("a.yml", &["a.yml"][..]),
            ("none.yml", &[][..]),
            ("a.yml/*", &[][..]),
            ("none/*", &[][..]),
            ("\\[1\\].y[m]l", &["[1].yml"][..]),
        ] {
            assert_eq!(found(pattern), expected, "{pattern}");
        }
    }
}
