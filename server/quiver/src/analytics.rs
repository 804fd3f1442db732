//! Analytics in the binary: models and tables from the operator's folders, reloaded when files change, all or nothing
//! (`olap-api.md` 10).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use quiver_olap::model::catalog::Catalog;
use quiver_olap::model::load::{SourceFile, is_hidden, is_new_folder, load, read_folders};
use quiver_olap::model::problem::ModelProblem;
use quiver_olap::tables::{FolderTables, LayeredTables, folder_error};
use quiver_olap::{OlapEngine, ResultCaching};
use quiver_query::QueryEngine;
use quiver_query::tables::Tables;
use quiver_types::{Error, Result};

use crate::settings::Settings;

/// How often the folders are checked for changes.
const LOOK: Duration = Duration::from_secs(2);

/// Built-in models: file name and text.
const BUILTIN: &[(&str, &str)] = &[
    ("builtin:spans.yml", include_str!("../../../schemas/olap/spans.yml")),
    ("builtin:span_trees.yml", include_str!("../../../schemas/olap/span_trees.yml")),
    ("builtin:traces.yml", include_str!("../../../schemas/olap/traces.yml")),
    ("builtin:business.yml", include_str!("../../../schemas/olap/business.yml")),
    ("builtin:services.yml", include_str!("../../../schemas/olap/services.yml")),
    ("builtin:calls.yml", include_str!("../../../schemas/olap/calls.yml")),
    ("builtin:http.yml", include_str!("../../../schemas/olap/http.yml")),
    ("builtin:messaging.yml", include_str!("../../../schemas/olap/messaging.yml")),
    ("builtin:errors.yml", include_str!("../../../schemas/olap/errors.yml")),
    ("builtin:logs.yml", include_str!("../../../schemas/olap/logs.yml")),
    ("builtin:hosts.yml", include_str!("../../../schemas/olap/hosts.yml")),
    ("builtin:runtimes.yml", include_str!("../../../schemas/olap/runtimes.yml")),
    ("builtin:databases.yml", include_str!("../../../schemas/olap/databases.yml")),
    ("builtin:kubernetes.yml", include_str!("../../../schemas/olap/kubernetes.yml")),
    ("builtin:metrics.yml", include_str!("../../../schemas/olap/metrics.yml")),
    ("builtin:pipelines.yml", include_str!("../../../schemas/olap/pipelines.yml")),
    ("builtin:statements.yml", include_str!("../../../schemas/olap/statements.yml")),
    ("builtin:edges.yml", include_str!("../../../schemas/olap/edges.yml")),
    ("builtin:rum.yml", include_str!("../../../schemas/olap/rum.yml")),
    ("builtin:sessions.yml", include_str!("../../../schemas/olap/sessions.yml")),
    ("builtin:alerts.yml", include_str!("../../../schemas/olap/alerts.yml")),
    ("builtin:changes.yml", include_str!("../../../schemas/olap/changes.yml")),
    ("builtin:resources.yml", include_str!("../../../schemas/olap/resources.yml")),
    ("builtin:synthetic.yml", include_str!("../../../schemas/olap/synthetic.yml")),
    ("builtin:usage.yml", include_str!("../../../schemas/olap/usage.yml")),
];

/// The folders of models and tables.
#[derive(Debug, Clone)]
struct Folders {
    models: Vec<PathBuf>,
    tables: Vec<PathBuf>,
    builtin: bool,
}

/// Files by name, with their sizes in bytes and when they were changed last; sorted.
type FilesSeen = Vec<(PathBuf, u64, Option<SystemTime>)>;

impl Folders {
    fn of(settings: &Settings) -> Self {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect();
        Self {
            models: paths(&settings.olap.model_dirs),
            tables: paths(&settings.olap.table_dirs),
            builtin: settings.olap.builtin == "on",
        }
    }

