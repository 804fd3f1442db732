//! Torn and damaged ends of the WAL (promise D4): the server always starts, acknowledged data is there, nothing that was
//! never sent is, and damage is counted.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Piece, Run, Shape, Writer, Written, seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::arena::{START_MS, comes_up};
use crate::wal_file::{SegmentFile, copy, newest_segment};

const METRIC: &str = "torn_samples";
/// Requests that are acknowledged before the one that is not.
const ACKNOWLEDGED: usize = 12;

/// A killed installation: all requests but the last were acknowledged, the last stands in the log as a whole.
struct Killed {
    dir: tempfile::TempDir,
    history: Arc<History>,
    requests: Vec<Vec<Piece>>,
    segment: SegmentFile,
}

/// What replay has to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Nothing.
    Whole,
    /// A torn tail.
    Torn,
    /// Damaged records.
    Damaged,
}

fn options() -> Options {
    Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_COMPACTION__ENABLED", "false")
}

async fn killed(seed: u64) -> Killed {
    let dir = tempfile::tempdir().expect("a folder");
    let history = Arc::new(History::default());
    let armed = options().env("QUIVER_FAILPOINT", format!("wal.after-write:{}", ACKNOWLEDGED + 1));
    let mut server = Server::spawn(dir.path(), &armed).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let run = Run::new(&caller, &history);
    let mut writer = Writer::new(0, Shape::small(METRIC), seed, START_MS);
    let mut requests = Vec::new();
    // All series first, so that the last record is one of samples alone.
    let all: Vec<Piece> = (0..3).map(|i| (format!("0-{i}"), vec![(START_MS, f64::from(i))])).collect();
    for i in 0..=ACKNOWLEDGED {
        let pieces = if i == 0 { all.clone() } else { writer.request() };
        let written = writer.send(&run, &pieces).await;
        assert_eq!(written == Written::Taken, i < ACKNOWLEDGED, "request {i}: {written:?}");
        requests.push(pieces);
    }
    assert_eq!(server.ended().signal(), Some(6));
    let segment = newest_segment(dir.path());
    assert_eq!(segment.records.len(), requests.len() + 1, "one record of samples for each request, one of definitions");
    Killed { dir, history, requests, segment }
}

impl Killed {
    /// Gives a copy whose newest segment has other bytes.
    fn damaged(&self, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        copy(self.dir.path(), dir.path());
        let path = dir.path().join("wal").join(self.segment.path.file_name().expect("a name"));
        std::fs::write(&path, bytes).expect("written");
        (dir, path)
    }

    /// Starts on other bytes in the newest segment and compares: all that was acknowledged but the requests in
    /// `damaged`.
    async fn check(&self, what: &str, bytes: &[u8], expected: Expected, damaged: &[usize]) {
        let (dir, path) = self.damaged(bytes);
        // The history of this copy: its own, since the copies settle differently.
        let history = History::default();
        for (i, pieces) in self.requests.iter().enumerate() {
            for (series, samples) in pieces {
                if !damaged.contains(&i) {
                    history.sent(series, samples);
                }
                if i < ACKNOWLEDGED && !damaged.contains(&i) {
                    history.acknowledged(series, samples);
                }
            }
        }
        assert!(history.kept() <= self.history.kept(), "a part of what was acknowledged");
        let (server, caller) = start(dir.path(), what).await;
        compare(&caller, &history, what).await;
        let corrupt = caller.metric("quiver_wal_corrupt_records_total").await.expect("it lives");
        let torn = caller.metric("quiver_wal_torn_tails_total").await.expect("it lives");
        let counted = match expected {
            Expected::Whole => corrupt == 0.0 && torn == 0.0,
            Expected::Torn => corrupt == 0.0 && torn == 1.0,
            Expected::Damaged => corrupt >= 1.0,
        };
        assert!(counted, "{what}: expected {expected:?}, counted {corrupt} damaged records and {torn} torn tails");
        server.flush().await;
        compare(&caller, &history, what).await;
        let aside = dir.path().join("wal/quarantine").join(path.file_name().expect("a name"));
        assert_eq!(aside.exists(), expected == Expected::Damaged, "{what}: segments with damage are kept aside");
        server.kill();
    }
}

