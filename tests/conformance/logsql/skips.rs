//! A ratchet on skipped cases: `skips.txt` says how many cases may be skipped for each reason, and how many there are.
//! Skips may only decrease and cases only increase; `UPDATE=1` rewrites the list.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// How many cases there are of each kind: those skipped by reason, and [`CASES`].
type Counts = BTreeMap<String, usize>;

/// The name of the number of all cases.
const CASES: &str = "cases in all";

/// Says whether the list holds: no more cases were skipped than it allows, and it has the numbers of today.
pub(crate) fn held(report: &[Value]) -> bool {
    let mut found: Counts = [(CASES.to_owned(), report.len())].into();
    for case in report.iter().filter(|case| case["status"] == "skipped") {
        *found.entry(case["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let allowed = parse(include_str!("skips.txt"));
    let worse = worse(&found, &allowed);
    for line in &worse {
        println!("SKIPS GREW: {line}");
    }
    if !worse.is_empty() || found == allowed {
        return worse.is_empty();
    }
    if std::env::var_os("UPDATE").is_some() {
        write(&found);
        return true;
    }
    println!("SKIPS SHRANK, OR CASES WERE ADDED: write the numbers of today with `UPDATE=1 make conformance`");
    false
}

/// What is worse than the list allows. Fewer cases are worse, too: nobody can tell which of the skips are gone with them.
fn worse(found: &Counts, allowed: &Counts) -> Vec<String> {
    let number = |of: &Counts, name: &str| of.get(name).copied().unwrap_or(0);
    let (cases, listed) = (number(found, CASES), number(allowed, CASES));
    let lost = (cases < listed).then(|| format!("{cases} cases in all, {listed} on the list"));
    let skipped = found.iter().filter(|(reason, _)| *reason != CASES);
    let more = skipped.filter(|(reason, count)| **count > number(allowed, reason));
    let more = more.map(|(reason, count)| format!("{count} skipped, {} allowed: {reason}", number(allowed, reason)));
    lost.into_iter().chain(more).collect()
}

fn parse(list: &str) -> Counts {
    let line = |line: &str| {
        let (count, reason) = line.split_once(' ')?;
        Some((reason.to_owned(), count.parse().ok()?))
    };
    list.lines().filter_map(line).collect()
}

fn write(found: &Counts) {
    let mut text = String::new();
    // The number of all cases stands first.
    let (cases, reasons): (Vec<_>, Vec<_>) = found.iter().partition(|(reason, _)| *reason == CASES);
    for (reason, count) in cases.into_iter().chain(reasons) {
        writeln!(text, "{count} {reason}").expect("memory");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/logsql/skips.txt");
    std::fs::write(file, text).expect("the checkout is writable");
}