    /// Says which folder is not there, and which setting names it.
    fn exist(&self) -> Result<()> {
        for (setting, folders) in [("olap.model_dirs", &self.models), ("olap.table_dirs", &self.tables)] {
            if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
                return Err(Error::invalid(format!("`{}` (`{setting}`) is no folder", folder.display())));
            }
        }
        Ok(())
    }

    /// Parses all models; also returns which parts of built-in ones are left out.
    fn read(&self) -> Result<(Catalog, Vec<ModelProblem>), Vec<ModelProblem>> {
        let mut files = read_folders(&self.models)?;
        for (name, text) in BUILTIN.iter().filter(|_| self.builtin) {
            files.push(SourceFile { name: (*name).to_owned(), text: (*text).to_owned(), builtin: true });
        }
        load(&files)
    }

    fn catalog(&self) -> Result<Catalog, Vec<ModelProblem>> {
        let (catalog, warnings) = self.read()?;
        for warning in warnings {
            tracing::warn!(%warning, "part of a built-in model is left out");
        }
        Ok(catalog)
    }

    /// Names, sizes and times of all files, to notice changes.
    fn seen(&self) -> FilesSeen {
        let mut seen = Vec::new();
        let mut folders: Vec<PathBuf> = self.models.iter().chain(&self.tables).cloned().collect();
        let mut walked = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            if !is_new_folder(&folder, &mut walked) {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.filter_map(|e| Some(e.ok()?.path())).filter(|path| !is_hidden(path)) {
                match std::fs::metadata(&path) {
                    Ok(of) if of.is_dir() => folders.push(path),
                    Ok(of) => seen.push((path, of.len(), of.modified().ok())),
                    Err(_) => {}
                }
            }
        }
        seen.sort();
        seen
    }
}

