//! A long WAL is replayed fast and within the memory limit, and no request is served before the replay is complete
//! (promise D6). In CI a tenth of it.

use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use quiver_tests::held_server::Hold;
use quiver_tests::load::{Caller, soak};
use quiver_tests::server::{Options, Server};

use crate::arena::{comes_up, kill};

const ROWS: usize = 2000;
const TEXT: usize = 1000;
const COUNT: (&str, &[(&str, &str)]) =
    ("/logs-api/select/logsql/query", &[("query", "* | stats count() as rows | fields rows")]);
/// What promise D6 says of a build with optimizations; others only have to come up.
const READY_WITHIN: Duration = Duration::from_secs(20);
const RATE_MIN: f64 = 80e6;

/// Bytes of the log, and the limit of memory under which it is replayed.
fn scale() -> (u64, u64) {
    if soak() { (1 << 30, 1 << 30) } else { (100 << 20, 320 << 20) }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let bytes = |path: &Path| if path.is_dir() { bytes_below(path) } else { path.metadata().map_or(0, |m| m.len()) };
    entries.map(|entry| bytes(&entry.path())).sum()
}

/// Writes rows that nobody flushes until the log is as long; gives how many they are.
async fn filled(dir: &Path, bytes: u64) -> u64 {
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", "8GiB").env("QUIVER_MEMORY__GENERATION", "3GiB");
    let mut server = Server::spawn(dir, &options.env("QUIVER_LOG__FILTER", "off")).expect("it says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let mut rows = 0;
    while bytes_below(&dir.join("wal")) < bytes {
        let lines: String = (0..ROWS).map(|n| format!("{{\"_msg\":\"{:0>TEXT$}\"}}\n", rows + n as u64)).collect();
        let answer = caller.post("/insert/jsonline", lines.into_bytes()).await.expect("it lives");
        assert_eq!(answer.0, 200, "{}", answer.1);
        rows += ROWS as u64;
    }
    kill(&mut server);
    rows
}

/// Waits for an answer, which comes when the start is over or after a while, and looks at the memory meanwhile.
async fn watched<T>(server: &Server, most: &mut u64, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    loop {
        *most = (*most).max(server.shipped_rss_bytes());
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(5), answer.as_mut()).await {
            return answer;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_long_log_is_replayed_fast_and_within_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bytes, limit) = scale();
    let rows = filled(dir.path(), bytes).await;
    let mut options = Options::default().env("QUIVER_MEMORY__LIMIT", limit).env("QUIVER_LOG__FILTER", "off");
    let hold = Hold::default();
    if !soak() {
        // Somebody asks before a tenth of the log is replayed, however late.
        options = options.env("QUIVER_FAILPOINT", hold.at("replay.after-segment"));
    }
    let began = Instant::now();
    let server = Server::spawn(dir.path(), &options).expect("it says where it listens");
    let caller = Caller::new(&server.http);
    let wanted = format!("{{\"rows\":\"{rows}\"}}\n");
    let (mut most, mut refused) = (0, 0);
    let took = loop {
        let asked = caller.get("/health/ready", &[]);
        let (ready, text) = watched(&server, &mut most, asked).await.expect("it lives");
        if ready == 200 {
            break began.elapsed();
        }
        assert_eq!(ready, 503, "{}", String::from_utf8_lossy(&text));
        assert!(began.elapsed() < Duration::from_mins(5), "the replay does not end");
        // Who is answered, because the replay ended meanwhile, sees all of it.
        match watched(&server, &mut most, caller.get(COUNT.0, COUNT.1)).await.expect("it lives") {
            (503, _) => {
                refused += 1;
                hold.release();
            }
            (200, found) => assert_eq!(String::from_utf8_lossy(&found), wanted),
            (status, text) => panic!("{status} {}", String::from_utf8_lossy(&text)),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    most = most.max(server.shipped_rss_bytes());
    let rate = bytes as f64 / took.as_secs_f64();
    let text = format!("{} MiB in {took:?}, {:.0} MB/s, {} MiB of memory", bytes >> 20, rate / 1e6, most >> 20);
    println!("{text}");
    assert!(refused > 0, "the replay was over before anybody asked: {text}");
    let (status, found) = caller.get(COUNT.0, COUNT.1).await.expect("it lives");
    assert_eq!((status, String::from_utf8_lossy(&found).into_owned()), (200, wanted), "{text}");
    assert!(most <= limit + limit * 15 / 100, "more than the limit and 15 %: {text}");
    if soak() && std::env::var_os("QUIVER_BINARY").is_some() {
        assert!(took <= READY_WITHIN && rate >= RATE_MIN, "{text}");
    }
}
