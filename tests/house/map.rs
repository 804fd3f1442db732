//! `ARCHITECTURE.md` and `docs/internals` are a map: the files, directories and modules that they name must exist.

use std::collections::BTreeSet;

use crate::sources::{Source, files, none, read, sources};

/// Names that look like paths and are not in the repository: name, meaning.
const OTHERS: &[(&str, &str)] = &[
    ("text/template", "a package of Go"),
    ("wal/held", "a folder of a data directory"),
    ("sqlx::Any", "a type of a library"),
];

/// A path as the map writes it: `engine/query/tables/logs`.
fn shown(path: &str) -> String {
    path.replace("/src/", "/").trim_end_matches(".rs").to_owned()
}

/// Files and directories as the map writes them, also without leading parts: `tables/logs`.
fn places() -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for file in files() {
        let mut path = Some(file.as_str());
        while let Some(place) = path {
            let place_shown = shown(place);
            let behind = place_shown.match_indices('/').map(|(at, _)| place_shown[at + 1..].to_owned());
            places.extend(behind.chain([place_shown.clone()]));
            path = place.rsplit_once('/').map(|(folder, _)| folder);
        }
    }
    places
}

/// Whether a text in backquotes is a path.
fn is_path(text: &str) -> bool {
    let of = |more: &'static str| move |c: char| c.is_ascii_lowercase() || c == '_' || more.contains(c);
    let mut parts = text.split('/');
    let first = parts.next().is_some_and(|part| !part.is_empty() && part.chars().all(of("")));
    let mut others = parts.map(|part| !part.is_empty() && part.chars().all(of("0123456789.{},"))).peekable();
    first && others.peek().is_some() && others.all(|fits| fits)
}

/// Expands the alternatives of a path: `a/{b,c}` is `a/b` and `a/c`.
fn written_out(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (choices, behind))) => choices.split(',').map(|one| format!("{before}{one}{behind}")).collect(),
        None => vec![path.to_owned()],
    }
}

/// The pages of the map.
fn pages() -> impl Iterator<Item = String> {
    files().into_iter().filter(|path| path == "ARCHITECTURE.md" || path.starts_with("docs/internals/"))
}

/// Bare names in the first column of tables of files, with their lines.
fn listed(text: &str) -> Vec<(usize, &str)> {
    let (mut listed, mut of_files) = (Vec::new(), false);
    for (n, line) in text.lines().enumerate() {
        let first = line.strip_prefix('|').and_then(|row| row.split('|').next());
        of_files = first.is_some_and(|cell| of_files || cell.starts_with(" File"));
        if of_files {
            let names = first.into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
            listed.extend(names.filter(|name| !name.contains(['/', '<', '.'])).map(|name| (n + 1, name)));
        }
    }
    listed
}

/// Whether a path of code (`store::flush`, `plan::in_time_order`, `types::time::Clock`) leads to a module, or to a
/// function or type in one.
fn leads(path: &str, places: &BTreeSet<String>, sources: &[Source]) -> bool {
    let path = path.replace("::", "/");
    let Some((module, item)) = path.rsplit_once('/') else { return false };
    let is_type = item.starts_with(|c: char| c.is_ascii_uppercase());
    let ending = format!("/{module}.rs");
    let in_module = |source: &Source| source.path.replace("/src/", "/").ends_with(&ending);
    places.contains(&path)
        || is_type && places.contains(module)
        || sources.iter().any(|source| in_module(source) && source.text.contains(&format!("fn {item}")))
}

#[test]
fn modules_on_the_map_are_there() {
    let (places, sources) = (places(), sources());
    let (mut gone, mut named) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        for (n, name) in listed(&text) {
            named += 1;
            if !places.contains(name) {
                gone.push(format!("{page}:{n}: `{name}`"));
            }
        }
        for (n, line) in text.lines().enumerate() {
            let is_code = |text: &&str| {
                text.starts_with(|c: char| c.is_ascii_lowercase())
                    && text.contains("::")
                    && text.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, ':' | '_'))
            };
            for path in line.split('`').skip(1).step_by(2).filter(is_code) {
                named += 1;
                if !OTHERS.iter().any(|(other, _)| *other == path) && !leads(path, &places, &sources) {
                    gone.push(format!("{page}:{}: `{path}`", n + 1));
                }
            }
        }
    }
    assert!(named > 100, "only {named} modules were found: the check looks at nothing");
    none("modules on the map that are not there", &gone);
}

#[test]
fn tables_of_files() {
    let text = "| File | What |\n|---|---|\n| `wal`, `a/b` | `what` |\n\n| Share | For |\n|---|---|\n| `x` | y |";
    assert_eq!(listed(text), [(3, "wal")]);
}

#[test]
fn places_on_the_map_are_there() {
    let places = places();
    let (mut gone, mut named) = (Vec::new(), 0);
    for page in pages() {
        for (n, line) in read(&page).lines().enumerate() {
            let paths = line.split('`').skip(1).step_by(2).filter(|text| is_path(text));
            for path in paths.filter(|path| !OTHERS.iter().any(|(other, _)| other == path)).flat_map(written_out) {
                named += 1;
                if !places.contains(&shown(&path)) {
                    gone.push(format!("{page}:{}: `{path}`", n + 1));
                }
            }
        }
    }
    assert!(named > 200, "only {named} places were found: the check looks at nothing");
    none("places on the map that are not there", &gone);
}

#[test]
fn paths() {
    let check = |text: &str, expected: bool| assert_eq!(is_path(text), expected, "{text}");
    check("query/tables/logs.rs", true);
    check("store/{scan,logs}", true);
    check("query", false);
    check("/select/logsql", false);
    check("application/vnd.x-y", false);
    check("a/", false);
    assert_eq!(written_out("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
    assert_eq!(shown("engine/query/src/tables/logs.rs"), "engine/query/tables/logs");
}
