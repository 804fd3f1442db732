//! No dependency cycles between the files of a crate.
//!
//! A file depends on another one if it names it by a path: `crate::a::B`, `super::b`, or a path that begins with one
//! of its modules or imports. If it names a re-exported item, it depends on the file with the re-export and on the
//! one with the definition. A file is a part of its parent module's file (`a/b.rs` of `a.rs`): what it uses from the
//! parent, or what the parent re-exports, is not a dependency back.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Named, Path};
use crate::sources::{none, sources};

/// Allowed cycles: files, and the one idea that they share.
const KEPT: &[(&[&str], &str)] = &[
    (
        &[
            "engine/types/src/condition/value_matcher.rs",
            "engine/types/src/logs/encoding.rs",
            "engine/types/src/logs/filter.rs",
        ],
        "a filter is written with what its matchers are made of, and read with those that make them: conditions among them",
    ),
    (
        &["engine/logsql/src/ast.rs", "engine/logsql/src/pipes/pipe.rs"],
        "a query holds pipes, and a pipe tells the queries in it",
    ),
];

/// Crates with other cycles: how many files are in them. These numbers must only decrease, and are all zero by now.
const OPEN: &[(&str, usize)] = &[];

/// Dependencies, each with a path that proves it.
type Arrows = BTreeMap<Path, BTreeMap<Path, String>>;

/// How many re-exports of a name are followed.
const HANDED_ON_MAX: usize = 8;
/// Largest cycle whose dependencies are listed in the message.
const TOLD_MAX: usize = 20;

struct File {
    path: String,
    named: Named,
    /// Imported names, each with its path from the crate root.
    imports: BTreeMap<String, Path>,
}

/// The files of a crate by module.
struct Files(BTreeMap<Path, File>);

impl Files {
    /// Parses files, given as path and text in order of paths.
    fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut all = BTreeMap::new();
        for (path, text) in files {
            let (module, named) = (module(path), Named::of(text));
            let imports = named.uses.iter().filter_map(|of| {
                let to = from_root(&module, &named.modules, &of.path)?;
                Some((of.name.clone()?, to))
            });
            let imports = imports.collect();
            // A binary next to a library is a crate of its own; the library comes first.
            all.entry(module).or_insert_with(|| File { path: path.to_owned(), named, imports });
        }
        assert!(all.contains_key(&Path::new()), "a crate without a root");
        Self(all)
    }

    /// The modules that a path leads to from the crate root: the one that it names, and the one that this re-exports
    /// from.
    fn led_to(&self, mut path: Path) -> Vec<Path> {
        let mut led = Vec::new();
        while led.len() < HANDED_ON_MAX {
            let is_file = |length: &usize| self.0.contains_key(&path[..*length]);
            let length = (0..=path.len()).rev().find(is_file).unwrap_or_default();
            let imports = &self.0[&path[..length]].imports;
            led.push(path[..length].to_vec());
            let Some(to) = path.get(length).and_then(|name| imports.get(name)) else { break };
            path = [to.as_slice(), &path[length + 1..]].concat();
        }
        led
    }

    /// The modules that a file depends on, each with a path that proves it.
    fn named(&self, module: &[String]) -> BTreeMap<Path, String> {
        let file = &self.0[module];
        let rooted = |path: &[String]| from_root(module, &file.named.modules, path);
        let uses = file.named.uses.iter().filter_map(|of| Some((rooted(&of.path)?, &of.path, of.is_handed_on)));
        let paths = file.named.paths.iter().filter_map(|path| {
            let imported = || Some([file.imports.get(&path[0])?.as_slice(), &path[1..]].concat());
            Some((rooted(path).or_else(imported)?, path, false))
        });
        let mut named = BTreeMap::new();
        for (to, path, is_handed_on) in uses.chain(paths) {
            for other in self.led_to(to) {
                let is_above = module.starts_with(&other);
                let is_below = is_handed_on && other.starts_with(module);
                if !is_above && !is_below {
                    named.entry(other).or_insert_with(|| path.join("::"));
                }
            }
        }
        named
    }

    fn arrows(&self) -> Arrows {
        self.0.keys().map(|module| (module.clone(), self.named(module))).collect()
    }

    /// The path of a module's file.
    fn path(&self, module: &[String]) -> &str {
        &self.0[module].path
    }

    /// The message for a cycle: its files and, unless they are many, their dependencies.
    fn told(&self, circle: &[Path], arrows: &Arrows) -> String {
        let mut lines = vec![circle.iter().map(|module| self.path(module)).collect::<Vec<_>>().join(", ")];
        for module in circle.iter().filter(|_| circle.len() <= TOLD_MAX) {
            for (other, path) in arrows[module].iter().filter(|(other, _)| circle.contains(*other)) {
                lines.push(format!("    {} names {} by `{path}`", self.path(module), self.path(other)));
            }
        }
        lines.join("\n")
    }
}

