//! Rollups over an operator's table: which queries are answered from one, and that results equal those over raw rows.

use std::sync::Arc;

use arc_swap::ArcSwap;
use quiver_query::tables::DomainAccess;
use quiver_query::{EngineSettings, Explain, QueryContext, QueryEngine};
use quiver_types::Access;
use serde_json::{Value, json};

use super::open_cases::limits;
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;
use crate::response::Frame;
use crate::tables::{FolderTables, LayeredTables};
use crate::{OlapEngine, ResultCaching};

pub(super) const MODEL: &str = r#"
cubes:
  - name: Calls
    sql_table: public.calls
    row_right: {service: service, domain: traces}
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: service, sql: service, type: string}
      - {name: route, sql: route, type: string}
      - {name: at, sql: at, type: time, granularities: [{name: ten, interval: 10 minutes}]}
    measures:
      - {name: count, type: count}
      - {name: errors, type: count, filters: [{sql: "{CUBE}.failed"}]}
      - {name: errorRate, type: number, sql: "1.0 * {errors} / NULLIF({count}, 0)"}
      - {name: total, type: sum, sql: ms}
      - {name: timed, type: count, sql: ms}
      - {name: mean, type: avg, sql: ms}
      - {name: costs, type: sum, sql: cost}
      - {name: costOfEach, type: number, sql: "{costs} / {count}"}
      - {name: slowest, type: max, sql: ms}
      - {name: routes, type: count_distinct, sql: route}
      - {name: routesAbout, type: count_distinct_approx, sql: route}
      - {name: soFar, type: count, rolling_window: {trailing: unbounded}}
      - {name: routesSoFar, type: count_distinct, sql: route, rolling_window: {trailing: unbounded}}
    segments:
      - {name: failed, sql: "{CUBE}.failed"}
      - {name: fast, sql: "{CUBE}.ms < 10"}
    pre_aggregations:
      - {name: joined, type: rollup_join, measures: [count], dimensions: [service]}
      - name: byHour
        type: rollup
        measures: [count, errors, total, timed, costs, slowest, routes, routesAbout]
        dimensions: [service]
        segments: [failed]
        time_dimension: at
        granularity: hour
views:
  - name: Seen
    cubes: [{join_path: Calls, includes: "*"}]
"#;

const ROWS: &str = "id,service,route,at,ms,cost,failed
1,a,/x,2026-03-28T22:10:00Z,4,1.25,false
2,a,/y,2026-03-28T23:30:00Z,40,0.10,true
3,b,/x,2026-03-28T23:59:59Z,5,2.00,false
4,b,/x,2026-03-29T00:00:00Z,\\N,\\N,true
5,a,/z,2026-03-29T01:00:00Z,7,3.05,\\N
6,a,/x,\\N,9,1.00,false
";

const TYPES: &str = r#"{"id":"int8","at":"timestamptz","ms":"float8","cost":"numeric(8,2)","failed":"bool"}"#;

