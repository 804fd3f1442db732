//! Every member of the built-in models, alone and in random pairs: `load`, its answer as Arrow, and the printed SQL on the
//! SQL API give the same rows (`olap-api.md` 13.5).

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDateTime};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use datafusion::arrow::ipc::reader::StreamReader;
use futures::StreamExt as _;
use quiver_tests::load::{seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");
/// Members that are asked for alone, and pairs, in the ordinary run; the long one has all members.
const ALONE: usize = 260;
const PAIRS: usize = 160;
const PAIRS_LONG: usize = 4_000;
/// Questions at once.
const AT_ONCE: usize = 4;

/// What a model has.
struct Cube {
    component: Value,
    measures: Vec<String>,
    dimensions: Vec<String>,
    /// The time that a range is about.
    time: Option<String>,
}

fn cubes(meta: &Value) -> Vec<Cube> {
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|m| Some(m["name"].as_str()?.to_owned())).collect()
    };
    let cube = |cube: &Value| Cube {
        component: cube["connectedComponent"].clone(),
        measures: names(&cube["measures"]),
        dimensions: names(&cube["dimensions"]),
        time: cube["dimensions"].as_array().and_then(|all| {
            let time = all.iter().find(|d| d["type"] == "time")?;
            Some(time["name"].as_str()?.to_owned())
        }),
    };
    meta["cubes"].as_array().expect("models").iter().map(cube).collect()
}

/// A query over a fixed range: without one rates go to the time of the query, which is another each time.
fn query(cube: &Cube, measure: Option<&str>, dimension: Option<&str>) -> Value {
    let time = cube.time.iter().map(|t| json!({"dimension": t, "dateRange": ["2025-03-09", "2025-03-11"]}));
    json!({
        "measures": measure.into_iter().collect::<Vec<_>>(), "dimensions": dimension.into_iter().collect::<Vec<_>>(),
        "timeDimensions": time.collect::<Vec<_>>(),
    })
}

fn questions(cubes: &[Cube], random: &mut StdRng) -> Vec<Value> {
    let mut alone: Vec<Value> = Vec::new();
    for cube in cubes {
        alone.extend(cube.measures.iter().map(|m| query(cube, Some(m), None)));
        alone.extend(cube.dimensions.iter().map(|d| query(cube, None, Some(d))));
    }
    alone.shuffle(random);
    alone.truncate(if soak() { usize::MAX } else { ALONE });
    let with: Vec<&Cube> = cubes.iter().filter(|c| !c.measures.is_empty()).collect();
    for _ in 0..if soak() { PAIRS_LONG } else { PAIRS } {
        let cube = *with.choose(random).expect("some");
        let near: Vec<&Cube> =
            cubes.iter().filter(|c| c.component == cube.component && !c.dimensions.is_empty()).collect();
        let other = if random.random_bool(0.3) { *near.choose(random).unwrap_or(&cube) } else { cube };
        let dimension = other.dimensions.choose(random).map(String::as_str);
        alone.push(query(cube, cube.measures.choose(random).map(String::as_str), dimension));
    }
    alone
}

/// A cell as it is compared: numbers as such, times to the millisecond.
fn plain(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text,
        Value::Number(n) => return rounded(n.as_f64().unwrap_or(f64::NAN)),
        other => return other.clone(),
    };
    if let Ok(time) = text.trim_end_matches('Z').parse::<NaiveDateTime>() {
        return time.format("%Y-%m-%dT%H:%M:%S%.3f").to_string().into();
    }
    match text.parse::<f64>() {
        Ok(number) => rounded(number),
        Err(_) => text.as_str().into(),
    }
}

/// The order in which doubles are added up may change the last bits.
fn rounded(number: f64) -> Value {
    format!("{number:.9e}").into()
}

/// Rows as texts in the order of their texts: each a list of cells in the order of `members`.
fn sorted(mut rows: Vec<Vec<Value>>) -> Vec<String> {
    let mut rows: Vec<String> = rows.drain(..).map(|row| Value::from(row).to_string()).collect();
    rows.sort_unstable();
    rows
}