async fn start(data: &Path, what: &str) -> (Server, Caller) {
    let mut server = Server::spawn(data, &options()).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "{what}: the server does not start");
    (server, caller)
}

async fn compare(caller: &Caller, history: &History, what: &str) {
    let (first, last) = history.bounds().expect("written");
    // Wide enough for anything that nobody sent.
    let found = caller.samples(METRIC, first - 86_400_000, last + 86_400_000).await.expect("it lives");
    let verdict = history.judge(&found.unwrap_or_else(|e| panic!("{what}: {e}")), true);
    assert!(verdict.clean(), "{what}: {verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_and_damaged_tails() {
    let seed = seed("torn_and_damaged_tails");
    let mut rng = SmallRng::seed_from_u64(seed);
    let killed = killed(seed).await;
    let bytes = &killed.segment.bytes;
    let last = *killed.segment.records.last().expect("records");
    let length = last.end - last.start;

    killed.check("as it was", bytes, Expected::Whole, &[]).await;
    killed.check("the last record cut off", &bytes[..last.start], Expected::Whole, &[]).await;
    let cuts: Vec<usize> =
        if soak() { (1..length).collect() } else { vec![1, 31, 32, rng.random_range(33..length - 1), length - 1] };
    for kept in cuts {
        let what = format!("{kept} of {length} bytes of the last record");
        killed.check(&what, &bytes[..last.start + kept], Expected::Torn, &[]).await;
    }
    let flips: Vec<usize> =
        if soak() { (0..length).collect() } else { vec![0, 5, rng.random_range(8..32), rng.random_range(32..length)] };
    for at in flips {
        let mut other = bytes.clone();
        other[last.start + at] ^= 1 << rng.random_range(0..8);
        let what = format!("byte {at} of {length} of the last record flipped");
        killed.check(&what, &other, Expected::Damaged, &[ACKNOWLEDGED]).await;
    }
    let mut zeros = bytes.clone();
    zeros.resize(bytes.len() + 4096, 0);
    killed.check("zeros behind the last record", &zeros, Expected::Torn, &[]).await;
    let mut zeros = bytes.clone();
    zeros[last.start..].fill(0);
    killed.check("zeros instead of the last record", &zeros, Expected::Torn, &[]).await;
    let mut noise = bytes.clone();
    noise.extend((0..200).map(|_| rng.random::<u8>()));
    killed.check("noise behind the last record", &noise, Expected::Damaged, &[]).await;
}

/// What these tests rest on: a loss shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_seen() {
    let killed = killed(seed("a_loss_is_seen")).await;
    let record = killed.segment.records[ACKNOWLEDGED];
    let (dir, _) = killed.damaged(&killed.segment.bytes[..record.start]);
    let (server, caller) = start(dir.path(), "an acknowledged record cut off").await;
    let (first, last) = killed.history.bounds().expect("written");
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("an answer");
    let verdict = killed.history.judge(&found, true);
    assert!(verdict.lost > 0 && verdict.phantom == 0 && verdict.duplicate == 0, "{verdict}");
    server.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_middle() {
    let seed = seed("damage_in_the_middle");
    let mut rng = SmallRng::seed_from_u64(seed);
    let killed = killed(seed).await;
    let (bytes, records) = (&killed.segment.bytes, &killed.segment.records);
    for _ in 0..if soak() { 200 } else { 4 } {
        // Not the first write, which holds the definitions; requests are numbered in the order of their writes.
        let request = rng.random_range(1..ACKNOWLEDGED);
        let record = records.iter().filter(|r| r.kind == 1).nth(request).expect("one for each request");
        assert_eq!(record.seq, records[0].seq + request as u64);
        let at = rng.random_range(record.start..record.end);
        let mut other = bytes.clone();
        other[at] ^= 1 << rng.random_range(0..8);
        let what = format!("byte {} of request {request} flipped", at - record.start);
        killed.check(&what, &other, Expected::Damaged, &[request]).await;
    }
}
