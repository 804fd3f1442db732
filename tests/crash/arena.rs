//! One installation in the kill loop: data directory, writers, history. Each round starts the server, compares all data,
//! and puts load on it until it dies.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Run, Shape, Writer};
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, run};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;

use crate::kill_plan::{Load, Round, Tally};

/// 2026-03-01 23:30 UTC: the samples of a run reach into the next day.
pub(crate) const START_MS: i64 = 1_772_407_800_000;
/// How long a fail point may take to be passed before the server is killed without.
const MISSED_AFTER: Duration = Duration::from_secs(30);
const STARTED_WITHIN: Duration = Duration::from_mins(5);
pub(crate) const SIGABRT: i32 = 6;
pub(crate) const SIGKILL: i32 = 9;

/// Settings with which every path runs within a second: small generations, small segments, busy compaction.
pub(crate) fn busy(options: Options) -> Options {
    options
        .env("QUIVER_MEMORY__GENERATION", "128KiB")
        .env("QUIVER_WAL__SEGMENT", "32KiB")
        .env("QUIVER_COMPACTION__INTERVAL", "2s")
        .env("QUIVER_LOG__FILTER", "off")
}

/// Waits until requests are served; false: it died before.
pub(crate) async fn comes_up(server: &mut Server, caller: &Caller) -> bool {
    let began = Instant::now();
    loop {
        if caller.ready().await {
            return true;
        }
        if !server.runs() {
            return false;
        }
        assert!(began.elapsed() < STARTED_WITHIN, "the server is not ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a server and waits until it serves requests.
pub(crate) async fn start(data: &Path, options: &Options) -> (Server, Caller) {
    let mut server = Server::spawn(data, options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    (server, caller)
}

/// Lets tasks work on a server until it dies, or is killed after `patience`; gives back whether it died by itself, and
/// what the tasks give once they are told to stop.
pub(crate) async fn work_until_killed<T: 'static>(
    server: &mut Server,
    patience: Duration,
    stop: &AtomicBool,
    tasks: Vec<JoinHandle<T>>,
) -> (bool, Vec<T>) {
    let began = Instant::now();
    while began.elapsed() < patience && server.runs() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let died = !server.runs();
    kill(server);
    stop.store(true, Relaxed);
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.expect("a task holds"));
    }
    (died, done)
}

/// An installation that is killed again and again.
#[derive(Debug)]
pub(crate) struct Arena {
    name: String,
    dir: tempfile::TempDir,
    // Serves as long as the arena lives.
    _store: Option<S3Server>,
    metric: &'static str,
    options: Options,
    history: Arc<History>,
    writers: Vec<Writer>,
    rng: SmallRng,
    /// What happened.
    pub(crate) tally: Tally,
}

impl Arena {
    /// Makes a new one; with a store of its own if that is given.
    pub(crate) fn new(name: &str, seed: u64, store: Option<S3Server>) -> Self {
        let metric = "kill_loop_samples";
        let shape = Shape::small(metric);
        let options = busy(store.as_ref().map(S3Server::options).unwrap_or_default());
        Self {
            name: name.to_owned(),
            dir: tempfile::tempdir().expect("a folder"),
            _store: store,
            metric,
            options,
            history: Arc::default(),
            writers: (0..4).map(|i| Writer::new(i, shape.clone(), seed, START_MS)).collect(),
            rng: SmallRng::seed_from_u64(seed),
            tally: Tally::default(),
        }
    }

    /// Gives its dice.
    pub(crate) fn rng(&mut self) -> &mut SmallRng {
        &mut self.rng
    }

    fn spawn(&self, options: &Options) -> (Server, Caller) {
        let server = Server::spawn(self.dir.path(), options).expect("the server says where it listens");
        let caller = Caller::new(&server.http);
        (server, caller)
    }

    /// Runs one round; afterwards the server is dead.
    pub(crate) async fn round(&mut self, round: &Round) {
        let mut options = self.options.clone();
        if let Some(point) = round.point {
            options = options.env("QUIVER_FAILPOINT", format!("{point}:{}", round.hit));
        }
        let (mut server, caller) = self.spawn(&options);
        let up = comes_up(&mut server, &caller).await && self.compare(&caller, &format!("{round:?}")).await;
        if up {
            self.load(&mut server, &caller, round).await;
        } else {
            // It dies at its point, perhaps in the middle of our question.
            wait_for_end(&mut server).await;
            kill(&mut server);
        }
        let status = server.ended();
        match (status.signal(), round.point) {
            (Some(SIGKILL), point) => {
                self.tally.killed(None);
                if let Some(point) = point {
                    *self.tally.missed.entry(point).or_default() += 1;
                }
            }
            (Some(SIGABRT), Some(point)) => self.tally.killed(Some(point)),
            _ => panic!("{}: {round:?}: the server ended with {status}", self.name),
        }
    }

    /// Loads the server until it is dead, or long enough; then it is killed while requests are under way.
    async fn load(&mut self, server: &mut Server, caller: &Caller, round: &Round) {
        let run = Run::new(caller, &self.history);
        let busy = round.load != Load::Nothing;
        let writers = if busy { std::mem::take(&mut self.writers) } else { Vec::new() };
        let tasks: Vec<_> = writers.into_iter().map(|w| tokio::spawn(w.run(run.clone()))).collect();
        let chores = tokio::spawn(chores(caller.clone(), round.load, self.rng.random_range(20..200)));
        let chance = Duration::from_millis(self.rng.random_range(50..900));
        let patience = if round.point.is_some() { MISSED_AFTER } else { chance };
        let began = Instant::now();
        let mut told = round.load != Load::Stop;
        while began.elapsed() < patience && server.runs() {
            if !told && began.elapsed() > chance {
                server.terminate();
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        kill(server);
        chores.abort();
        run.stop.store(true, Relaxed);
        for task in tasks {
            let (writer, faults) = task.await.expect("a writer does not panic");
            assert!(faults.is_empty(), "{}: {round:?}: {faults:?}", self.name);
            self.writers.push(writer);
        }
    }

    /// Asks everything back and compares; false when the server died meanwhile.
    async fn compare(&mut self, caller: &Caller, when: &str) -> bool {
        let Some((first, last)) = self.history.bounds() else { return true };
        let found = match caller.samples(self.metric, first, last).await {
            None => return false,
            Some(found) => found.unwrap_or_else(|e| panic!("{}: {when}: {e}", self.name)),
        };
        let verdict = self.history.judge(&found, true);
        assert!(verdict.clean(), "{}: {when}: {verdict}", self.name);
        self.tally.checks += 1;
        true
    }

    /// The last round: no kill; compares live, flushed, compacted, then checks the store and starts once more.
    pub(crate) async fn finish(&mut self) {
        let options = self.options.clone();
        let (mut server, caller) = self.spawn(&options);
        assert!(comes_up(&mut server, &caller).await, "{}: the last start failed", self.name);
        for (path, state) in [("", "replayed"), ("/admin/flush", "flushed"), ("/admin/compact?force=true", "compacted")]
        {
            if !path.is_empty() {
                let answer = caller.post(path, Vec::new()).await.expect("nobody kills it now");
                assert_eq!(answer.0, 200, "{}: {path}: {}", self.name, answer.1);
            }
            assert!(self.compare(&caller, state).await, "{}: {state}: the server died", self.name);
        }
        assert_eq!(server.stop(), Some(0), "{}", self.name);
        self.check_store();
        let (mut server, caller) = self.spawn(&options);
        assert!(comes_up(&mut server, &caller).await, "{}: the start after the check failed", self.name);
        assert!(self.compare(&caller, "started again").await, "{}: the server died", self.name);
        assert_eq!(server.stop(), Some(0), "{}", self.name);
        self.tally.samples = self.history.kept();
    }

    /// `quiver store check` finds nothing missing, nothing damaged, and no file that nobody names (promise D2).
    fn check_store(&self) {
        let (code, out, errors) = store_check(self.dir.path(), &self.options);
        assert_eq!(code, Some(0), "{}: {out}{errors}", self.name);
        assert!(!out.contains("named by nobody"), "{}: files that nobody names outlived the cleaner: {out}", self.name);
    }

    /// Makes commit after commit until the server dies at a point that only many commits reach.
    pub(crate) async fn age(&mut self, point: &'static str, commits: usize) {
        let options = self.options.clone().env("QUIVER_FAILPOINT", point);
        let (mut server, caller) = self.spawn(&options);
        if comes_up(&mut server, &caller).await {
            let run = Run::new(&caller, &self.history);
            let mut writer = self.writers.pop().expect("writers");
            for _ in 0..commits {
                let pieces = writer.request();
                writer.send(&run, &pieces).await;
                if caller.post("/admin/flush", Vec::new()).await.is_none() {
                    break;
                }
            }
            self.writers.push(writer);
        }
        wait_for_end(&mut server).await;
        kill(&mut server);
        match server.ended().signal() {
            Some(SIGABRT) => self.tally.killed(Some(point)),
            other => panic!("{}: {point} was not passed in {commits} commits: {other:?}", self.name),
        }
    }
}

/// Ends the server if it is not dead yet.
pub(crate) fn kill(server: &mut Server) {
    if server.runs() {
        let _ = Command::new("kill").args(["-KILL", &server.pid().to_string()]).status();
        server.ended();
    }
}

async fn wait_for_end(server: &mut Server) {
    let began = Instant::now();
    while began.elapsed() < MISSED_AFTER && server.runs() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Flushes or compacts every few ms until the server is gone.
pub(crate) async fn chores(caller: Caller, load: Load, pause_ms: u64) {
    let path = match load {
        Load::Flushes => "/admin/flush",
        Load::Compactions => "/admin/compact?force=true",
        Load::Writes | Load::Nothing | Load::Stop => return,
    };
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        if caller.post(path, Vec::new()).await.is_none() {
            return;
        }
    }
}

/// Runs `quiver store check`; gives exit code, output, errors.
pub(crate) fn store_check(data: &Path, options: &Options) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(["store", "check", "--data"]).arg(data).args(&options.args);
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    run(&mut command)
}
