//! Queries over a product table that are answered from cached time buckets: results equal those over raw rows, and only
//! buckets that were written to are read again.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::datasource::{MemTable, TableProvider};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_query::tables::{
    DomainAccess, QUIVER_SCHEMA, SnapshotVersion, TableEntry, TableRequest, TableSnapshot, Tables,
};
use quiver_query::{EngineSettings, Explain, QueryContext, QueryEngine};
use quiver_types::query_configuration::QueryConfiguration;
use quiver_types::{Access, MillisRange, Result, Version};
use serde_json::{Value, json};

use super::open_cases::limits;
use super::rollups::{ask, on_a_deep_stack};
use crate::engine::HIDDEN;
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;
use crate::{OlapEngine, ResultCaching};

const MODEL: &str = r#"
cubes:
  - name: Calls
    sql: SELECT *, ms * 2 AS twice FROM quiver.spans
    row_right: {service: service, domain: traces}
    dimensions:
      - {name: service, sql: service_name, type: string}
      - {name: at, sql: start_time, type: time}
      - {name: other, sql: "start_time + INTERVAL '1 hour'", type: time}
    measures:
      - {name: count, type: count}
      - {name: total, type: sum, sql: twice}
      - {name: mean, type: avg, sql: ms}
      - {name: slowest, type: max, sql: ms}
      - {name: share, type: number, sql: "1.0 * {slow} / {count}"}
      - {name: slow, type: count, filters: [{sql: "{CUBE}.ms > 50"}]}
      - {name: services, type: count_distinct, sql: service_name}
      - {name: rate, type: number, sql: "{count} / range_seconds()"}
    segments:
      - {name: quick, sql: "{CUBE}.ms <= 50"}
  - name: Kept
    sql_table: spans
    row_right: {service: service, domain: traces}
    dimensions:
      - {name: service, sql: service_name, type: string}
      - {name: at, sql: start_time, type: time}
      - {name: ms, sql: ms, type: number}
    measures:
      - {name: count, type: count}
      - {name: slow, type: count, filters: [{sql: "{CUBE}.ms > 50"}]}
      - {name: share, type: number, sql: "1.0 * {slow} / {count}"}
      - {name: total, type: sum, sql: ms}
      - {name: timed, type: count, sql: ms}
      - {name: mean, type: avg, sql: ms}
      - {name: different, type: count_distinct_approx, sql: ms}
      - {name: slowServices, type: count_distinct_approx, sql: service_name, filters: [{sql: "{CUBE}.ms > 50"}]}
      - {name: median, type: number, sql: "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {CUBE}.ms)"}
    segments:
      - {name: quick, sql: "{CUBE}.ms <= 50"}
    pre_aggregations:
      - name: byHour
        type: rollup_lambda
        measures: [count, slow, total, timed, different, slowServices, median]
        dimensions: [service]
        segments: [quick]
        time_dimension: at
        granularity: hour
  - name: Whole
    sql_table: spans
    row_right: {service: service, domain: traces, reads: all}
    dimensions:
      - {name: service, sql: service_name, type: string}
    measures:
      - {name: count, type: count}
"#;
const MINUTE_NS: i64 = 60_000_000_000;
/// 2026-03-28T00:00:00Z.
const T0: i64 = 1_774_656_000_000_000_000;

/// A table of spans that tells when its rows were written.
#[derive(Debug, Default)]
struct Written {
    rows: Mutex<Vec<(i64, &'static str, f64)>>,
    writes: Arc<Mutex<Vec<i64>>>,
    configured: Arc<QueryConfiguration>,
}

impl Written {
    fn write(&self, at: i64, service: &'static str, ms: f64) {
        self.rows.lock().push((at, service, ms));
        self.writes.lock().push(at.div_euclid(1_000_000));
    }
}

#[derive(Debug)]
struct Then {
    table: Arc<MemTable>,
    seq: u64,
    writes: Arc<Mutex<Vec<i64>>>,
    configured: Arc<QueryConfiguration>,
}

#[derive(Debug)]
struct Source(Arc<Written>);

impl Tables for Source {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        let (rows, writes) = (self.0.rows.lock(), self.0.writes.lock());
        let times: TimestampNanosecondArray = rows.iter().map(|row| Some(row.0)).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("start_time", Arc::new(times.with_timezone("UTC"))),
            ("service_name", Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringArray>())),
            ("ms", Arc::new(rows.iter().map(|row| Some(row.2)).collect::<Float64Array>())),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap());
        let (seq, writes) = (writes.len() as u64, Arc::clone(&self.0.writes));
        Arc::new(Then { table, seq, writes, configured: Arc::clone(&self.0.configured) })
    }
}

