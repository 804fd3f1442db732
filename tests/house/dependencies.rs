//! Dependencies: each is declared once, in the root, with a reason; one generation of the engine's crates; only
//! allowed licences and sources.

use std::collections::BTreeMap;

use cargo_metadata::{CargoOpt, MetadataCommand};

use crate::sources::{files, none, read, root};

/// Crates that must not exist in two versions, since their types would be incompatible.
const ONE_GENERATION: &[&str] =
    &["arrow", "arrow-array", "arrow-schema", "datafusion", "object_store", "parquet", "sqlx", "tokio"];

/// The lines of a section of a manifest, without blank lines and comments.
fn section<'a>(manifest: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(move |l| l.trim() != head).skip(1);
    lines.take_while(|l| !l.starts_with('[')).filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
}

#[test]
fn every_dependency_says_what_for() {
    let manifest = read("Cargo.toml");
    let mut silent = Vec::new();
    let mut count = 0;
    for line in section(&manifest, "workspace.dependencies") {
        count += 1;
        let ours = line.starts_with("quiver") && line.contains("path = ");
        let why = line.rsplit_once('#').map_or("", |(_, why)| why.trim());
        if !ours && why.len() < 3 {
            silent.push(line.to_owned());
        }
    }
    assert!(count > 40, "only {count} dependencies found");
    none("dependencies without a reason behind them", &silent);
}

#[test]
fn crates_name_no_versions() {
    let mut found = Vec::new();
    // The crate of features pins versions of indirect dependencies; that is its purpose.
    let manifests = files().into_iter().filter(|p| p.ends_with("/Cargo.toml") && p != "tests/features/Cargo.toml");
    for path in manifests {
        let manifest = read(&path);
        for name in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let own = section(&manifest, name).filter(|l| !l.contains("workspace = true"));
            found.extend(own.map(|l| format!("{path}: {l}")));
        }
    }
    none("dependencies that do not come from the root", &found);
}

#[test]
fn crates_name_what_they_depend_on() {
    let sources = files();
    let mut unused = Vec::new();
    for path in sources.iter().filter(|p| p.ends_with("/Cargo.toml") && *p != "tests/features/Cargo.toml") {
        let folder = path.trim_end_matches("Cargo.toml");
        let own: Vec<String> =
            sources.iter().filter(|p| p.starts_with(folder) && p.ends_with(".rs")).map(|p| read(p)).collect();
        let manifest = read(path);
        for name in ["dependencies", "dev-dependencies"] {
            let names = section(&manifest, name).filter_map(|line| line.split(['.', ' ', '=']).next());
            let silent = names.filter(|name| *name != "quiver-features").filter(|name| {
                // Its library is named differently from its package.
                let name = if *name == "md-5" { "md5".to_owned() } else { name.replace('-', "_") };
                let is_word = |at: usize, text: &str| {
                    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
                    edge(text[..at].chars().next_back()) && edge(text[at + name.len()..].chars().next())
                };
                !own.iter().any(|text| text.match_indices(&name).any(|(at, _)| is_word(at, text)))
            });
            unused.extend(silent.map(|name| format!("{path}: {name}")));
        }
    }
    none("dependencies that their crate never names", &unused);
}

#[test]
fn every_dependency_is_used() {
    let root_manifest = read("Cargo.toml");
    let manifests: Vec<String> = files().into_iter().filter(|p| p.ends_with("/Cargo.toml")).map(|p| read(&p)).collect();
    let name = |line: &str| line.split(['=', '.', ' ']).next().unwrap_or_default().to_owned();
    let unused = section(&root_manifest, "workspace.dependencies").map(name).filter(|name| {
        let lines = [format!("{name}.workspace"), format!("{name} = {{ workspace = true")];
        !manifests.iter().any(|m| m.lines().any(|l| lines.iter().any(|line| l.starts_with(line))))
    });
    none("dependencies of the root that no crate uses", &unused.collect::<Vec<_>>());
}

#[test]
fn lock_file() {
    let (mut versions, mut sources) = (BTreeMap::<&str, Vec<&str>>::new(), Vec::new());
    let lock = read("Cargo.lock");
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(" = \""));
            line.map(|l| l.trim_end_matches('"'))
        };
        let name = field("name").expect("a package has a name");
        versions.entry(name).or_default().push(field("version").expect("and a version"));
        match field("source") {
            None | Some("registry+https://github.com/rust-lang/crates.io-index") => {}
            Some(other) => sources.push(format!("{name}: {other}")),
        }
    }
    none("sources other than crates.io", &sources);
    let twice = ONE_GENERATION.iter().filter(|n| versions.get(**n).is_some_and(|v| v.len() > 1));
    none("second versions", &twice.map(|n| format!("{n} {:?}", versions[n])).collect::<Vec<_>>());
}

/// The licences that `deny.toml` allows.
fn allowed_licences() -> Vec<String> {
    let text = read("deny.toml");
    let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list of licences");
    list.split(',').map(|l| l.trim().trim_matches('"').to_owned()).collect()
}

/// Whether a licence expression is allowed: one of its alternatives must be, with all terms joined by `AND`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|all| all.split(" OR ").any(|one| allowed.iter().any(|a| a == one.trim())))
}

#[test]
fn licences() {
    let allowed = allowed_licences();
    assert!(
        is_allowed("MIT OR Foo", &allowed) && !is_allowed("MIT AND Foo", &allowed) && !is_allowed("GPL-3.0", &allowed)
    );
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .features(CargoOpt::SomeFeatures(vec![]))
        .other_options(["--offline", "--locked", "--filter-platform", &host].map(str::to_owned).to_vec())
        .exec()
        .expect("all dependencies are here: they were just built");
    let mut found = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("none");
        let own_file = package.license.is_none() && package.license_file.is_some();
        if !own_file && !is_allowed(licence, &allowed) {
            found.push(format!("{} {}: {licence}", package.name, package.version));
        }
    }
    none("licences that are not allowed", &found);
}
