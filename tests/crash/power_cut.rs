//! Power cuts (promise D3): the real server runs over a shim that records every change to its folder. From this trace,
//! the folder is rebuilt as a power cut at any moment could have left it: without what was not synced, or with any of it
//! in any order. Each such folder must open, and hold every record that was acknowledged before the cut, nothing that was
//! never sent, and no row twice.
//!
//! The server is also killed between runs, at fail points and random moments, so that data that one process wrote and
//! never synced is met by the next one.

pub(crate) mod content;
pub(crate) mod senders;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_store::{Store, StoreSettings, check};
use quiver_tests::disk::Watch;
use quiver_tests::disk::model::{Disk, Survival};
use quiver_tests::disk::trace::Trace;
use quiver_tests::load::{Caller, seed, soak};
use quiver_tests::server::{Options, Server};
use quiver_types::SystemClock;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::arena::{busy, chores, comes_up};
use crate::kill_plan::{self, Load, Round};
use content::Content;
use senders::Senders;

/// Longest wait for a fail point.
const PATIENCE: Duration = Duration::from_secs(2);
/// More requests than this are acknowledged before the power is cut.
const ACKNOWLEDGED_MIN: usize = 100;
/// Folders that are opened at a time.
const AT_A_TIME: usize = 3;
/// Every so often the store is flushed, compacted and checked after the cut.
const GO_ON_EVERY: usize = 10;

/// What a run is asked for.
struct Shape {
    name: &'static str,
    level: &'static str,
    lives: usize,
    cuts: usize,
}

/// Writes, flushes and compactions until the server dies; then it is started again, and so on.
async fn live(watch: &Watch, data: &Path, shape: &Shape, random: &mut SmallRng) -> Senders {
    let mut senders = Senders::new(random.random(), shape.level == "sync");
    let options = watch.options(busy(Options::default()).env("QUIVER_WAL__LEVEL", shape.level), true);
    let points =
        kill_plan::of_areas(&["open", "wal", "flush", "commit", "outbox", "object", "compact", "cleaner", "replay"]);
    for life in 0..3 * shape.lives {
        // A slow machine goes on until enough was written.
        if life >= shape.lives && senders.acknowledged() > ACKNOWLEDGED_MIN {
            break;
        }
        let round = match life {
            0 => kill_plan::birth(random.random_range(0..2), random),
            // A commit object whose name nobody synced is what the next process finds; the first is the epoch.
            1 => Round { point: Some("object.after-rename"), hit: 2, load: Load::Flushes },
            _ if life % 3 == 2 => kill_plan::random_kill(random),
            _ => kill_plan::at(points[random.random_range(0..points.len())], random),
        };
        one_life(watch, data, &options, &round, &mut senders, random).await;
    }
    // What doubtful requests left is told from what was lost: the last life answers everything.
    let round = Round { point: None, hit: 0, load: Load::Compactions };
    one_life(watch, data, &options, &round, &mut senders, random).await;
    senders
}

async fn one_life(
    watch: &Watch,
    data: &Path,
    options: &Options,
    round: &Round,
    senders: &mut Senders,
    random: &mut SmallRng,
) {
    let options = match round.point {
        Some(point) => options.clone().env("QUIVER_FAILPOINT", format!("{point}:{}", round.hit)),
        None => options.clone(),
    };
    let Some(mut server) = Server::spawn(data, &options) else { return };
    let caller = Caller::new(&server.http);
    if comes_up(&mut server, &caller).await {
        senders.ready(watch.place());
        let chance = Duration::from_millis(random.random_range(200..700));
        let patience = if round.point.is_some() { PATIENCE } else { chance };
        let chores = tokio::spawn(chores(caller.clone(), round.load, random.random_range(20..120)));
        let began = Instant::now();
        let (http, otlp) = (server.http.clone(), server.otlp_http.clone());
        let sending = senders.run(watch, &http, &otlp);
        let dying = async {
            while began.elapsed() < patience && server.runs() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            watch.kill(&mut server);
        };
        tokio::join!(sending, dying);
        chores.abort();
    }
    watch.kill(&mut server);
}

/// Compares the model of the disk with the disk: what the shim has not seen would show here.
fn nothing_passed_unseen(disk: &Disk<'_>, data: &Path) {
    let mut real = std::collections::BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(data.join(&folder)).expect("readable") {
            let entry = entry.expect("readable");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("known").is_dir() {
                folders.push(path);
            } else {
                real.insert(path.display().to_string(), std::fs::read(entry.path()).expect("readable"));
            }
        }
    }
    // Shared memory of SQLite, which it makes anew at a start.
    let counts = |path: &String| !path.ends_with("-shm") && !path.starts_with("spill");
    let mut seen = disk.now();
    seen.retain(|path, _| counts(path));
    real.retain(|path, _| counts(path));
    let names = |of: &std::collections::BTreeMap<String, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&seen), names(&real), "files");
    for (path, bytes) in &real {
        assert!(seen[path] == *bytes, "`{path}` was changed past the shim");
    }
}

fn settings(data: &Path) -> StoreSettings {
    let mut settings = StoreSettings { data_dir: data.to_owned(), retention: None, ..StoreSettings::default() };
    settings.compaction.enabled = false;
    settings
}

