//! Files that rot at rest (promise D5): a flipped bit in any file of a part is detected when it is read. The content of
//! other files is still returned, the response says that it is incomplete and names the file, and no wrong data is ever
//! served.

mod data;
mod queries;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quiver_tests::load::Caller;
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, comes_up, store_check};
use queries::{Answer, ask_all};

const DAY_MS: i64 = 86_400_000;
/// Kinds of files that the data has, by table. The index of metrics is not one of them: only compactions write it.
const KINDS: &[&str] = &[
    "logs/index",
    "logs/labels",
    "logs/rows",
    "logs/streams",
    "metric_metadata/rows",
    "metrics/exemplars",
    "metrics/histograms",
    "metrics/index",
    "metrics/samples",
    "metrics/series",
    "spans/index",
    "spans/rollup",
    "spans/rows",
    "spans/traces",
];

/// All files of parts below a folder, by table and kind.
fn files(folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "parquet") {
            let name = path.file_name().expect("a file").to_string_lossy();
            let kind = name.split('.').nth(1).unwrap_or_default();
            let table = path.ancestors().nth(2).and_then(Path::file_name).expect("a table").to_string_lossy();
            found.push((format!("{table}/{kind}"), path.clone()));
        }
    }
}

fn options(partial: bool) -> Options {
    Options::default()
        .env("QUIVER_LOG__FILTER", "off")
        .env("QUIVER_COMPACTION__ENABLED", "false")
        .env("QUIVER_QUERY__PARTIAL_ANSWERS", partial)
}

async fn start(dir: &Path, partial: bool) -> (Server, Caller) {
    let mut server = Server::spawn(dir, &options(partial)).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    (server, caller)
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Whole,
    Partial,
    Refused,
}

/// Judges an answer by the one of before: whole, or less and told, or an error that names the file.
fn judge(answer: &Answer, good: &Answer, file: &str, when: &str) -> Outcome {
    let Answer { name, status, .. } = answer;
    if *status != 200 {
        assert!(answer.text.contains(file), "{when}: {name}: the file is not named: {status} {}", answer.text);
        return Outcome::Refused;
    }
    if answer.partial == 0 {
        assert_eq!(answer.items, good.items, "{when}: {name}: another answer, and not a word");
        return Outcome::Whole;
    }
    assert_eq!(answer.partial, 1, "{when}: {name}: one file is damaged");
    assert!(!answer.names || answer.text.contains(file), "{when}: {name}: the file is not named: {}", answer.text);
    assert!(!answer.exact || answer.items.is_subset(&good.items), "{when}: {name}: something wrong is served");
    Outcome::Partial
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_flipped_bit_is_found_named_and_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let days = [START_MS / DAY_MS * DAY_MS + 3_600_000, START_MS / DAY_MS * DAY_MS + DAY_MS + 3_600_000];
    let (server, caller) = start(dir.path(), true).await;
    for day in days {
        data::fill(&server, &caller, day).await;
    }
    server.flush().await;
    let good = [ask_all(&server, days[0]).await, ask_all(&server, days[1]).await];
    for answer in good.iter().flatten() {
        assert_eq!((answer.status, answer.partial), (200, 0), "{}: {}", answer.name, answer.text);
        assert!(!answer.items.is_empty(), "{} answers nothing", answer.name);
    }
    assert_eq!(server.stop(), Some(0));
    let mut all = Vec::new();
    files(&dir.path().join("store"), &mut all);
    all.sort();
    // One of each kind; days are written alike.
    all.dedup_by(|a, b| a.0 == b.0);
    let kinds: Vec<&str> = all.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, KINDS, "files of other kinds: write data for them");
    let mut outcomes: BTreeMap<(String, Outcome), usize> = BTreeMap::new();
    for (kind, path) in &all {
        let bytes = std::fs::read(path).expect("readable");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        for (n, place) in [4, bytes.len() / 2, bytes.len() - 20].into_iter().enumerate() {
            let when = format!("{kind} at {place}");
            let mut bad = bytes.clone();
            bad[place] ^= 0x10;
            std::fs::write(path, &bad).expect("writable");
            let (server, _) = start(dir.path(), true).await;
            let mut hurt = Vec::new();
            for (day, good) in days.iter().zip(&good) {
                let answers = ask_all(&server, *day).await;
                let told = answers.iter().zip(good).map(|(answer, good)| judge(answer, good, &name, &when));
                let told: Vec<Outcome> = told.collect();
                for o in &told {
                    *outcomes.entry((kind.clone(), *o)).or_default() += 1;
                }
                let of_day = told.iter().zip(good).filter(|(o, good)| **o != Outcome::Whole && good.of_day);
                hurt.push(of_day.map(|(_, good)| good.name).collect::<Vec<_>>());
            }
            assert!(hurt.iter().any(Vec::is_empty), "{when}: what lies elsewhere does not answer: {hurt:?}");
            assert_eq!(server.stop(), Some(0));
            if n == 0 {
                let (code, out, text) = store_check(dir.path(), &options(true));
                assert_ne!(code, Some(0), "{when}: the check finds nothing: {out}{text}");
                assert!(format!("{out}{text}").contains(&name), "{when}: {out}{text}");
                refused_where_answers_are_whole(dir.path(), &days, &good, &name, &when).await;
            }
        }
        std::fs::write(path, &bytes).expect("writable");
    }
    println!("{outcomes:?}");
    for kind in KINDS {
        let partial = outcomes.get(&((*kind).to_owned(), Outcome::Partial)).copied().unwrap_or(0);
        assert!(partial > 0, "{kind}: no query met the damage: {outcomes:?}");
    }
    let (server, _) = start(dir.path(), true).await;
    for (day, good) in days.iter().zip(&good) {
        let healed = ask_all(&server, *day).await;
        assert!(healed.iter().zip(good).all(|(a, b)| a.partial == 0 && a.items == b.items), "healed");
    }
    assert_eq!(server.stop(), Some(0));
}

/// With `query.partial_answers = false` nothing is left out: what cannot be whole is an error.
async fn refused_where_answers_are_whole(dir: &Path, days: &[i64; 2], good: &[Vec<Answer>; 2], file: &str, when: &str) {
    let (server, _) = start(dir, false).await;
    for (day, good) in days.iter().zip(good) {
        for (answer, good) in ask_all(&server, *day).await.iter().zip(good) {
            assert_ne!(judge(answer, good, file, when), Outcome::Partial, "{when}: {}", answer.name);
        }
    }
    assert_eq!(server.stop(), Some(0));
}
