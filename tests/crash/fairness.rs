//! Neither side starves the other (promise L2): senders and askers at capacity, each alone, then together, then three times
//! as many of both. Each side keeps a part of what it does alone, and who is refused is told soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::body::{Series, remote_write};
use quiver_tests::load::{Caller, Written, soak};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, comes_up};

const SERIES: usize = 500;
const QUERY: &str = "sum by (job) (rate(fairness_samples[10m]))";
/// As many of each as keep two processors busy.
const CLIENTS: usize = 4;

/// What a run of a build with optimizations has to keep up (promise L2); others share their processors with more.
#[derive(Debug, Clone, Copy)]
struct Scale {
    phase: Duration,
    /// Part of its lone throughput that each side keeps.
    kept: f64,
    refused_within: Duration,
}

fn scale() -> Scale {
    if soak() && std::env::var_os("QUIVER_BINARY").is_some() {
        Scale { phase: Duration::from_mins(1), kept: 0.5, refused_within: Duration::from_millis(100) }
    } else {
        // Beside other tests a share says little; a side that starves has next to nothing.
        Scale { phase: Duration::from_secs(6), kept: 0.02, refused_within: Duration::from_secs(10) }
    }
}

#[derive(Debug, Default)]
struct Tally {
    stop: AtomicBool,
    /// Requests of writes so far, which times of samples follow from.
    next: AtomicU64,
    written: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    /// The longest wait for a refusal, in µs.
    waited: AtomicU64,
}

impl Tally {
    fn refused(&self, since: Instant) {
        self.refused.fetch_add(1, Relaxed);
        self.waited.fetch_max(since.elapsed().as_micros() as u64, Relaxed);
    }
}

async fn send(caller: Caller, tally: Arc<Tally>, sender: usize) {
    let names: Vec<String> = (0..SERIES).map(|i| format!("{sender}-{i}")).collect();
    let job = format!("job-{}", sender % CLIENTS);
    while !tally.stop.load(Relaxed) {
        let ts = START_MS + tally.next.fetch_add(1, Relaxed) as i64 * 1000;
        let series: Vec<Series<'_>> = names
            .iter()
            .map(|name| {
                let labels = vec![("__name__", "fairness_samples"), ("instance", name.as_str()), ("job", job.as_str())];
                (labels, vec![(ts, ts as f64)])
            })
            .collect();
        let (body, began) = (remote_write(&series), Instant::now());
        match caller.write(body).await {
            Written::Taken => {
                tally.written.fetch_add(1, Relaxed);
            }
            Written::Later => {
                tally.refused(began);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            failed => panic!("a write failed: {failed:?}"),
        }
    }
}

/// Asks a question of its own, over and over: equal ones would share an answer while nobody writes.
async fn ask(caller: Caller, tally: Arc<Tally>, asker: usize) {
    let query = format!("{QUERY} + {asker}");
    let (start, end) = ((START_MS / 1000).to_string(), (START_MS / 1000 + 3600).to_string());
    let params = [("query", query.as_str()), ("start", &start), ("end", &end), ("step", "15"), ("nocache", "1")];
    while !tally.stop.load(Relaxed) {
        let began = Instant::now();
        let (status, body) = caller.get("/metrics-api/api/v1/query_range", &params).await.expect("it lives");
        match status {
            200 => {
                tally.answered.fetch_add(1, Relaxed);
            }
            429 | 503 => {
                tally.refused(began);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            _ => panic!("{status} {}", String::from_utf8_lossy(&body)),
        }
    }
}

/// Lets so many senders and askers work for a while; gives what they did.
async fn phase(caller: &Caller, next: u64, senders: usize, askers: usize, scale: Scale) -> Tally {
    let tally = Arc::new(Tally { next: AtomicU64::new(next), ..Tally::default() });
    let sending = (0..senders).map(|sender| tokio::spawn(send(caller.clone(), Arc::clone(&tally), sender)));
    let mut tasks: Vec<_> = sending.collect();
    tasks.extend((0..askers).map(|asker| tokio::spawn(ask(caller.clone(), Arc::clone(&tally), asker))));
    tokio::time::sleep(scale.phase).await;
    tally.stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("it is served or refused");
    }
    Arc::into_inner(tally).expect("nobody else has it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn neither_senders_nor_askers_starve_the_others() {
    let scale = scale();
    let dir = tempfile::tempdir().expect("a folder");
    // A debug build has more pages of its own, which count beside what queries hold.
    let limit = if soak() { "1GiB" } else { "2GiB" };
    let options = Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_MEMORY__LIMIT", limit);
    let mut server = Server::spawn(dir.path(), &options).expect("it says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let writes = phase(&caller, 0, CLIENTS, 0, scale).await;
    // All ask over the same hour, whatever is written meanwhile.
    let next = writes.next.load(Relaxed).max(3600);
    let queries = phase(&caller, next, 0, CLIENTS, scale).await;
    let both = phase(&caller, next, CLIENTS, CLIENTS, scale).await;
    let next = both.next.load(Relaxed);
    let thrice = phase(&caller, next, 3 * CLIENTS, 3 * CLIENTS, scale).await;
    let text = format!("{scale:?}: alone {writes:?} and {queries:?}, together {both:?}, three times {thrice:?}");
    println!("{text}");
    for (what, of) in [("together", &both), ("three times as many", &thrice)] {
        let part = |now: &AtomicU64, alone: &AtomicU64| now.load(Relaxed) as f64 / alone.load(Relaxed).max(1) as f64;
        let kept = (part(&of.written, &writes.written), part(&of.answered, &queries.answered));
        assert!(kept.0 >= scale.kept, "{what}: {:.2} of writes are left: {text}", kept.0);
        assert!(kept.1 >= scale.kept, "{what}: {:.2} of answers are left: {text}", kept.1);
        let waited = Duration::from_micros(of.waited.load(Relaxed));
        assert!(waited <= scale.refused_within, "{what}: a refusal came after {waited:?}: {text}");
    }
    assert_eq!(server.stop(), Some(0));
}
