//! Queries on damaged files: every API that reads them.

use std::collections::BTreeSet;

use quiver_tests::server::Server;
use serde_json::Value;

/// An answer, as far as it is compared.
#[derive(Debug)]
pub(super) struct Answer {
    /// What was asked.
    pub(super) name: &'static str,
    pub(super) status: u16,
    /// Files that it goes without, as its head says.
    pub(super) partial: usize,
    /// Its body.
    pub(super) text: String,
    /// What it holds.
    pub(super) items: BTreeSet<String>,
    /// Whether its format has a place for names of files.
    pub(super) names: bool,
    /// Whether less data means fewer items, and not other ones.
    pub(super) exact: bool,
    /// Whether it is about one day alone.
    pub(super) of_day: bool,
}

struct Ask {
    name: &'static str,
    path: String,
    params: Vec<(&'static str, String)>,
    items: fn(&str) -> BTreeSet<String>,
    names: bool,
    exact: bool,
    of_day: bool,
}

/// Asks for everything of a day.
pub(super) async fn ask_all(server: &Server, from_ms: i64) -> Vec<Answer> {
    let mut answers = Vec::new();
    for ask in asks(from_ms) {
        let params: Vec<(&str, &str)> = ask.params.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let answer = server.get_with(&ask.path, &params).await;
        let partial = answer
            .headers
            .get("quiver-partial")
            .map_or(0, |v| v.to_str().ok().and_then(|text| text.parse().ok()).expect("a number of files"));
        let text = answer.text();
        let items = if answer.status == 200 { (ask.items)(&text) } else { BTreeSet::new() };
        let Ask { name, names, exact, of_day, .. } = ask;
        answers.push(Answer { name, status: answer.status, partial, text, items, names, exact, of_day });
    }
    answers
}

fn asks(from_ms: i64) -> Vec<Ask> {
    let (start, end) = ((from_ms / 1000).to_string(), (from_ms / 1000 + 300).to_string());
    let nanos = |ms: i64| (ms * 1_000_000).to_string();
    let (from, to) = (nanos(from_ms), nanos(from_ms + 300_000));
    let instant = |query: &str| vec![("query", query.to_owned()), ("time", end.clone())];
    let window = vec![("start", start.clone()), ("end", end.clone())];
    let with = |more: &[(&'static str, &str)], params: &[(&'static str, String)]| {
        more.iter().map(|(k, v)| (*k, (*v).to_owned())).chain(params.iter().cloned()).collect::<Vec<_>>()
    };
    let hour = vec![("from", from.clone()), ("to", nanos(from_ms + 3_600_000))];
    let traces = vec![("from", from), ("to", to)];
    let logs =
        |query: &str| vec![("query", query.to_owned()), ("start", nanos(from_ms)), ("end", nanos(from_ms + 299_999))];
    let prom = |name, path: &str, params| Ask {
        name,
        path: format!("/metrics-api/api/v1/{path}"),
        params,
        items: of_data,
        names: true,
        exact: true,
        of_day: true,
    };
    let log = |name, path: &str, params| Ask {
        name,
        path: format!("/logs-api/select/logsql/{path}"),
        params,
        items: of_lines,
        names: false,
        exact: true,
        of_day: true,
    };
    let trace = |name, path: &str, params| Ask { path: path.to_owned(), ..prom(name, "", params) };
    vec![
        prom("samples", "query", instant("rotting[301s]")),
        Ask { exact: false, ..prom("a sum", "query", instant("sum(count_over_time(rotting[301s]))")) },
        prom("histograms", "query", instant("{__name__=~\"latency.*\"}[301s]")),
        prom("labels", "labels", window.clone()),
        prom("values", "label/series/values", window.clone()),
        prom("series", "series", with(&[("match[]", "rotting")], &window)),
        prom("exemplars", "query_exemplars", with(&[("query", "{__name__=~\"latency.*\"}")], &window)),
        // Newest rows of all days.
        Ask { of_day: false, ..prom("metadata", "metadata", vec![]) },
        log("rows", "query", logs("*")),
        log("rows by time", "query", logs("* | sort by (_time desc) limit 1000")),
        log("words", "query", logs("\"row 17\"")),
        log("a stream", "query", logs("{app=\"a1\"}")),
        Ask { exact: false, ..log("counts", "query", logs("* | stats by (app) count() as n")) },
        Ask { exact: false, items: of_values, ..log("fields", "field_names", logs("*")) },
        Ask {
            exact: false,
            items: of_values,
            ..log("values of a field", "field_values", with(&[("field", "app")], &logs("*")))
        },
        Ask { exact: false, items: of_values, ..log("streams", "streams", logs("*")) },
        // Traces that are found are looked up whole, in all of time.
        Ask { of_day: false, ..trace("a search", "/traces", with(&[("limit", "1000")], &traces)) },
        Ask { exact: false, ..trace("services", "/traces/services", traces.clone()) },
        // Of whole hours roll-ups are read instead of spans.
        Ask { exact: false, ..trace("services of an hour", "/traces/services", hour) },
        Ask { exact: false, ..trace("operations", "/traces/operations", traces.clone()) },
        Ask { exact: false, ..trace("tags", "/traces/tags", traces.clone()) },
        Ask { exact: false, ..trace("values of a tag", "/traces/tags/color/values", traces.clone()) },
        // A trace that is not found could be in the file that cannot be read: an error that names it.
        // Looked up in all of time.
        Ask { of_day: false, ..trace("a trace", &format!("/traces/{:032x}", from_ms + 3), vec![]) },
        Ask { of_day: false, ..trace("Jaeger's trace", &format!("/jaeger/api/traces/{:032x}", from_ms + 3), vec![]) },
        Ask { of_day: false, ..trace("Jaeger's services", "/jaeger/api/services", vec![]) },
    ]
}

/// The members of `data`, or of `data.result`; of a list the elements, of an object its fields.
fn of_data(text: &str) -> BTreeSet<String> {
    let answer: Value = serde_json::from_str(text).expect("JSON");
    let data = answer["data"].get("result").unwrap_or(&answer["data"]);
    parts(data)
}

fn parts(data: &Value) -> BTreeSet<String> {
    match data {
        // Series are cut to samples: of a series on two days one may be left.
        Value::Array(list) => list.iter().flat_map(samples).collect(),
        Value::Object(fields) => {
            let own = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "warnings" | "partial"));
            own.map(|(name, value)| format!("{name}: {value}")).collect()
        }
        other => BTreeSet::from([other.to_string()]),
    }
}

fn samples(item: &Value) -> Vec<String> {
    let lists = ["values", "histograms", "exemplars"].iter().filter_map(|name| item[name].as_array());
    let metric = item.get("metric").or(item.get("seriesLabels")).cloned().unwrap_or_default();
    let found: Vec<String> = lists.flatten().map(|sample| format!("{metric} {sample}")).collect();
    if found.is_empty() { vec![item.to_string()] } else { found }
}

fn of_lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

fn of_values(text: &str) -> BTreeSet<String> {
    let answer: Value = serde_json::from_str(text).expect("JSON");
    parts(&answer["values"])
}
