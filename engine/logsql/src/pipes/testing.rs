//! Cases of pipes in one line each: how they are read and printed, what is refused, and what they make of rows.

use std::sync::{Arc, OnceLock};

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::empty::EmptyTable;
use datafusion::physical_plan::{ExecutionPlan, collect};
use quiver_query::{EngineSettings, Limits, LogTables, QueryContext, QueryEngine};
use quiver_types::logs::{LogRequest, LogSnapshot, LogSource, StreamInfo, StreamSelector};
use quiver_types::{Access, ReadStats, Result};

use super::pipe::Pipe;
use super::rows::Rows;
use crate::ast::Query;
use crate::encoding::tests::{Seen, again};
use crate::row_functions::{Fields, pack_logfmt, unpack_logfmt};
use crate::{LogsqlEngine, QueryScope, parse};

/// A pipe that joins no other in the normal form, so that the pipes of a case stay where they are.
const FIRST: &str = "* | query_stats | ";

/// Reads pipes: they are printed as expected, and what is printed is read as the same.
pub(crate) fn reads(cases: &[(&str, &str)]) {
    for (written, printed) in cases {
        let query = parse(&format!("{FIRST}{written}")).unwrap_or_else(|e| panic!("{written}: {e}"));
        assert_eq!(query.to_string(), format!("{FIRST}{printed}"), "{written}");
        let again = parse(&query.to_string()).unwrap_or_else(|e| panic!("{printed}: {e}"));
        assert_eq!(again.to_string(), query.to_string(), "{written}");
    }
}

/// Pipes that are refused, each with a part of what is said.
pub(crate) fn refuses(cases: &[(&str, &str)]) {
    for (written, part) in cases {
        let error = parse(&format!("{FIRST}{written}")).expect_err(written);
        assert!(error.message.contains(part), "{written}: {error}");
    }
}

/// Runs pipes over rows, which are written as pairs `a=b`. Each plan runs twice, and partition by partition; then once more,
/// made anew of what is written of its steps.
pub(crate) fn gives(pipes: &str, rows: &[&str], expected: &[&str]) {
    let mut query = parse(&format!("{FIRST}{pipes}")).unwrap_or_else(|e| panic!("{pipes}: {e}"));
    query.pipes[0] = Pipe::from(Rows(rows.iter().map(|row| fields(row)).collect()));
    let found = run(&query).unwrap_or_else(|e| panic!("{pipes}: {e}"));
    let expected: Vec<String> = expected.iter().map(|row| written(fields(row))).collect();
    assert_eq!(found, expected, "{pipes}");
    let plans = [physical(&query), physical(&query)].map(|plan| plan.unwrap_or_else(|e| panic!("{pipes}: {e}")));
    let read = again(&plans[0], &mut Seen::default());
    assert_eq!(rows_of(read), rows_of(Arc::clone(&plans[1])), "{pipes}");
}

/// Runs pipes, the first of which has rows of its own.
pub(crate) fn run_pipes(pipes: Vec<Pipe>) -> Vec<String> {
    let query = Query { pipes, ..parse("*").expect("a query") };
    run(&query).unwrap_or_else(|e| panic!("{query}: {e}"))
}

/// All rows of a plan.
fn rows_of(plan: Arc<dyn ExecutionPlan>) -> RecordBatch {
    let schema = plan.schema();
    let batches = engine().0.block_on(collect(plan, Arc::default())).expect("rows");
    concat_batches(&schema, &batches).expect("of one schema")
}

fn fields(row: &str) -> Vec<(String, String)> {
    let mut found = Fields::default();
    unpack_logfmt(row, &mut found);
    found.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// One spelling of a row.
fn written(mut row: Vec<(String, String)>) -> String {
    row.retain(|(_, value)| !value.is_empty());
    row.sort();
    let mut text = String::new();
    pack_logfmt(row.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut text);
    text
}

/// An engine, and a runtime for those who ask it.
pub(crate) fn engine() -> &'static (tokio::runtime::Runtime, LogsqlEngine) {
    static ENGINE: OnceLock<(tokio::runtime::Runtime, LogsqlEngine)> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let settings = EngineSettings { threads: 2, concurrent_max: 8, ..EngineSettings::small(64 << 20) };
        let engine = QueryEngine::new(&settings).expect("an engine");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        (runtime, LogsqlEngine::new(Arc::new(EmptyStore), Arc::new(EmptyStore), engine))
    })
}

fn scope() -> QueryScope {
    QueryScope { now_ns: 1_750_000_000_000_000_000, ..QueryScope::default() }
}

/// The physical plan of a query.
pub(crate) fn physical(query: &Query) -> Result<Arc<dyn ExecutionPlan>> {
    let (runtime, logsql) = engine();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    runtime.block_on(logsql.physical(query, &scope(), &ctx))
}

fn run(query: &Query) -> Result<Vec<String>> {
    let (runtime, logsql) = engine();
    let ctx = QueryContext::new(Access::full(), Limits::default()).rehearsed(true);
    let found = runtime.block_on(logsql.collect(query, &scope(), &ctx))?;
    let texts: Vec<_> = found.iter().map(crate::Rows::to_texts).collect::<Result<_>>()?;
    Ok(texts.into_iter().flatten().map(written).collect())
}

/// A store without rows: cases have rows of their own.
#[derive(Debug)]
struct EmptyStore;

impl LogSource for EmptyStore {
    fn snapshot(&self) -> Arc<dyn LogSnapshot> {
        Arc::new(Self)
    }
}

#[async_trait]
impl LogSnapshot for EmptyStore {
    async fn streams(
        &self,
        _: &Access,
        _: &StreamSelector,
        _: (i64, i64),
        _: &Arc<ReadStats>,
    ) -> Result<Vec<StreamInfo>> {
        Ok(Vec::new())
    }
}

impl LogTables for EmptyStore {
    fn logs(
        &self,
        _: &Arc<dyn LogSnapshot>,
        _: &Access,
        request: LogRequest,
        _: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(EmptyTable::new(request.schema())))
    }
}
