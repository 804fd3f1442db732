//! Models whose rows are records of entities, in joins.

use std::sync::Arc;

use arc_swap::ArcSwap;
use quiver_query::tables::DomainAccess;
use quiver_query::{EngineSettings, QueryContext, QueryEngine};
use quiver_types::Access;
use serde_json::{Value, json};

use super::open_cases::limits;
use super::rollups::{ask, on_a_deep_stack};
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;
use crate::tables::{FolderTables, LayeredTables};
use crate::{OlapEngine, OlapError, Reason, ResultCaching};

const MODEL: &str = r#"
cubes:
  - name: Machines
    sql_table: public.samples
    entities: true
    joins:
      - {name: Disks, relationship: one_to_many, sql: "{host} = {Disks.host}"}
      - {name: Calls, relationship: one_to_many, sql: "{host} = {Calls.host}"}
    dimensions:
      - {name: host, sql: host, type: string, primary_key: true, public: true}
      - {name: os, sql: os, type: string}
      - {name: at, sql: at, type: time}
    measures:
      - {name: samples, type: count}
      - {name: load, type: avg, sql: value}
      - {name: total, type: sum, sql: value}
      - {name: busiest, type: max, multi_stage: true, sql: "{load}", add_group_by: [host]}
    segments:
      - {name: busy, sql: "{load} > 2"}
  - name: Disks
    sql_table: public.disks
    entities: true
    joins:
      - {name: Machines, relationship: many_to_one, sql: "{host} = {Machines.host}"}
      - {name: Hosts, relationship: many_to_one, sql: "{host} = {Hosts.host}"}
    dimensions:
      - {name: host, sql: host, type: string, primary_key: true, public: true}
      - {name: disk, sql: disk, type: string, primary_key: true, public: true}
      - {name: at, sql: at, type: time}
    measures:
      - {name: used, type: sum, sql: used}
  - name: Hosts
    sql: SELECT DISTINCT host FROM public.samples
    dimensions:
      - {name: host, sql: host, type: string, primary_key: true, public: true}
    measures:
      - {name: count, type: count}
  - name: Owners
    sql_table: public.owners
    dimensions:
      - {name: owner, sql: owner, type: string, primary_key: true, public: true}
    measures:
      - {name: count, type: count}
  - name: Calls
    sql_table: public.calls
    joins:
      - {name: Machines, relationship: many_to_one, sql: "{host} = {Machines.host}"}
      - {name: Owners, relationship: many_to_one, sql: "{owner} = {Owners.owner}"}
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: host, sql: host, type: string}
      - {name: owner, sql: "'of ' || {Machines.os}", type: string}
      - {name: ms, sql: ms, type: number}
      - {name: at, sql: at, type: time}
    measures:
      - {name: count, type: count}
"#;

const TABLES: [(&str, &str, &str); 4] = [
    (
        "samples",
        r#"{"at": "timestamptz", "value": "float8"}"#,
        "host,os,at,value
a,linux,2026-03-28T10:00:00Z,1
a,\\N,2026-03-28T11:00:00Z,3
a,bsd,2026-03-29T10:00:00Z,5
b,linux,2026-03-28T10:30:00Z,2
b,linux,2026-03-28T10:40:00Z,2
c,mac,2026-03-28T10:50:00Z,7
",
    ),
    (
        "disks",
        r#"{"at": "timestamptz", "used": "float8"}"#,
        "host,disk,at,used
a,d1,2026-03-28T10:00:00Z,10
a,d2,2026-03-28T10:10:00Z,20
a,d1,2026-03-28T11:00:00Z,30
b,d1,2026-03-28T10:00:00Z,40
",
    ),
    (
        "calls",
        r#"{"id": "int8", "at": "timestamptz", "ms": "float8"}"#,
        "id,host,at,ms
1,a,2026-03-28T10:05:00Z,5
2,a,2026-03-28T11:05:00Z,6
3,b,2026-03-28T10:06:00Z,7
4,z,2026-03-28T10:07:00Z,8
",
    ),
    ("owners", "{}", "owner\nof linux\n"),
];

fn olap(name: &str) -> Arc<OlapEngine> {
    let scratch = std::env::temp_dir().join(format!("quiver-olap-entities-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    for (table, types, rows) in TABLES {
        std::fs::write(scratch.join(format!("{table}.csv")), rows).unwrap();
        std::fs::write(scratch.join(format!("{table}.types.json")), types).unwrap();
    }
    let read = FolderTables::read(std::slice::from_ref(&scratch)).unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 8, ..EngineSettings::small(256 << 20) };
    let engine = QueryEngine::with_functions(&settings, crate::session_functions()).unwrap();
    let layered = LayeredTables { folders: Arc::new(ArcSwap::from_pointee(read)), product: None };
    let file = SourceFile { name: "entities.yml".to_owned(), text: MODEL.to_owned(), builtin: false };
    OlapEngine::new(engine, Arc::new(layered), load(&[file]).unwrap().0, ResultCaching::On)
}

/// The rows of an answer, as lists of the values of some columns.
async fn rows(olap: &Arc<OlapEngine>, query: &Value, columns: &[&str]) -> Value {
    let answer = ask(olap, query, &DomainAccess::full()).await;
    let row = |row: &Value| columns.iter().map(|name| row[*name].clone()).collect::<Value>();
    answer["data"].as_array().unwrap().iter().map(row).collect()
}

fn between(time: &str, first: &str, last: &str) -> Value {
    json!([{"dimension": time, "dateRange": [first, last]}])
}

