//! The alerting fixtures: configurations, receivers, routes, inhibition, matchers, intervals, rule files, templates and
//! unit tests of rules. They are run against the crate, and against the binary's engines where rules are evaluated.

mod policy;
mod rules;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

/// Cases that are known to fail, by name; each with a reason behind `#`.
const KNOWN: &str = include_str!("alerting/expected_failures.txt");

/// What came of the cases so far.
pub(crate) struct Tally<'a> {
    known: BTreeSet<&'a str>,
    passed: usize,
    failed: usize,
    skipped: usize,
    report: &'a mut Vec<Value>,
}

impl Tally<'_> {
    /// Notes a case; `fault` says what is wrong with it.
    pub(crate) fn case(&mut self, name: &str, fault: Option<String>) {
        let is_known = self.known.contains(name);
        let outcome = match (&fault, is_known) {
            (None, false) => {
                self.passed += 1;
                "pass"
            }
            (Some(_), true) => {
                self.skipped += 1;
                "known"
            }
            (Some(fault), false) => {
                self.failed += 1;
                println!("FAILED alerting/{name}: {fault}");
                "fail"
            }
            (None, true) => {
                self.failed += 1;
                println!("PASSES but is on the list of known failures: alerting/{name}");
                "fail"
            }
        };
        self.report.push(json!({"suite": "alerting", "case": name, "outcome": outcome, "fault": fault}));
    }

    /// Notes a case that must be accepted, or refused.
    pub(crate) fn verdict(&mut self, name: &str, should_fail: bool, outcome: Result<(), String>) {
        let fault = match (should_fail, outcome) {
            (false, Err(e)) => Some(format!("should be accepted, is refused: {e}")),
            (true, Ok(())) => Some("should be refused, is accepted".to_owned()),
            _ => None,
        };
        self.case(name, fault);
    }
}

/// Reads a file of cases.
pub(crate) fn cases(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Gives a text of a case.
pub(crate) fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

/// Runs all cases; says whether each passed or is on the list of known failures.
pub(crate) fn run(folder: &Path, out: &mut Vec<Value>) -> bool {
    if !folder.is_dir() {
        println!("alerting: NO CASES in {}; nothing was checked", folder.display());
        return false;
    }
    let known = KNOWN.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
    let mut tally = Tally { known: known.collect(), passed: 0, failed: 0, skipped: 0, report: out };
    let mut part = |name: &str, run: &dyn Fn(&Path, &mut Tally<'_>)| {
        let before = (tally.passed, tally.failed);
        run(folder, &mut tally);
        println!("alerting {name}: {} passed, {} failed", tally.passed - before.0, tally.failed - before.1);
    };
    part("configurations", &policy::configurations);
    part("receivers", &policy::receivers);
    part("routing", &policy::routing);
    part("inhibition", &policy::inhibition);
    part("matchers", &policy::matchers);
    part("intervals", &policy::intervals);
    part("rule files", &rules::files);
    part("templates", &rules::templates);
    part("unit tests", &rules::unit_tests);
    println!("alerting: {} passed, {} failed, {} known failures", tally.passed, tally.failed, tally.skipped);
    tally.failed == 0
}
