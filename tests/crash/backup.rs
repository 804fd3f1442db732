//! Backups under load and under kills (promise D13): a backup contains everything that was acknowledged before the call,
//! and nothing that was never sent. If the server or a restore dies in the middle, no harm is done, and the next call
//! continues.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver_store::failpoint::NAMES;
use quiver_tests::history::History;
use quiver_tests::load::{Run, Shape, Writer, seed};
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, run};

use crate::arena::{START_MS, busy, start, store_check};

const METRIC: &str = "backup_samples";

/// Asks a server for a backup; `None`: it died.
async fn backup(server: &Server, to: &Path) -> Option<u16> {
    let body = format!("{{\"to\":\"{}\"}}", to.display()).into_bytes();
    let sent = server.try_post("/admin/backup", &[("content-type", "application/json")], body).await;
    sent.ok().map(|answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.status
    })
}

/// Restores what lies beside the data directory that was saved, under its master key.
fn restore(from: &Path, data: &Path, point: Option<&str>) -> Command {
    let saved = from.parent().expect("a folder").join("data/master-key");
    std::fs::copy(saved, data.join("master-key")).expect("a key");
    let mut command = Command::new(binary());
    command.args(["restore", "--from"]).arg(from).arg("--data").arg(data);
    if let Some(point) = point {
        command.arg("--failpoints").env("QUIVER_FAILPOINT", point);
    }
    command
}

/// Restores and compares: all that `before` has kept is there, nothing that `after` does not know.
async fn compare(from: &Path, before: &History, after: &History, when: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let (code, out, errors) = run(&mut restore(from, dir.path(), None));
    assert_eq!(code, Some(0), "{when}: {out}{errors}");
    judge(dir.path(), before, after, when).await;
}

async fn judge(data: &Path, before: &History, after: &History, when: &str) {
    let (server, caller) = start(data, &Options::default()).await;
    let (first, last) = after.bounds().expect("written");
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("an answer");
    let (old, new) = (before.judge(&found, false), after.judge(&found, false));
    assert_eq!((old.lost, new.phantom, new.duplicate), (0, 0, 0), "{when}: before {old}; after {new}");
    assert_eq!(server.stop(), Some(0), "{when}");
    let (code, out, errors) = store_check(data, &Options::default());
    assert_eq!(code, Some(0), "{when}: {out}{errors}");
}

async fn under_load(options: &Options, seed: u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("backups");
    let history = Arc::new(History::default());
    let (server, caller) = start(&dir.path().join("data"), &busy(options.clone())).await;
    let run = Run::new(&caller, &history);
    let writers = (0..4).map(|i| Writer::new(i, Shape::small(METRIC), seed, START_MS));
    let tasks: Vec<_> = writers.map(|w| tokio::spawn(w.run(run.clone()))).collect();
    let compactions = tokio::spawn({
        let caller = caller.clone();
        async move { while caller.post("/admin/compact?force=true", Vec::new()).await.is_some() {} }
    });
    let began = Instant::now();
    while history.kept() == 0 {
        assert!(began.elapsed() < Duration::from_mins(5), "nothing is written");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = history.copy();
        assert!(backup(&server, &place).await.is_some());
        let after = history.copy();
        assert!(before.kept() > 0);
        compare(&place, &before, &after, &format!("round {round}")).await;
    }
    run.stop.store(true, Relaxed);
    for task in tasks {
        let (_, faults) = task.await.expect("a writer does not panic");
        assert!(faults.is_empty(), "{faults:?}");
    }
    compactions.abort();
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_while_writing_hold_their_moment() {
    let seed = seed("backups_while_writing_hold_their_moment");
    under_load(&Options::default(), seed).await;
    let s3 = S3Server::start().await;
    under_load(&s3.options(), seed.wrapping_add(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_in_backup_and_restore() {
    let seed = seed("kills_in_backup_and_restore");
    let dir = tempfile::tempdir().expect("a folder");
    let (data, place) = (dir.path().join("data"), dir.path().join("backups"));
    let history = Arc::new(History::default());
    let mut writer = Writer::new(0, Shape::small(METRIC), seed, START_MS);
    let points = |area: &str| NAMES.iter().copied().filter(|p| p.starts_with(area)).collect::<Vec<_>>();
    for point in points("backup.") {
        let (mut server, caller) = start(&data, &busy(Options::default()).env("QUIVER_FAILPOINT", point)).await;
        let run = Run::new(&caller, &history);
        for _ in 0..10 {
            let pieces = writer.request();
            writer.send(&run, &pieces).await;
        }
        assert_eq!(backup(&server, &place).await, None, "{point}");
        assert_eq!(server.ended().signal(), Some(6), "{point}");
        let (server, _) = start(&data, &busy(Options::default())).await;
        assert!(backup(&server, &place).await.is_some(), "{point}");
        server.kill();
    }
    compare(&place, &history, &history, "after all kills of a backup").await;
    for point in points("restore.") {
        let to = tempfile::tempdir().expect("a folder");
        let mut dies = restore(&place, to.path(), Some(point));
        let status = dies.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
        assert_eq!(status.signal(), Some(6), "{point}");
        let (code, out, errors) = run(&mut restore(&place, to.path(), None));
        assert_eq!(code, Some(0), "{point}: {out}{errors}");
        judge(to.path(), &history, &history, point).await;
    }
    let (code, out, errors) = store_check(&data, &Options::default());
    assert_eq!(code, Some(0), "{out}{errors}");
}