/// Cells of a column of an Arrow answer.
fn cells(batch: &RecordBatch, at: usize) -> Vec<Value> {
    let column = batch.column(at);
    let each = |f: &dyn Fn(usize) -> Value| -> Vec<Value> {
        (0..column.len()).map(|i| if column.is_null(i) { Value::Null } else { f(i) }).collect()
    };
    match column.data_type() {
        DataType::Boolean => each(&|i| column.as_boolean().value(i).into()),
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            let times = column.as_primitive::<TimestampMillisecondType>();
            each(&|i| {
                let time = DateTime::from_timestamp_millis(times.value(i)).expect("a time");
                plain(&time.format("%Y-%m-%dT%H:%M:%S%.3f").to_string().into())
            })
        }
        DataType::Null => vec![Value::Null; column.len()],
        _ => {
            let texts = cast(column, &DataType::Utf8).expect("a text");
            let texts = texts.as_string::<i32>();
            let is_null = |i: usize| texts.is_null(i);
            (0..texts.len())
                .map(|i| if is_null(i) { Value::Null } else { plain(&texts.value(i).into()) })
                .map(|v| if v == "NaN" { Value::Null } else { v })
                .collect()
        }
    }
}

async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: &Value) -> quiver_tests::server::Answer {
    let headers: Vec<_> = headers.iter().copied().chain([JSON, ("x-wait", "60")]).collect();
    server.post(path, &headers, body.to_string().into_bytes()).await
}

async fn as_arrow(
    server: &Server,
    who: &[(&str, &str)],
    query: &Value,
) -> Result<BTreeMap<String, Vec<Value>>, String> {
    let headers: Vec<_> = who.iter().copied().chain([("accept", "application/vnd.apache.arrow.stream")]).collect();
    let answer = post(server, "/olap-api/v1/load", &headers, &json!({"query": query})).await;
    if answer.status != 200 {
        return Err(answer.text());
    }
    let mut columns: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let reader = StreamReader::try_new(&answer.body[..], None).map_err(|e| e.to_string())?;
    for field in reader.schema().fields() {
        columns.insert(field.name().clone(), Vec::new());
    }
    for batch in reader {
        let batch = batch.map_err(|e| e.to_string())?;
        for (at, field) in batch.schema().fields().iter().enumerate() {
            columns.get_mut(field.name()).expect("a column").extend(cells(&batch, at));
        }
    }
    Ok(columns)
}

async fn as_sql(
    server: &Server,
    who: &[(&str, &str)],
    query: &Value,
    members: &[String],
) -> Result<Vec<String>, String> {
    let shown = post(server, "/olap-api/v1/sql", who, &json!({"query": query})).await;
    if shown.status != 200 {
        return Err(shown.text());
    }
    let sql = shown.json()["sql"].take();
    let body = json!({"query": sql["sql"][0], "params": sql["sql"][1]});
    let answer = post(server, "/sql-api/v1/query", who, &body).await;
    if answer.status != 200 {
        return Err(format!("{} of {body}", answer.text()));
    }
    let answer = answer.json();
    let name = |c: &Value| {
        let alias = c["name"].as_str().or(c.as_str()).unwrap_or_default().to_owned();
        sql["aliasNameToMember"][&alias].as_str().map_or(alias, str::to_owned)
    };
    let names: Vec<String> = answer["columns"].as_array().into_iter().flatten().map(name).collect();
    let places: Option<Vec<usize>> = members.iter().map(|m| names.iter().position(|n| n == m)).collect();
    let places = places.ok_or_else(|| format!("columns {names:?}"))?;
    let row = |row: &Value| places.iter().map(|at| plain(&row[*at])).collect::<Vec<_>>();
    Ok(sorted(answer["rows"].as_array().into_iter().flatten().map(row).collect()))
}

