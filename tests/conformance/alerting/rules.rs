//! Rule cases: files, templates, and unit tests over the engines that the binary uses.

use std::path::Path;

use quiver::rules::{Languages, Tests, run_tests};
use quiver_alerting::template::{
    ListKind, MissingKey, Options, QueriedSample, RULE_FUNCTIONS, TemplateEnvironment, Value as Data, expand,
    parse_time,
};
use quiver_types::LabelSet;
use serde_json::Value;

use super::{Tally, cases, text};

pub(super) fn files(folder: &Path, tally: &mut Tally<'_>) {
    let folder = folder.join("rule-files");
    for case in cases(&folder.join("cases.json")) {
        let file = std::fs::read_to_string(folder.join(text(&case, "file"))).expect("the file of a case");
        // Names follow the UTF-8 rule: what only the older one refuses is accepted.
        let refused = case["expect"] == "error" && case["names"] == "utf8";
        let read = quiver_alerting::rules::read(&file, &Languages);
        tally.verdict(text(&case, "id"), refused, read.map(drop).map_err(|p| p.to_string()));
    }
}

fn data(input: &Value, kind: &str) -> Data {
    let Some(items) = input.as_array() else { return Data::Nil };
    let item = |value: &Value| match kind {
        "[]float64" => Data::Float(value.as_f64().expect("a number")),
        "[]string" => Data::text(value.as_str().expect("a text")),
        "[]uint64" | "[]uint" => Data::Uint(value.as_u64().expect("a whole number without sign")),
        _ => Data::Int(value.as_i64().expect("a whole number")),
    };
    let list = match kind {
        "[]float64" => ListKind::Numbers("[]float64"),
        "[]string" => ListKind::Texts,
        "[]uint64" | "[]uint" => ListKind::Numbers("[]uint64"),
        _ => ListKind::Numbers("[]int64"),
    };
    Data::list(list, items.iter().map(item).collect())
}

fn sample(value: &Value) -> QueriedSample {
    let labels = value["labels"].as_object().into_iter().flatten();
    let labels = LabelSet::from_pairs(labels.map(|(n, v)| (n.as_str(), v.as_str().unwrap_or_default())));
    QueriedSample { labels, value: Data::Float(value["value"].as_f64().unwrap_or(f64::NAN)) }
}

pub(super) fn templates(folder: &Path, tally: &mut Tally<'_>) {
    let now = parse_time("2006-01-02T15:04:05Z07:00", "2012-11-24T11:14:12Z").expect("a time").nanos();
    for case in cases(&folder.join("rule-templates.json")) {
        let samples: Vec<QueriedSample> = case["query_result"].as_array().into_iter().flatten().map(sample).collect();
        let query = |_: &str| Ok(samples.clone());
        let host = TemplateEnvironment {
            query: Some(&query),
            now_ns: now,
            external_url: "http://testhost:9090/path/prefix",
            route_labels: None,
        };
        let strict = case["missingkey_error"] == true;
        let missing_key = if strict { MissingKey::Error } else { MissingKey::Zero };
        let options = Options { host, missing_key, ..Options::default() };
        let input = data(&case["input"], text(&case, "input_type"));
        let got = expand("test", text(&case, "text"), &input, RULE_FUNCTIONS, &options);
        let fault = match (&got, case["error"].as_str()) {
            (Ok(got), None) => (case["output"] != **got).then(|| format!("got {got:?}")),
            (Err(e), None) => Some(e.clone()),
            (Ok(got), Some(_)) => Some(format!("should fail, gave {got:?}")),
            // More than the fixtures ask: the words are the same, too.
            (Err(e), Some(error)) => (e != error).then(|| format!("told as {e:?}")),
        };
        tally.case(text(&case, "id"), fault);
    }
}

pub(super) fn unit_tests(folder: &Path, tally: &mut Tally<'_>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for folder in ["rule-unit", "own-rule-unit"].map(|name| folder.join(name)) {
        for case in cases(&folder.join("cases.json")) {
            let outcome = match run_tests(&folder.join(text(&case, "file")), &Tests::default(), &runtime) {
                Ok(outcomes) => {
                    outcomes.into_iter().flat_map(|(_, o)| o.errors).map(|fault| fault.to_string()).collect()
                }
                Err(errors) => errors,
            };
            let outcome = if outcome.is_empty() { Ok(()) } else { Err(outcome.join("; ")) };
            tally.verdict(text(&case, "id"), case["expect"] == "fail", outcome);
        }
    }
}
