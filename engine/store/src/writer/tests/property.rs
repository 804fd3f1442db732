//! Replay restores exactly what was in memory.

use proptest::prelude::*;
use quiver_types::metrics::{Exemplar, HistogramSample};
use quiver_types::{Histogram, LabelSet, Span, stale_nan};

use super::*;

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<i32>().prop_map(f64::from),
        2 => any::<f64>(),
        1 => prop::sample::select(vec![-0.0, f64::NAN, f64::INFINITY, stale_nan()]),
    ]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![0..100i64, -DAY_MS..3 * DAY_MS, 0..i64::MAX / 2_000_000]
}

#[derive(Debug, Clone)]
enum Row {
    Float(usize, i64, f64, i64),
    Histogram(usize, i64, f64, i64),
    Exemplar(usize, i64, f64),
    Metadata(usize, u8),
}

fn row() -> impl Strategy<Value = Row> {
    let start = prop_oneof![4 => Just(0i64), 1 => 1..50i64];
    prop_oneof![
        6 => (0..12usize, time(), value(), start.clone()).prop_map(|(s, t, v, b)| Row::Float(s, t, v, b)),
        2 => (0..12usize, time(), value(), start).prop_map(|(s, t, v, b)| Row::Histogram(s, t, v, b)),
        1 => (0..12usize, time(), value()).prop_map(|(s, t, v)| Row::Exemplar(s, t, v)),
        1 => (0..3usize, 0..3u8).prop_map(|(m, h)| Row::Metadata(m, h)),
    ]
}

fn labels(n: usize) -> LabelSet {
    let (name, job) = (format!("m{}", n % 3), format!("j{}", n / 3));
    LabelSet::from_pairs([("__name__", name.as_str()), ("job", if n == 4 { "" } else { job.as_str() })])
}

fn to_batch(rows: &[Row]) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for row in rows {
        match *row {
            Row::Float(series, ts, value, start_ts) => {
                let series = batch.push_series(labels(series).canonical());
                batch.push_sample(series, ts, value, start_ts);
            }
            Row::Histogram(series, ts, sum, start_ts) => {
                let series = batch.push_series(labels(series).canonical());
                let positive_spans = vec![Span { offset: 1, length: 2 }];
                let histogram = Histogram { sum, positive_spans, positive: vec![1.0, 2.0], ..Histogram::default() };
                batch.histograms.push(HistogramSample { series, ts, start_ts, histogram });
            }
            Row::Exemplar(series, ts, value) => {
                let series = batch.push_series(labels(series).canonical());
                let labels = LabelSet::from_pairs([("trace_id", "abc")]).canonical().to_vec();
                batch.exemplars.push(Exemplar { series, ts, value, labels });
            }
            Row::Metadata(metric, help) => batch.metadata.push(MetricMetadata {
                metric: format!("m{metric}"),
                metric_type: "gauge".to_owned(),
                help: help.to_string(),
                unit: String::new(),
            }),
        }
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replay_gives_the_generation_back(
        writes in prop::collection::vec(prop::collection::vec(row(), 1..12), 1..12),
        segment_bytes in prop::sample::select(vec![1u64, 3000, 64 << 20]),
        seal_at in 0..20usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let settings = WriteSettings { segment_bytes, days_max: 100_000, ..settings() };
            let mut rig = try_open(dir.path(), Arc::new(LocalDisk), settings.clone()).unwrap();
            for (n, rows) in writes.iter().enumerate() {
                if n == seal_at {
                    rig.path.seal().await.unwrap();
                }
                rig.path.write_metrics(to_batch(rows)).await.unwrap();
            }
            rig.path.seal().await.unwrap();
            let mut live = Vec::new();
            while let Ok(generation) = rig.sealed.try_recv() {
                live.push(generation);
            }
            let again = try_open(dir.path(), Arc::new(LocalDisk), settings).unwrap();
            assert_eq!(again.replayed.len(), live.len());
            for (a, b) in again.replayed.iter().zip(&live) {
                assert_eq!((a.id(), a.range(), a.days(), a.samples()), (b.id(), b.range(), b.days(), b.samples()));
                assert_eq!((a.last_seq(), a.series()), (b.last_seq(), b.series()));
                assert_eq!(dump(a), dump(b));
            }
        });
    }
}
