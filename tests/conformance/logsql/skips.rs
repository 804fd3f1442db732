//! A ratchet on skips: `skips.txt` says how many cases may be skipped for each reason, of how many in all. The numbers may
//! only go down; `UPDATE=1` writes lower ones.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// Says whether no more cases were skipped than the list allows. Other data than the list was made for is not held to it.
pub(crate) fn held(report: &[Value]) -> bool {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for case in report.iter().filter(|case| case["status"] == "skipped") {
        *found.entry(case["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let allowed = parse(include_str!("skips.txt"));
    if allowed.get(CASES) != Some(&report.len()) {
        println!("SKIPS ARE NOT HELD TO THEIR LIST: it was made for other data, of {:?} cases", allowed.get(CASES));
        if std::env::var_os("UPDATE").is_none() {
            return true;
        }
    }
    let more: Vec<String> = found
        .iter()
        .filter(|(reason, count)| **count > allowed.get(*reason).copied().unwrap_or(0))
        .map(|(reason, count)| format!("{count} skipped, {} allowed: {reason}", allowed.get(reason).unwrap_or(&0)))
        .collect();
    for line in &more {
        println!("SKIPS GREW: {line}");
    }
    let fewer =
        found.len() + 1 != allowed.len() || found.iter().any(|(reason, count)| allowed.get(reason) != Some(count));
    if more.is_empty() && fewer {
        if std::env::var_os("UPDATE").is_some() {
            write(&found, report.len());
        } else {
            println!("SKIPS SHRANK: write the lower numbers with `UPDATE=1 make conformance`");
            return false;
        }
    }
    more.is_empty()
}

/// Before the number of all cases.
const CASES: &str = "cases in all";

fn parse(list: &str) -> BTreeMap<String, usize> {
    let line = |line: &str| {
        let (count, reason) = line.split_once(' ')?;
        Some((reason.to_owned(), count.parse().ok()?))
    };
    list.lines().filter_map(line).collect()
}

fn write(found: &BTreeMap<String, usize>, cases: usize) {
    let mut text = format!("{cases} {CASES}\n");
    for (reason, count) in found {
        writeln!(text, "{count} {reason}").expect("memory");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/logsql/skips.txt");
    std::fs::write(file, text).expect("the checkout is writable");
}
