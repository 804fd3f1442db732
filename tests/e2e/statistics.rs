//! Statistics of queries: samples per step as Prometheus counts them, the peak as what the limit is held against, and
//! the shape in the answer.
//!
//! The expected counts are those of Prometheus 3.14 `promql/engine_test.go` (`TestQueryStatistics`).

use std::sync::Arc;
use std::time::Duration;

use quiver::settings::LoadedSettings;
use quiver::wiring;
use quiver_api::AppState;
use quiver_promql::{PromqlError, QueryOptions, QueryOutcome, QueryTimes};
use quiver_query::{Limits, QueryContext};
use quiver_tests::promqltest::Value;
use quiver_tests::promqltest::script::{Command, parse};
use quiver_types::metrics::HistogramSample;
use quiver_types::{Access, ErrorKind, MetricsBatch, SystemClock};

const DATA: &str = "load 10s
  one 1+1x100
  three{a=\"1\",b=\"1\"} 1+1x100
  three{a=\"2\",b=\"2\"} 1+1x100
  three{a=\"3\",b=\"2\"} 1+1x100
  histogram {{schema:1 count:5 sum:20 buckets:[1 2 1 1]}}+{{schema:1 count:10 sum:5 buckets:[1 2 3 4]}}x100
";

/// Query, start, end, step (0: instant), samples looked at by step, samples read by step.
type Case = (&'static str, i64, i64, i64, &'static [u64], &'static [u64]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    (r#""literal string""#, 21, 21, 0, &[0], &[0]),
    ("1", 21, 21, 0, &[0], &[0]),
    ("one", 21, 21, 0, &[1], &[1]),
    ("histogram", 21, 21, 0, &[13], &[13]),
    ("timestamp(one)", 21, 21, 0, &[1], &[1]),
    ("timestamp(histogram)", 21, 21, 0, &[1], &[1]),
    ("one", 22, 22, 0, &[1], &[1]),
    ("one offset 10s", 21, 21, 0, &[1], &[1]),
    ("one @ 15", 21, 21, 0, &[1], &[1]),
    (r#"three{a="1"}"#, 21, 21, 0, &[1], &[1]),
    (r#"three{a="1"} @ 19"#, 21, 21, 0, &[1], &[1]),
    (r#"three{a="1"}[20s] @ 19"#, 21, 21, 0, &[2], &[2]),
    ("three", 21, 21, 0, &[3], &[3]),
    ("one[60s]", 201, 201, 0, &[6], &[6]),
    ("histogram[60s]", 201, 201, 0, &[78], &[78]),
    ("max_over_time(one[60s])[20s:5s]", 201, 201, 0, &[24], &[8]),
    ("max_over_time(one[61s])[20s:5s]", 201, 201, 0, &[26], &[8]),
    ("max_over_time(histogram[60s])[20s:5s]", 201, 201, 0, &[312], &[104]),
    ("one[60s] @ 30", 201, 201, 0, &[4], &[4]),
    ("histogram[60s] @ 30", 201, 201, 0, &[52], &[52]),
    ("sum(max_over_time(three[60s] @ 30))", 201, 201, 0, &[12], &[12]),
    ("sum by (b) (max_over_time(three[60s] @ 30))", 201, 201, 0, &[12], &[12]),
    ("one[60s] offset 10s", 201, 201, 0, &[6], &[6]),
    ("three[60s]", 201, 201, 0, &[18], &[18]),
    ("max_over_time(one[60s])", 201, 201, 0, &[6], &[6]),
    ("absent_over_time(one[60s])", 201, 201, 0, &[6], &[6]),
    ("max_over_time(three[60s])", 201, 201, 0, &[18], &[18]),
    ("one[60s:5s]", 201, 201, 0, &[12], &[12]),
    ("one[60s:5s] offset 10s", 201, 201, 0, &[12], &[12]),
    ("max_over_time(three[60s:5s])", 201, 201, 0, &[36], &[36]),
    ("sum(max_over_time(three[60s:5s])) + sum(max_over_time(three[60s:5s]))", 201, 201, 0, &[72], &[72]),
    (r#"three{a="1"}"#, 201, 220, 5, &[1, 1, 1, 1], &[1, 1, 1, 1]),
    (r#"three{a="1"}"#, 204, 223, 5, &[1, 1, 1, 1], &[1, 1, 1, 1]),
    ("histogram", 204, 223, 5, &[13, 13, 13, 13], &[13, 13, 13, 13]),
    ("timestamp(one)", 201, 220, 5, &[1, 1, 1, 1], &[1, 1, 1, 1]),
    ("timestamp(histogram)", 201, 220, 5, &[1, 1, 1, 1], &[1, 1, 1, 1]),
    (r#"max_over_time(three{a="1"}[10s])"#, 991, 1021, 10, &[1, 1, 0, 0], &[1, 1, 0, 0]),
    (r#"three{a="1"} offset 10s"#, 201, 220, 5, &[1, 1, 1, 1], &[1, 1, 1, 1]),
    ("max_over_time(three[60s] @ 30)", 201, 220, 5, &[12, 12, 12, 12], &[12, 0, 0, 0]),
    ("three", 201, 220, 5, &[3, 3, 3, 3], &[3, 3, 3, 3]),
    ("max_over_time(three[60s])", 201, 220, 5, &[18, 18, 18, 18], &[18, 0, 3, 0]),
    ("max_over_time(three[60s:5s])", 201, 216, 5, &[36, 36, 36, 36], &[36, 3, 3, 3]),
    ("max_over_time(three[60s:5s])", 201, 220, 5, &[36, 36, 36, 36], &[36, 3, 3, 3]),
    ("max_over_time(one[60s:5s])", 201, 220, 5, &[12, 12, 12, 12], &[12, 1, 1, 1]),
    ("sum by (b) (max_over_time(one[60s:5s]))", 201, 220, 5, &[12, 12, 12, 12], &[12, 1, 1, 1]),
    ("sum(max_over_time(three[60s:5s])) + sum(max_over_time(three[60s:5s]))", 201, 220, 5, &[72, 72, 72, 72], &[72, 6, 6, 6]),
    ("sum(max_over_time(three[60s:5s])) + sum(max_over_time(one[60s:5s]))", 201, 216, 5, &[48, 48, 48, 48], &[48, 4, 4, 4]),
    ("sum(max_over_time(three[60s:5s])) + sum(max_over_time(one[60s:5s]))", 201, 220, 5, &[48, 48, 48, 48], &[48, 4, 4, 4]),
    ("max_over_time(one[20s:10s])", 201, 201, 0, &[2], &[2]),
    ("sum_over_time(one[30s:30s])", 90, 90, 0, &[1], &[1]),
    ("max_over_time(one[30s:2m])", 240, 240, 0, &[1], &[1]),
    ("max_over_time(one[30s:10s])", 201, 231, 30, &[3, 3], &[3, 3]),
    ("max_over_time(one[20s:10s])", 201, 261, 10, &[2, 2, 2, 2, 2, 2, 2], &[2, 1, 1, 1, 1, 1, 1]),
    ("max_over_time(one[30s:10s])", 201, 261, 60, &[3, 3], &[3, 3]),
    ("histogram_count(max_over_time(histogram[20s:10s]))", 201, 201, 0, &[26], &[26]),
    ("avg_over_time(histogram[2m:1m])", 120, 240, 60, &[26, 26, 26], &[26, 13, 13]),
    ("max_over_time(three[60s:10s])", 200, 400, 30, &[18, 18, 18, 18, 18, 18, 18], &[18, 9, 9, 9, 9, 9, 9]),
    ("predict_linear(one[60s] @ 100, 60)", 100, 300, 100, &[6, 6, 6], &[6, 0, 0]),
    ("sum_over_time(three[20s:10s] @ 200)", 250, 250, 0, &[6], &[6]),
    ("sum_over_time(one[20s:10s] offset 1m)", 240, 240, 0, &[2], &[2]),
    ("sum_over_time(three[1m:10s] @ 200 offset 1m)", 300, 300, 0, &[18], &[18]),
    ("sum_over_time(max_over_time(three[60s] @ 300)[5m:1m] @ 600)[10m:2m]", 800, 800, 0, &[75], &[18]),
    ("rate(sum_over_time(one[30s])[1m:30s])", 240, 240, 0, &[2], &[6]),
];

async fn world(dir: &std::path::Path) -> Arc<AppState> {
    let flags = [
        ("store.data", dir.display().to_string()),
        ("store.retention", "none".to_owned()),
        ("rbac.mode", "off".to_owned()),
    ];
    let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).expect("settings");
    let app = wiring::build(&loaded.settings, Arc::new(SystemClock)).await.expect("a store");
    let mut batch = MetricsBatch::default();
    for command in parse(DATA).expect("a script") {
        let Command::Load(series) = command else { panic!("only loads") };
        for s in &series {
            let number = batch.push_series(s.labels.canonical());
            for (ts, start_ts, value) in &s.samples {
                let (ts, start_ts) = (*ts, *start_ts);
                match value {
                    Value::Float(v) => batch.push_sample(number, ts, *v, start_ts),
                    Value::Histogram(h) => {
                        let histogram = (**h).clone();
                        batch.histograms.push(HistogramSample { series: number, ts, start_ts, histogram });
                    }
                }
            }
        }
    }
    app.engines.store.write_metrics(batch).await.expect("taken");
    app
}

async fn ask(app: &AppState, case: &Case, samples_max: u64) -> Result<QueryOutcome, PromqlError> {
    let limits = Limits { timeout: Duration::from_mins(5), samples_max, ..Limits::default() };
    let (ctx, options) =
        (QueryContext::new(Access::full(), limits), QueryOptions { lookback_ms: None, stats: true, no_cache: true });
    let (query, start, end, step, ..) = case;
    if *step == 0 {
        return app.engines.promql.instant(query, start * 1000, &options, &ctx).await;
    }
    let times = QueryTimes::range(start * 1000, end * 1000, step * 1000)?;
    app.engines.promql.evaluate(query, times, &options, &ctx).await
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_per_step_are_those_of_prometheus() {
    let dir = tempfile::tempdir().expect("a folder");
    let app = world(dir.path()).await;
    let mut wrong = Vec::new();
    for flushed in [false, true] {
        if flushed {
            app.engines.store.flush_all().await.expect("flushed");
        }
        for case in CASES {
            let outcome = ask(&app, case, 50_000_000).await.unwrap_or_else(|e| panic!("{}: {e}", case.0));
            let stats = outcome.samples.expect("asked for");
            if (&stats.total_per_step[..], &stats.read_per_step[..]) != (case.4, case.5) {
                wrong.push(format!("flushed {flushed} {case:?}: {stats:?}"));
            }
            // The peak is what the limit of samples is about.
            if stats.peak > 0 {
                assert!(ask(&app, case, stats.peak).await.is_ok(), "{}: {stats:?}", case.0);
                let refused = ask(&app, case, stats.peak - 1).await.err().map(|e| e.kind());
                assert_eq!(refused, Some(ErrorKind::LimitExceeded), "{}: {stats:?}", case.0);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
    app.engines.store.close(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_counted_unless_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let app = world(dir.path()).await;
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let outcome = app.engines.promql.instant("one", 21_000, &QueryOptions::default(), &ctx).await.expect("an answer");
    assert_eq!(outcome.samples, None);
    app.engines.store.close(Duration::from_secs(5)).await;
}