/// The module of a file.
fn module(path: &str) -> Path {
    match path.split_once("/src/").map(|(_, place)| place).expect("sources lie in `src`") {
        "lib.rs" | "main.rs" => Path::new(),
        place => place.trim_end_matches(".rs").split('/').map(str::to_owned).collect(),
    }
}

/// Resolves a path in a module to one from the crate root. `None` if it leads out of the crate, or begins with a name
/// that is not one of the module's files.
fn from_root(module: &[String], own: &BTreeSet<String>, path: &[String]) -> Option<Path> {
    let is_way = |part: &&String| matches!(part.as_str(), "self" | "super");
    let (first, rest) = path.split_first()?;
    if first == "crate" {
        return Some(rest.to_vec());
    }
    if !is_way(&first) {
        return own.contains(first).then(|| [module, path].concat());
    }
    let way = path.iter().take_while(is_way).count();
    let up = path[..way].iter().filter(|part| *part == "super").count();
    let above = module.len().checked_sub(up)?;
    Some([&module[..above], &path[way..]].concat())
}

/// Strongly connected components of more than one module.
fn circles(arrows: &Arrows) -> Vec<Vec<Path>> {
    let numbers: BTreeMap<&Path, usize> = arrows.keys().enumerate().map(|(number, module)| (module, number)).collect();
    let leads: Vec<Vec<usize>> = arrows.values().map(|to| to.keys().map(|other| numbers[other]).collect()).collect();
    let reached = |from: usize| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(leads[at].iter().copied().filter(|next| seen.insert(*next)));
        }
        seen
    };
    let reached: Vec<BTreeSet<usize>> = (0..leads.len()).map(reached).collect();
    let modules: Vec<&Path> = arrows.keys().collect();
    let mut found = Vec::new();
    for (one, others) in reached.iter().enumerate() {
        let circle: Vec<usize> = others.iter().copied().filter(|other| reached[*other].contains(&one)).collect();
        // Reported once, for its first module.
        if circle.len() > 1 && circle[0] == one {
            found.push(circle.into_iter().map(|number| modules[number].clone()).collect());
        }
    }
    found
}

#[test]
fn files_of_a_crate_do_not_name_each_other_in_circles() {
    let sources = sources();
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name).or_default().push((source.path.as_str(), source.text.as_str()));
        }
    }
    let nothing = OPEN.iter().filter(|(name, files)| *files == 0 || !crates.contains_key(name));
    let mut wrong: Vec<String> =
        nothing.map(|(name, _)| format!("{name} has no circles: take it off the list")).collect();
    let (mut named, mut kept) = (0, BTreeSet::new());
    for (name, files) in crates {
        let files = Files::new(files);
        let arrows = files.arrows();
        named += arrows.values().map(BTreeMap::len).sum::<usize>();
        let mut others = Vec::new();
        for circle in circles(&arrows) {
            let paths: Vec<&str> = circle.iter().map(|module| files.path(module)).collect();
            match KEPT.iter().position(|(known, _)| *known == paths) {
                Some(place) => drop(kept.insert(place)),
                None => others.push(circle),
            }
        }
        let most = OPEN.iter().find(|(of, _)| *of == name).map_or(0, |(_, most)| *most);
        let standing: usize = others.iter().map(Vec::len).sum();
        if standing != most {
            wrong.push(format!("{name}: {standing} files stand in circles, the list says {most}"));
        }
        if standing > most {
            wrong.extend(others.iter().map(|circle| files.told(circle, &arrows)));
        }
    }
    let gone = KEPT.iter().enumerate().filter(|(place, _)| !kept.contains(place));
    wrong.extend(gone.map(|(_, (files, _))| format!("{} are no circle: take them off the list", files.join(", "))));
    assert!(named > 4000, "only {named} names of files were found: the check looks at nothing");
    none("files that name each other in circles", &wrong);
}