impl TableSnapshot for Then {
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(async move {
            let is_it = request.schema == Some(QUIVER_SCHEMA) && request.name == "spans";
            Ok(is_it.then(|| Arc::clone(&self.table) as Arc<dyn TableProvider>))
        })
    }

    fn list(&self, _: &DomainAccess) -> Vec<TableEntry> {
        Vec::new()
    }

    fn moment(&self) -> Option<SnapshotVersion> {
        let of = |written| Version { written, dropped: 0 };
        Some(SnapshotVersion::new(of(0), of(0), of(self.seq), Arc::clone(&self.configured)))
    }

    fn is_unchanged(&self, request: &TableRequest<'_>, since: &SnapshotVersion, range: MillisRange) -> Option<bool> {
        let since = since.spans().written as usize;
        let later = self.writes.lock().iter().skip(since).any(|at| range.contains(*at));
        (request.name == "spans").then_some(!later)
    }
}

fn olap() -> (Arc<OlapEngine>, Arc<Written>) {
    olap_with(ResultCaching::On)
}

fn olap_with(cache: ResultCaching) -> (Arc<OlapEngine>, Arc<Written>) {
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 8, ..EngineSettings::small(256 << 20) };
    let engine = QueryEngine::with_functions(&settings, crate::session_functions()).unwrap();
    let written = Arc::new(Written::default());
    for minute in 0..48 * 60 {
        let service = ["a", "b", "c"][minute as usize % 3];
        // Nothing comes in the fifth hour.
        if minute / 60 != 5 {
            written.write(T0 + minute * MINUTE_NS + 17, service, (minute % 97) as f64);
        }
    }
    let file = SourceFile { name: "calls.yml".to_owned(), text: MODEL.to_owned(), builtin: false };
    let catalog = load(&[file]).unwrap().0;
    (OlapEngine::new(engine, Arc::new(Source(Arc::clone(&written))), catalog, cache), written)
}

