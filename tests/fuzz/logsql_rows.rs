//! Random queries over random rows: the same answer whether rows are live, flushed or compacted, in one batch or many.

use std::sync::Arc;
use std::time::Duration;

use quiver_api::AppState;
use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits};
use quiver_logsql::ast::Query;
use quiver_logsql::{LogsqlEngine, QueryScope, parse};
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, Error, ErrorKind, LogsBatch};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::drive::{Target, say};
use crate::evaluate::store_in;
use crate::logsql_query::{FIELDS, VALUES, query};
use crate::memory::{Memory, Row, engine, logsql_over};

/// Sets of rows.
const WORLDS: u64 = 3;
const ROWS: i64 = 400;
/// 2025-03-10T00:00:00Z.
const START_NS: i64 = 1_741_564_800_000_000_000;
const NOW_NS: i64 = START_NS + 86_400_000_000_000;

#[derive(Debug)]
struct Case {
    world: u64,
    text: String,
}

fn make(random: &mut StdRng) -> Case {
    Case { world: random.random_range(0..WORLDS), text: query(random) }
}

/// Rows as objects; `n` is unique, the first third has few names, the last one many.
fn objects(random: &mut StdRng) -> Vec<Map<String, Value>> {
    let mut all = Vec::new();
    for n in 0..ROWS {
        let mut row = Map::new();
        // Times are not unique and not in order.
        let time = START_NS + random.random_range(0..86_400) * 1_000_000_000;
        row.insert("_time".into(), json!(time.to_string()));
        row.insert("n".into(), json!(n.to_string()));
        row.insert("app".into(), json!(["x", "y", "z", ""].choose(random).expect("some")));
        for name in FIELDS.iter().filter(|name| !["n", "app", "no_such", "list", "dur"].contains(name)) {
            if random.random_bool(0.7) {
                row.insert((*name).into(), json!(VALUES.choose(random).expect("some")));
            }
        }
        row.insert("dur".into(), json!(format!("{}ms", random.random_range(1..50) * 7)));
        if random.random_bool(0.3) {
            row.insert("list".into(), json!(format!("[\"x\",{n},\"two\"]")));
        }
        let odd = if n > ROWS * 2 / 3 { 40 } else { 1 };
        for _ in 0..random.random_range(0..odd) {
            row.insert(format!("odd{}", random.random_range(0..3000)), json!(VALUES.choose(random).expect("some")));
        }
        row.retain(|_, value| value != "");
        all.push(row);
    }
    all
}

fn batch(rows: &[Map<String, Value>]) -> Vec<LogsBatch> {
    let parameter = |name: &str| (name == "_stream_fields").then_some("app");
    let service: Arc<[String]> = Arc::new([]);
    let options = FieldOptions::read(parameter, |_| None, &service).expect("valid options");
    let ctx = LogsContext {
        options: Arc::new(options),
        limits: LogsLimits::default(),
        now_ns: NOW_NS,
        future_max_ns: i64::MAX,
        sender: None,
    };
    let mut decoder = JsonLines::new(&ctx);
    for row in rows {
        decoder.feed(format!("{}\n", Value::Object(row.clone())).as_bytes());
    }
    decoder.finish();
    decoder.rows.take_all()
}

/// The same rows in all states.
struct World {
    live: Arc<AppState>,
    flushed: Arc<AppState>,
    compacted: Arc<AppState>,
    memory: Arc<Vec<Row>>,
}

async fn open(dir: &std::path::Path, pieces: &[&[Map<String, Value>]], flush: bool, compact: bool) -> Arc<AppState> {
    let app = store_in(dir).await;
    for piece in pieces {
        for batch in batch(piece) {
            let outcome = app.engines.store.write_logs(batch).await.expect("taken");
            assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        }
        if flush {
            app.engines.store.flush_all().await.expect("flushed");
        }
    }
    if compact {
        app.engines.store.compact_all().await.expect("compacted");
    }
    app
}

