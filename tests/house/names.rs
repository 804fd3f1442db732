//! Names in documents must exist: linked files, settings, environment variables, headings.

use std::collections::BTreeSet;
use std::path::Path;

use quiver::settings::{DOCS, SECTIONS};

use crate::sources::{files, none, read, root};

/// Documents, and files shipped with the binary.
fn documents() -> impl Iterator<Item = String> {
    files().into_iter().filter(|path| path.ends_with(".md") || path.starts_with("packaging/"))
}

/// The anchor of a heading: lower case, hyphens for blanks, without other punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// The links `](target)` of a document with their lines, except for those to other sites.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(n, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://")).map(move |target| (n + 1, target))
    })
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for path in documents().filter(|path| path.ends_with(".md")) {
        let text = read(&path);
        for (line, target) in links(&text) {
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let folder = Path::new(&path).parent().expect("a file lies in a folder");
            let to = if file.is_empty() { root().join(&path) } else { root().join(folder).join(file) };
            let found = to.exists()
                && heading.is_none_or(|heading| {
                    let text = std::fs::read_to_string(&to).unwrap_or_default();
                    text.lines().any(|l| l.starts_with('#') && anchor(l.trim_start_matches('#')) == heading)
                });
            if !found {
                broken.push(format!("{path}:{line}: {target}"));
            }
        }
    }
    none("links to nowhere", &broken);
}

#[test]
fn documents_of_operators_are_in_the_readme() {
    let readme = read("README.md");
    let linked: BTreeSet<&str> =
        links(&readme).map(|(_, target)| target.split('#').next().unwrap_or_default()).collect();
    let own =
        files().into_iter().filter(|p| p.starts_with("docs/") && p.ends_with(".md") && p.matches('/').count() == 1);
    let missing: Vec<String> = own.filter(|path| !linked.contains(path.as_str())).collect();
    none("documents that README.md does not link to", &missing);
}

#[test]
fn settings_that_are_named_exist() {
    let known: BTreeSet<String> = DOCS.iter().map(|d| format!("{}.{}", d.section, d.key)).collect();
    let is_section = |word: &str| SECTIONS.iter().any(|(section, _)| *section == word);
    let mut unknown = Vec::new();
    for path in documents() {
        let text = read(&path);
        for (n, line) in text.lines().enumerate() {
            // `section.key` in backquotes, possibly followed by a value.
            let quoted = line.split('`').skip(1).step_by(2).filter_map(|q| q.split([' ', '=']).next());
            let named = quoted.filter_map(|q| {
                let (section, key) = q.split_once('.')?;
                let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                // `config.db` is a file.
                (plain && key != "db" && is_section(section)).then(|| q.to_owned())
            });
            // QUIVER_SECTION__KEY anywhere.
            let variables = line.split("QUIVER_").skip(1).filter_map(|rest| {
                let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                let (section, key) = name.split_once("__")?;
                (section != "SECTION").then(|| format!("{section}.{key}").to_lowercase())
            });
            unknown.extend(
                named
                    .chain(variables)
                    .filter(|name| !known.contains(name))
                    .map(|name| format!("{path}:{}: {name}", n + 1)),
            );
        }
    }
    none("settings that there are not", &unknown);
}

#[test]
fn anchors() {
    let check = |heading: &str, expected: &str| assert_eq!(anchor(heading), expected);
    check(" Acting: who may", "acting-who-may");
    check("Send once", "send-once");
}
