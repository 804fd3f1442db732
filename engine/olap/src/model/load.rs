//! Loads a catalog from folders of YAML files; any error refuses all.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_yaml::problem::{Place, Problems};
use quiver_yaml::read;

use super::catalog::Catalog;
use super::parse::{FileContent, file};
use super::problem::ModelProblem;
use super::problem_location::owner;
use super::{DimensionType, Model, Relationship, View, added_groups, check, cube_syntax, views};

/// The largest file of models, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The deepest level of folders that is searched.
const FOLDERS_DEEP_MAX: usize = 16;

/// A file of models.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Its name in messages.
    pub name: String,
    /// The whole YAML text.
    pub text: String,
    /// Whether it is part of the product: models from folders replace those of the same name.
    pub builtin: bool,
}

/// Finds the YAML files in folders, sorted by name.
///
/// # Errors
///
/// All folders and files that cannot be read.
pub fn read_folders(folders: &[PathBuf]) -> Result<Vec<SourceFile>, Vec<ModelProblem>> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| {
        vec![ModelProblem {
            file: path.display().to_string(),
            place: Place::default(),
            member: None,
            message: format!("cannot be read: {e}"),
        }]
    };
    let mut files = Vec::new();
    for folder in folders {
        let mut paths = Vec::new();
        walk(folder, &mut paths, &mut BTreeSet::new(), 0).map_err(|(path, e)| failed(&path, &e))?;
        paths.sort();
        for path in paths {
            let text = quiver_files::read_text(&path, FILE_BYTES_MAX).map_err(|e| failed(&path, &e))?;
            files.push(SourceFile { name: path.display().to_string(), text, builtin: false });
        }
    }
    Ok(files)
}

/// Whether to skip a file or folder: mounted volumes keep copies of all files in folders such as `..data`.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a folder has not been visited yet: links may lead back to one that is being walked.
pub fn is_new_folder(folder: &Path, walked: &mut BTreeSet<PathBuf>) -> bool {
    walked.insert(std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()))
}

fn walk(
    folder: &Path,
    paths: &mut Vec<PathBuf>,
    walked: &mut BTreeSet<PathBuf>,
    depth: usize,
) -> Result<(), (PathBuf, std::io::Error)> {
    if !is_new_folder(folder, walked) {
        return Ok(());
    }
    let failed = |e| (folder.to_owned(), e);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_hidden(&path) {
            continue;
        }
        let is_yaml = path.extension().is_some_and(|e| e == "yml" || e == "yaml");
        if path.is_dir() && depth < FOLDERS_DEEP_MAX {
            walk(&path, paths, walked, depth + 1)?;
        } else if is_yaml {
            paths.push(path);
        }
    }
    Ok(())
}

/// Loads and checks files together; also returns warnings.
///
/// # Errors
///
/// All problems.
pub fn load(files: &[SourceFile]) -> Result<(Catalog, Vec<ModelProblem>), Vec<ModelProblem>> {
    let mut warnings = Vec::new();
    let mut loaded = Loaded::default();
    // Files of folders come first, so that they take precedence over built-in models of the same name.
    for is_builtin in [false, true] {
        let own: Option<HashSet<String>> = is_builtin.then(|| names(&loaded.models, &loaded.views).collect());
        for source in files.iter().filter(|f| f.builtin == is_builtin) {
            let mut found = Problems::default();
            let content = file(&source.name, &source.text, &mut found);
            // The text is parsed again if there are problems, to name the member that each belongs to.
            let is_wrong = found.iter().next().is_some();
            let documents = if is_wrong { read(&source.text).unwrap_or_default() } else { Vec::new() };
            loaded.problems.extend(found.iter().map(|p| ModelProblem {
                file: source.name.clone(),
                place: p.place,
                member: owner(&documents, p.place),
                message: p.message.clone(),
            }));
            loaded.add(content, own.as_ref());
        }
    }
    let Loaded { mut models, views: mut all_views, builtin, mut problems } = loaded;
    check::extend(&mut models, &mut problems);
    duplicates(&models, &mut problems);
    check::resolve(&mut models, &builtin, &mut problems, &mut warnings);
    check::deep_texts(&models, &mut problems);
    check::buckets(&models, &mut problems);
    cube_syntax::check(&models, &mut problems);
    check::cycles(&models, &mut problems);
    check::levels(&models, &mut problems);
    added_groups::check(&models, &mut problems);
    keys(&models, &mut problems);
    let models: BTreeMap<String, Model> = models.into_iter().map(|m| (m.common.name.clone(), m)).collect();
    for view in &mut all_views {
        let told = if builtin.contains(&view.common.name) { &mut warnings } else { &mut problems };
        views::fill(view, &models, told);
    }
    let views = all_views.into_iter().map(|v| (v.common.name.clone(), v)).collect();
    if problems.is_empty() { Ok((Catalog::new(models, views), warnings)) } else { Err(problems) }
}

