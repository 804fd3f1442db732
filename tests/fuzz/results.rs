//! The cache of range results compared with evaluation: whatever is written between two queries, late or not, flushed or
//! not, a cached result equals an evaluated one bit for bit.

use std::sync::Arc;

use quiver_api::AppState;
use quiver_promql::{PromqlError, QueryOptions, QueryOutcome, QueryTimes, QueryValue};
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, LabelSet, MetricsBatch, Millis};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::drive::{say, soak};
use crate::evaluate::{BASE_MS, SAMPLES, world};
use crate::expression::any;

/// Expressions of dashboards, beside those that the grammar makes.
const TEXTS: &[&str] = &[
    "up",
    "sum by (job) (rate(foo_bucket[1m]))",
    "rate(up[2m])",
    "sum(up) / sum(bar)",
    "up / on (instance, job) bar",
    "up and on (instance) bar{job=\"a\"}",
    "avg_over_time(up[5m])",
    "max_over_time(sum(up)[5m:30s])",
    "up offset 2m",
    "up offset -1m",
    "sum_over_time(up[3m]) - sum_over_time(up[3m] offset 1m)",
    "topk(2, up)",
    "quantile by (job) (0.5, up)",
    "histogram_quantile(0.9, sum by (le) (rate(foo_bucket[2m])))",
    "deriv(up[3m]) + predict_linear(bar[3m], 60)",
    "count_values(\"v\", up)",
    "absent(up{job=\"none\"})",
    "label_replace(up, \"x\", \"$1\", \"job\", \"(.*)\")",
    "up > 10 or bar",
    "clamp_max(up, 20) * 2",
    "stddev(up)",
    "max_over_time(up[2m] @ 1700000300)",
];

/// Rows, sorted as they came: labels, and per step the bits.
type Shape = Vec<(Vec<(String, String)>, Vec<(usize, u64, String)>)>;

fn shape(outcome: Result<QueryOutcome, PromqlError>) -> Result<(Shape, Vec<String>), String> {
    let outcome = outcome.map_err(|e| e.to_string())?;
    let QueryValue::Matrix(result) = &*outcome.value else { return Err("no matrix".to_owned()) };
    let rows = result.rows().filter_map(|row| {
        let floats =
            (0..row.values.len()).filter(|&s| row.present[s]).map(|s| (s, row.values[s].to_bits(), String::new()));
        let hists = row.hists.iter().map(|h| (h.1 as usize, 0, format!("{:?}", h.2)));
        let mut cells: Vec<_> = floats.chain(hists).collect();
        cells.sort();
        let labels = result.table.labels(row.row as usize).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        (!cells.is_empty()).then_some((labels, cells))
    });
    let rows = rows.collect();
    Ok((rows, [outcome.warnings, outcome.infos].concat()))
}

/// One write: mostly now, sometimes late, sometimes of a new series.
fn write(random: &mut StdRng, now: &mut Millis) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    let metric = ["up", "bar", "foo_bucket", "foo"].choose(random).expect("there are some");
    let number = random.random_range(0..5);
    let (instance, job) = (format!("i{number}"), if number < 2 { "a" } else { "b" });
    let le = ["0.1", "1", "10", "+Inf", "100"][number];
    let mut pairs = vec![("__name__", *metric), ("job", job), ("instance", &instance)];
    if metric.starts_with("foo") {
        pairs.push(("le", le));
    }
    let series = batch.push_series(LabelSet::from_pairs(pairs).canonical());
    let ts = if random.random_bool(0.5) {
        *now += random.random_range(0..20_000);
        *now
    } else {
        BASE_MS + random.random_range(-10 * 15_000..SAMPLES * 15_000)
    };
    batch.push_sample(series, ts, f64::from(random.random_range(0..1_000_000)) / 97.0, 0);
    batch
}

async fn ask(
    app: &AppState,
    text: &str,
    (start, end, step): (Millis, Millis, i64),
    no_cache: bool,
) -> Result<(Shape, Vec<String>), String> {
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let options = QueryOptions { no_cache, ..QueryOptions::default() };
    let times = QueryTimes::range(start, end, step).map_err(|e| e.to_string())?;
    shape(app.engines.promql.evaluate(text, times, &options, &ctx).await)
}

#[test]
fn results_kept_are_those_of_an_evaluation() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let app: Arc<AppState> = runtime.block_on(world(dir.path()));
    let mut random = StdRng::seed_from_u64(20_261_121);
    let mut now = BASE_MS + SAMPLES * 15_000;
    let made: Vec<String> = (0..30).map(|_| any(&mut random)).collect();
    let texts: Vec<&str> = TEXTS.iter().copied().chain(made.iter().map(String::as_str)).collect();
    let pairs = if soak() { 10_000 } else { 1_000 };
    let mut failed = 0;
    runtime.block_on(async {
        for pair in 0..pairs {
            let text = *texts.choose(&mut random).expect("there are some");
            let step = *[15_000, 60_000].choose(&mut random).expect("there are some");
            let start = BASE_MS + random.random_range(-3..SAMPLES / 4) * 60_000;
            let range = (start, start + random.random_range(0..20) * 60_000, step);
            // The first question fills the cache, the write may make it stale.
            let before = ask(&app, text, range, false).await;
            failed += usize::from(before.is_err());
            if random.random_bool(0.7) {
                app.engines.store.write_metrics(write(&mut random, &mut now)).await.expect("taken");
            }
            match pair % 250 {
                100 => app.engines.store.flush_all().await.expect("flushed"),
                200 => app.engines.store.compact_all().await.expect("compacted"),
                _ => {}
            }
            let range = if random.random_bool(0.5) { range } else { (range.0 + 60_000, range.1 + 120_000, step) };
            let (kept, evaluated) = (ask(&app, text, range, false).await, ask(&app, text, range, true).await);
            assert_eq!(kept, evaluated, "pair {pair}: {text} {range:?}");
        }
        app.engines.store.close(std::time::Duration::from_secs(5)).await;
    });
    let stats = app.engines.promql.results().stats();
    say(&format!(
        "results: {pairs} pairs, {failed} errors, {} steps kept, {} evaluated",
        stats.steps_kept, stats.steps_evaluated
    ));
    assert!(stats.steps_kept > pairs * 4, "the cache answers: {stats:?}");
}
