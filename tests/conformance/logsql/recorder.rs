//! A logs table without rows that notes what it is asked for: what a query reads, and which rows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use quiver_logsql::ast::Query;
use quiver_logsql::{LogsqlEngine, QueryScope, extension_planner, parse};
use quiver_query::{EngineSettings, Limits, LogTables, QueryContext, QueryEngine};
use quiver_types::logs::{LogFilter, LogRequest, LogSnapshot, LogSource, StreamSelector};
use quiver_types::{Access, Error, ReadStats, Result};

use super::memory::Nothing;

/// Notes requests.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<LogRequest>>);

impl LogSource for Notes {
    fn snapshot(&self) -> Arc<dyn LogSnapshot> {
        Arc::new(Nothing)
    }
}

impl LogTables for Notes {
    fn logs(
        &self,
        _: &Arc<dyn LogSnapshot>,
        _: &Access,
        request: LogRequest,
        _: &Arc<ReadStats>,
    ) -> Result<Arc<dyn TableProvider>> {
        let schema = request.schema();
        self.0.lock().expect("no panic before").push(request);
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![]]).map_err(|e| Error::internal(e.to_string()))?))
    }
}

/// An engine over such a table.
pub(crate) struct Recorder {
    runtime: tokio::runtime::Runtime,
    notes: Arc<Notes>,
    logsql: LogsqlEngine,
}

impl Recorder {
    /// Makes one.
    pub(crate) fn new() -> Self {
        let settings = EngineSettings {
            memory_bytes: 64 << 20,
            spill_dir: std::env::temp_dir(),
            spill_bytes: 1 << 20,
            threads: 1,
            concurrent_max: 4,
            pressure: Arc::default(),
        };
        let engine = QueryEngine::new(&settings, vec![extension_planner()]).expect("an engine");
        let notes = Arc::new(Notes::default());
        let source: Arc<dyn LogSource> = Arc::<Notes>::clone(&notes);
        let tables: Arc<dyn LogTables> = Arc::<Notes>::clone(&notes);
        let logsql = LogsqlEngine::new(source, tables, engine);
        Self { runtime: tokio::runtime::Runtime::new().expect("a runtime"), notes, logsql }
    }

    /// Runs a query; gives what was read, in the order of the plans.
    pub(crate) fn requests(&self, query: &Query, now_ns: i64) -> std::result::Result<Vec<LogRequest>, String> {
        self.notes.0.lock().expect("no panic before").clear();
        let ctx = QueryContext::new(Access::full(), Limits { timeout: Duration::from_secs(20), ..Limits::default() });
        let scope = QueryScope { now_ns, ..QueryScope::default() };
        self.runtime.block_on(self.logsql.collect(query, &scope, &ctx)).map_err(|e| e.to_string())?;
        Ok(std::mem::take(&mut *self.notes.0.lock().expect("no panic before")))
    }
}

/// The selector of streams that a filter asks for.
pub(crate) fn selector(filter: &str) -> Option<StreamSelector> {
    let requests = Recorder::new().requests(&parse(filter).ok()?, 0).ok()?;
    match &requests.first()?.filter {
        LogFilter::Stream(selector) => Some(selector.clone()),
        _ => None,
    }
}
