//! Measurements, run by hand: `cargo test --release -p quiver-store -- --ignored speed_of_reads --nocapture`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use super::*;

const STEP: Millis = 15_000;

fn name(i: usize) -> LabelSet {
    let (instance, path) = (format!("host-{}:9100", i % 500), format!("/api/v1/resource/{i}"));
    labels(&[("__name__", "http_requests_total"), ("instance", &instance), ("job", "api"), ("path", &path)])
}

fn run(labels: LabelSet, first: Millis, samples: usize) -> SeriesRun {
    let mut run = SeriesRun::new(labels, Arc::from("api"));
    (0..samples).for_each(|i| run.samples.push(first + i as Millis * STEP, (i * 7 % 1000) as f64, 0));
    run
}

/// Runs something several times; the least of its times in milliseconds.
fn least(mut run: impl FnMut()) -> f64 {
    let times = (0..7).map(|_| {
        let started = Instant::now();
        run();
        started.elapsed().as_secs_f64() * 1e3
    });
    times.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measurement"]
fn speed_of_reads() {
    let mut report = String::new();
    for (series, parts, samples, live) in
        [(10_000, 1, 480, 0), (10_000, 6, 80, 0), (10_000, 5, 80, 8), (200_000, 4, 4, 1)]
    {
        let mut world = World::new();
        for part in 0..parts {
            let first = part as Millis * samples as Millis * STEP;
            world.add_runs((0..series).map(|i| run(name(i), first, samples)).collect());
        }
        if live > 0 {
            let generation = world.add_generation();
            for i in 0..series {
                let first = parts as Millis * samples as Millis * STEP;
                let item = |t: usize| (name(i), first + t as Millis * STEP, Item::Float(t as f64, 0));
                world.insert(generation, &(0..live).map(item).collect::<Vec<_>>());
            }
        }
        let total = series * (parts * samples + live);
        writeln!(report, "{series} series, {parts} parts x {samples}, {live} live: {total} samples").expect("a text");
        let all = vec![Matcher::equal("__name__", "http_requests_total")];
        let one = [all.clone(), vec![Matcher::equal("path", "/api/v1/resource/77")]].concat();
        for (what, matchers) in [("all", all), ("one", one)] {
            let stats = Arc::new(ReadStats::default());
            let cold = least(|| drop(wait(select(&*world.snapshot(), matchers.clone(), MillisRange::ALL, &stats))));
            let source = world.source(world.seq);
            let select_warm = || wait(select(&*source.snapshot(), matchers.clone(), MillisRange::ALL, &stats));
            let warm = least(|| drop(select_warm()));
            let selected = select_warm();
            let scanned = least(|| drop(wait(scan(&selected, SampleRequest::default(), 1, &stats))));
            let rate = selected.table.len() as f64 / series as f64 * total as f64 / scanned / 1e3;
            let line =
                format!("  {what}: select {cold:.2} ms, repeated {warm:.3}; scan {scanned:.2} ms, {rate:.0} M/s");
            writeln!(report, "{line}").expect("a text");
        }
    }
    std::io::stderr().write_all(report.as_bytes()).expect("writes");
}
