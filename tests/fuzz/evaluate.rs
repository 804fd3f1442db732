//! Evaluates generated PromQL over a small store in this process: a query may be refused or exceed its limits, but must
//! not cause an internal error.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver::settings::LoadedSettings;
use quiver::wiring;
use quiver_api::AppState;
use quiver_promql::{PromqlError, QueryOptions, QueryTimes};
use quiver_query::{Limits, QueryContext};
use quiver_tests::time_limits::within_here;
use quiver_types::metrics::HistogramSample;
use quiver_types::{Access, ErrorKind, Histogram, LabelSet, MetricsBatch, Millis, Span, SystemClock, stale_nan};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::drive::{Target, say};
use crate::expression::any;

pub(crate) const BASE_MS: Millis = 1_700_000_000_000;
pub(crate) const SAMPLES: i64 = 40;
/// How long a query may go on after its answer.
const LINGER: Duration = Duration::from_secs(1);

/// Float series, some with gaps, stale markers and NaN; classic buckets; native histograms; a series of both kinds.
fn batch() -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for (n, metric) in ["foo", "up", "bar", "x.y", "job:rate:sum", "e", "foo_bucket"].into_iter().enumerate() {
        for i in 0..4usize {
            let (instance, le) = (format!("i{i}"), ["0.1", "1", "10", "+Inf"][i]);
            let mut pairs = vec![("__name__", metric), ("job", if i < 2 { "a" } else { "b" }), ("instance", &instance)];
            if metric.ends_with("_bucket") || metric == "foo" {
                pairs.push(("le", le));
            }
            let series = batch.push_series(LabelSet::from_pairs(pairs).canonical());
            for t in (0..SAMPLES).filter(|t| (t + i as i64) % 7 != 0) {
                let value = match (t + n as i64) % 13 {
                    0 => stale_nan(),
                    1 => f64::NAN,
                    2 => f64::INFINITY,
                    _ => (t * (i as i64 + 1)) as f64 - 10.0 * (n % 2) as f64,
                };
                batch.push_sample(series, BASE_MS + t * 15_000, value, 0);
            }
        }
    }
    for (metric, schema) in [("foo", 0), ("foo", 3), ("bar", 2)] {
        let job = format!("h{schema}");
        let series = batch.push_series(LabelSet::from_pairs([("__name__", metric), ("job", job.as_str())]).canonical());
        for t in 0..SAMPLES {
            let count = (t + 1) as f64;
            let histogram = Histogram {
                schema,
                zero_threshold: 1e-9,
                zero_count: count,
                count: count * 4.0,
                sum: count * 3.0,
                positive_spans: vec![Span { offset: 0, length: 2 }],
                positive: vec![count, count * 2.0],
                ..Histogram::default()
            };
            batch.histograms.push(HistogramSample { series, ts: BASE_MS + t * 15_000, start_ts: 0, histogram });
        }
    }
    batch
}

/// Opens an empty store in this process; rows of any age are kept.
pub(crate) async fn store_in(dir: &std::path::Path) -> Arc<AppState> {
    let flags = [
        ("store.data", dir.display().to_string()),
        ("store.retention", "none".to_owned()),
        ("wal.level", "os".to_owned()),
        ("rbac.mode", "off".to_owned()),
    ];
    let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).expect("valid settings");
    wiring::build(&loaded.settings, Arc::new(SystemClock)).await.expect("a store")
}

pub(crate) async fn world(dir: &std::path::Path) -> Arc<AppState> {
    let app = store_in(dir).await;
    app.engines.store.write_metrics(batch()).await.expect("taken");
    app
}

/// A query: text, and a range when it is one.
#[derive(Debug)]
struct Case {
    text: String,
    start_ms: Millis,
    range: Option<(Millis, i64)>,
}

fn make(random: &mut StdRng) -> Case {
    let text = any(random);
    let start_ms = BASE_MS + random.random_range(-2..SAMPLES + 25) * 15_000;
    let range = random.random_bool(0.6).then(|| (random.random_range(0..600_000), random.random_range(1_000..120_000)));
    Case { text, start_ms, range }
}

async fn ask(app: &AppState, case: &Case) -> Result<(), PromqlError> {
    let limits = Limits { timeout: Duration::from_secs(1), samples_max: 200_000, ..Limits::default() };
    let (ctx, options) = (QueryContext::new(Access::full(), limits), QueryOptions::default());
    match case.range {
        None => app.engines.promql.instant(&case.text, case.start_ms, &options, &ctx).await.map(drop),
        Some((length_ms, step_ms)) => {
            let times = QueryTimes::range(case.start_ms, case.start_ms + length_ms, step_ms)?;
            app.engines.promql.evaluate(&case.text, times, &options, &ctx).await.map(drop)
        }
    }
}

#[test]
fn queries() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let app = runtime.block_on(world(dir.path()));
    let (mut answered, mut refused, mut limited) = (0, 0, 0);
    let check = |case: &Case| {
        // Who does not look at its time would be given up by its caller, and go on.
        within_here("it goes on though nobody waits for it", LINGER, || {
            match runtime.block_on(ask(&app, case)) {
                Ok(()) => answered += 1,
                Err(e) => match e.kind() {
                    ErrorKind::Invalid | ErrorKind::Execution => refused += 1,
                    ErrorKind::LimitExceeded | ErrorKind::Timeout => limited += 1,
                    kind => panic!("{kind:?}: {e}"),
                },
            }
            let began = Instant::now();
            while app.engines.query.used().running.load(Relaxed) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            began.elapsed()
        });
    };
    // Queries run on other threads and have limits of their own.
    let target = Target { name: "evaluation", make, size: |case: &Case| case.text.len(), bytes_max: |_| u64::MAX };
    assert!(target.run(check) > 0);
    say(&format!("evaluation: {answered} answered, {refused} refused, {limited} out of limits"));
    runtime.block_on(app.engines.store.close(Duration::from_secs(5)));
}
