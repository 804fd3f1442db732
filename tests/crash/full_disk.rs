//! A disk that runs full (promise F1): writes are refused with 503 and `Retry-After`, queries go on, nothing is lost,
//! and writes come back by themselves when there is room. Errors of the disk itself are unit tests of the store.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Piece, Run, Shape, Writer, Written, seed};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, busy, comes_up};

const METRIC: &str = "full_disk_samples";
/// Size of the file that fills the disk: more than others on the same disk move meanwhile.
const FILLER_BYTES: u64 = 6 << 30;
const PATIENCE: Duration = Duration::from_secs(30);

/// Free bytes of the disk that holds a folder.
fn free_bytes(folder: &std::path::Path) -> u64 {
    let output = Command::new("df").args(["-B1", "--output=avail"]).arg(folder).output().expect("df runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("a number of bytes")
}

/// Writes requests until one is refused or acknowledged as wanted.
async fn write_until(writer: &mut Writer, run: &Run, wanted: &Written) -> usize {
    let began = Instant::now();
    let mut count = 0;
    loop {
        let pieces: Vec<Piece> = writer.request();
        let body = writer.body(&pieces);
        pieces.iter().for_each(|(series, samples)| run.history.sent(series, samples));
        let written = run.caller.write(body).await;
        if written == Written::Taken {
            pieces.iter().for_each(|(series, samples)| run.history.acknowledged(series, samples));
        }
        count += 1;
        if written == *wanted {
            return count;
        }
        assert!(matches!(written, Written::Taken | Written::Later), "{written:?}");
        assert!(began.elapsed() < PATIENCE, "never {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers() {
    let seed = seed("a_full_disk_refuses_and_recovers");
    let dir = tempfile::tempdir().expect("a folder");
    let free = free_bytes(dir.path());
    if free < 2 * FILLER_BYTES {
        // No room to play with.
        return;
    }
    // Half of the file is missing then.
    let options = busy(Options::default()).env("QUIVER_STORE__DISK_RESERVE", free - FILLER_BYTES / 2);
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let history = Arc::new(History::default());
    let run = Run::new(&caller, &history);
    let mut writer = Writer::new(0, Shape { asked: 0.0, ..Shape::small(METRIC) }, seed, START_MS);
    let pieces = writer.request();
    let known = writer.body(&pieces);
    writer.send(&run, &pieces).await;
    for _ in 0..50 {
        write_until(&mut writer, &run, &Written::Taken).await;
    }
    for round in 0..3 {
        let filler = dir.path().join("filler");
        let size = FILLER_BYTES.to_string();
        let made = Command::new("fallocate").args(["-l", &size]).arg(&filler).status().expect("fallocate runs");
        assert!(made.success(), "no room for the file");
        write_until(&mut writer, &run, &Written::Later).await;
        // What was acknowledged before: whether it is taken again or not changes nothing.
        let answer = server.post("/metrics-api/api/v1/write", &[], known.clone()).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
        assert!(answer.text().contains("disk is nearly full"), "{}", answer.text());
        let (first, last) = history.bounds().expect("written");
        let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("queries go on");
        assert!(history.judge(&found, false).clean(), "round {round}");
        server.flush().await;
        std::fs::remove_file(&filler).expect("ours");
        write_until(&mut writer, &run, &Written::Taken).await;
    }
    server.kill();
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let (first, last) = history.bounds().expect("written");
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("an answer");
    let verdict = history.judge(&found, true);
    assert!(verdict.clean(), "{verdict}");
    assert_eq!(server.stop(), Some(0));
}
