//! Measurements, run by hand: `cargo test --release -p quiver-store -- --ignored speed --nocapture`.

use std::fmt::Write as _;
use std::time::Instant;

use quiver_types::LabelSet;

use super::*;

fn requests(series: usize, per_request: usize, rounds: usize) -> Vec<MetricsBatch> {
    let mut out = Vec::new();
    for round in 0..rounds {
        for first in (0..series).step_by(per_request) {
            let mut batch = MetricsBatch::default();
            for n in first..(first + per_request).min(series) {
                let (instance, path) = (format!("host-{}:9100", n % 500), format!("/api/v1/resource/{n}"));
                let labels = LabelSet::from_pairs([
                    ("__name__", "http_requests_total"),
                    ("instance", instance.as_str()),
                    ("job", "api-server"),
                    ("method", "GET"),
                    ("path", path.as_str()),
                    ("status", "200"),
                ]);
                let at = batch.push_series(labels.canonical());
                batch.push_sample(at, round as i64 * 15_000, (n * round) as f64, 0);
            }
            out.push(batch);
        }
    }
    out
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
#[ignore = "measurement"]
fn speed_of_writes_and_replay() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut report = String::new();
    for (series, per_request, rounds) in [(10_000, 500, 200), (200_000, 500, 5)] {
        let dir = TempDir::new().unwrap();
        let requests = requests(series, per_request, rounds);
        let samples = (series * rounds) as f64;
        let rig = Arc::new(
            try_open(
                dir.path(),
                Arc::new(LocalDisk),
                WriteSettings { generation_bytes: 4 << 30, memory_bytes: 8 << 30, ..settings() },
            )
            .unwrap(),
        );
        let (started, cpu) = (Instant::now(), cpu_seconds());
        runtime.block_on(async {
            let queue = Arc::new(Mutex::new(requests));
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let (rig, queue) = (Arc::clone(&rig), Arc::clone(&queue));
                    tokio::spawn(async move {
                        loop {
                            let Some(batch) = queue.lock().pop() else { break };
                            rig.path.write_metrics(batch).await.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let bytes: u64 = segments(dir.path()).iter().map(|p| p.metadata().unwrap().len()).sum();
        let generation = &rig.shared.visible().generations[0];
        let _ = writeln!(
            report,
            "{series} series: write {:.3} cpu us/sample, {:.2} M samples/s; WAL {:.1} B/sample; memory {:.1} B/sample rows, {} B/series registry",
            cpu * 1e6 / samples,
            samples / wall / 1e6,
            bytes as f64 / samples,
            generation.bytes() as f64 / samples,
            rig.registry.bytes() / series,
        );
        let (started, cpu) = (Instant::now(), cpu_seconds());
        let found = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap();
        let _ = writeln!(
            report,
            "  replay {:.0} MB/s, {:.3} cpu us/sample",
            bytes as f64 / started.elapsed().as_secs_f64() / 1e6,
            (cpu_seconds() - cpu) * 1e6 / samples
        );
        let started = Instant::now();
        let generation = &found[0].generation;
        let rows: usize = generation.days().into_iter().flat_map(|d| generation.runs(d)).map(|r| r.samples.len()).sum();
        let _ = writeln!(report, "  runs {:.1} M samples/s", rows as f64 / started.elapsed().as_secs_f64() / 1e6);
        let started = Instant::now();
        let found =
            generation.matching(&[Matcher::equal("job", "api-server")], &Access::full(), MillisRange::ALL, u64::MAX);
        let _ = writeln!(report, "  matching {} series {:.3} ms", found.len(), started.elapsed().as_secs_f64() * 1e3);
    }
    tracing::info!("{report}");
    // Without a subscriber the report would be lost; a failing name would not do either.
    std::fs::write(std::env::temp_dir().join("quiver-write-speed.txt"), report).unwrap();
}