/// What differs between the ways to one answer; none, too, where no joins lead to it. Also whether there are rows.
pub(crate) async fn differs(server: &Server, who: &[(&str, &str)], query: &Value) -> (Option<String>, bool) {
    let answer = post(server, "/olap-api/v1/load", who, &json!({"query": query})).await;
    if answer.status == 400 && answer.json()["reason"] == "NO_JOIN_PATH" {
        return (None, false);
    }
    let data = answer.json()["data"].take();
    let Some(rows) = data.as_array().filter(|_| answer.status == 200) else {
        return (Some(format!("{query}: {}", answer.text())), false);
    };
    let named =
        ["dimensions", "measures"].into_iter().flat_map(|key| query[key].as_array().cloned().unwrap_or_default());
    let members: Vec<String> = named.filter_map(|m| m.as_str().map(str::to_owned)).collect();
    let wanted = sorted(rows.iter().map(|row| members.iter().map(|m| plain(&row[m])).collect()).collect());
    let arrow = as_arrow(server, who, query).await.map(|columns| {
        let row = |i: usize| members.iter().map(|m| columns.get(m).map_or(Value::Null, |c| c[i].clone())).collect();
        sorted((0..columns.values().next().map_or(0, Vec::len)).map(row).collect())
    });
    for (way, got) in [("Arrow", arrow), ("SQL", as_sql(server, who, query, &members).await)] {
        match got {
            Err(e) => return (Some(format!("{query}: {way}: {e}")), true),
            Ok(got) if got != wanted => {
                return (Some(format!("{query}: {way} gives\n  {got:?}\n  load\n  {wanted:?}")), true);
            }
            Ok(_) => {}
        }
    }
    (None, !wanted.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_the_same_by_load_arrow_and_sql() {
    let seed = seed("members_are_the_same_by_load_arrow_and_sql");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    crate::olap::drill_down::fill(&server, &[]).await;
    crate::olap::spans::fill(&server, &[]).await;
    let cubes = cubes(&server.get("/olap-api/v1/meta").await.json());
    let all = questions(&cubes, &mut StdRng::seed_from_u64(seed));
    let (half, count) = (all.len() / 2, all.len());
    let (mut wrong, mut with_rows) = (Vec::new(), 0);
    for (round, some) in [&all[..half], &all[half..]].into_iter().enumerate() {
        // The first half over what is in memory, the second over parts.
        if round == 1 {
            server.flush().await;
        }
        let asked = futures::stream::iter(some).map(|query| differs(&server, &[], query));
        for (difference, has_rows) in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            wrong.extend(difference);
            with_rows += usize::from(has_rows);
        }
    }
    let shown = wrong.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {count} differ\n{shown}", wrong.len());
    assert!(with_rows * 3 > count, "{with_rows} of {count} have rows");
}

/// Each row counts once beside the rows of another model, also rows that come out of a list.
#[tokio::test(flavor = "multi_thread")]
async fn rows_out_of_lists_count_once_each() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    crate::olap::spans::fill(&server, &[]).await;
    for (measure, dimension, expected) in [
        ("CriticalPath.criticalShare", "SpanEvents.traceId", json!([[null, 1020.0 / 20020.0], ["a", 0.05]])),
        ("CriticalPath.criticalTimeSum", "SpanEvents.traceId", json!([[null, 1020.0], ["a", 1000.0]])),
        ("CriticalPath.count", "Exceptions.traceId", json!([[null, 21.0], ["a", 20.0]])),
        ("Spans.estimatedCount", "CriticalPath.traceId", json!([["a", 21.0], ["b", 1.0]])),
    ] {
        let model = measure.split('.').next().unwrap_or_default();
        let time = json!([{"dimension": format!("{model}.startTime"), "dateRange": ["2025-03-09", "2025-03-11"]}]);
        let query = json!({"measures": [measure], "dimensions": [dimension], "timeDimensions": time});
        assert_eq!(differs(&server, &[], &query).await, (None, true), "{query}");
        let data = post(&server, "/olap-api/v1/load", &[], &json!({"query": query})).await.json()["data"].take();
        let named = |row: &Value| row[dimension].as_str().map(|id| id[..1].to_owned());
        let cells = |row: &Value| vec![json!(named(row)), plain(&row[measure])];
        let wanted = expected.as_array().into_iter().flatten().map(|row| vec![row[0].clone(), plain(&row[1])]);
        let got = data.as_array().into_iter().flatten().map(cells);
        assert_eq!(sorted(got.collect()), sorted(wanted.collect()), "{query}");
    }
}

/// Breaks if the windows of one model of browsers take the room of those of another.
#[tokio::test(flavor = "multi_thread")]
async fn many_models_of_browsers_are_joined() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let models = ["RumPageViews", "RumPageLoads", "RumResources", "RumErrors", "UserActions", "Sessions"];
    let measures: Vec<String> = models.iter().map(|model| format!("{model}.count")).collect();
    for dimensions in [json!([]), json!(["RumApplications.application"])] {
        let query = json!({"measures": measures, "dimensions": dimensions});
        let answer = post(&server, "/olap-api/v1/load", &[], &json!({"query": query})).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    }
}
