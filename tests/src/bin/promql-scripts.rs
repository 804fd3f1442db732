//! Runs the PromQL acceptance scripts on the in-memory source: the language alone, without a store.
//!
//! `promql-scripts [FILE…]` takes the scripts of `CONFORMANCE_DIR` (default `../shared/conformance`). It prints
//! `N passed, M failed` and, with `CONFORMANCE_REPORT=FILE`, writes the report. Known failures stand in
//! `tests/conformance/promql/expected_failures.txt`; `VERBOSE=1` shows each fault.
#![allow(clippy::print_stdout, reason = "a runner's output is its purpose")]

use std::collections::HashMap;
use std::path::PathBuf;

use quiver_tests::memory_subject::MemorySubject;
use quiver_tests::promqltest::run::{Case, known_failures, report, run};

fn main() -> Result<(), String> {
    let root = std::env::var("CONFORMANCE_DIR").unwrap_or_else(|_| "../shared/conformance".into());
    let folder = PathBuf::from(root).join("promql/prometheus-tests");
    let mut files: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        files = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "test"));
        files.sort();
    }
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/promql/expected_failures.txt");
    let known = known_failures(&std::fs::read_to_string(list).unwrap_or_default());
    let verbose = std::env::var("VERBOSE").is_ok();
    let mut subject = MemorySubject::new()?;
    let mut all: Vec<Case> = Vec::new();
    let mut faulty = 0;
    for file in files {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let cases = run(&name, &text, &mut subject)?;
        let failed = cases.iter().filter(|c| c.fault.is_some()).count();
        println!("{name}: {} passed, {failed} failed", cases.len() - failed);
        if verbose {
            for case in cases.iter().filter(|c| c.fault.is_some()) {
                println!("  {}:{} {}\n      {}", name, case.line, case.key, case.fault.as_deref().unwrap_or_default());
            }
        }
        faulty += unexpected(&cases, &known);
        all.extend(cases);
    }
    if let Ok(path) = std::env::var("CONFORMANCE_REPORT") {
        std::fs::write(&path, report(&all, &known).to_string()).map_err(|e| format!("{path}: {e}"))?;
    }
    let failed = all.iter().filter(|c| c.fault.is_some()).count();
    println!("promql: {} passed, {failed} failed", all.len() - failed);
    if faulty > 0 { Err(format!("{faulty} cases differ from the list of known failures")) } else { Ok(()) }
}

fn unexpected(cases: &[Case], known: &HashMap<String, String>) -> usize {
    cases.iter().filter(|c| c.fault.is_some() != known.contains_key(&c.key)).count()
}
