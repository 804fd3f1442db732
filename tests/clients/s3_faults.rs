//! A faulty object store: slow responses, errors, broken connections, truncated bodies, wrong entity tags (promise F4),
//! and lost responses to uploads that succeeded, including the last part of a multipart upload (promise F5). Writes must
//! go on, acknowledged data must be neither lost nor duplicated, the catalog must list each object once, and leftovers
//! must be cleaned up.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::s3::{FAULTS, Fault, S3Server};
use quiver_tests::server::{Options, Server, binary, run};

use crate::tools::{soak, until};

const T0_MS: i64 = 1_700_000_000_000;
const PATIENCE: Duration = Duration::from_mins(2);
const SERIES: usize = 100;
const SAMPLES: usize = 20;
/// Kinds of faults that a run must meet, and most rounds of writes until then.
const KINDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 1000;

/// Doubles that no codec makes smaller.
fn noise(bits: &mut u64) -> f64 {
    *bits ^= *bits << 13;
    *bits ^= *bits >> 7;
    *bits ^= *bits << 17;
    f64::from_bits(*bits >> 12 | 0x3ff0_0000_0000_0000)
}

fn body(round: usize, series: usize, samples: usize) -> Vec<u8> {
    let mut bits = 0x9e37_79b9_7f4a_7c15 ^ (round as u64 + 1);
    let names: Vec<String> = (0..series).map(|i| i.to_string()).collect();
    let mut run = || (0..samples).map(|s| (T0_MS + (round * samples + s) as i64 * 1000, noise(&mut bits))).collect();
    let series: Vec<Series<'_>> =
        names.iter().map(|name| (vec![("__name__", "bad_store"), ("n", name.as_str())], run())).collect();
    remote_write(&series)
}

/// Counts all samples of the first `rounds` rounds; none: the store did not answer in time.
async fn count(server: &Server, rounds: usize, samples: usize) -> Option<usize> {
    let end = (T0_MS / 1000 + (rounds * samples) as i64).to_string();
    let query = format!("sum(count_over_time(bad_store[{}s]))", rounds * samples + 1);
    let answer = server.get_with("/metrics-api/api/v1/query", &[("query", &query), ("time", &end)]).await;
    if answer.status != 200 {
        // Told, not wrong.
        assert!(matches!(answer.status, 422 | 500 | 503), "{} {}", answer.status, answer.text());
        return None;
    }
    let data = answer.json()["data"].clone();
    Some(data["result"][0]["value"][1].as_str().and_then(|v| v.parse().ok()).unwrap_or(0))
}

/// Counts once the store answers: it may stand still for longer than the server tries.
async fn counted(server: &Server, rounds: usize, samples: usize) -> usize {
    let began = Instant::now();
    loop {
        if let Some(found) = count(server, rounds, samples).await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "the store does not answer");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn own(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|l| l.rsplit(' ').next()).and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

async fn drained(server: &Server) {
    until("an empty spool", PATIENCE, async || {
        own(server, "quiver_spool_bytes").await == 0.0 && own(server, "quiver_outbox_queue_length").await == 0.0
    })
    .await;
}

/// `quiver store check` finds nothing missing, nothing damaged, and no object that nobody names.
fn check(data: &Path, options: &Options) {
    let mut command = Command::new(binary());
    command.args(["store", "check"]).arg("--data").arg(data).args(&options.args);
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    let (code, shown, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{shown}{errors}");
    assert!(!shown.contains("named by nobody"), "leftovers outlived the cleaner: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_bad_store_loses_and_doubles_nothing() {
    let shares: &[f64] = if soak() { &[0.01, 0.1, 0.3, 0.5] } else { &[0.3] };
    for (n, &share) in shares.iter().enumerate() {
        let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
        let options = s3
            .options()
            .env("QUIVER_MEMORY__GENERATION", "128KiB")
            .env("QUIVER_STORE__RETRY_BUDGET", "3s")
            .env("QUIVER_COMPACTION__INTERVAL", "1s")
            .env("QUIVER_LOG__FILTER", "off");
        let server = Server::start(dir.path(), &options).await;
        s3.misbehave(n as u64, share, &FAULTS);
        let rounds_min = if soak() { 200 } else { 60 };
        let (mut rounds, mut slowest, mut unanswered) = (0, Duration::ZERO, 0);
        // On until enough has happened: what is cached or not yet uploaded asks the store for nothing.
        while rounds < rounds_min || (share >= 0.1 && s3.faults_met() < KINDS_MIN) {
            assert!(rounds < ROUNDS_MAX, "too little happened");
            let round = rounds;
            rounds += 1;
            if round >= rounds_min {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let began = Instant::now();
            server.write(body(round, SERIES, SAMPLES)).await;
            slowest = slowest.max(began.elapsed());
            if round % 10 == 9 {
                match count(&server, round + 1, SAMPLES).await {
                    Some(found) => assert_eq!(found, (round + 1) * SERIES * SAMPLES, "share {share}"),
                    None => unanswered += 1,
                }
            }
        }
        let done = s3.behave();
        drained(&server).await;
        let kinds: BTreeSet<Fault> = done.iter().map(|d| d.0).collect();
        println!("share {share}: {done:?}; slowest write {slowest:?}, {unanswered} questions without an answer");
        assert!(share < 0.1 || kinds.len() >= KINDS_MIN, "too little happened: {done:?}");
        let all = rounds * SERIES * SAMPLES;
        assert_eq!(counted(&server, rounds, SAMPLES).await, all, "healed");
        server.compact().await;
        assert_eq!(counted(&server, rounds, SAMPLES).await, all, "compacted");
        assert_eq!(server.stop(), Some(0));
        // What is left of uploads that failed goes with a start.
        let server = Server::start(dir.path(), &options).await;
        assert_eq!(counted(&server, rounds, SAMPLES).await, all, "started again");
        drained(&server).await;
        assert_eq!(server.stop(), Some(0));
        check(dir.path(), &options);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_lost_answer_to_the_last_part_names_an_object_once() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    let options = s3.options().env("QUIVER_STORE__RETRY_BUDGET", "20s").env("QUIVER_LOG__FILTER", "off");
    let server = Server::start(dir.path(), &options).await;
    // Some 20 MB that no codec makes smaller: several parts.
    let (rounds, series, samples) = (26, 10, 10_000);
    for round in 0..rounds {
        server.write(body(round, series, samples)).await;
    }
    s3.misbehave(7, 0.3, &[Fault::LostAnswer, Fault::Reset]);
    for _ in 0..3 {
        // Refused or not: what became of it shows at the end.
        let answer = server.post("/admin/compact?force=true", &[], vec![]).await;
        assert!(matches!(answer.status, 200 | 500 | 503), "{}", answer.text());
    }
    println!("{:?}", s3.behave());
    server.flush().await;
    server.compact().await;
    drained(&server).await;
    let all = rounds * series * samples;
    assert_eq!(counted(&server, rounds, samples).await, all);
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options).await;
    assert_eq!(counted(&server, rounds, samples).await, all, "started again");
    drained(&server).await;
    assert_eq!(server.stop(), Some(0));
    check(dir.path(), &options);
}
