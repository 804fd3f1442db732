//! Cases about the text of queries: parsing, printing, errors.

use std::collections::HashMap;
use std::path::Path;

use quiver_logsql::parse;
use serde_json::Value;

use super::{Suite, Verdict, read, text};

/// The suites of this file.
pub(crate) fn suites<'a>(folder: &Path, changed: &'a HashMap<String, Value>) -> Vec<Suite<'a>> {
    let same = |name: &'static str| Suite {
        name,
        cases: read(&folder.join(format!("upstream/{name}.jsonl"))),
        run: Box::new(move |case: &Value| canonical(case, changed.get(text(case, "id")))),
    };
    vec![
        same("parse_queries"),
        same("parse_pipes"),
        same("parse_stats"),
        Suite {
            name: "parse_invalid",
            cases: read(&folder.join("upstream/parse_invalid.jsonl")),
            run: Box::new(move |case: &Value| refused(case, changed.contains_key(text(case, "id")))),
        },
    ]
}

/// The query and its canonical text are the same query; printing is stable.
fn canonical(case: &Value, newer: Option<&Value>) -> Verdict {
    let printed = |text: &str| parse(text).map(|query| query.to_string()).map_err(|e| e.to_string());
    let query = printed(text(case, "query"));
    let expected = printed(text(case, "canonical"));
    let same = |other: &Result<String, String>| query.is_ok() && query == *other;
    if let (Ok(once), true) = (&query, same(&expected)) {
        let again = printed(once);
        return if same(&again) { Verdict::Passed } else { Verdict::Failed(format!("{once} is read as {again:?}")) };
    }
    if let Some(newer) = newer {
        let refused = text(newer, "newer") == "error" && query.is_err();
        if refused || same(&printed(text(newer, "newer_result"))) {
            return Verdict::Passed;
        }
    }
    Verdict::Failed(format!("{} gives {query:?}, {} gives {expected:?}", case["query"], case["canonical"]))
}

fn refused(case: &Value, accepted_by_newer: bool) -> Verdict {
    match parse(text(case, "query")) {
        Ok(query) if !accepted_by_newer => Verdict::Failed(format!("{} is read as {query}", case["query"])),
        _ => Verdict::Passed,
    }
}
