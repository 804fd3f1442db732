//! Queries that explode: random combinations of everything that multiplies labels, rows, steps or text, over a small
//! memory limit. Each gets a result or an error; the memory of the process stays small meanwhile, and nothing keeps
//! running afterwards.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_api::AppState;
use quiver_promql::{PromqlError, QueryOptions, QueryTimes};
use quiver_query::{Limits, QueryContext};
use quiver_tests::time_limits::within_here;
use quiver_types::{Access, ErrorKind, Millis};
use rand::RngExt;
use rand::rngs::StdRng;
use tikv_jemalloc_ctl::{epoch, stats};

use crate::drive::{Target, say};
use crate::evaluate::{BASE_MS, SAMPLES, world};

/// Memory of a query.
const MEMORY_MAX: u64 = 48 << 20;
/// What a case may allocate beside what was there: what is counted, copies on their way, and texts of the query.
const HELD_MAX: usize = 4 * MEMORY_MAX as usize;
/// How long something may go on that nobody waits for any more.
const LINGER: Duration = Duration::from_secs(1);

/// A query and how many steps it has.
#[derive(Debug)]
struct Bomb {
    text: String,
    steps: i64,
}

fn grow(random: &mut StdRng, inner: &str) -> String {
    let times = |random: &mut StdRng, text: &str, most: usize| text.repeat(random.random_range(1..most));
    match random.random_range(0..20) {
        0 | 1 => {
            let template = times(random, "$1", 9);
            format!("label_replace({inner}, \"job\", \"{template}\", \"job\", \"(.*)\")")
        }
        2 => format!("label_replace({inner}, \"l{}\", \"$1\", \"job\", \"(.*)\")", random.random_range(0..50)),
        3 => format!(
            "label_join({inner}, \"instance\", \"-\", \"instance\", \"job\"{})",
            times(random, ", \"instance\"", 9)
        ),
        4..=6 => {
            let one = |c: char| format!("label_replace({inner}, \"x\", \"${{1}}{c}\", \"x\", \"(.*)\")");
            format!("({} or {})", one('a'), one('b'))
        }
        7 => format!("({inner} * on () group_left (job, instance, x) {inner})"),
        8 => format!("({inner} + on (job) group_right (x) fill (1) {inner})"),
        9 => format!("({inner} and {inner} unless foo)"),
        10 => format!("count_values without (x) (\"v{}\", {inner})", random.random_range(0..3)),
        11 => format!("count_values(\"v\", {inner} + time())"),
        12 => format!("info({inner}, {{__name__=~\".+\"}})"),
        13 => {
            let (range, step) = (random.random_range(1..2000), random.random_range(1..1000));
            format!("max_over_time({inner}[{range}s:{step}ms])")
        }
        14 => {
            format!("quantile_over_time(0.5, {inner}[{}m:{}s])", random.random_range(1..100), random.random_range(1..5))
        }
        15 => format!("topk({}, {inner})", [1.0, 1e3, 1e18][random.random_range(0..3)]),
        16 => {
            let quantiles: Vec<String> = (0..random.random_range(1..2000)).map(|i| format!("0.{i}")).collect();
            format!("histogram_quantiles({inner}, \"q\", {})", quantiles.join(", "))
        }
        17 => format!("sort_by_label({inner}, \"x\", \"job\")"),
        18 => format!("({inner}{})", times(random, " + time()", 300)),
        _ => format!("sum by (x, job, instance) ({inner})"),
    }
}

fn make(random: &mut StdRng) -> Bomb {
    let mut text = ["foo", "{__name__=~\".+\"}", "foo_bucket", "vector(time())"][random.random_range(0..4)].to_owned();
    for _ in 0..random.random_range(1..30) {
        let next = grow(random, &text);
        // What is refused for its length is a case of other tests.
        if next.len() > 200_000 {
            break;
        }
        text = next;
    }
    Bomb { text, steps: [1, 1, 100, 11_000][random.random_range(0..4)] }
}

async fn ask(app: &AppState, bomb: &Bomb) -> Result<(), PromqlError> {
    let limits = Limits { timeout: Duration::from_secs(2), memory_max: MEMORY_MAX, ..Limits::default() };
    let (ctx, options) = (QueryContext::new(Access::full(), limits), QueryOptions::default());
    let start: Millis = BASE_MS + SAMPLES * 7_500;
    if bomb.steps == 1 {
        return app.engines.promql.instant(&bomb.text, start, &options, &ctx).await.map(drop);
    }
    let times = QueryTimes::range(start, start + (bomb.steps - 1) * 100, 100)?;
    app.engines.promql.evaluate(&bomb.text, times, &options, &ctx).await.map(drop)
}

/// Bytes that the process has allocated now.
fn held() -> usize {
    epoch::advance().expect("jemalloc counts");
    stats::allocated::read().expect("jemalloc counts")
}

/// Set in the process that runs the queries.
const ALONE: &str = "QUIVER_FUZZ_ALONE";

/// In a process of its own: what is measured is all that a process holds, and other targets hold memory of theirs.
#[test]
fn queries_that_grow() {
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let mut alone = Command::new(std::env::current_exe().expect("this binary has a path"));
    alone.args(["--exact", "query_bombs::queries_that_grow", "--nocapture"]).env(ALONE, "1");
    assert!(alone.status().expect("it starts").success(), "see above");
}

fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let app = runtime.block_on(world(dir.path()));
    let (peak, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let watch = {
        let (peak, stop) = (Arc::clone(&peak), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                peak.fetch_max(held(), Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        })
    };
    let (mut answered, mut refused, mut late) = (0, 0, 0);
    let check = |bomb: &Bomb| {
        let before = held();
        peak.store(before, Relaxed);
        within_here("it goes on though nobody waits for it", LINGER, || {
            match runtime.block_on(ask(&app, bomb)) {
                Ok(()) => answered += 1,
                Err(e) => match e.kind() {
                    ErrorKind::Invalid | ErrorKind::Execution | ErrorKind::LimitExceeded => refused += 1,
                    ErrorKind::Timeout => late += 1,
                    kind => panic!("{kind:?}: {e}"),
                },
            }
            let began = Instant::now();
            while app.engines.query.used().running.load(Relaxed) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            began.elapsed()
        });
        let most = peak.load(Relaxed).saturating_sub(before);
        assert!(most <= HELD_MAX, "{} MiB held", most >> 20);
    };
    let target = Target { name: "query bombs", make, size: |bomb: &Bomb| bomb.text.len(), bytes_max: |_| u64::MAX };
    assert!(target.run(check) > 0);
    stop.store(true, Relaxed);
    watch.join().expect("it watches");
    say(&format!("query bombs: {answered} answered, {refused} refused, {late} out of time"));
    runtime.block_on(app.engines.store.close(Duration::from_secs(5)));
}
