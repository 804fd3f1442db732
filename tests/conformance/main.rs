//! Runs the open conformance cases of other projects against the code that users run. `CONFORMANCE_DIR` says where they
//! are (default: beside the checkout); if they are missing, the suites are skipped with a notice. Arguments name the
//! suites to run.

#![allow(clippy::format_collect, reason = "bodies of tests are small")]
#![allow(clippy::print_stdout, reason = "a runner's output is its purpose")]

mod alerting;
mod logsql;
mod logsql_ingest;
mod olap;
mod promql;
mod sql;
mod store;
mod traces;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// A suite: its name, the words that ask for it, the folder of its cases, and what runs it and says whether all is well.
type Suite = (&'static str, &'static [&'static str], &'static str, fn(&Path, &mut Vec<Value>) -> bool);
const SUITES: [Suite; 7] = [
    ("sql", &["sql"], "", |_, report| sql::run(report)),
    ("promql", &["promql"], "promql/prometheus-tests", promql::run),
    ("logsql", &["logsql"], "logsql", logsql::run),
    ("logsql_ingest", &["logsql", "logsql_ingest"], "logsql", logsql_ingest::run),
    ("traces", &["traces"], "traces", traces::run),
    ("olap", &["olap"], "olap", olap::run),
    ("alerting", &["alerting"], "alerting", alerting::run),
];
/// Stack of the second thread.
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance");
    let root = std::env::var_os("CONFORMANCE_DIR").map_or(default, PathBuf::from);
    // Words that name no suite are filters of tests, which cargo gives to all targets: nothing here is meant.
    if let Some(unknown) = args.iter().find(|a| !SUITES.iter().any(|(_, words, ..)| words.contains(&a.as_str()))) {
        println!("no suite is called `{unknown}`: {}", SUITES.map(|(name, ..)| name).join(", "));
    }
    let missing = !root.is_dir();
    let is_asked = |(_, words, of, _): &&Suite| {
        let asked = args.is_empty() || args.iter().any(|a| words.contains(&a.as_str()));
        // Statements of SQL are ours; the others' cases stand in a folder of theirs.
        asked && (!missing || of.is_empty())
    };
    let (bad, report) = run_all(&SUITES.iter().filter(is_asked).collect::<Vec<_>>(), &root);
    if missing {
        println!(
            "CONFORMANCE DATA IS MISSING: set CONFORMANCE_DIR; nothing else was checked\nmissing: 0 passed, 0 failed, 1 skipped"
        );
    }
    if let Some(path) = std::env::var_os("CONFORMANCE_REPORT") {
        let text = serde_json::to_vec_pretty(&report).expect("a report is JSON");
        std::fs::write(&path, text).expect("CONFORMANCE_REPORT is writable");
    }
    for name in &bad {
        println!(
            "FAILED suite {name}: the lines above that begin with FAILED, PASSES, SKIPS, or tell of a panic say why"
        );
    }
    if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs suites, two at once, since each waits for a server or evaluates on a thread of its own. Gives the names of those
/// that failed and what all report, in their order.
fn run_all(suites: &[&Suite], root: &Path) -> (Vec<&'static str>, Vec<Value>) {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((at, (name, _, of, run))) = at_next(&next, suites) {
            let mut report = Vec::new();
            // A suite that panics (its server does not start) takes only itself down.
            let run = AssertUnwindSafe(|| run(&root.join(of), &mut report));
            let well = std::panic::catch_unwind(run).unwrap_or(false);
            done.lock().expect("no suite holds it").insert(at, (*name, well, report));
        }
    };
    std::thread::scope(|scope| {
        // As deep as the first thread's: cases nest.
        let beside = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        work();
        drop(beside.expect("a thread starts"));
    });
    let (mut bad, mut reports) = (Vec::new(), Vec::new());
    for (name, well, report) in done.into_inner().expect("no suite holds it").into_values() {
        bad.extend((!well).then_some(name));
        reports.extend(report);
    }
    (bad, reports)
}

/// Takes the next of some suites.
fn at_next<'a>(next: &AtomicUsize, suites: &[&'a Suite]) -> Option<(usize, &'a Suite)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    suites.get(at).map(|suite| (at, *suite))
}
