//! A query sees one state of the data (promise D11): while writers, flushes and compactions run, sums over all data never
//! decrease, include everything acknowledged before the query, and nothing sent after its response.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Run, Shape, Writer, seed, soak};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, busy, comes_up};

const METRIC: &str = "snapshot_samples";
/// Longer than all samples of a run.
const END_MS: i64 = START_MS + 20 * 86_400_000;
/// Longest wait for enough to happen.
const LONGEST: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn sums_never_dip() {
    let seed = seed("sums_never_dip");
    let dir = tempfile::tempdir().expect("a folder");
    let options = busy(Options::default()).env("QUIVER_COMPACTION__INTERVAL", "300ms");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let history = Arc::new(History::default());
    let run = Run::new(&caller, &history);
    let shape = Shape { ones: true, asked: 0.0, series: 10, ..Shape::small(METRIC) };
    let writers = (0..4).map(|i| tokio::spawn(Writer::new(i, shape.clone(), seed, START_MS).run(run.clone())));
    let writers: Vec<_> = writers.collect();
    let chores: Vec<_> = [("/admin/flush", 70), ("/admin/compact?force=true", 250)]
        .map(|(path, pause_ms)| tokio::spawn(chore(run.clone(), path, Duration::from_millis(pause_ms))))
        .into();

    let length = Duration::from_secs(if soak() { 3600 } else { 15 });
    let readers: Vec<_> = ["count_over_time", "sum_over_time"]
        .map(|function| {
            let query = format!("sum({function}({METRIC}[{}ms]))", END_MS - START_MS + 1);
            tokio::spawn(read(run.clone(), query, length))
        })
        .into();
    let mut answers = Vec::new();
    for reader in readers {
        answers.push(reader.await.expect("sums are right"));
    }
    run.stop.store(true, Relaxed);
    for writer in writers {
        let (_, faults) = writer.await.expect("a writer does not panic");
        assert!(faults.is_empty(), "{faults:?}");
    }
    let mut chores_done = Vec::new();
    for chore in chores {
        chores_done.push(chore.await.expect("flushes and compactions work"));
    }
    let found = caller.samples(METRIC, START_MS, END_MS).await.expect("it lives").expect("an answer");
    let verdict = history.judge(&found, true);
    assert!(verdict.clean(), "at the end: {verdict}");
    let [compactions, flushes] = runs(&caller).await;
    println!(
        "{answers:?} answers over {} samples during {flushes} flushes and {compactions} compactions",
        verdict.found
    );
    for n in answers {
        assert!(enough(&caller, n).await, "too little happened");
    }
    assert_eq!(server.stop(), Some(0));
}

/// Compactions and flushes.
async fn runs(caller: &Caller) -> [f64; 2] {
    let compactions = caller.metric("quiver_compaction_runs_total").await.expect("it lives");
    let flushes = caller.metric("quiver_flush_runs_total").await.expect("it lives");
    [compactions, flushes]
}

/// Says whether enough happened beside so many answers.
async fn enough(caller: &Caller, answers: usize) -> bool {
    let [compactions, flushes] = runs(caller).await;
    answers >= 20 && flushes >= 10.0 && compactions >= 5.0
}

/// Does the same again and again.
async fn chore(run: Run, path: &'static str, pause: Duration) -> usize {
    let mut done = 0;
    while !run.stop.load(Relaxed) {
        let (status, text) = run.caller.post(path, Vec::new()).await.expect("nobody kills it");
        assert_eq!(status, 200, "{path}: {text}");
        done += 1;
        tokio::time::sleep(pause).await;
    }
    done
}

/// Asks again and again; gives the number of answers.
async fn read(run: Run, query: String, length: Duration) -> usize {
    let (began, mut before, mut answers) = (Instant::now(), 0.0_f64, 0);
    // A slow machine goes on until enough has happened.
    while began.elapsed() < length || (began.elapsed() < LONGEST && !enough(&run.caller, answers).await) {
        let acknowledged = run.counts.acknowledged.load(Relaxed) as f64;
        let answer = run.caller.number(&query, END_MS).await.expect("nobody kills it");
        let sum = answer.unwrap_or_else(|e| panic!("{e}")).unwrap_or(0.0);
        let sent = run.counts.sent.load(Relaxed) as f64;
        assert!(sum >= before, "answer {answers}: {query} fell from {before} to {sum}");
        assert!(acknowledged <= sum, "answer {answers}: {query} is {sum}, but {acknowledged} were acknowledged before");
        assert!(sum <= sent, "answer {answers}: {query} is {sum}, but only {sent} were sent by then");
        before = sum;
        answers += 1;
    }
    answers
}
