//! Attributes, which a model opens by a rule for their names, have the types of their columns: numbers are compared and
//! ordered as numbers, also where some rows have a text.

use std::sync::Arc;

use arc_swap::ArcSwap;
use quiver_query::tables::DomainAccess;
use quiver_query::{EngineSettings, QueryContext, QueryEngine};
use quiver_types::Access;
use serde_json::{Value, json};

use super::open_cases::limits;
use super::rollups::on_a_deep_stack;
use crate::query::request::Request;
use crate::response::Frame;
use crate::tables::{FolderTables, LayeredTables};
use crate::{OlapEngine, OlapResult, ResultCaching};

const MODEL: &str = r#"
cubes:
  - name: Jobs
    sql_table: public.jobs
    row_right: {service: service, domain: traces}
    open: {prefix: attr_, sql: '":key"'}
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: service, sql: service, type: string}
    measures: [{name: count, type: count}]
"#;

/// `depth` is a text in some rows, `status` and `ratio` are numbers.
const ROWS: &str = "id,service,depth,status,ratio
1,a,9,200,0.5
2,a,10,404,1.5
3,a,100,500,2
4,a,nan,503,\\N
5,a,fast,\\N,\\N
6,a,\\N,\\N,\\N
";

const TYPES: &str = r#"{"id":"int8","status":"int8","ratio":"float8"}"#;

fn olap() -> Arc<OlapEngine> {
    let scratch = std::env::temp_dir().join(format!("quiver-olap-opened-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    std::fs::write(scratch.join("jobs.csv"), ROWS).unwrap();
    std::fs::write(scratch.join("jobs.types.json"), TYPES).unwrap();
    let folders = FolderTables::read(std::slice::from_ref(&scratch)).unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 8, ..EngineSettings::small(256 << 20) };
    let engine = QueryEngine::with_functions(&settings, crate::session_functions()).unwrap();
    let layered = LayeredTables { folders: Arc::new(ArcSwap::from_pointee(folders)), product: None };
    OlapEngine::new(engine, Arc::new(layered), crate::testing::catalog(MODEL), ResultCaching::On)
}

async fn ask(olap: &Arc<OlapEngine>, query: &Value) -> OlapResult<Value> {
    let catalog = olap.catalog().with_open(query);
    let request = Request::parse(query, &catalog, 0)?;
    let ctx = QueryContext::new(Access::full(), limits());
    let sets = olap.load(&catalog, &request, &DomainAccess::full(), &ctx).await?;
    let frame = Frame { catalog: &catalog, refreshed: String::new(), request_id: String::new(), slow: false };
    frame.load(&request, &sets, false)
}

/// The ids of the rows that pass a filter.
async fn passed(olap: &Arc<OlapEngine>, filter: &Value) -> Vec<i64> {
    let query = json!({"dimensions": ["Jobs.id"], "filters": [filter]});
    let answer = ask(olap, &query).await.unwrap();
    let id = |row: &Value| row["Jobs.id"].as_str().unwrap().parse().unwrap();
    answer["data"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn filters_compare_as_the_column_has_it() {
    on_a_deep_stack(async {
        let olap = olap();
        let cases: [(&str, &str, Value, &[i64]); 21] = [
            ("depth", "gt", json!(["9"]), &[2, 3]),
            ("depth", "gte", json!([9]), &[1, 2, 3]),
            ("depth", "lt", json!(["50.5"]), &[1, 2]),
            ("depth", "equals", json!(["10"]), &[2]),
            ("depth", "notEquals", json!(["10"]), &[1, 3, 4, 5, 6]),
            ("depth", "contains", json!(["A"]), &[4, 5]),
            ("depth", "contains", json!(["A", null]), &[4, 5, 6]),
            ("depth", "notContains", json!(["A"]), &[1, 2, 3, 6]),
            ("depth", "notContains", json!(["A", null]), &[1, 2, 3]),
            ("status", "gt", json!(["404"]), &[3, 4]),
            ("status", "equals", json!(["200", "404.0"]), &[1, 2]),
            ("status", "equals", json!([500]), &[3]),
            ("status", "equals", json!(["fast", "404"]), &[2]),
            ("status", "notEquals", json!(["fast", "404"]), &[1, 3, 4, 5, 6]),
            ("status", "contains", json!(["0"]), &[1, 2, 3, 4]),
            ("status", "endsWith", json!(["4"]), &[2]),
            ("status", "notSet", json!([]), &[5, 6]),
            ("ratio", "lte", json!(["1.5"]), &[1, 2]),
            ("ratio", "equals", json!(["2", "fast"]), &[3]),
            ("ratio", "notEquals", json!(["2", "fast", null]), &[1, 2]),
            ("ratio", "equals", json!(["fast"]), &[]),
        ];
        for (member, operator, values, expected) in cases {
            let filter = json!({"member": format!("Jobs.attr_{member}"), "operator": operator, "values": values});
            assert_eq!(passed(&olap, &filter).await, expected, "{filter}");
        }
        let filter = json!({"member": "Jobs.attr_depth", "operator": "gt", "values": ["fast"]});
        let wrong = ask(&olap, &json!({"measures": ["Jobs.count"], "filters": [filter]})).await.unwrap_err();
        assert!(wrong.to_string().contains("which `\"fast\"` is not"), "{wrong}");
    });
}

#[test]
fn rows_are_ordered_by_numbers_first() {
    on_a_deep_stack(async {
        let olap = olap();
        for (direction, expected) in [
            ("asc", json!(["9", "10", "100", "fast", "nan", null])),
            ("desc", json!([null, "nan", "fast", "100", "10", "9"])),
        ] {
            let order = json!({"Jobs.attr_depth": direction});
            let query = json!({"dimensions": ["Jobs.attr_depth"], "measures": ["Jobs.count"], "order": order});
            let answer = ask(&olap, &query).await.unwrap();
            let rows = answer["data"].as_array().unwrap().iter();
            let depths: Value = rows.map(|row| row["Jobs.attr_depth"].clone()).collect();
            assert_eq!(depths, expected, "{direction}");
        }
        // The text of the plan is read by the session of SQL.
        let query = json!({"dimensions": ["Jobs.attr_depth"], "order": {"Jobs.attr_depth": "asc"}});
        let catalog = olap.catalog().with_open(&query);
        let request = Request::parse(&query, &catalog, 0).unwrap();
        let ctx = QueryContext::new(Access::full(), limits());
        let text = olap.sql(&catalog, &request, &DomainAccess::full(), &ctx).await.unwrap();
        assert!(Value::from(text.clone()).to_string().contains("TRY_CAST"), "{text:?}");
    });
}

#[test]
fn answers_say_which_type_the_column_has() {
    on_a_deep_stack(async {
        let olap = olap();
        let query = json!({
            "dimensions": ["Jobs.attr_depth", "Jobs.attr_status", "Jobs.attr_ratio"], "order": {"Jobs.attr_status": "asc"},
            "limit": 1,
        });
        let answer = ask(&olap, &query).await.unwrap();
        let expected = json!([{"Jobs.attr_depth": "9", "Jobs.attr_status": "200", "Jobs.attr_ratio": 0.5}]);
        assert_eq!(answer["data"], expected);
        let of = |name: &str| answer["annotation"]["dimensions"][format!("Jobs.attr_{name}")]["type"].clone();
        assert_eq!([of("depth"), of("status"), of("ratio")], [json!("string"), json!("number"), json!("number")]);
    });
}
