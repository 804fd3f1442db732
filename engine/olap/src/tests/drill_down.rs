//! Drill-down in the open cases: each count has as many rows behind it as it says.

use std::sync::Arc;

use quiver_query::QueryContext;
use quiver_types::Access;
use serde_json::{Value, json};

use super::open_cases::{asked, each_case, limits, olap, rows};
use crate::OlapEngine;
use crate::drill_down::DrillDownRequest;
use crate::model::MeasureType;
use crate::model::catalog::MemberKind;
use crate::query::Query;
use crate::query::request::Request;
use crate::response::Frame;

/// Rows of an answer that are drilled into, of each case.
const ROWS_MAX: usize = 4;

/// The names of plain counts of a query.
fn counts(olap: &OlapEngine, query: &Query) -> Vec<String> {
    let catalog = olap.catalog();
    let is_count = |kind: MemberKind<'_>| matches!(kind, MemberKind::Measure(m) if m.ty == MeasureType::Count && m.rolling_window.is_none() && !m.drill_members.is_empty());
    let counts = query.measures.iter().filter(|id| catalog.find(id).is_some_and(|f| is_count(f.kind)));
    counts.map(ToString::to_string).collect()
}

/// A context ends with its run.
fn fresh() -> QueryContext {
    QueryContext::new(Access::full(), limits())
}

#[test]
fn rows_behind_a_count_are_as_many() {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(cases());
    std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
}

async fn cases() {
    let Some(folder) = crate::testing::open_cases() else { return };
    let olap: Arc<OlapEngine> = olap(&folder);
    let catalog = olap.catalog();
    let (mut failed, mut passed) = (Vec::new(), 0);
    for case in each_case(&folder) {
        let Ok((request, access)) = asked(&olap, &case) else { continue };
        for query in request.queries.iter().filter(|q| !q.ungrouped) {
            let counts = counts(&olap, query);
            let one = Request::of(query.clone());
            let Ok(sets) = olap.load(&catalog, &one, &access, &fresh()).await else { continue };
            let frame = Frame { catalog: &catalog, refreshed: String::new(), request_id: String::new(), slow: false };
            let answer = frame.load(&one, &sets, false).unwrap();
            for row in rows(&answer["data"]).iter().take(ROWS_MAX) {
                for name in &counts {
                    let body = json!({"row": row, "measure": name, "limit": 50_000});
                    let asked = DrillDownRequest::parse(&body, 0).unwrap();
                    let found = olap.drill(&catalog, &one, &asked, &access, &fresh()).await;
                    let found = match found {
                        Ok(found) => found.rows.batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(),
                        // What the model shows behind it may lie where no joins lead.
                        Err(e) if e.to_string().contains("no joins lead") => continue,
                        Err(e) => {
                            failed.push(format!("{} {row}: {e:?}", case["id"]));
                            continue;
                        }
                    };
                    let text = |v: &Value| v.as_str().map(str::to_owned).unwrap_or_default();
                    if text(&row[name]) == found.to_string() {
                        passed += 1;
                    } else {
                        failed.push(format!("{} {name}: {found} rows behind {row}", case["id"]));
                    }
                }
            }
        }
    }
    assert!(passed > 100 && failed.is_empty(), "{passed} passed, {} failed\n{}", failed.len(), failed.join("\n"));
}
