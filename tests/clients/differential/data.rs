//! The data of the differential test, from a seed: counters with resets, gauges with gaps and stale markers, extreme
//! values, classic histograms, sparse series.
//!
//! Most timestamps are irregular and never coincide with the edge of a window: evaluations are at half seconds, steps of
//! subqueries at whole ones, and samples keep away from both. Metrics whose name begins with `grid_` have samples at
//! exact multiples of 15 s and are queried separately.

use quiver_tests::bodies::remote_write;
use rand::RngExt;
use rand::rngs::StdRng;

/// 2026-03-01 22:00 UTC.
pub(crate) const START_MS: i64 = 1_772_402_400_000;
/// How long the data is.
pub(crate) const LENGTH_MS: i64 = 100 * 60_000;
/// What is sent in one go: bodies come in order of time, as Prometheus wants them.
const SLICE_MS: i64 = 5 * 60_000;
/// Prometheus' mark for the end of a series.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// A series with its samples in order of time.
#[derive(Debug, Clone)]
struct Series {
    labels: Vec<(&'static str, String)>,
    samples: Vec<(i64, f64)>,
}

/// Instances and the jobs that they belong to.
const INSTANCES: [(&str, &str); 4] = [("i0", "a"), ("i1", "a"), ("i2", "b"), ("i3", "b")];

fn labels(name: &str, instance: usize, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let (instance, job) = INSTANCES[instance];
    let own = [("__name__", name), ("instance", instance), ("job", job)];
    own.iter().chain(more).map(|(n, v)| (*n, (*v).to_owned())).collect()
}

/// Moves a time away from whole and half seconds.
fn off_grid(ms: i64, random: &mut StdRng) -> i64 {
    ms.div_euclid(500) * 500 + random.random_range(40..460)
}

/// Irregular times about `step_ms` apart; with `gaps`, now and then minutes without any.
fn times(random: &mut StdRng, step_ms: i64, gaps: bool) -> Vec<i64> {
    let mut at = START_MS + random.random_range(0..step_ms);
    let mut times: Vec<i64> = Vec::new();
    while at < START_MS + LENGTH_MS {
        let ts = off_grid(at, random);
        if times.last().is_none_or(|&last| last < ts) {
            times.push(ts);
        }
        at += step_ms + random.random_range(-step_ms / 3..=step_ms / 3);
        if gaps && random.random_bool(0.006) {
            at += random.random_range(2..12) * 60_000;
        }
    }
    times
}

fn grid_times() -> Vec<i64> {
    (0..LENGTH_MS / 15_000).map(|n| START_MS + n * 15_000).collect()
}

/// Regular times, as those of a scrape: no window begins with a gap longer than usual.
fn scrapes(random: &mut StdRng) -> Vec<i64> {
    grid_times().into_iter().map(|ts| ts + random.random_range(40..460)).collect()
}

/// A counter that begins anew now and then: far from zero always, or `near` zero after its first reset.
///
/// Where a window begins with a long gap and the counter near zero, 2.42 extrapolates farther (changed in 2.51, #13725):
/// so counters near zero have regular samples.
fn counter(random: &mut StdRng, times: &[i64], near: bool) -> Vec<(i64, f64)> {
    let mut value = if near { 1e6 } else { 1e9 };
    let speed = random.random_range(1..40);
    let one = |&ts: &i64| {
        value += f64::from(random.random_range(0..=speed));
        if random.random_bool(0.006) {
            value = if near { f64::from(random.random_range(0..3)) } else { (value / 10.0).floor() };
        }
        (ts, value)
    };
    times.iter().map(one).collect()
}

/// A gauge on eighths, of both signs, that sometimes stays and sometimes ends with a stale marker.
fn gauge(random: &mut StdRng, times: &[i64], stale: bool) -> Vec<(i64, f64)> {
    let mut value = f64::from(random.random_range(-400..400));
    let one = |&ts: &i64| {
        if random.random_bool(0.8) {
            value += f64::from(random.random_range(-64..=64)) / 8.0;
        }
        (ts, if stale && random.random_bool(0.01) { STALE } else { value })
    };
    times.iter().map(one).collect()
}

fn special(random: &mut StdRng, times: &[i64], kind: usize) -> Vec<(i64, f64)> {
    let mixes: [&[f64]; 5] = [
        &[f64::NAN, 1.0, 2.0],
        &[f64::INFINITY, 1.0, -3.0],
        &[f64::INFINITY, f64::NEG_INFINITY, 0.5],
        &[-0.0, 0.0, 1.0],
        &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-300, 1e300],
    ];
    let mix = mixes[kind];
    times.iter().map(|&ts| (ts, mix[random.random_range(0..mix.len())])).collect()
}