impl World {
    async fn new(seed: u64, dir: &std::path::Path) -> Self {
        let objects = objects(&mut StdRng::seed_from_u64(seed));
        let pieces: Vec<&[Map<String, Value>]> = objects.chunks(ROWS as usize / 3 + 1).collect();
        let folder = |name: &str| {
            let folder = dir.join(format!("{seed}-{name}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            folder
        };
        let row = |object: &Map<String, Value>| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let field = |(name, value): (&String, &Value)| match name.as_str() {
                "_time" => {
                    let mut out = String::new();
                    let ns = text(value).parse().expect("nanoseconds");
                    quiver_logsql::kernels::values::push_rfc3339(&mut out, ns);
                    (name.clone(), out)
                }
                _ => (name.clone(), text(value)),
            };
            object.iter().map(field).collect::<Row>()
        };
        Self {
            live: open(&folder("live"), &pieces, false, false).await,
            flushed: open(&folder("flushed"), &pieces, true, false).await,
            compacted: open(&folder("compacted"), &pieces, true, true).await,
            memory: Arc::new(objects.iter().map(row).collect()),
        }
    }
}

type Answer = Result<Vec<Vec<(String, String)>>, ErrorKind>;

/// Runs a query; rows and fields in one order.
async fn ask(logsql: &LogsqlEngine, query: &Query) -> Answer {
    let ctx = QueryContext::new(Access::full(), Limits { timeout: Duration::from_mins(5), ..Limits::default() });
    let scope = QueryScope { now_ns: NOW_NS, ..QueryScope::default() };
    let found = async {
        let mut all = Vec::new();
        for rows in logsql.collect(query, &scope, &ctx).await? {
            all.extend(rows.to_texts()?);
        }
        Ok::<_, Error>(all)
    };
    let mut all = found.await.map_err(|e| {
        assert!(!matches!(e.kind, ErrorKind::Internal | ErrorKind::Timeout), "{query}: {e}");
        e.kind
    })?;
    for row in &mut all {
        row.sort();
    }
    all.retain(|row| !row.is_empty());
    all.sort();
    Ok(all)
}

fn same(found: &Answer, wanted: &Answer, what: &str, query: &Query) {
    if found == wanted {
        return;
    }
    if let (Ok(found), Ok(wanted)) = (found, wanted) {
        let extra: Vec<_> = found.iter().filter(|row| !wanted.contains(row)).take(2).collect();
        let lost: Vec<_> = wanted.iter().filter(|row| !found.contains(row)).take(2).collect();
        panic!("{query}\n{what}: {} rows instead of {}\n more {extra:?}\n less {lost:?}", found.len(), wanted.len());
    }
    panic!("{query}\n{what}: {found:?} instead of {wanted:?}");
}

/// Whether rows that are not in a store give the same: they have no streams.
fn without_streams(text: &str) -> bool {
    !["{app", "field_names", "_stream"].iter().any(|word| text.contains(word))
}

#[test]
fn logsql_rows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let worlds: Vec<World> = (0..WORLDS).map(|seed| runtime.block_on(World::new(seed, dir.path()))).collect();
    let engine = engine();
    let (mut answered, mut refused, mut rows) = (0, 0, 0);
    let check = |case: &Case| {
        let world = &worlds[case.world as usize];
        let query = parse(&case.text).unwrap_or_else(|e| panic!("{}: {e}", case.text));
        let live = runtime.block_on(ask(&world.live.engines.logsql, &query));
        same(&runtime.block_on(ask(&world.flushed.engines.logsql, &query)), &live, "flushed", &query);
        same(&runtime.block_on(ask(&world.compacted.engines.logsql, &query)), &live, "compacted", &query);
        match &live {
            Ok(found) => {
                answered += 1;
                rows += found.len();
            }
            Err(_) => refused += 1,
        }
        if !without_streams(&case.text) {
            return;
        }
        let query = parse(&format!("{} | delete _stream, _stream_id", case.text)).expect("valid as before");
        let live = runtime.block_on(ask(&world.live.engines.logsql, &query));
        for batch_rows in [1000, 7, 1] {
            let memory = Memory { rows: Arc::clone(&world.memory), batch_rows };
            let logsql = logsql_over(Arc::new(memory), Arc::clone(&engine));
            same(&runtime.block_on(ask(&logsql, &query)), &live, &format!("in batches of {batch_rows}"), &query);
        }
    };
    // Queries run on other threads and have limits of their own.
    let target = Target { name: "logsql rows", make, size: |case: &Case| case.text.len(), bytes_max: |_| u64::MAX };
    assert!(target.run(check) > 0);
    say(&format!("logsql rows: {answered} answered with {rows} rows, {refused} refused"));
    for world in worlds {
        for app in [world.live, world.flushed, world.compacted] {
            runtime.block_on(app.engines.store.close(Duration::from_secs(5)));
        }
    }
}