fn names(models: &[Model], views: &[View]) -> impl Iterator<Item = String> {
    let names: Vec<String> =
        models.iter().map(|m| &m.common.name).chain(views.iter().map(|v| &v.common.name)).cloned().collect();
    names.into_iter()
}

/// What the files read so far contain.
#[derive(Default)]
struct Loaded {
    models: Vec<Model>,
    views: Vec<View>,
    /// Names of those that are built in.
    builtin: HashSet<String>,
    problems: Vec<ModelProblem>,
}

impl Loaded {
    /// Adds the models and views of a file. `own` is given for built-in files: the names of the operator's own models and
    /// views, which replace built-in ones.
    fn add(&mut self, content: FileContent, own: Option<&HashSet<String>>) {
        let Self { models, views, builtin, problems } = self;
        let mut seen: HashSet<String> = names(models, views).collect();
        let mut fresh = |common: &super::Common, file: &Arc<str>| {
            if own.is_some_and(|own| own.contains(&common.name)) {
                return false;
            }
            let is_fresh = seen.insert(common.name.clone());
            if !is_fresh {
                let text = format!("there are two models or views `{}`", common.name);
                problems.push(ModelProblem::of(file, &common.name, common.place, None, text));
            }
            is_fresh
        };
        for model in content.models {
            if fresh(&model.common, &model.file) {
                builtin.extend(own.map(|_| model.common.name.clone()));
                models.push(model);
            }
        }
        for view in content.views {
            if fresh(&view.common, &view.file) {
                builtin.extend(own.map(|_| view.common.name.clone()));
                views.push(view);
            }
        }
    }
}

fn duplicates(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        let mut seen = HashSet::new();
        let hierarchies = model.hierarchies.iter().map(|h| h.common.name.as_str());
        for name in model.member_names().chain(hierarchies) {
            if !seen.insert(name) {
                let text = format!("there are two members `{name}`");
                problems.push(ModelProblem::new(model, model.common.place, Some(name), text));
            }
        }
        let mut targets = HashSet::new();
        for join in &model.joins {
            if !targets.insert(&join.target) {
                let text =
                    format!("there are two joins to `{}`; a second role is a model that extends it", join.target);
                problems.push(ModelProblem::new(model, join.place, None, text));
            }
        }
    }
}

