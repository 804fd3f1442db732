//! The data set: a fixed rule from series and sample numbers to labels, times and values. Nothing is random, so every
//! bench and every machine sees the same.

use quiver_types::{LabelSet, MetricsBatch, Millis};

/// Series of the data set.
pub const SERIES: usize = 10_000;
/// Samples of each series.
pub const ROUNDS: usize = 1_000;
/// All samples.
pub const SAMPLES: usize = SERIES * ROUNDS;
/// Time between samples.
pub const STEP_MS: i64 = 15_000;
/// Time of the first samples; not on a border of hours or days.
pub const BASE_MS: Millis = 1_700_006_400_000;
/// Metric name of all series.
pub const METRIC: &str = "http_requests_total";
/// Values of the label `job`.
pub const JOBS: usize = 10;
/// Series per request, as Prometheus sends them by default.
pub const REQUEST_SERIES: usize = 500;

/// Time of the last samples.
pub fn last_ms() -> Millis {
    time_ms(ROUNDS - 1)
}

/// Time of a round.
pub fn time_ms(round: usize) -> Millis {
    BASE_MS + round as i64 * STEP_MS
}

/// Mixes a number (`SplitMix64`).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Label pairs of a series, sorted by name: as many and as long as those of a service behind a proxy.
pub fn labels(series: usize) -> Vec<(&'static str, String)> {
    vec![
        ("__name__", METRIC.to_owned()),
        ("instance", format!("10.0.{}.{}:9100", series % 500 / 250, series % 250)),
        ("job", format!("job-{}", series % JOBS)),
        ("method", ["GET", "POST", "PUT", "DELETE"][series / JOBS % 4].to_owned()),
        ("path", format!("/api/v1/resource/{series}")),
        ("status", ["200", "204", "404", "500"][series / 40 % 4].to_owned()),
    ]
}

/// Labels of a series in canonical form.
pub fn label_set(series: usize) -> LabelSet {
    let pairs = labels(series);
    LabelSet::from_pairs(pairs.iter().map(|(n, v)| (*n, v.as_str())))
}

/// Value of a series at a round: a counter that grows by a rate of its own, unevenly, and restarts now and then.
pub fn value(series: usize, round: usize) -> f64 {
    let life = 300 + series % 700;
    let rate = 1 + mix(series as u64) % 50;
    let noise = mix((series * ROUNDS + round) as u64) % (rate + 1);
    ((round % life) as u64 * rate * 2 + noise) as f64
}

/// One sample of each series in a range, as one request of remote write holds them.
pub fn request(first_series: usize, round: usize) -> MetricsBatch {
    batch(first_series, REQUEST_SERIES, round, 1)
}

/// Samples of some series over some rounds.
pub fn batch(first_series: usize, series: usize, first_round: usize, rounds: usize) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for n in first_series..first_series + series {
        let at = batch.push_series(label_set(n).canonical());
        for round in first_round..first_round + rounds {
            batch.push_sample(at, time_ms(round), value(n, round), 0);
        }
    }
    batch
}

/// Requests in the order in which a scraper sends them: all series of a round, then the next round, without end.
#[derive(Debug, Default)]
pub struct Requests {
    next: usize,
}

impl Requests {
    /// Gives the first series and the round of the next request.
    pub fn advance(&mut self) -> (usize, usize) {
        let per_round = SERIES / REQUEST_SERIES;
        let at = (self.next % per_round * REQUEST_SERIES, self.next / per_round);
        self.next += 1;
        at
    }
}
