//! Analytics at the start and while it runs: models and tables of the operator's folders, read anew when files change, all
//! or nothing (`olap-api.md` 10).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use quiver_olap::OlapEngine;
use quiver_olap::model::catalog::Catalog;
use quiver_olap::model::load::{ModelProblem, SourceFile, load, read_folders};
use quiver_olap::tables::{FolderTables, LayeredTables, folder_error};
use quiver_query::QueryEngine;
use quiver_query::tables::Tables;
use quiver_types::{Error, Result};

use crate::settings::Settings;

/// How often folders are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Models that come with the product: file name and text.
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

/// Where models and tables come from.
#[derive(Debug, Clone)]
struct Folders {
    models: Vec<PathBuf>,
    tables: Vec<PathBuf>,
    builtin: bool,
}

impl Folders {
    fn of(settings: &Settings) -> Self {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect();
        Self {
            models: paths(&settings.olap.model_dirs),
            tables: paths(&settings.olap.table_dirs),
            builtin: settings.olap.builtin == "on",
        }
    }

    fn catalog(&self) -> Result<Catalog, Vec<ModelProblem>> {
        let mut files = read_folders(&self.models)?;
        for (name, text) in BUILTIN.iter().filter(|_| self.builtin) {
            files.push(SourceFile { name: (*name).to_owned(), text: (*text).to_owned(), builtin: true });
        }
        let (catalog, warnings) = load(&files)?;
        for warning in warnings {
            tracing::warn!(%warning, "part of a built-in model is left out");
        }
        Ok(catalog)
    }

    /// Names, sizes and times of all files: what changes when a file does.
    fn seen(&self) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
        let mut seen = Vec::new();
        let mut folders: Vec<PathBuf> = self.models.iter().chain(&self.tables).cloned().collect();
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.filter_map(|e| Some(e.ok()?.path())) {
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

/// What the binary holds of analytics.
#[derive(Debug)]
pub struct Analytics {
    /// Tables of the operator before those of the product.
    pub tables: Arc<LayeredTables>,
    /// Answers queries.
    pub engine: Arc<OlapEngine>,
}

/// Reads models and tables, and begins to watch their folders.
///
/// # Errors
/// Invalid: models or tables that are refused, each with file and line.
pub fn open(settings: &Settings, engine: Arc<QueryEngine>, product: Arc<dyn Tables>) -> Result<Analytics> {
    let folders = Folders::of(settings);
    let own = FolderTables::read(&folders.tables).map_err(|p| folder_error(&p))?;
    let own = Arc::new(ArcSwap::from_pointee(own));
    let tables = Arc::new(LayeredTables { folders: Arc::clone(&own), product: Some(product) });
    let catalog = folders.catalog().map_err(|p| told(&p))?;
    let keeps = settings.query.result_cache.0 > 0;
    let olap = OlapEngine::new(engine, Arc::clone(&tables) as Arc<dyn Tables>, catalog, keeps);
    if !folders.models.is_empty() || !folders.tables.is_empty() {
        let (watched, own) = (Arc::downgrade(&olap), Arc::downgrade(&own));
        std::thread::Builder::new()
            .name("quiver-models".to_owned())
            .spawn(move || watch(&folders, &watched, &own))
            .map_err(|e| Error::internal("cannot start the thread that watches models").with_source(e))?;
    }
    Ok(Analytics { tables, engine: olap })
}

/// Reads folders anew when a file in them changed; what is refused changes nothing.
fn watch(folders: &Folders, engine: &Weak<OlapEngine>, tables: &Weak<ArcSwap<FolderTables>>) {
    let mut seen = folders.seen();
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

/// Says what is wrong with the models of a folder, one line each.
///
/// # Errors
/// All problems.
pub fn check(folder: &Path) -> Result<usize, Vec<String>> {
    let folders = Folders { models: vec![folder.to_owned()], tables: Vec::new(), builtin: true };
    let catalog = folders.catalog().map_err(|p| p.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(catalog.models.len() + catalog.views.len())
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
        assert!(problems.iter().any(|p| p.contains("m.yml:3:5")), "{problems:?}");
    }
}