fn histogram(random: &mut StdRng, times: &[i64], instance: usize, out: &mut Vec<Series>) {
    let bounds = ["0.1", "0.25", "0.5", "1", "2.5", "5", "+Inf"];
    let mut counts = [1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0];
    let mut sum = 5000.0;
    let mut columns = vec![Vec::new(); bounds.len() + 2];
    for &ts in times {
        if random.random_bool(0.005) {
            (counts, sum) = ([0.0; 7], 0.0);
        }
        for _ in 0..random.random_range(0..9) {
            let bucket = random.random_range(0..bounds.len());
            counts[bucket..].iter_mut().for_each(|c| *c += 1.0);
            sum += bucket as f64 / 4.0;
        }
        counts.iter().enumerate().for_each(|(i, c)| columns[i].push((ts, *c)));
        columns[bounds.len()].push((ts, counts[6]));
        columns[bounds.len() + 1].push((ts, sum));
    }
    for (i, samples) in columns.into_iter().enumerate() {
        let labels = match i {
            7 => labels("latency_count", instance, &[]),
            8 => labels("latency_sum", instance, &[]),
            // One histogram lacks its last bucket: quantiles over it are NaN.
            6 if instance == 3 => continue,
            _ => labels("latency_bucket", instance, &[("le", bounds[i])]),
        };
        out.push(Series { labels, samples });
    }
}

fn all(random: &mut StdRng) -> Vec<Series> {
    let mut out = Vec::new();
    for instance in 0..INSTANCES.len() {
        for (n, mode) in ["x", "y", "z"].into_iter().enumerate() {
            let gaps = n == 2;
            let times = if n == 1 { scrapes(random) } else { times(random, 15_000, gaps) };
            let samples = counter(random, &times, n == 1);
            out.push(Series { labels: labels("counter_total", instance, &[("mode", mode)]), samples });
        }
        for device in ["d0", "d1"] {
            let times = times(random, 20_000, true);
            let samples = gauge(random, &times, device == "d1");
            out.push(Series { labels: labels("gauge", instance, &[("device", device)]), samples });
        }
        let rare = times(random, 7 * 60_000, false);
        out.push(Series { labels: labels("sparse", instance, &[]), samples: gauge(random, &rare, false) });
        let ones = times(random, 30_000, false).into_iter().map(|ts| (ts, 1.0)).collect();
        let version = ["1.0", "1.1"][instance % 2];
        out.push(Series { labels: labels("build_info", instance, &[("version", version)]), samples: ones });
        let scrapes = scrapes(random);
        histogram(random, &scrapes, instance, &mut out);
        for mode in ["x", "y"] {
            let samples = counter(random, &grid_times(), true);
            out.push(Series { labels: labels("grid_total", instance, &[("mode", mode)]), samples });
        }
        let samples = gauge(random, &grid_times(), instance == 1);
        out.push(Series { labels: labels("grid_gauge", instance, &[("device", "d0")]), samples });
    }
    for kind in 0..5 {
        let times = times(random, 20_000, kind == 3);
        let samples = special(random, &times, kind);
        let shown = ["k0", "k1", "k2", "k3", "k4"][kind];
        out.push(Series { labels: labels("special", kind % 4, &[("kind", shown)]), samples });
    }
    for job in ["a", "b"] {
        let times = times(random, 25_000, false);
        let labels = vec![("__name__", "quota".to_owned()), ("job", job.to_owned())];
        out.push(Series { labels, samples: gauge(random, &times, false) });
    }
    for path in ["/a", "/b\u{fc}", "c\"d", ""] {
        let times = times(random, 15_000, false);
        let mut labels = vec![("__name__", "odd".to_owned()), ("job", "a".to_owned()), ("n", path.len().to_string())];
        labels.extend((!path.is_empty()).then(|| ("path", path.to_owned())));
        out.push(Series { labels, samples: gauge(random, &times, false) });
    }
    out
}

/// Makes the remote-write bodies, in order of time.
pub(crate) fn bodies(random: &mut StdRng) -> Vec<Vec<u8>> {
    let series = all(random);
    let slice = |from: i64| {
        let mut body = Vec::new();
        for one in &series {
            let within = |(ts, _): &&(i64, f64)| (from..from + SLICE_MS).contains(ts);
            let samples: Vec<_> = one.samples.iter().filter(within).copied().collect();
            if !samples.is_empty() {
                body.push((one.labels.iter().map(|(n, v)| (*n, v.as_str())).collect(), samples));
            }
        }
        remote_write(&body)
    };
    (0..LENGTH_MS / SLICE_MS).map(|n| slice(START_MS + n * SLICE_MS)).collect()
}
