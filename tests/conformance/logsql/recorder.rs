//! A logs table without rows that records which fields and rows a query requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::datasource::MemTable;
use quiver_logsql::ast::Query;
use quiver_logsql::{LogsqlEngine, QueryScope, parse};
use quiver_query::{Limits, QueryContext};
use quiver_types::logs::{LogFilter, LogRequest, StreamSelector};
use quiver_types::{Access, Error, Result};

use super::memory::{Table, engine, logsql_over};

/// Notes requests.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<LogRequest>>);

impl Table for Notes {
    fn table(&self, request: LogRequest) -> Result<MemTable> {
        let schema = request.schema();
        self.0.lock().expect("no panic before").push(request);
        MemTable::try_new(schema, vec![vec![]]).map_err(|e| Error::internal(e.to_string()))
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
        let notes = Arc::new(Notes::default());
        let logsql = logsql_over(Arc::<Notes>::clone(&notes), engine());
        Self { runtime: tokio::runtime::Runtime::new().expect("a runtime"), notes, logsql }
    }

    /// Runs a query; gives what was read, in the order of the plans.
    pub(crate) fn requests(&self, query: &Query, now_ns: i64) -> std::result::Result<Vec<LogRequest>, String> {
        self.notes.0.lock().expect("no panic before").clear();
        let ctx = QueryContext::new(Access::full(), Limits { timeout: Duration::from_mins(5), ..Limits::default() });
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