fn told(problems: &[ModelProblem]) -> Error {
    Error::invalid(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Analytics as the binary holds it.
#[derive(Debug)]
pub struct Analytics {
    /// Tables of the operator, which take precedence over the built-in ones.
    pub tables: Arc<LayeredTables>,
    /// Runs queries over the current models.
    pub engine: Arc<OlapEngine>,
}

/// Reads models and tables, and begins to watch their folders.
///
/// # Errors
/// Invalid: models or tables that are not valid, each with file and line.
pub fn open(settings: &Settings, engine: Arc<QueryEngine>, product: Arc<dyn Tables>) -> Result<Analytics> {
    let folders = Folders::of(settings);
    folders.exist()?;
    // Before they are read: what changes meanwhile is read again.
    let seen = folders.seen();
    let own = FolderTables::read(&folders.tables).map_err(|p| folder_error(&p))?;
    let own = Arc::new(ArcSwap::from_pointee(own));
    let tables = Arc::new(LayeredTables { folders: Arc::clone(&own), product: Some(product) });
    let catalog = folders.catalog().map_err(|p| told(&p))?;
    let cache = if settings.query.result_cache.0 > 0 { ResultCaching::On } else { ResultCaching::Off };
    let olap = OlapEngine::new(engine, Arc::clone(&tables) as Arc<dyn Tables>, catalog, cache);
    if !folders.models.is_empty() || !folders.tables.is_empty() {
        let (watched, own) = (Arc::downgrade(&olap), Arc::downgrade(&own));
        std::thread::Builder::new()
            .name("quiver-models".to_owned())
            .spawn(move || watch(&folders, seen, &watched, &own))
            .map_err(|e| Error::internal("cannot start the thread that watches models").with_source(e))?;
    }
    Ok(Analytics { tables, engine: olap })
}

/// Reads the folders again when their files are no longer as they were seen; invalid files change nothing.
fn watch(folders: &Folders, mut seen: FilesSeen, engine: &Weak<OlapEngine>, tables: &Weak<ArcSwap<FolderTables>>) {
    loop {
        std::thread::sleep(LOOK);
        let (Some(engine), Some(tables)) = (engine.upgrade(), tables.upgrade()) else { return };
        let now = folders.seen();
        if now == seen {
            continue;
        }
        seen = now;
        let read = FolderTables::read(&folders.tables).map_err(|p| folder_error(&p));
        match read.and_then(|read| folders.catalog().map(|catalog| (read, catalog)).map_err(|p| told(&p))) {
            Ok((read, catalog)) => {
                tables.store(Arc::new(read));
                engine.replace(catalog);
                tracing::info!("models and tables of analytics were read anew");
            }
            Err(error) => tracing::error!(%error, "changed models or tables are refused; the former ones stay"),
        }
    }
}

/// Reads models and tables as a start does, and forgets them.
///
/// # Errors
/// Invalid: a folder that is not there, models or tables that are not valid.
pub fn check_folders(settings: &Settings) -> Result<()> {
    let folders = Folders::of(settings);
    folders.exist()?;
    FolderTables::read(&folders.tables).map_err(|p| folder_error(&p))?;
    folders.read().map_err(|p| told(&p))?;
    Ok(())
}

/// Checks the models of a folder together with the built-in ones. Returns the number of models and views, and which
/// parts of built-in ones are left out because of them.
///
/// # Errors
/// All problems, one line each.
pub fn check(folder: &Path) -> Result<(usize, Vec<String>), Vec<String>> {
    let lines = |problems: &[ModelProblem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let folders = Folders { models: vec![folder.to_owned()], tables: Vec::new(), builtin: true };
    let (catalog, warnings) = folders.read().map_err(|p| lines(&p))?;
    let files = catalog.models.values().map(|m| &m.file).chain(catalog.views.values().map(|v| &v.file));
    let own = files.filter(|file| !BUILTIN.iter().any(|(name, _)| *name == &***file));
    Ok((own.count(), lines(&warnings)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_models_are_sound() {
        let folders = Folders { models: Vec::new(), tables: Vec::new(), builtin: true };
        let catalog = folders.catalog().unwrap();
        assert!(catalog.models.contains_key("Spans"));
        for (_, text) in BUILTIN {
            assert!(text.contains("row_right"), "rows of telemetry have rights");
        }
    }

    #[test]
    fn problems_name_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.yml"), "cubes:\n  - name: A\n    sql_tabel: a\n").unwrap();
        let problems = check(folder.path()).unwrap_err();
        let says = "m.yml:3:5: `A`: unknown field `sql_tabel`; did you mean `sql_table`?";
        assert!(problems.iter().any(|p| p.ends_with(says)), "{problems:?}");
    }

    /// A mounted Kubernetes volume has each file three times: under its own name, and in two folders that begin with
    /// dots.
    #[test]
    fn what_a_folder_has_is_checked_beside_what_is_built_in() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let own = "cubes: [{name: Prices, sql_table: public.prices}]\n";
        for name in ["prices.yml", "..data/prices.yml", "..2026_11_26/prices.yml"] {
            write(name, own);
        }
        assert_eq!(check(folder.path()), Ok((1, Vec::new())));
        // Other models join `Services` by members that this one lacks.
        write(
            "deeper/services.yaml",
            "cubes: [{name: Services, sql_table: public.services, dimensions: [{name: id, type: number, sql: id, primary_key: true}]}]\n",
        );
        let (count, left_out) = check(folder.path()).unwrap();
        assert_eq!(count, 2);
        assert!(left_out.iter().any(|line| line.starts_with("builtin:")), "{left_out:?}");
        write("again.yml", own);
        let problems = check(folder.path()).unwrap_err();
        assert!(problems[0].contains("there are two models or views `Prices`"), "{problems:?}");
    }

    /// Symlinks in a circle are followed once, when files are read and watched; special files are reported, since
    /// reading one may never end.
    #[cfg(unix)]
    #[test]
    fn folders_with_links_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.yml"), "cubes: [{name: Prices, sql_table: public.prices}]\n").unwrap();
        for name in ["a", "b", "c"] {
            std::os::unix::fs::symlink(".", folder.path().join(name)).unwrap();
        }
        assert_eq!(check(folder.path()), Ok((1, Vec::new())));
        let paths = vec![folder.path().to_owned()];
        let folders = Folders { models: paths.clone(), tables: paths, builtin: false };
        assert_eq!(folders.seen().len(), 1);
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.yml")).unwrap();
        let problems = check(folder.path()).unwrap_err();
        assert!(problems[0].ends_with("zero.yml: cannot be read: it is no regular file"), "{problems:?}");
        std::fs::remove_file(folder.path().join("zero.yml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.csv")).unwrap();
        let problems = FolderTables::read(&folders.tables).unwrap_err();
        assert!(problems[0].ends_with("zero.csv: cannot be read: it is no regular file"), "{problems:?}");
    }

    /// The size to which a few lines of YAML may expand is limited, and the error names the place.
    #[test]
    fn hostile_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            std::fs::write(folder.path().join("m.yml"), text).unwrap();
            check(folder.path()).unwrap_err().join("\n")
        };
        let again = |n: usize| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
        let laughs = format!("a0: &a0 [x]\n{}", (1..10).map(again).collect::<String>());
        let deep = format!("cubes: {}{}", "[".repeat(5_000), "]".repeat(5_000));
        let circle = "cubes:\n  - {name: A, extends: B}\n  - {name: B, extends: A}\n";
        for (text, says) in [
            (laughs.as_str(), "m.yml:"),
            (deep.as_str(), "m.yml:"),
            (circle, "`A` extends `B`, which is not there or extends it in turn"),
            ("cubes: 5", "m.yml:1:8"),
            ("cubes: [5]", "m.yml:1:9"),
            ("cubes: [{name: 1x, sql_table: t}]", "`1x` is no identifier"),
            ("cubes: [{name: A, sql_table: t, measures: [{name: n, type: count, sql: '{m}'}]}]", "`A.n`"),
            ("a: [", "m.yml:"),
            ("\u{0}", "control characters"),
        ] {
            let told = refused(text);
            assert!(told.contains(says), "{}: {told}", &text[..text.len().min(60)]);
        }
    }
}
