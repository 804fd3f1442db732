//! LogsQL: the test tables of an open implementation (`upstream`), and rows, queries and results of our own (`golden`).

mod details;
mod endpoints;
mod exec;
mod filters;
mod functions;
mod golden;
mod ingest_tables;
mod memory;
mod parse;
mod patterns;
mod properties;
mod recorder;
mod skips;
mod time_filters;
mod world;

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

/// What became of a case.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    /// No counterpart in the product, for this reason.
    Skipped(&'static str),
}

/// A suite: the file of its cases and what runs one.
pub(crate) struct Suite<'a> {
    pub(crate) name: &'static str,
    pub(crate) cases: Vec<Value>,
    pub(crate) run: Box<dyn FnMut(&Value) -> Verdict + 'a>,
}

/// Reads a file of one JSON object per line.
pub(crate) fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a case is JSON")).collect()
}

/// A text of a case; bytes that are no UTF-8 come as base64 and have no counterpart.
pub(crate) fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

/// What the newer implementation says of a case: `kind` and `newer_result`, by the case's id.
pub(crate) fn changed(folder: &Path) -> HashMap<String, Value> {
    let all = read(&folder.join("upstream/changed_in_newer.jsonl"));
    all.into_iter().map(|case| (text(&case, "id").to_owned(), case)).collect()
}

/// Runs all suites; says whether every case passed or is on the list of known failures.
pub(crate) fn run(folder: &Path, out: &mut Vec<Value>) -> bool {
    let list = include_str!("logsql/expected_failures.txt");
    let known: HashMap<&str, &str> = list
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .collect();
    let changed = changed(folder);
    let (mut total, first) = ((0, 0, 0), out.len());
    let mut suites = parse::suites(folder, &changed);
    suites.push(exec::suite(folder, &changed));
    suites.extend(functions::suites(folder));
    suites.push(details::suite(folder));
    suites.push(properties::suite(folder));
    suites.push(patterns::suite(folder));
    suites.extend(filters::suites(folder));
    suites.extend(time_filters::suites(folder));
    suites.extend(golden::suites(folder));
    suites.extend(endpoints::suites(folder));
    for mut suite in suites {
        let counts = run_suite(&mut suite, &known, out);
        println!("logsql {}: {} passed, {} failed, {} skipped", suite.name, counts.0, counts.1, counts.2);
        total = (total.0 + counts.0, total.1 + counts.1, total.2 + counts.2);
    }
    println!("logsql: {} passed, {} failed, {} skipped", total.0, total.1, total.2);
    let held = skips::held(&out[first..]);
    total.1 == 0 && held
}

fn run_suite(suite: &mut Suite<'_>, known: &HashMap<&str, &str>, out: &mut Vec<Value>) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for case in &suite.cases {
        let key = format!("{}/{}", suite.name, text(case, "id"));
        let verdict = (suite.run)(case);
        let reason = known.get(key.as_str());
        let status = match (&verdict, reason) {
            (Verdict::Passed, None) => "passed",
            (Verdict::Passed, Some(_)) => {
                println!("PASSES but is on the list of known failures: {key}");
                "failed"
            }
            (Verdict::Failed(_), Some(_)) | (Verdict::Skipped(_), _) => "skipped",
            (Verdict::Failed(fault), None) => {
                println!("FAILED {key}: {fault}");
                "failed"
            }
        };
        match status {
            "passed" => counts.0 += 1,
            "failed" => counts.1 += 1,
            _ => counts.2 += 1,
        }
        let why = match (&verdict, reason) {
            (Verdict::Skipped(why), _) => Some((*why).to_owned()),
            (Verdict::Failed(_), Some(why)) => Some((*why).trim().to_owned()),
            (Verdict::Failed(fault), None) => Some(fault.clone()),
            _ => None,
        };
        out.push(json!({"suite": "logsql", "case": key, "status": status, "reason": why}));
    }
    counts
}
