//! Few file descriptors and threads (promise F8): the store works with what it has, refuses the rest as a temporary
//! failure (503), takes nothing for damage, loses nothing, and no thread spins meanwhile.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use quiver_tests::bodies::remote_write;
use quiver_tests::load::Caller;
use quiver_tests::server::{Options, Server};
use quiver_tests::threads::Threads;
use quiver_tests::time_limits::at_most;

use crate::arena::{START_MS, comes_up, kill, store_check};

/// Descriptors of the process: sockets, catalog, runtimes and log take some 60 of them.
const DESCRIPTORS: usize = 112;
/// Flushes without a compaction: each makes a part of three files that queries keep open.
const FLUSHES: i64 = 60;
const HOUR_MS: i64 = 3_600_000;

fn options() -> Options {
    Options::default().env("QUIVER_COMPACTION__ENABLED", "false").env("QUIVER_LOG__FILTER", "off")
}

async fn start(dir: &Path, options: &Options) -> (Server, Caller) {
    let mut server = Server::spawn(dir, options).expect("it starts with few descriptors");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "it dies of few descriptors");
    (server, caller)
}

/// Writes a sample at a minute of an hour of its own.
async fn write(caller: &Caller, n: i64) -> u16 {
    let body = remote_write(&[(vec![("__name__", "scarce"), ("n", "x")], vec![(START_MS + n * 60_000, n as f64)])]);
    caller.post("/metrics-api/api/v1/write", body).await.map_or(0, |(status, _)| status)
}

/// Asks for everything, from all parts at once. `None`: there was no place for the connection.
async fn ask(caller: &Caller) -> Option<Result<Option<f64>, String>> {
    let query = format!("count_over_time(scarce[{}ms])", HOUR_MS * 3);
    caller.number(&query, START_MS + HOUR_MS * 3 - 1).await
}

async fn count(caller: &Caller) -> Result<Option<f64>, String> {
    ask(caller).await.expect("it lives")
}

/// CPU time of a process in clock ticks (a hundredth of a second each).
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
}

