//! Disk errors (promise F2): the real server runs over a shim that makes the n-th `write`, `fsync`, `rename`, `read`,
//! creation or removal fail with EIO, on the files of the WAL, the catalog and the store.
//!
//! Whatever fails, acknowledged data stays, a response is complete or says that it is not, and work resumes when the disk
//! works again. After a failed sync, what it should have stored counts as lost: power cuts simulated from the trace of
//! the same run show that nothing relied on a later sync to store it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_tests::disk::{Area, Call, Watch};
use quiver_tests::load::{Caller, seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::arena::{busy, comes_up};
use crate::power_cut::content::{self, Content};
use crate::power_cut::senders::Senders;
use crate::power_cut::{judge_cuts, scratch};

const CALLS: [Call; 6] = [Call::Write, Call::Sync, Call::Rename, Call::Read, Call::Create, Call::Remove];
/// Requests of each signal while a fault is armed.
const REQUESTS: usize = 3;
/// A disk that is whole again is used again within this time.
const RECOVERS: Duration = Duration::from_mins(1);

struct Bench<'a> {
    watch: &'a Watch,
    data: &'a Path,
    options: Options,
    senders: Senders,
    server: Server,
    /// How often the server ended itself.
    ended: usize,
}

impl Bench<'_> {
    fn caller(&self) -> Caller {
        Caller::new(&self.server.http)
    }

    async fn restart(&mut self) {
        self.watch.kill(&mut self.server);
        self.server = Server::spawn(self.data, &self.options).expect("it starts on a whole disk");
        let caller = self.caller();
        assert!(comes_up(&mut self.server, &caller).await, "it starts on a whole disk");
        self.senders.ready(self.watch.place());
    }

    /// Writes, flushes, compacts; whatever fails fails.
    async fn work(&mut self, patience: Duration) {
        let (http, otlp) = (self.server.http.clone(), self.server.otlp_http.clone());
        self.senders.send(self.watch, &http, &otlp, REQUESTS).await;
        let caller = self.caller();
        for path in ["/admin/flush", "/admin/compact?force=true"] {
            let _ = tokio::time::timeout(patience, caller.post(path, Vec::new())).await;
        }
    }

    /// What is asked while the disk fails is whole, or says that it is not, or is refused.
    async fn asks(&mut self, when: &str) {
        if let Some((found, true)) = content::over_http(&self.server).await {
            self.judge(&found, &format!("{when}, while it fails"));
        }
    }

    fn judge(&self, found: &Content, when: &str) {
        let faults = self.senders.judge(found, self.watch.place());
        assert!(faults.is_empty(), "{when}: {}", faults.join("; "));
    }

    /// After the fault everything works and is there.
    async fn recovers(&mut self, when: &str) {
        if !self.server.runs() {
            self.ended += 1;
            self.restart().await;
        }
        let caller = self.caller();
        for path in ["/admin/flush", "/admin/compact?force=true"] {
            let answer = tokio::time::timeout(RECOVERS, caller.post(path, Vec::new())).await;
            let (status, text) = answer.unwrap_or_else(|_| panic!("{when}: {path} hangs")).expect("it lives");
            assert_eq!(status, 200, "{when}: {path}: {text}");
        }
        let before = self.senders.acknowledged();
        let (http, otlp) = (self.server.http.clone(), self.server.otlp_http.clone());
        self.senders.send(self.watch, &http, &otlp, 1).await;
        assert_eq!(self.senders.acknowledged(), before + 3, "{when}: writes are not taken again");
        let (found, whole) = content::over_http(&self.server).await.expect("it answers");
        assert!(whole, "{when}: something stays unreadable");
        self.judge(&found, when);
    }
}

/// How often each call is made in one round of work.
fn counts(watch: &Watch) -> BTreeMap<(Area, Call), u64> {
    let all = Area::ALL.into_iter().flat_map(|area| CALLS.into_iter().map(move |call| (area, call)));
    all.map(|(area, call)| ((area, call), watch.faults.calls(call, area))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn every_nth_call_may_fail() {
    let seed = seed("io_errors");
    let mut random = SmallRng::seed_from_u64(seed);
    let folder = scratch();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    let watch = Watch::new(&data);
    let options = busy(watch.options(Options::default(), true)).env("QUIVER_COMPACTION__ENABLED", "false");
    let server = Server::spawn(&data, &options).expect("it starts");
    let mut bench = Bench { watch: &watch, data: &data, options, senders: Senders::new(seed, true), server, ended: 0 };
    let caller = bench.caller();
    assert!(comes_up(&mut bench.server, &caller).await);
    bench.work(RECOVERS).await;
    let before = counts(&watch);
    bench.work(RECOVERS).await;
    let _ = content::over_http(&bench.server).await;
    let (mut tried, mut fired) = (0, 0);
    for (key, after) in counts(&watch) {
        let (area, call) = key;
        let calls = after - before[&key];
        let places: Vec<u64> = match calls {
            0 => continue,
            _ if soak() => (0..calls).step_by((calls as usize / 12).max(1)).collect(),
            _ => (0..2).map(|_| random.random_range(0..calls)).collect(),
        };
        for place in places {
            // One failure, and a disk that fails for a while.
            let failing = if random.random_bool(0.7) { 1 } else { 20 };
            let when = format!("seed {seed}: {area:?} {call:?} {place} of {calls}, {failing} times");
            watch.faults.arm(call, area, place as i64, failing);
            bench.work(Duration::from_millis(if failing == 1 { 5000 } else { 500 })).await;
            bench.asks(&when).await;
            tried += 1;
            fired += usize::from(watch.faults.heal() > 0);
            bench.recovers(&when).await;
            if random.random_bool(0.3) {
                bench.restart().await;
                let (found, whole) = content::over_http(&bench.server).await.expect("it answers");
                assert!(whole, "{when}");
                bench.judge(&found, &format!("{when}, started again"));
            }
        }
    }
    watch.kill(&mut bench.server);
    println!("{fired} of {tried} faults met, the server ended itself {} times", bench.ended);
    assert!(fired * 2 > tried, "{fired} of {tried} faults met");
    judge_cuts("io_errors", &watch, &Arc::new(bench.senders), if soak() { 1000 } else { 100 }, &mut random).await;
}