/// Opens what a cut left; gives what it holds, and what it holds after a flush and a compaction where that is asked for.
async fn open(data: &Path, go_on: bool) -> Result<Vec<Content>, String> {
    let open = || async {
        Store::open(settings(data), Arc::new(SystemClock)).await.map_err(|e| format!("it does not start: {e:?}"))
    };
    let store = open().await?;
    let mut found = vec![content::read(&store).await?];
    if go_on {
        store.flush_all().await.map_err(|e| format!("flush: {e:?}"))?;
        found.push(content::read(&store).await?);
        store.compact_all().await.map_err(|e| format!("compaction: {e:?}"))?;
        found.push(content::read(&store).await?);
    }
    store.close(Duration::ZERO).await;
    drop(store);
    if go_on {
        // What the closed store still had under way may hold its folder for a moment.
        let began = Instant::now();
        let report = loop {
            match check(settings(data)).await {
                Ok(report) => break report,
                Err(e) if e.message.contains("in use") && began.elapsed() < Duration::from_mins(1) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(e) => return Err(format!("check: {e:?}")),
            }
        };
        // What a job left that died is gone with the cleaner's run.
        if !report.sound() || !report.unknown.is_empty() {
            return Err(report.to_string());
        }
    }
    Ok(found)
}

/// A scratch folder in memory where there is one: what is synced there costs nothing.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

async fn cuts(shape: Shape) {
    let seed = seed(shape.name);
    let mut random = SmallRng::seed_from_u64(seed);
    let folder = scratch();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    let watch = Watch::new(&data);
    let senders = Arc::new(live(&watch, &data, &shape, &mut random).await);
    let trace = watch.trace();
    let mut whole = Disk::new(&trace);
    whole.advance(trace.changes.len());
    nothing_passed_unseen(&whole, &data);
    judge_cuts(shape.name, &watch, &senders, shape.cuts, &mut random).await;
    if shape.level == "sync" {
        // A disk that lies about the log must show, or this test would show nothing.
        let faults = open_cuts(Disk::new(&trace).lying_about("wal"), &trace, &senders, 40, &mut random).await;
        assert!(faults.iter().any(|fault| fault.contains("is lost")), "a lying disk goes unnoticed: {faults:?}");
    }
}

/// Cuts the power at moments of chance of a trace; gives what is wrong with what is left.
async fn open_cuts(
    mut disk: Disk<'_>,
    trace: &Trace,
    senders: &Arc<Senders>,
    cuts: usize,
    random: &mut SmallRng,
) -> Vec<String> {
    let mut moments: Vec<usize> = (0..cuts).map(|_| random.random_range(1..=trace.changes.len())).collect();
    moments.sort_unstable();
    let (mut running, mut faults) = (tokio::task::JoinSet::new(), Vec::new());
    for (n, moment) in moments.iter().copied().enumerate() {
        disk.advance(moment);
        let survival = Survival::choose(random);
        let left = scratch();
        disk.cut(left.path(), survival, random);
        while running.len() >= AT_A_TIME {
            faults.extend(running.join_next().await.expect("one runs").expect("it does not panic"));
        }
        let (senders, place) = (Arc::clone(senders), trace.changes[moment - 1].1);
        running.spawn(async move {
            let faults = match open(left.path(), n % GO_ON_EVERY == 0).await {
                Ok(found) => found.iter().flat_map(|found| senders.judge(found, place)).collect(),
                Err(text) => vec![text],
            };
            (!faults.is_empty()).then(|| format!("cut {n} at change {moment}, {survival:?}: {}", faults.join("; ")))
        });
    }
    while let Some(fault) = running.join_next().await {
        faults.extend(fault.expect("it does not panic"));
    }
    faults
}

/// Cuts the power at moments of chance, and compares what is left with what was acknowledged.
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
pub(crate) async fn judge_cuts(name: &str, watch: &Watch, senders: &Arc<Senders>, cuts: usize, random: &mut SmallRng) {
    let trace = watch.trace();
    assert!(senders.acknowledged() > ACKNOWLEDGED_MIN, "the server hardly wrote anything");
    let began = Instant::now();
    let faults = open_cuts(Disk::new(&trace), &trace, senders, cuts, random).await;
    println!(
        "{name}: {cuts} cuts over {} changes ({} MiB), {} of {} requests acknowledged, {:.1} s",
        trace.changes.len(),
        trace.bytes.len() >> 20,
        senders.acknowledged(),
        senders.sent(),
        began.elapsed().as_secs_f64()
    );
    let first = faults.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{name}: {} of {cuts} cuts: {first}", faults.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_nothing_acknowledged() {
    let (runs, cuts_each) = if soak() { (10, 1000) } else { (1, 1000) };
    for _ in 0..runs {
        cuts(Shape { name: "power_cut", level: "sync", lives: 12, cuts: cuts_each }).await;
    }
}

/// Level `os` loses at a cut what was not synced yet, but what was there before a restart is synced by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_makes_last_what_level_os_had_written() {
    let cuts_each = if soak() { 1000 } else { 150 };
    cuts(Shape { name: "power_cut_os", level: "os", lives: 6, cuts: cuts_each }).await;
}