fn open_descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn few_descriptors_are_shared() {
    let dir = tempfile::tempdir().expect("a folder");
    let few = options().limits(&format!("-n {DESCRIPTORS}"));
    let (server, caller) = start(dir.path(), &few).await;
    for n in 0..FLUSHES {
        assert_eq!(write(&caller, n).await, 204, "write {n} with {} open", open_descriptors(server.pid()));
        server.flush().await;
    }
    // More files than descriptors: those of parts make room for one another.
    for _ in 0..3 {
        assert_eq!(count(&caller).await, Ok(Some(FLUSHES as f64)), "{} open", open_descriptors(server.pid()));
    }
    assert_eq!(write(&caller, FLUSHES).await, 204);
    server.compact().await;
    assert_eq!(count(&caller).await, Ok(Some(FLUSHES as f64 + 1.0)));

    // Connections take the rest. Whatever is asked over those that are there is answered or refused, and comes back.
    let mut idle: Vec<TcpStream> = Vec::new();
    while open_descriptors(server.pid()) + 2 < DESCRIPTORS && idle.len() < 2 * DESCRIPTORS {
        idle.push(TcpStream::connect(&server.http).expect("the kernel queues it"));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    idle.extend((0..8).filter_map(|_| TcpStream::connect(&server.http).ok()));
    let (mut taken, mut refused) = (FLUSHES + 1, 0);
    for _ in 0..10 {
        let written = tokio::time::timeout(Duration::from_secs(2), write(&caller, taken)).await;
        match written {
            Ok(204) => taken += 1,
            Ok(503 | 0) | Err(_) => refused += 1,
            Ok(status) => panic!("status {status} for want of descriptors"),
        }
        // As with writes: the kernel may refuse what the server has no descriptor for.
        let asked = tokio::time::timeout(Duration::from_secs(2), ask(&caller)).await;
        match asked {
            Ok(Some(Ok(found))) => assert!(found >= Some((FLUSHES + 1) as f64), "{found:?}"),
            Ok(Some(Err(text))) => assert!(text.contains("503"), "{text}"),
            Ok(None) | Err(_) => {}
        }
    }
    let flushing = tokio::spawn({
        let caller = caller.clone();
        async move { caller.post("/admin/flush", Vec::new()).await }
    });
    // The flush may take some of the first two seconds; a circle takes all of all.
    let busy = at_most("hundredths of a second of CPU in 2 s of waiting", 100, async || {
        let before = cpu_ticks(server.pid());
        tokio::time::sleep(Duration::from_secs(2)).await;
        cpu_ticks(server.pid()) - before
    })
    .await;
    println!("{taken} taken, {refused} refused, {} open, {busy} ticks in 2 s", open_descriptors(server.pid()));
    drop(idle);
    let flushed = tokio::time::timeout(Duration::from_mins(5), flushing).await.expect("it recovers");
    // 503: there was no place for another connection.
    assert!(matches!(flushed, Ok(Some((200 | 503, _)) | None)), "{flushed:?}");
    let caller = Caller::new(&server.http);
    // Connections that went give their descriptors back as the server gets to them.
    let began = std::time::Instant::now();
    while write(&caller, taken).await != 204 {
        assert!(began.elapsed() < Duration::from_mins(5), "writes are taken again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let found = count(&caller).await.expect("answered again").expect("samples");
    assert!(found >= (taken + 1) as f64, "{found} of {}", taken + 1);
    server.flush().await;
    server.compact().await;
    assert_eq!(count(&caller).await, Ok(Some(found)));
    assert_eq!(server.stop(), Some(0));
    let (code, out, errors) = store_check(dir.path(), &options());
    assert_eq!(code, Some(0), "{out}{errors}");
}

/// A start that cannot be says so; one that can works.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_descriptors_are_told_at_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    for descriptors in [8, 12, 16, 24, 32] {
        let few = options().limits(&format!("-n {descriptors}"));
        let Some(mut server) = Server::spawn(dir.path(), &few) else { continue };
        let caller = Caller::new(&server.http);
        let began = std::time::Instant::now();
        while server.runs() && !caller.ready().await && began.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kill(&mut server);
    }
    // Nothing of that hurt the directory.
    let (server, caller) = start(dir.path(), &options()).await;
    assert_eq!(write(&caller, 1).await, 204);
    assert_eq!(count(&caller).await, Ok(Some(1.0)));
    assert_eq!(server.stop(), Some(0));
}

/// Longer than the runtime keeps a thread that has nothing to do.
const IDLE: Duration = Duration::from_secs(11);

/// Threads that are there go on when no other can be made; what needs one more is refused as passing.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn no_more_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let threads = Threads::new();
    let (server, caller) = start(dir.path(), &options()).await;
    for n in 0..FLUSHES {
        assert_eq!(write(&caller, n).await, 204);
        server.flush().await;
    }
    assert_eq!(server.stop(), Some(0));
    // Files that nobody has opened yet are read by many threads at once.
    let (mut server, caller) = start(dir.path(), &threads.options(options())).await;
    threads.refuse();
    let made = threads.made();
    assert!(made > 0, "threads are made past the shim");
    tokio::time::sleep(IDLE).await;
    let (mut taken, mut refused) = (FLUSHES, 0);
    for _ in 0..10 {
        match write(&caller, taken).await {
            204 => taken += 1,
            503 => refused += 1,
            status => panic!("status {status} for want of threads"),
        }
        // More at once than there are threads.
        for found in futures::future::join_all((0..32).map(|_| count(&caller))).await {
            match found {
                Ok(found) => assert_eq!(found, Some(taken as f64)),
                Err(text) => assert!(text.contains("503"), "{text}"),
            }
        }
        for path in ["/admin/flush", "/admin/compact?force=true"] {
            let answer = tokio::time::timeout(Duration::from_mins(5), caller.post(path, Vec::new())).await;
            assert!(matches!(answer, Ok(Some((200 | 503, _)))), "{path}: {answer:?}");
        }
    }
    let missing = threads.allow();
    println!("{taken} taken, {refused} refused, {made} threads, {missing} more refused");
    assert!(server.runs(), "it died for want of threads");
    assert_eq!(write(&caller, taken).await, 204);
    server.flush().await;
    server.compact().await;
    assert_eq!(count(&caller).await, Ok(Some(taken as f64 + 1.0)));
    assert_eq!(server.stop(), Some(0));
    let (code, out, errors) = store_check(dir.path(), &options());
    assert_eq!(code, Some(0), "{out}{errors}");
}