/// How many buckets a query is made of: kept, read.
async fn parts(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> Option<(usize, usize)> {
    let catalog = olap.catalog();
    let request = Request::parse(query, &catalog, T0 + 48 * 60 * MINUTE_NS).unwrap();
    let ctx = QueryContext::new(Access::full(), limits());
    let sets = olap.load(&catalog, &request, access, &ctx).await.unwrap();
    sets[0].parts.as_ref().map(|parts| (parts.kept, parts.read))
}

/// The answer, which must be that of raw rows.
async fn answer(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> Value {
    let mut raw = query.clone();
    raw["rollups"] = false.into();
    let (made, raw) = (ask(olap, query, access).await, ask(olap, &raw, access).await);
    for key in ["data", "annotation", "query", "total"] {
        assert_eq!(made[key], raw[key], "{query}");
    }
    assert!(made["usedPreAggregations"].is_null());
    made["data"].clone()
}

fn by_hour(range: Value) -> Value {
    json!({
        "measures": ["Calls.count", "Calls.slowest", "Calls.share", "Calls.mean"],
        "dimensions": ["Calls.service"],
        "timeDimensions": [{"dimension": "Calls.at", "granularity": "hour", "dateRange": range}],
        "order": {"Calls.at": "asc", "Calls.service": "asc"},
    })
}

#[test]
fn only_what_was_written_to_is_read_again() {
    on_a_deep_stack(async {
        let (olap, written) = olap();
        let full = DomainAccess::full();
        let day = by_hour(json!(["2026-03-28", "2026-03-28"]));
        assert_eq!(parts(&olap, &day, &full).await, None, "it comes for the first time");
        assert_eq!(parts(&olap, &day, &full).await, Some((0, 24)));
        assert_eq!(parts(&olap, &day, &full).await, Some((24, 0)));
        let before = answer(&olap, &day, &full).await;
        written.write(T0 + 5 * 60 * MINUTE_NS, "a", 1000.0);
        assert_eq!(parts(&olap, &day, &full).await, Some((23, 1)), "a late row");
        assert_ne!(answer(&olap, &day, &full).await, before);
        assert_eq!(parts(&olap, &day, &full).await, Some((24, 0)));
        // Its ends lie between borders, and it moves on.
        let moved = by_hour(json!(["2026-03-28T01:20:00", "2026-03-29T03:29:59.999"]));
        assert_eq!(parts(&olap, &moved, &full).await, Some((22, 5)));
        assert_eq!(parts(&olap, &moved, &full).await, Some((25, 2)), "ends are read from rows");
        answer(&olap, &moved, &full).await;
        let services = DomainAccess::of(|_| Access::services(["a"]));
        assert_eq!(parts(&olap, &day, &services).await, None, "others see other rows");
        assert_eq!(parts(&olap, &day, &services).await, Some((0, 24)));
        answer(&olap, &day, &services).await;
        for hour in [2, 8, 9, 15, 20] {
            written.write(T0 + hour * 60 * MINUTE_NS, "b", 1.0);
        }
        assert_eq!(parts(&olap, &day, &full).await, Some((5, 19)), "few readings, though they read more");
        answer(&olap, &day, &full).await;
        let nothing = by_hour(json!(["2025-03-28", "2025-03-28"]));
        assert_eq!(parts(&olap, &nothing, &full).await, Some((0, 24)));
        assert_eq!(parts(&olap, &nothing, &full).await, Some((24, 0)));
        assert_eq!(answer(&olap, &nothing, &full).await, json!([]));
    });
}

#[test]
fn rows_that_are_made_of_all_are_kept_from_what_is_asked_of_some() {
    on_a_deep_stack(async {
        let (olap, _written) = olap();
        let (catalog, tables) = (olap.catalog(), olap.snapshot());
        let query = json!({"measures": ["Whole.count"], "dimensions": ["Whole.service"]});
        let request = Request::parse(&query, &catalog, T0).unwrap();
        let ctx = QueryContext::new(Access::full(), limits());
        for (access, guarded) in [(DomainAccess::full(), false), (DomainAccess::of(|_| Access::services(["a"])), true)]
        {
            let plan = olap.plan(&catalog, &request.queries[0], &tables, &access, &ctx).await.unwrap();
            let shown = plan.rows.display_indent().to_string();
            assert_eq!(shown.contains("VisibleRows\n"), guarded, "{shown}");
        }
    });
}

#[test]
fn nothing_is_kept_where_results_are_not() {
    on_a_deep_stack(async {
        let (olap, _written) = olap_with(ResultCaching::Off);
        let (full, day) = (DomainAccess::full(), by_hour(json!(["2026-03-28", "2026-03-28"])));
        for _ in 0..3 {
            assert_eq!(parts(&olap, &day, &full).await, None);
        }
        let catalog = olap.catalog();
        let request = Request::parse(&day, &catalog, T0 + 48 * 60 * MINUTE_NS).unwrap();
        assert!(olap.basis(&catalog, &request, &full).is_none());
    });
}

/// Breaks if the length of a range is a whole number of nanoseconds, which holds half of all times there are.
#[test]
fn rates_over_all_times_there_are_have_a_length() {
    on_a_deep_stack(async {
        let (olap, _written) = olap();
        let query = json!({"measures": ["Calls.rate"], "rollups": false, "timeDimensions":
            [{"dimension": "Calls.at", "dateRange": ["0001-01-01", "9999-12-31"]}]});
        let found = ask(&olap, &query, &DomainAccess::full()).await;
        let rate = &found["data"][0]["Calls.rate"];
        let number: Option<f64> = rate.as_str().map_or(rate.as_f64(), |text| text.parse().ok());
        assert!(number.is_some_and(|rate| rate > 0.0 && rate < 1e-6), "{found}");
    });
}

#[test]
fn answers_are_those_of_raw_rows() {
    on_a_deep_stack(async {
        let (olap, written) = olap();
        let full = DomainAccess::full();
        let time = |granularity: Value| {
            let mut entry = json!({"dimension": "Calls.at", "dateRange": ["2026-03-28T00:10:00", "2026-03-29"]});
            if granularity.is_string() {
                entry["granularity"] = granularity;
            }
            json!([entry])
        };
        let served = [
            json!({"measures": ["Calls.count", "Calls.mean"], "timeDimensions": time(Value::Null)}),
            json!({"dimensions": ["Calls.service"], "timeDimensions": time(Value::Null)}),
            json!({"measures": ["Calls.rate"], "timeDimensions": time(json!("day"))}),
            json!({"measures": ["Calls.rate"], "timeDimensions": time(Value::Null), "timezone": "Europe/Berlin"}),
            json!({"measures": ["Calls.total"], "timeDimensions": time(json!("day")), "timezone": "Europe/Berlin"}),
            json!({"measures": ["Calls.count"], "timeDimensions": time(json!("hour")), "timezone": "Asia/Kolkata"}),
            json!({"measures": ["Calls.count"], "timeDimensions": time(json!("month")), "total": true, "limit": 1}),
            json!({"measures": ["Calls.slowest"], "segments": ["Calls.quick"], "timeDimensions": time(json!("day"))}),
            json!({"measures": ["Calls.count"], "dimensions": ["Calls.service"], "timeDimensions": time(json!("day")),
                "order": {"Calls.slow": "desc"}, "filters": [
                {"member": "Calls.count", "operator": "gt", "values": ["3"]},
                {"or": [{"member": "Calls.service", "operator": "equals", "values": ["a"]},
                        {"member": "Calls.service", "operator": "contains", "values": ["b"]}]}]}),
        ];
        for query in &served {
            parts(&olap, query, &full).await;
            parts(&olap, query, &full).await;
            let found = parts(&olap, query, &full).await;
            assert!(found.is_some_and(|(kept, read)| kept > 0 && read <= 2), "{query} {found:?}");
            answer(&olap, query, &full).await;
            written.write(T0 + 7 * 60 * MINUTE_NS, "a", 3.0);
            answer(&olap, query, &full).await;
        }
        let raw = [
            json!({"measures": ["Calls.services"], "timeDimensions": time(json!("hour"))}),
            json!({"measures": ["Calls.count"], "timeDimensions": time(json!("second"))}),
            json!({"measures": ["Calls.count"], "dimensions": ["Calls.at"], "timeDimensions": time(Value::Null)}),
            json!({"measures": ["Calls.count"], "timeDimensions": time(json!("hour")), "cache": "no-cache"}),
            json!({"measures": ["Calls.count"], "timeDimensions":
                [{"dimension": "Calls.other", "granularity": "hour", "dateRange": ["2026-03-28", "2026-03-29"]}]}),
            json!({"measures": ["Calls.count"]}),
        ];
        for query in &raw {
            for _ in 0..3 {
                assert_eq!(parts(&olap, query, &full).await, None, "{query}");
            }
        }
        let catalog = olap.catalog();
        let request = Request::parse(&served[0], &catalog, T0 + 48 * 60 * MINUTE_NS).unwrap();
        let ctx = QueryContext::new(Access::full(), limits());
        let shown = olap.explain(&catalog, &request.queries[0], &full, &ctx, Explain::Plan).await.unwrap();
        assert_eq!(
            (&shown["buckets"]["unit"], &shown["buckets"]["read"]),
            (&json!("hour"), &json!(2)),
            "one was written to"
        );
        let ran = shown["children"].as_array().cloned().unwrap_or_default();
        assert!(!ran.is_empty() && ran.iter().all(|plan| plan["executed"] == json!(true)), "{shown}");
        let request = Request::parse(&raw[5], &catalog, 0).unwrap();
        // A context ends with its run.
        let ctx = QueryContext::new(Access::full(), limits());
        let shown = olap.explain(&catalog, &request.queries[0], &full, &ctx, Explain::Plan).await.unwrap();
        assert_eq!(shown["buckets"]["reason"], "it has no time dimension");
        // Which are kept tells when rows were written, those of others, too.
        let services = DomainAccess::of(|_| Access::services(["a"]));
        let request = Request::parse(&served[0], &catalog, T0 + 48 * 60 * MINUTE_NS).unwrap();
        let ctx = QueryContext::new(Access::services(["a"]), limits());
        let shown = olap.explain(&catalog, &request.queries[0], &services, &ctx, Explain::Plan).await.unwrap();
        assert_eq!(shown["buckets"], json!({"reason": HIDDEN}));
        assert!(shown["children"].as_array().is_none_or(Vec::is_empty), "none of them is read for that: {shown}");
        let request = Request::parse(&raw[5], &catalog, 0).unwrap();
        let ctx = QueryContext::new(Access::services(["a"]), limits());
        let shown = olap.explain(&catalog, &request.queries[0], &services, &ctx, Explain::Plan).await.unwrap();
        assert_eq!(shown["buckets"]["reason"], "it has no time dimension");
    });
}

/// Whether the answer, which must be that of raw rows, comes from the rollup.
async fn used(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> bool {
    let mut raw = query.clone();
    raw["rollups"] = false.into();
    let (made, raw) = (ask(olap, query, access).await, ask(olap, &raw, access).await);
    for key in ["data", "annotation", "query", "total"] {
        assert_eq!(made[key], raw[key], "{query}");
    }
    let used = &made["usedPreAggregations"];
    let what = json!({"preAggregationId": "Kept.byHour", "lastUpdatedAt": 5, "type": "rollup_lambda"});
    assert!(used.is_null() || *used == json!({"Kept.byHour": what}), "{used}");
    !used.is_null()
}

async fn explained(olap: &Arc<OlapEngine>, query: &Value, access: &DomainAccess) -> Value {
    let catalog = olap.catalog();
    let request = Request::parse(query, &catalog, T0 + 48 * 60 * MINUTE_NS).unwrap();
    let ctx = QueryContext::new(Access::full(), limits());
    olap.explain(&catalog, &request.queries[0], access, &ctx, Explain::Plan).await.unwrap()
}

#[test]
fn declared_rollups_are_kept_by_buckets_from_the_first_time_on() {
    on_a_deep_stack(async {
        let (olap, written) = olap();
        let full = DomainAccess::full();
        let time = |granularity: &str, range: Value| {
            let mut entry = json!({"dimension": "Kept.at", "dateRange": range});
            if !granularity.is_empty() {
                entry["granularity"] = granularity.into();
            }
            json!([entry])
        };
        let days = || json!(["2026-03-28", "2026-03-29"]);
        let by_day = json!({
            "measures": ["Kept.count", "Kept.share", "Kept.mean", "Kept.different"],
            "dimensions": ["Kept.service"],
            "timeDimensions": time("day", days()),
            "order": [["Kept.at", "asc"], ["Kept.service", "asc"]],
        });
        assert_eq!(parts(&olap, &by_day, &full).await, Some((0, 48)));
        assert_eq!(parts(&olap, &by_day, &full).await, Some((48, 0)));
        // Its ends lie between borders.
        let others = json!({
            "measures": ["Kept.slowServices", "Kept.different"],
            "timeDimensions": time("", json!(["2026-03-28T00:10:00", "2026-03-29T10:19:59.999"])),
        });
        assert_eq!(parts(&olap, &others, &full).await, Some((33, 2)), "what another query of the rollup made");
        written.write(T0 + 5 * 60 * MINUTE_NS, "a", 1000.0);
        assert_eq!(parts(&olap, &by_day, &full).await, Some((47, 1)), "a late row");
        let services = DomainAccess::of(|_| Access::services(["a"]));
        assert_eq!(parts(&olap, &by_day, &services).await, Some((0, 48)), "others see other rows");
        let count = |times: Value| json!({"measures": ["Kept.count"], "timeDimensions": times});
        for query in [
            by_day.clone(),
            others,
            json!({"measures": ["Kept.different"], "segments": ["Kept.quick"], "timeDimensions": time("week", days())}),
            json!({"dimensions": ["Kept.service"], "timeDimensions": time("", days()), "total": true, "limit": 2,
                "filters": [{"member": "Kept.different", "operator": "gt", "values": ["3"]}]}),
        ] {
            for access in [&full, &services] {
                assert!(used(&olap, &query, access).await, "{query}");
            }
        }
        for query in [
            json!({"measures": ["Kept.median"], "timeDimensions": time("day", days())}),
            json!({"measures": ["Kept.count"], "dimensions": ["Kept.ms"], "timeDimensions": time("day", days())}),
            count(json!([])),
            count(time("minute", days())),
        ] {
            assert!(!used(&olap, &query, &full).await, "{query}");
        }
        let shown = explained(&olap, &by_day, &full).await;
        assert_eq!((&shown["rollup"]["used"], &shown["buckets"]["unit"]), (&json!("Kept.byHour"), &json!("hour")));
        let shown = explained(&olap, &by_day, &services).await;
        assert_eq!((&shown["rollup"]["used"], &shown["buckets"]), (&json!("Kept.byHour"), &json!({"reason": HIDDEN})));
        let shown = explained(&olap, &count(json!([])), &full).await;
        assert_eq!(shown["rollup"]["candidates"][0]["reason"], "it has not one range of time");
    });
}