fn tables(rows: &str, name: &str) -> FolderTables {
    let scratch = std::env::temp_dir().join(format!("quiver-olap-rolled-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    std::fs::write(scratch.join("calls.csv"), rows).unwrap();
    std::fs::write(scratch.join("calls.types.json"), TYPES).unwrap();
    let read = FolderTables::read(std::slice::from_ref(&scratch)).unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    read
}

pub(super) fn olap(name: &str) -> (Arc<OlapEngine>, Arc<ArcSwap<FolderTables>>) {
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 8, ..EngineSettings::small(256 << 20) };
    let engine = QueryEngine::with_functions(&settings, crate::session_functions()).unwrap();
    let folders = Arc::new(ArcSwap::from_pointee(tables(ROWS, name)));
    let layered = LayeredTables { folders: Arc::clone(&folders), product: None };
    let file = SourceFile { name: "calls.yml".to_owned(), text: MODEL.to_owned(), builtin: false };
    (OlapEngine::new(engine, Arc::new(layered), load(&[file]).unwrap().0, ResultCaching::On), folders)
}

pub(super) async fn ask(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> Value {
    let catalog = olap.catalog();
    let request = Request::parse(query, &catalog, 5_000_000).unwrap();
    let ctx = QueryContext::new(Access::full(), limits());
    let sets = olap.load(&catalog, &request, access, &ctx).await.unwrap();
    let frame = Frame { catalog: &catalog, refreshed: String::new(), request_id: String::new(), slow: false };
    frame.load(&request, &sets, false).unwrap()
}

/// The answer of a query, which must be the same from raw rows; whether it came from the rollup.
async fn both(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> (Value, bool) {
    let mut raw = query.clone();
    raw["rollups"] = false.into();
    let (rolled, raw) = (ask(olap, query, access).await, ask(olap, &raw, access).await);
    for key in ["data", "annotation", "query", "total"] {
        assert_eq!(rolled[key], raw[key], "{query}");
    }
    assert!(raw["usedPreAggregations"].is_null());
    let used = &rolled["usedPreAggregations"];
    if !used.is_null() {
        let what = json!({"preAggregationId": "Calls.byHour", "lastUpdatedAt": 5, "type": "rollup"});
        assert_eq!(*used, json!({"Calls.byHour": what}));
    }
    (rolled["data"].clone(), !used.is_null())
}

/// What `explain` says of the rollups of a query.
async fn explained(olap: &Arc<OlapEngine>, query: &Value) -> Value {
    let catalog = olap.catalog();
    let request = Request::parse(query, &catalog, 0).unwrap();
    let (access, ctx) = (DomainAccess::full(), QueryContext::new(Access::full(), limits()));
    let shown = olap.explain(&catalog, &request.queries[0], &access, &ctx, Explain::Plan).await.unwrap();
    shown["rollup"].clone()
}

/// Unoptimized, DataFusion's planner wants more stack than a thread of tests has.
pub(super) fn on_a_deep_stack(test: impl Future<Output = ()> + Send + 'static) {
    let run = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
}

fn times(granularity: &str, range: Value, zone: &str) -> Value {
    json!({
        "measures": ["Calls.count", "Calls.total"],
        "timeDimensions": [{"dimension": "Calls.at", "granularity": granularity, "dateRange": range}],
        "timezone": zone,
    })
}

#[test]
fn what_a_rollup_holds_comes_from_it() {
    on_a_deep_stack(async {
        let (olap, _) = olap("held");
        let days = json!(["2026-03-28", "2026-03-29"]);
        let served = [
            json!({"measures": ["Calls.count"]}),
            json!({
                "measures": ["Calls.errors", "Calls.errorRate", "Calls.mean", "Calls.slowest"],
                "dimensions": ["Calls.service"],
            }),
            json!({"measures": ["Calls.costs", "Calls.costOfEach"], "dimensions": ["Calls.service"], "total": true}),
            json!({"measures": ["Calls.routesAbout"]}),
            json!({"measures": ["Calls.routesAbout"], "dimensions": ["Calls.service"], "segments": ["Calls.failed"]}),
            json!({"dimensions": ["Calls.service"], "order": {"Calls.mean": "desc"}}),
            json!({"measures": ["Calls.count"], "segments": ["Calls.failed"]}),
            json!({"measures": ["Seen.count"], "dimensions": ["Seen.service"], "filters": [
                {"member": "Seen.count", "operator": "gt", "values": ["1"]},
                {"member": "Seen.service", "operator": "equals", "values": ["a"]}]}),
            json!({"measures": ["Calls.count"], "filters": [
                {"member": "Calls.at", "operator": "afterOrOnDate", "values": ["2026-03-29"]}]}),
            json!({"measures": ["Calls.count"], "filters": [
                {"member": "Calls.service", "operator": "equals", "values": ["c"]}]}),
            times("hour", days.clone(), "UTC"),
            times("month", days.clone(), "UTC"),
            times("week", days.clone(), "Europe/Berlin"),
            times("hour", json!(["2026-03-29T00:00:00", "2026-03-29T00:59:59.999"]), "UTC"),
        ];
        for query in served {
            let (data, used) = both(&olap, &query, &DomainAccess::full()).await;
            assert!(used && !data.as_array().unwrap().is_empty(), "{query} {data}");
        }
        let raw = [
            json!({"measures": ["Calls.routes"]}),
            json!({"measures": ["Calls.soFar"], "timeDimensions": [
                {"dimension": "Calls.at", "granularity": "day", "dateRange": days}]}),
            json!({"measures": ["Calls.count"], "dimensions": ["Calls.route"]}),
            json!({"measures": ["Calls.count"], "segments": ["Calls.fast"]}),
            json!({"measures": ["Calls.count"], "cache": "no-cache"}),
            json!({"measures": ["Calls.count"], "dimensions": ["Calls.at"]}),
            json!({"dimensions": ["Calls.service"], "ungrouped": true}),
            json!({"measures": ["Calls.count"], "filters": [
                {"member": "Calls.at", "operator": "afterOrOnDate", "values": ["2026-03-29T00:30:00"]}]}),
            times("minute", days.clone(), "UTC"),
            times("ten", days.clone(), "UTC"),
            times("hour", json!(["2026-03-29T00:00:00", "2026-03-29T00:30:00"]), "UTC"),
            times("day", days, "Asia/Kolkata"),
        ];
        for query in raw {
            assert!(!both(&olap, &query, &DomainAccess::full()).await.1, "{query}");
        }
    });
}

#[test]
fn rollups_follow_rows_and_rights() {
    on_a_deep_stack(async {
        let (olap, folders) = olap("rights");
        let query = json!({"measures": ["Calls.count"]});
        let count = |answer: (Value, bool)| (answer.0[0]["Calls.count"].clone(), answer.1);
        let full = DomainAccess::full();
        let of = |services: &'static [&'static str]| DomainAccess::of(|_| Access::services(services.iter().copied()));
        assert_eq!(count(both(&olap, &query, &full).await), (json!("6"), true));
        assert_eq!(count(both(&olap, &query, &of(&["a"])).await), (json!("4"), true));
        assert_eq!(count(both(&olap, &query, &of(&["b"])).await), (json!("2"), true));
        assert_eq!(count(both(&olap, &query, &of(&[])).await), (json!("0"), true));
        folders.store(Arc::new(tables(&format!("{ROWS}7,b,/x,2026-03-29T00:00:00Z,1,1.00,true\n"), "more")));
        assert_eq!(count(both(&olap, &query, &full).await), (json!("7"), true));
        assert_eq!(count(both(&olap, &query, &of(&["b"])).await), (json!("3"), true));
    });
}

#[test]
fn explain_says_why() {
    on_a_deep_stack(async {
        let (olap, _) = olap("why");
        let reason = "rollups of type `rollup_join` are not kept";
        let joined = json!({"id": "Calls.joined", "usable": false, "reason": reason});
        let used = explained(&olap, &json!({"measures": ["Calls.count"]})).await;
        let usable = json!({"id": "Calls.byHour", "usable": true, "reason": null});
        assert_eq!(used, json!({"used": "Calls.byHour", "candidates": [joined, usable]}));
        let unused = explained(&olap, &json!({"measures": ["Calls.count"], "dimensions": ["Calls.route"]})).await;
        assert!(unused["used"].is_null());
        assert_eq!(unused["candidates"][1]["reason"], "`Calls.route` is not in it, and does not follow from what is");
    });
}

/// Breaks if each row of a table meets each bucket.
#[test]
fn windows_are_made_of_groups_of_rows_where_measures_add_up() {
    on_a_deep_stack(async {
        let (olap, _) = olap("windows");
        let (catalog, tables, access) = (olap.catalog(), olap.snapshot(), DomainAccess::full());
        for (measure, groupings) in [("Calls.soFar", 2), ("Calls.routesSoFar", 1)] {
            let time =
                json!({"dimension": "Calls.at", "granularity": "day", "dateRange": ["2026-03-28", "2026-03-29"]});
            let query = json!({"measures": [measure], "timeDimensions": [time]});
            let request = Request::parse(&query, &catalog, 0).unwrap();
            let ctx = QueryContext::new(Access::full(), limits());
            let planned = olap.plan(&catalog, &request.queries[0], &tables, &access, &ctx).await.unwrap();
            let shown = planned.rows.display_indent().to_string();
            assert_eq!(shown.matches("Aggregate:").count(), groupings, "{shown}");
        }
    });
}