/// Checks that models have a key if joins multiply their rows, or they have sub-queries.
fn keys(models: &[Model], problems: &mut Vec<ModelProblem>) {
    let lacks = |name: &str| models.iter().find(|m| m.common.name == name && m.key().next().is_none());
    let mut told = HashSet::new();
    let mut tell = |model: &Model, why: String, problems: &mut Vec<ModelProblem>| {
        if told.insert(model.common.name.clone()) {
            let text = format!("it needs a dimension with `primary_key: true`, since {why}");
            problems.push(ModelProblem::new(model, model.common.place, None, text));
        }
    };
    for model in models {
        for join in &model.joins {
            let word = if join.relationship == Relationship::ManyToOne { "joins it" } else { "is joined to it" };
            for side in [lacks(&model.common.name), lacks(&join.target)].into_iter().flatten() {
                let other = if side.common.name == model.common.name { &join.target } else { &model.common.name };
                tell(side, format!("`{other}` {word}"), problems);
            }
        }
        if model.entities
            && (model.key().next().is_none() || !model.dimensions.iter().any(|d| d.ty == DimensionType::Time))
        {
            let text = "`entities` need a dimension with `primary_key: true` and one of type `time`".to_owned();
            problems.push(ModelProblem::new(model, model.common.place, None, text));
        }
        if model.dimensions.iter().any(|d| d.sub_query) && model.key().next().is_none() {
            tell(model, "a dimension of it is a sub-query".to_owned(), problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str, builtin: bool) -> SourceFile {
        SourceFile { name: name.to_owned(), text: text.to_owned(), builtin }
    }

    fn problems(text: &str) -> Vec<String> {
        load(&[source("m.yml", text, false)]).map(|_| ()).unwrap_err().iter().map(ToString::to_string).collect()
    }

    const A: &str = "cubes:
  - name: A
    sql_table: public.a
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true}
      - {name: kind, sql: kind, type: string}
    measures:
      - {name: count, type: count}
";

    #[test]
    fn places_and_suggestions() {
        let text = format!("{A}      - {{name: rate, type: number, sql: '{{cuont}} / 2'}}\n");
        assert_eq!(problems(&text), ["m.yml:9:41: `A.rate`: model `A` has no member `cuont`; did you mean `count`?"]);
        let unknown = problems("cubes:\n  - name: B\n    sql_table: b\n    measure: []\n");
        assert_eq!(unknown, ["m.yml:4:5: `B`: unknown field `measure`; did you mean `measures`?"]);
        let word = problems("cubes:\n  - name: B\n    sql_table: b\n    measures: [{name: n, type: cuont, sql: x}]\n");
        assert!(word[0].contains("did you mean `count`?"), "{word:?}");
        let camel = format!("{A}      - {{name: n, type: countDistinctApprox, sql: kind}}\n");
        assert!(load(&[source("m.yml", &camel, false)]).is_ok());
        let joined =
            "  - {name: B, extends: A, joins: [{name: A, relationship: manyToOne, sql: '{CUBE}.id = {A}.id'}]}\n";
        assert!(load(&[source("m.yml", &format!("{A}{joined}"), false)]).is_ok());
        let window = |text: &str| {
            let text = format!("{A}      - {{name: n, type: count, rolling_window: {text}}}\n");
            load(&[source("m.yml", &text, false)]).unwrap().0.model("A").measure("n").unwrap().rolling_window.clone()
        };
        assert_eq!(window("{type: month_to_date}"), window("{type: to_date, granularity: month}"));
    }

    /// Guards against ignoring a misspelled filter, with which the measure would count all rows.
    #[test]
    fn parts_of_members_are_read_or_told_of() {
        let check = |part: &str, expected: &str| {
            let told = problems(&format!("{A}      - {{name: some, type: {part}}}\n"));
            assert!(told.iter().any(|problem| problem.ends_with(expected)), "{part}: {told:?}");
        };
        check("count, filters: [{sqll: '{CUBE}.id > 1'}]", "unknown field `sqll`");
        check("count, filters: [{sqll: '{CUBE}.id > 1'}]", "a filter of a measure needs `sql`");
        check("count, filters: [\"{CUBE}.id > 1\"]", "wanted a mapping, got a scalar");
        check("sum, case: {when: [{sql: '{CUBE}.id > 1', label: a}], else: {lable: b}}", "needs a `label`");
        let case = "case: {when: [{sql: '{CUBE}.id > 1', label: {sql: '1'}}]}";
        check(&format!("sum, sql: id, {case}"), "measure `some` has `sql` or `case`, not both");
        check("rank, order_by: [{dir: desc}]", "an entry of `order_by` needs `sql`");
        let shifted = "number, sql: '{count}', time_shift: [{interval: 1 day, type: prior}]";
        check(shifted, "`time_shift` belongs to measures with `multi_stage: true`");
        check("number, sql: '{count}', reduce_by: [kind]", "`reduce_by` belongs to measures with `multi_stage: true`");
        check("count, rolling_window: {granularity: month}", "`granularity` belongs to windows of `type: to_date`");
        let window = "rolling_window: {type: to_date, granularity: month, trailing: 1 day}";
        check(&format!("count, {window}"), "`trailing` belongs to windows of `type: fixed`");
        let both = "sum, sql: '{count}', multi_stage: true, rolling_window: {trailing: 1 day}";
        check(both, "a measure has `rolling_window` or `multi_stage`, not both");
        let rollup = |text: &str| problems(&format!("{A}    pre_aggregations: [{{{text}}}]\n")).join("; ");
        assert!(rollup("measures: [count]").ends_with("a rollup needs a `name`"));
        let timeless = rollup("name: days, measures: [count], time_dimension: kind");
        assert!(timeless.ends_with("a rollup with `time_dimension` needs `granularity`"), "{timeless}");
    }

    #[test]
    fn extends_and_cycles() {
        let text = format!(
            "{A}  - name: B\n    extends: A\n    public: false\n    measures:\n      - {{name: twice, type: number, sql: '{{count}} * 2'}}\n"
        );
        let (catalog, _) = load(&[source("m.yml", &text, false)]).unwrap();
        let b = catalog.model("B");
        assert_eq!(b.member_names().collect::<Vec<_>>(), ["id", "kind", "count", "twice"]);
        assert!(!b.is_public());
        let busy = "    segments: [{name: busy, sql: '{count} > 1', by: [kind]}]\n";
        let (catalog, _) = load(&[source("m.yml", &format!("{A}{busy}  - {{name: B, extends: A}}\n"), false)]).unwrap();
        assert_eq!(catalog.model("B").segment("busy").unwrap().by[0].to_string(), "B.kind");
        let more = "    open: {prefix: attr_, sql: '\":key\"'}
    pre_aggregations:
      - {name: all, type: rollup, measures: [count], dimensions: [kind]}
      - {name: own, type: rollup, measures: [count]}
";
        let own = "    pre_aggregations: [{name: own, type: rollup, measures: [count], dimensions: [id]}]\n";
        let text = format!("{A}{more}  - name: B\n    extends: A\n{own}");
        let (catalog, _) = load(&[source("m.yml", &text, false)]).unwrap();
        let b = catalog.model("B");
        assert!(b.open.is_some());
        let rollups = b.pre_aggregations.iter().map(|p| (p.name.as_str(), p.dimensions[0].to_string()));
        assert_eq!(rollups.collect::<Vec<_>>(), [("all", "B.kind".to_owned()), ("own", "B.id".to_owned())]);
        let text = format!(
            "{A}      - {{name: x, type: number, sql: '{{y}}'}}\n      - {{name: y, type: number, sql: '{{x}}'}}\n"
        );
        assert!(problems(&text)[0].contains("made of itself"), "{:?}", problems(&text));
    }

    /// Guards against texts whose queries would overflow the server's stack.
    #[test]
    fn texts_have_so_many_operators() {
        let sum = |terms: usize| format!("{A}      - {{name: sum, type: sum, sql: '{}id'}}\n", "id + ".repeat(terms));
        assert!(load(&[source("m.yml", &sum(1_000), false)]).is_ok());
        let told = problems(&sum(1_001));
        assert!(told[0].ends_with("`A`: a text has at most 1000 operators; `IN (…)` takes long lists"), "{told:?}");
        let listed =
            format!("{A}      - {{name: n, type: count, filters: [{{sql: 'id IN (1{})'}}]}}\n", ", 1".repeat(5_000));
        assert!(load(&[source("m.yml", &listed, false)]).is_ok());
    }

    /// A few lines may expand to more than planning or memory can bear.
    #[test]
    fn what_members_and_models_come_to_is_bounded() {
        let made = |sql: &str, n: usize| {
            let one = |i: usize| {
                let sql = sql.replace('@', &(i - 1).to_string());
                format!("      - {{name: m{i}, type: number, sql: '{sql}'}}\n")
            };
            format!("{A}      - {{name: m0, type: sum, sql: id}}\n{}", (1..=n).map(one).collect::<String>())
        };
        assert!(load(&[source("m.yml", &made("{m@} + {m@}", 8), false)]).is_ok());
        let twice = problems(&made("{m@} + {m@}", 40));
        let says = "`A.m9` comes to more than 1000 members, all that it is made of written out";
        assert!(twice.len() == 1 && twice[0].ends_with(says), "{twice:?}");
        assert!(load(&[source("m.yml", &made("{m@} + 1", 64), false)]).is_ok());
        let chain = problems(&made("{m@} + 1", 2_000));
        let says = "`A.m65` stands on more than 64 members, one made of the other";
        assert!(chain.len() == 1 && chain[0].ends_with(says), "{chain:?}");
        let extended = |i: usize| {
            let base = if i == 0 { "A".to_owned() } else { format!("B{}", i - 1) };
            format!("  - {{name: B{i}, extends: {base}, dimensions: [{{name: d{i}, sql: id, type: number}}]}}\n")
        };
        let models = |n: usize| format!("{A}{}", (0..n).map(extended).collect::<String>());
        assert!(load(&[source("m.yml", &models(100), false)]).is_ok());
        let many = problems(&models(1_000));
        assert!(
            many[0].ends_with("models take over more than 67108864 bytes of those that they extend"),
            "{}",
            many[0]
        );
    }

    #[test]
    fn added_groups_have_granularities() {
        let of = |added: &str| {
            A.replace("measures:", "  - {name: at, sql: at, type: time}\n    measures:")
                + &format!(
                    "      - {{name: mean, type: avg, multi_stage: true, sql: '{{count}}', add_group_by: [{added}]}}\n"
                )
        };
        let group = |added: &str| {
            let (catalog, _) = load(&[source("m.yml", &of(added), false)]).unwrap();
            catalog.model("A").measure("mean").unwrap().add_group_by[0].to_string()
        };
        assert_eq!(group("A.at.day"), "A.at.day");
        assert_eq!(group("'{CUBE}.at.day'"), "A.at.day");
        assert_eq!(group("kind"), "A.kind");
        assert!(problems(&of("A.at.days"))[0].ends_with("`A.at` has no granularity `days`; did you mean `day`?"));
        assert!(problems(&of("A.kind.day"))[0].contains("`A.kind` is not a time dimension"));
        assert!(problems(&of("A.ta.day"))[0].contains("model `A` has no member `ta`"));
    }

    #[test]
    fn folders_replace_what_is_built_in() {
        let own = source(
            "own.yml",
            "cubes:\n  - {name: A, sql_table: t, dimensions: [{name: id, sql: id, type: number, primary_key: true}]}\n",
            false,
        );
        let other = "cubes:
  - name: C
    sql_table: c
    joins: [{name: A, relationship: many_to_one, sql: '{CUBE}.a = {A}.id'}]
    dimensions: [{name: id, sql: id, type: number, primary_key: true}, {name: k, sql: '{A.kind}', type: string}]
";
        let files = [source("a.yml", A, true), source("c.yml", other, true), own];
        let (catalog, warnings) = load(&files).unwrap();
        assert!(catalog.model("A").measure("count").is_none(), "the whole model is replaced");
        assert!(catalog.model("C").dimension("k").is_none(), "what it lacks is left out");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(catalog.path("C", "A"), Some(vec!["A".to_owned()]));
        assert_eq!(catalog.path("A", "C"), None);
    }
}
