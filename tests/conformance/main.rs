//! Runs the open conformance cases of other projects against what users run. `CONFORMANCE_DIR` says where they are
//! (default: beside the checkout); absent: skipped, loudly. Arguments name the suites.

#![allow(clippy::format_collect, reason = "bodies of tests are small")]
#![allow(clippy::print_stdout, reason = "a runner's output is its purpose")]

mod alerting;
mod logsql;
mod logsql_ingest;
mod olap;
mod promql;
mod sql;
mod traces;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance");
    let root = std::env::var_os("CONFORMANCE_DIR").map_or(default, PathBuf::from);
    // Words that name no suite are filters of tests, which cargo gives to all targets: nothing here is meant.
    if let Some(unknown) = args.iter().find(|a| !SUITES.iter().any(|(_, words, ..)| words.contains(&a.as_str()))) {
        println!("no suite is called `{unknown}`: {}", SUITES.map(|(name, ..)| name).join(", "));
    }
    let mut report = Vec::new();
    let mut bad = Vec::new();
    let missing = !root.is_dir();
    for (name, words, of, run) in SUITES {
        let asked = args.is_empty() || args.iter().any(|a| words.contains(&a.as_str()));
        // Statements of SQL are ours; the others' cases stand in a folder of theirs.
        if !asked || (missing && !of.is_empty()) {
            continue;
        }
        // A suite that panics (its server does not start) takes only itself down.
        let run = AssertUnwindSafe(|| run(&root.join(of), &mut report));
        if !std::panic::catch_unwind(run).unwrap_or(false) {
            bad.push(name);
        }
    }
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
