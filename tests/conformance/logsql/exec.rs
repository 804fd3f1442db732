//! Pipes over rows in memory, in batches of several sizes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_logsql::{QueryScope, parse};
use quiver_query::{Limits, QueryContext, QueryEngine};
use quiver_types::Access;
use serde_json::Value;

use super::memory::{Memory, Row, engine, logsql_over};
use super::{Suite, Verdict, read, text};

/// The moment of evaluation.
const NOW_NS: i64 = 1_750_000_000_000_000_000;

/// The suite of this file.
pub(crate) fn suite<'a>(folder: &Path, changed: &'a HashMap<String, Value>) -> Suite<'a> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let engine = engine();
    Suite {
        name: "exec",
        cases: read(&folder.join("upstream/exec.jsonl")),
        run: Box::new(move |case: &Value| {
            let newer = changed.get(text(case, "id")).map(|c| &c["newer_result"]);
            run(case, newer.unwrap_or(&case["expected"]), &engine, &runtime)
        }),
    }
}

fn rows(value: &Value) -> Vec<Row> {
    let field =
        |f: &Value| (f[0].as_str().unwrap_or_default().to_owned(), f[1].as_str().unwrap_or_default().to_owned());
    let row = |row: &Value| row.as_array().into_iter().flatten().map(field).collect();
    value.as_array().into_iter().flatten().map(row).collect()
}

fn run(case: &Value, expected: &Value, engine: &Arc<QueryEngine>, runtime: &tokio::runtime::Runtime) -> Verdict {
    let query = match parse(&format!("* | {}", text(case, "pipe"))) {
        Ok(query) => query,
        Err(e) => return Verdict::Failed(e.to_string()),
    };
    let input = Arc::new(rows(&case["input"]));
    let expected = canonical(rows(expected));
    for batch_rows in [1000, 2, 1] {
        let memory = Memory { rows: Arc::clone(&input), batch_rows };
        let logsql = logsql_over(Arc::new(memory), Arc::clone(engine));
        let limits = Limits { timeout: Duration::from_mins(5), ..Limits::default() };
        let ctx = QueryContext::new(Access::full(), limits).rehearsed(true);
        let scope = QueryScope { now_ns: NOW_NS, ..QueryScope::default() };
        let found = match runtime.block_on(logsql.collect(&query, &scope, &ctx)) {
            Ok(found) => found,
            Err(e) => return Verdict::Failed(format!("`{}`: {e}", text(case, "pipe"))),
        };
        let found = canonical(found.iter().flat_map(|rows| rows.to_texts().expect("texts")).collect());
        if found != expected {
            let pipe = text(case, "pipe");
            return Verdict::Failed(format!("`{pipe}` in batches of {batch_rows}: {found:?}, expected {expected:?}"));
        }
    }
    Verdict::Passed
}

/// Rows and fields in one order; empty values are none.
fn canonical(mut rows: Vec<Row>) -> Vec<Row> {
    for row in &mut rows {
        row.retain(|(_, value)| !value.is_empty());
        row.sort();
    }
    rows.sort();
    rows
}
