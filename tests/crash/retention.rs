//! Kills during the commit of retention: a day that is due is there completely or gone completely, and nothing else is
//! dropped with it (promises D2, D12).

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use quiver_tests::history::History;
use quiver_tests::load::{Run, Shape, Writer};
use quiver_tests::server::{Options, Server};

use crate::arena::{busy, start, store_check};
use crate::kill_plan::Tally;

const METRIC: &str = "aging_samples";
const DAY_MS: i64 = 86_400_000;

/// Writes to a server that keeps everything: an old day and today.
async fn fill(data: &Path, history: &Arc<History>, writers: &mut [Writer]) {
    let (server, caller) = start(data, &busy(Options::default())).await;
    let run = Run::new(&caller, history);
    for writer in writers {
        for _ in 0..20 {
            let pieces = writer.request();
            writer.send(&run, &pieces).await;
        }
    }
    server.flush().await;
    server.kill();
}

/// Starts a server that keeps everything and compares.
async fn compare(data: &Path, history: &Arc<History>, when: &str, tally: &mut Tally) {
    let (server, caller) = start(data, &busy(Options::default())).await;
    let (first, last) = history.bounds().expect("written");
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("an answer");
    let verdict = history.judge(&found, true);
    assert!(verdict.clean(), "retention: {when}: {verdict}");
    tally.checks += 1;
    server.kill();
}

/// Kills at each point of the retention; gives what was hit.
#[allow(clippy::disallowed_methods, reason = "the server goes by the wall clock")]
pub(crate) async fn kills(seed: u64) -> Tally {
    let mut tally = Tally::default();
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64;
    // Noon, so that late samples stay in their day.
    let old_ms = (now_ms / DAY_MS - 10) * DAY_MS + DAY_MS / 2;
    let recent_ms = (now_ms / DAY_MS - 1) * DAY_MS + DAY_MS / 2;
    let history = Arc::new(History::default());
    let shape = Shape::small(METRIC);
    let mut writers = [Writer::new(0, shape.clone(), seed, old_ms), Writer::new(1, shape.clone(), seed, recent_ms)];
    fill(data, &history, &mut writers).await;
    let expiring = |point: &str| {
        busy(Options::default()).args(&["--retention", "5d"]).env("QUIVER_FAILPOINT", format!("retention.{point}"))
    };
    for (point, name, dropped) in [
        ("before-commit", "retention.before-commit", false),
        ("after-commit", "retention.after-commit", true),
        ("after-swap", "retention.after-swap", true),
    ] {
        let mut server = Server::spawn(data, &expiring(point)).expect("the server says where it listens");
        // The first round of the retention comes with the start.
        let status = server.ended();
        assert_eq!(status.signal(), Some(6), "{name}: {status}");
        tally.killed(Some(name));
        if dropped {
            history.dropped(old_ms - DAY_MS / 2, old_ms + DAY_MS / 2);
        }
        compare(data, &history, name, &mut tally).await;
        if dropped {
            // Not the same times again: those are gone for good by the history's rule.
            fill(data, &history, &mut writers).await;
        }
    }
    let (code, out, errors) = store_check(data, &Options::default());
    assert_eq!(code, Some(0), "retention: {out}{errors}");
    tally.samples = history.kept();
    tally
}
