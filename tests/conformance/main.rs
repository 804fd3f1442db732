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

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance");
    let root = std::env::var_os("CONFORMANCE_DIR").map_or(default, PathBuf::from);
    let mut report = Vec::new();
    let mut good = true;
    // Its statements are ours.
    if args.is_empty() || args.iter().any(|a| a == "sql") {
        good &= sql::run(&mut report);
    }
    if !root.is_dir() {
        println!(
            "CONFORMANCE DATA IS MISSING: set CONFORMANCE_DIR; nothing was checked\n0 passed, 0 failed, 1 skipped"
        );
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if args.is_empty() || args.iter().any(|a| a == "promql") {
        good &= promql::run(&root.join("promql/prometheus-tests"), &mut report);
    }
    if args.is_empty() || args.iter().any(|a| a == "logsql") {
        good &= logsql::run(&root.join("logsql"), &mut report);
    }
    if args.is_empty() || args.iter().any(|a| a == "logsql" || a == "logsql_ingest") {
        good &= logsql_ingest::run(&root.join("logsql"), &mut report);
    }
    if args.is_empty() || args.iter().any(|a| a == "traces") {
        good &= traces::run(&root.join("traces"), &mut report);
    }
    if args.is_empty() || args.iter().any(|a| a == "olap") {
        good &= olap::run(&root.join("olap"), &mut report);
    }
    if args.is_empty() || args.iter().any(|a| a == "alerting") {
        good &= alerting::run(&root.join("alerting"), &mut report);
    }
    if let Some(path) = std::env::var_os("CONFORMANCE_REPORT") {
        let text = serde_json::to_vec_pretty(&report).expect("a report is JSON");
        std::fs::write(&path, text).expect("CONFORMANCE_REPORT is writable");
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