/// Breaks if a row of another model counts once for each record of its entity, or an entity is that of another range.
#[test]
fn joins_see_entities_of_the_range() {
    on_a_deep_stack(async {
        let olap = olap("range");
        for (last, expected) in [
            ("2026-03-28", json!([["linux", "3"], [null, "1"]])),
            ("2026-03-29", json!([["bsd", "2"], ["linux", "1"], [null, "1"]])),
        ] {
            let query = json!({
                "measures": ["Calls.count"], "dimensions": ["Machines.os"],
                "timeDimensions": between("Calls.at", "2026-03-28", last),
            });
            assert_eq!(rows(&olap, &query, &["Machines.os", "Calls.count"]).await, expected, "{last}");
        }
        let query = json!({"dimensions": ["Machines.host", "Disks.disk"]});
        let pairs = json!([["a", "d1"], ["a", "d2"], ["b", "d1"], ["c", null]]);
        assert_eq!(rows(&olap, &query, &["Machines.host", "Disks.disk"]).await, pairs);
    });
}

/// Breaks if measures of such a model go over one row of each entity, or over records that are alike only once.
#[test]
fn measures_go_over_all_records_of_entities() {
    on_a_deep_stack(async {
        let olap = olap("records");
        let query = json!({
            "measures": ["Machines.samples", "Machines.load", "Calls.count"], "dimensions": ["Machines.host"],
            "timeDimensions": between("Machines.at", "2026-03-28", "2026-03-28"),
        });
        let columns = ["Machines.host", "Machines.samples", "Machines.load", "Calls.count"];
        let expected = json!([["a", "2", 2, "2"], ["b", "2", 2, "1"], ["c", "1", 7, "0"]]);
        assert_eq!(rows(&olap, &query, &columns).await, expected);
        let slow = json!([{"member": "Calls.ms", "operator": "gt", "values": ["5"]}]);
        let query = json!({"measures": ["Machines.samples", "Machines.total"], "filters": slow});
        assert_eq!(rows(&olap, &query, &["Machines.samples", "Machines.total"]).await, json!([["5", 13]]));
        let query = json!({"measures": ["Machines.busiest"], "filters": slow});
        assert_eq!(rows(&olap, &query, &["Machines.busiest"]).await, json!([[3]]));
        let query = json!({
            "measures": ["Calls.count"], "dimensions": ["Machines.host"], "segments": ["Machines.busy"],
        });
        assert_eq!(rows(&olap, &query, &["Machines.host", "Calls.count"]).await, json!([["a", "2"]]));
    });
}

#[test]
fn such_models_meet_in_buckets() {
    on_a_deep_stack(async {
        let olap = olap("buckets");
        let time = json!([{
            "dimension": "Machines.at", "granularity": "hour", "dateRange": ["2026-03-28", "2026-03-28"],
        }]);
        let query = json!({
            "measures": ["Machines.samples", "Disks.used"], "dimensions": ["Machines.host"], "timeDimensions": time,
        });
        let columns = ["Machines.at.hour", "Machines.host", "Machines.samples", "Disks.used"];
        let (ten, eleven) = ("2026-03-28T10:00:00.000", "2026-03-28T11:00:00.000");
        let expected = json!([[ten, "a", "1", 30], [ten, "b", "2", 40], [ten, "c", "1", null], [eleven, "a", "1", 30]]);
        assert_eq!(rows(&olap, &query, &columns).await, expected);
        // An entity with many records counts in a bucket if it has a record there.
        let query = json!({
            "measures": ["Hosts.count"], "timeDimensions": [{"dimension": "Disks.at", "granularity": "hour"}],
        });
        assert_eq!(rows(&olap, &query, &["Disks.at.hour", "Hosts.count"]).await, json!([[ten, "2"], [eleven, "1"]]));
        // Other models have no buckets on this time.
        let query = json!({"measures": ["Calls.count"], "timeDimensions": time});
        let catalog = olap.catalog();
        let request = Request::parse(&query, &catalog, 0).unwrap();
        let ctx = QueryContext::new(Access::full(), limits());
        match olap.load(&catalog, &request, &DomainAccess::full(), &ctx).await {
            Err(OlapError::Query(e)) => {
                assert_eq!(e.reason, Reason::NoJoinPath);
                assert!(e.to_string().contains("buckets of `Machines.at`"), "{e}");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Breaks if a condition of a join reads a model that is not joined before.
#[test]
fn joins_bring_what_their_conditions_read() {
    on_a_deep_stack(async {
        let olap = olap("beside");
        let query = json!({
            "measures": ["Calls.count"], "dimensions": ["Owners.owner"],
            "timeDimensions": between("Calls.at", "2026-03-28", "2026-03-28"),
        });
        let expected = json!([["of linux", "3"], [null, "1"]]);
        assert_eq!(rows(&olap, &query, &["Owners.owner", "Calls.count"]).await, expected);
        // Measures of the many side are counted over a part of the tree.
        let query = json!({
            "measures": ["Owners.count", "Calls.count"], "dimensions": ["Owners.owner"],
            "timeDimensions": between("Calls.at", "2026-03-28", "2026-03-28"),
        });
        let columns = ["Owners.owner", "Owners.count", "Calls.count"];
        assert_eq!(rows(&olap, &query, &columns).await, json!([["of linux", "1", "3"], [null, "0", "1"]]));
    });
}

#[test]
fn entities_need_a_key_and_a_time() {
    let of_used = "    measures:\n      - {name: used";
    let with_time = format!("      - {{name: at, sql: at, type: time}}\n{of_used}");
    assert!(MODEL.contains(&with_time));
    let text = MODEL.replace(&with_time, of_used);
    let file = SourceFile { name: "entities.yml".to_owned(), text, builtin: false };
    let problems = load(&[file]).map(|_| ()).unwrap_err();
    let told: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(told, ["`entities` need a dimension with `primary_key: true` and one of type `time`"]);
}