#[test]
fn circles_of_files() {
    let check = |files: &[(&str, &str)], expected: &[&str]| {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("x/src/{path}")).collect();
        let files = Files::new(paths.iter().map(String::as_str).zip(files.iter().map(|(_, text)| *text)));
        let found: Vec<Vec<Path>> = circles(&files.arrows());
        let shown = |circle: &Vec<Path>| circle.iter().map(|module| module.join("/")).collect::<Vec<_>>().join(" ");
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected, "{paths:?}");
    };
    let root = ("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    check(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", "use super::a::A;")], &["a b"]);
    check(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", "")], &[]);
    // An item re-exported by the root is defined in a file.
    check(&[root, ("a.rs", "fn f() { crate::b::g() }"), ("b.rs", "use crate::A;")], &["a b"]);
    check(
        &[root, ("a.rs", "use super::{b, c};"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a as x; x::y();")],
        &["a b c"],
    );
    // The names in a binary next to the library belong to another crate.
    check(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", ""), ("main.rs", "mod b; use b::x;")], &[]);
    // Tests, comments and strings do not count.
    let silent = "// crate::a::A\nconst A: &str = \"crate::a::A\";\n#[cfg(test)]\nmod tests { use crate::a::A; }";
    check(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", silent)], &[]);
    // A file below another one is a part of it.
    let above = ("a.rs", "mod d; mod e; pub(crate) use d::D; const ALL: &[X] = &[d::X, e::X]; struct A;");
    let (of_d, of_e) = (("a/d.rs", "use super::A;"), ("a/e.rs", "use crate::a::A;"));
    check(&[root, above, of_d, of_e], &[]);
    check(&[root, above, ("a/d.rs", "use super::e::E;"), ("a/e.rs", "use super::D;")], &["a/d a/e"]);
    // Another file depends on both: the one with the re-export, and the one with the definition.
    check(&[root, above, ("a/d.rs", ""), ("a/e.rs", "use crate::b::B;"), ("b.rs", "use crate::a::D;")], &["a a/e b"]);
    let handing = ("a.rs", "mod d; pub(crate) use d::D;");
    check(&[root, handing, ("a/d.rs", "use crate::b::B;"), ("b.rs", "use crate::a::D;")], &["a/d b"]);
}

#[test]
fn paths_from_the_root() {
    let parts = |text: &str| text.split("::").map(str::to_owned).collect::<Path>();
    let check = |path: &str, expected: Option<&str>| {
        let found = from_root(&parts("a::b"), &BTreeSet::from(["c".to_owned()]), &parts(path));
        assert_eq!(found.map(|path| path.join("::")).as_deref(), expected, "{path}");
    };
    check("crate::x::Y", Some("x::Y"));
    check("self::Y", Some("a::b::Y"));
    check("super::Y", Some("a::Y"));
    check("self::super::super::Y", Some("Y"));
    check("super::super::super::Y", None);
    check("c::Y", Some("a::b::c::Y"));
    check("std::fmt", None);
    assert_eq!((module("x/src/lib.rs"), module("x/src/a/b.rs")), (Path::new(), parts("a::b")));
}
