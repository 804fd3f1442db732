//! Plans of the open cases as SQL text: parsed and run again, the text gives the same rows as the plan.

use std::sync::Arc;

use arrow::compute::concat_batches;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use futures::TryStreamExt as _;
use quiver_query::tables::models::{MODEL_ROWS, ModelRows, Models as _};
use quiver_query::tables::{DomainAccess, TableRequest};
use quiver_query::{Names, QueryContext};
use quiver_types::SystemClock;
use regex::Regex;
use serde_json::Value;

use super::open_cases::{TYPES, asked, each_case, limits, olap};
use crate::models::ModelTables;
use crate::plan::json_values::cells;
use crate::{OlapEngine, OlapResult};

/// Rows as JSON, column by column.
async fn run(olap: &Arc<OlapEngine>, plan: &datafusion::logical_expr::LogicalPlan) -> Vec<Value> {
    let stream = olap.stream(plan, &fresh()).await.unwrap();
    let schema = stream.schema();
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    let all = concat_batches(&schema, &batches).unwrap();
    all.columns().iter().map(|c| Value::from(cells(c, chrono_tz::UTC).unwrap())).collect()
}

/// Adds the rows of models that a text calls for, as the caller sees them.
async fn add_rows(olap: &Arc<OlapEngine>, names: &mut Names<'_>, text: &str, access: &DomainAccess) {
    let models = ModelTables::new(Arc::clone(olap), Arc::new(SystemClock));
    for call in Regex::new(r"model_rows\(([^)]*)\)").unwrap().captures_iter(text) {
        let text = |arg: &str| (arg != "NULL").then(|| arg.trim_matches('\'').to_owned());
        let args: Vec<Option<String>> = call[1].split(", ").map(text).collect();
        let columns = args[3..].iter().flatten().cloned().collect();
        let rows = ModelRows { model: args[0].clone().unwrap(), range_ns: None, columns };
        let plan = models.rows(&rows, &olap.snapshot(), access, &fresh()).await.unwrap();
        let args: Vec<Expr> =
            args.iter().map(|arg| arg.as_deref().map_or_else(|| lit(ScalarValue::Null), lit)).collect();
        names.add_call(MODEL_ROWS, &args, Arc::new(ViewTable::new(plan, None)));
    }
}

async fn read_again(olap: &Arc<OlapEngine>, text: &Value, access: &DomainAccess) -> Result<Vec<Value>, String> {
    let mut names = Names::new(olap.session());
    add_rows(olap, &mut names, text[0].as_str().unwrap(), access).await;
    let full = DomainAccess::full();
    for (name, _) in TYPES {
        let request = TableRequest { schema: Some("public"), name, columns: &[], access: &full, typed_by: &full };
        let table = olap.snapshot().table(&request, &fresh()).await.unwrap().unwrap();
        names.add(Some("public"), name, Arc::clone(&table));
        names.add(None, name, table);
    }
    let plan = names.plan(text[0].as_str().unwrap()).map_err(|e| format!("{e:?}"))?;
    let value = |v: &Value| match v {
        Value::String(text) => ScalarValue::from(text.as_str()),
        Value::Number(n) if n.is_i64() => ScalarValue::from(n.as_i64().unwrap()),
        Value::Bool(is) => ScalarValue::from(*is),
        other => ScalarValue::from(other.as_f64().unwrap()),
    };
    let values: Vec<_> = text[1].as_array().unwrap().iter().map(|v| value(v).into()).collect();
    let plan = plan.with_param_values(ParamValues::List(values)).map_err(|e| e.to_string())?;
    Ok(run(olap, &plan).await)
}

/// A context ends with its run.
fn fresh() -> QueryContext {
    QueryContext::new(quiver_types::Access::full(), limits())
}

/// Cases whose rows, or the parts of a text in them, come in any order.
const UNORDERED: [&str; 2] = ["olap-003", "olap-259"];

#[test]
fn texts_of_all_open_cases_give_the_rows_of_their_plans() {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(cases());
    std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
}

async fn cases() {
    let Some(folder) = crate::testing::open_cases() else { return };
    let olap = olap(&folder);
    let (mut failed, mut passed) = (Vec::new(), 0);
    // A caller who sees nothing is told of no model, and gets no text.
    let is_blind = |case: &Value| case["request"]["services"].as_array().is_some_and(Vec::is_empty);
    let is_ordered = |case: &Value| !UNORDERED.iter().any(|id| case["id"] == *id);
    for case in each_case(&folder).into_iter().filter(|case| is_ordered(case) && !is_blind(case)) {
        let Ok((request, access)) = asked(&olap, &case) else { continue };
        let catalog = olap.catalog();
        let tables = olap.snapshot();
        for query in &request.queries {
            let Ok(planned) = olap.plan(&catalog, query, &tables, &access, &fresh()).await else { continue };
            let expected = run(&olap, &planned.rows).await;
            let printed: OlapResult<Vec<Value>> = olap.sql(&catalog, &request, &access, &fresh()).await;
            let at = request.queries.iter().position(|q| std::ptr::eq(q, query)).unwrap();
            let outcome = match printed {
                Err(e) => Err(format!("{e:?}")),
                Ok(list) => {
                    let text = list[at]["sql"]["sql"].clone();
                    read_again(&olap, &text, &access).await.map_err(|e| format!("{e}\n   {text}")).and_then(|got| {
                        let same = super::open_cases::same(&expected.clone().into(), &got.clone().into());
                        if same { Ok(()) } else { Err(format!("got {got:?}\n  want {expected:?}\n   {text}")) }
                    })
                }
            };
            match outcome {
                Ok(()) => passed += 1,
                Err(e) => failed.push(format!("{} {}: {e}", case["id"], case["title"])),
            }
        }
    }
    assert!(passed > 100 && failed.is_empty(), "{passed} passed, {} failed\n{}", failed.len(), failed.join("\n"));
}
