//! Files that rot at rest (promise D5): a flipped bit in any file of a part is found when it is read. What needs the file
//! errs and names it, other parts go on answering, and nothing wrong is ever served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quiver_tests::body::{Series, remote_write};
use quiver_tests::load::{Caller, Written};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, comes_up, store_check};

const DAY_MS: i64 = 86_400_000;
const SERIES: usize = 50;

/// Samples of one day.
async fn fill(caller: &Caller, from_ms: i64) {
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    let samples = |i: usize| (0..200).map(|n| (from_ms + n * 1000, (n * 31 % 17) as f64 * 1.1 + i as f64)).collect();
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (vec![("__name__", "rotting"), ("series", name.as_str()), ("job", "j")], samples(i)))
        .collect();
    assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
}

/// All files of parts below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "parquet") {
            found.push(path);
        }
    }
}

/// What a day answers: the body of a success, or the text of the error.
async fn ask(caller: &Caller, from_ms: i64) -> Result<Vec<u8>, String> {
    let at = (from_ms / 1000 + 300).to_string();
    let params = [("query", "rotting[301s]"), ("time", at.as_str())];
    let (status, body) = caller.get("/metrics-api/api/v1/query", &params).await.expect("it lives");
    if status == 200 { Ok(body) } else { Err(format!("{status} {}", String::from_utf8_lossy(&body))) }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_flipped_bit_is_found_and_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_COMPACTION__ENABLED", "false");
    let days = [START_MS / DAY_MS * DAY_MS + 3_600_000, START_MS / DAY_MS * DAY_MS + DAY_MS + 3_600_000];
    let start = async || {
        let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
        let caller = Caller::new(&server.http);
        assert!(comes_up(&mut server, &caller).await, "the server died");
        (server, caller)
    };
    let (server, caller) = start().await;
    for day in days {
        fill(&caller, day).await;
    }
    server.flush().await;
    let good = [ask(&caller, days[0]).await.expect("an answer"), ask(&caller, days[1]).await.expect("an answer")];
    assert_eq!(server.stop(), Some(0));
    let mut all = Vec::new();
    files(&dir.path().join("store"), &mut all);
    assert!(all.len() >= 4, "{all:?}");
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for path in &all {
        let bytes = std::fs::read(path).expect("readable");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let kind = name.split_once('.').map_or("", |(_, kind)| kind).to_owned();
        for place in [4, bytes.len() / 2, bytes.len() - 20] {
            let mut bad = bytes.clone();
            bad[place] ^= 0x10;
            std::fs::write(path, &bad).expect("writable");
            let (server, caller) = start().await;
            let answers = [ask(&caller, days[0]).await, ask(&caller, days[1]).await];
            let mut errors = 0;
            for (answer, good) in answers.iter().zip(&good) {
                match answer {
                    Ok(body) => assert!(body == good, "{name} at {place}: a wrong answer"),
                    Err(text) => {
                        errors += 1;
                        assert!(text.contains(&name), "{name} at {place}: the file is not named: {text}");
                    }
                }
            }
            assert!(errors <= 1, "{name} at {place}: what lies elsewhere does not answer: {answers:?}");
            let outcome = if errors == 1 { "found by a query" } else { "not needed by the query" };
            *outcomes.entry(format!("{kind}: {outcome}")).or_default() += 1;
            assert_eq!(server.stop(), Some(0));
            let (code, out, text) = store_check(dir.path(), &options);
            assert_ne!(code, Some(0), "{name} at {place}: the check finds nothing: {out}{text}");
            assert!(format!("{out}{text}").contains(&name), "{name} at {place}: {out}{text}");
        }
        std::fs::write(path, &bytes).expect("writable");
    }
    println!("{outcomes:?}");
    let (server, caller) = start().await;
    for (day, good) in days.iter().zip(&good) {
        assert!(ask(&caller, *day).await.as_ref() == Ok(good), "healed");
    }
    assert_eq!(server.stop(), Some(0));
}
