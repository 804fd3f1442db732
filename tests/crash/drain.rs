//! Stopping (promise F9) and sharing (promise F10): SIGTERM under load ends within its time limit with exit code 0 and
//! all acknowledged data; a second process does no harm to the first.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Run, Shape, Writer, seed, soak};
use quiver_tests::server::{Options, Server, command, run};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::arena::{START_MS, busy, comes_up, store_check};

const METRIC: &str = "drain_samples";
/// What promise F9 says.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

async fn start(dir: &tempfile::TempDir, options: &Options) -> (Server, Caller) {
    let mut server = Server::spawn(dir.path(), options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    (server, caller)
}

async fn compare(caller: &Caller, history: &History, when: &str) {
    let Some((first, last)) = history.bounds() else { return };
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("an answer");
    let verdict = history.judge(&found, true);
    assert!(verdict.clean(), "{when}: {verdict}");
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn sigterm_under_load() {
    let seed = seed("sigterm_under_load");
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let history = Arc::new(History::default());
    let shape = Shape { pause_ms: 0, request_samples: 20, ..Shape::small(METRIC) };
    let mut writers: Vec<_> = (0..8).map(|i| Writer::new(i, shape.clone(), seed, START_MS)).collect();
    // Of both kinds of settings; a machine may stand still in some rounds.
    let (mut slowest, mut soonest) = (Duration::ZERO, [Duration::MAX; 2]);
    let rounds = if soak() { 50 } else { 5 };
    for round in 0..rounds {
        // By turns with segments and generations of usual and of small size.
        let options =
            if round % 2 == 0 { busy(Options::default()) } else { Options::default().env("QUIVER_LOG__FILTER", "off") };
        let (mut server, caller) = start(&dir, &options).await;
        compare(&caller, &history, &format!("round {round}")).await;
        let run = Run::new(&caller, &history);
        let tasks: Vec<_> = writers.drain(..).map(|w| tokio::spawn(w.run(run.clone()))).collect();
        let compaction = tokio::spawn({
            let caller = caller.clone();
            async move { while caller.post("/admin/compact?force=true", Vec::new()).await.is_some() {} }
        });
        let began = Instant::now();
        while run.counts.acknowledged.load(Relaxed) == 0 {
            assert!(began.elapsed() < Duration::from_mins(5), "round {round}: nothing is written");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..1500))).await;
        let began = Instant::now();
        server.terminate();
        assert_eq!(server.wait(), Some(0), "round {round}");
        let took = began.elapsed();
        soonest[round % 2] = soonest[round % 2].min(took);
        slowest = slowest.max(took);
        run.stop.store(true, Relaxed);
        compaction.abort();
        for task in tasks {
            let (writer, faults) = task.await.expect("a writer does not panic");
            assert!(faults.is_empty(), "round {round}: {faults:?}");
            writers.push(writer);
        }
        assert!(run.counts.acknowledged.load(Relaxed) > 0, "round {round}: nothing was written");
    }
    assert!(soonest.iter().all(|took| *took < STOPS_WITHIN), "a stop takes {soonest:?}, not {STOPS_WITHIN:?}");
    let (server, caller) = start(&dir, &Options::default()).await;
    compare(&caller, &history, "at the end").await;
    assert_eq!(server.stop(), Some(0));
    let (code, out, errors) = store_check(dir.path(), &Options::default());
    assert_eq!(code, Some(0), "{out}{errors}");
    println!("{rounds} stops under load, the slowest took {slowest:?}; {} samples kept", history.kept());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_during_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut server, caller) = start(&dir, &busy(Options::default())).await;
    let history = Arc::new(History::default());
    let run = Run::new(&caller, &history);
    let mut writer = Writer::new(0, Shape::small(METRIC), 1, START_MS);
    for _ in 0..50 {
        let pieces = writer.request();
        writer.send(&run, &pieces).await;
    }
    server.terminate();
    assert_eq!(server.wait(), Some(0));
    // The replay takes long. What has not ended in order after some seconds counts as hanging: so may a start on a machine
    // that stood still, once or twice.
    let slow = busy(Options::default()).env("QUIVER_FAILPOINT", "replay.begin=sleep:500");
    let ends = || {
        let mut server = Server::spawn(dir.path(), &slow).expect("the server says where it listens");
        server.terminate();
        server.wait()
    };
    let mut codes = (0..4).map(|_| ends());
    assert!(codes.any(|code| code == Some(0)), "it does not end in order");
    let (server, caller) = start(&dir, &Options::default()).await;
    compare(&caller, &history, "after the stop").await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_does_no_harm() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, caller) = start(&dir, &busy(Options::default())).await;
    let history = Arc::new(History::default());
    let writing = Run::new(&caller, &history);
    let task = tokio::spawn(Writer::new(0, Shape::small(METRIC), 2, START_MS).run(writing.clone()));
    for _ in 0..3 {
        let (code, _, errors) = run(&mut command(dir.path(), &Options::default()));
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("in use by another process"), "{errors}");
        let (code, _, errors) = store_check(dir.path(), &Options::default());
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("in use by another process"), "{errors}");
    }
    writing.stop.store(true, Relaxed);
    let (_, faults) = task.await.expect("a writer does not panic");
    assert!(faults.is_empty(), "{faults:?}");
    compare(&caller, &history, "beside the others").await;
    server.kill();
    let (server, caller) = start(&dir, &busy(Options::default())).await;
    compare(&caller, &history, "after a kill").await;
    assert_eq!(server.stop(), Some(0));
}
