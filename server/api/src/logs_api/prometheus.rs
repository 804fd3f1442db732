//! `stats_query` and `stats_query_range`: results of `stats` in the format of the Prometheus API.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::{parse_rfc3339, push_json_string};
use quiver_logsql::{StatsColumns, by_step, histogram_buckets, in_series, stats_columns};
use quiver_types::Result;
use quiver_types::logs::TIME;

use super::Ask;
use super::response::{self, ENTRY_BYTES, text_bytes};
use crate::state::AppState;

/// Identifies a series.
#[derive(Debug)]
struct Key {
    /// Index of the result.
    value: usize,
    /// Values of the labels.
    labels: Vec<String>,
    /// The range of a bucket, if the result is a histogram.
    range: Option<String>,
}

/// Points in order of time.
type Points = Vec<(i64, String)>;

/// The series of one result with the same labels: a single one, or one for each bucket of a histogram.
#[derive(Debug)]
struct Alike {
    labels: Vec<String>,
    ranges: BTreeMap<Option<String>, Points>,
}

pub(super) async fn stats_query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let columns = stats_columns(&ask.query)?.with_rows_as_labels();
        if let Some(plans) = ask.explained(&state, &ask.query).await? {
            return Ok(plans);
        }
        let memory = state.engines.logsql.collected("series", &ask.ctx);
        let mut result: Vec<(Key, String)> = Vec::new();
        each_value(&state, &ask, &ask.query, &columns, |key, _, text| {
            memory.add(key_bytes(&key) + text_bytes(text))?;
            result.push((key, text.to_owned()));
            Ok(())
        })
        .await?;
        let at = seconds(ask.time_ns);
        let item = move |(key, text): (Key, String)| {
            let mut out = metric(&columns, &key);
            let _ = write!(out, ",\"value\":[{at},");
            push_json_string(&mut out, &text);
            out.push_str("]}");
            out
        };
        Ok(response::list(VECTOR, result.into_iter().map(item), END, memory))
    };
    asked.await.unwrap_or_else(|e| response::error(&e, "/select/logsql/stats_query"))
}

pub(super) async fn stats_query_range(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let ((step_ns, step), offset) = (ask.step()?, ask.offset()?);
        let offset = offset.as_ref().map(|(ns, text)| (*ns, text.as_str()));
        let (query, columns) = in_series(by_step(ask.query.clone(), (step_ns, &step), offset)?);
        if let Some(plans) = ask.explained(&state, &query).await? {
            return Ok(plans);
        }
        let memory = state.engines.logsql.collected("series", &ask.ctx);
        // The series of each result, which come one after the other.
        let mut series: Vec<Vec<Alike>> = columns.values.iter().map(|_| Vec::new()).collect();
        each_value(&state, &ask, &query, &columns, |key, time, text| {
            let Some(ns) = time else { return Ok(()) };
            // The point, and its text when the series is written.
            memory.add(2 * text_bytes(text))?;
            let (bytes, Key { value, labels, range }) = (key_bytes(&key), key);
            let of_result = &mut series[value];
            if of_result.last().is_none_or(|last| last.labels != labels) {
                of_result.push(Alike { labels, ranges: BTreeMap::new() });
            }
            let last = of_result.len() - 1;
            let ranges = &mut of_result[last].ranges;
            if !ranges.contains_key(&range) {
                memory.add(bytes)?;
            }
            ranges.entry(range).or_default().push((ns, text.to_owned()));
            Ok(())
        })
        .await?;
        let series = series.into_iter().enumerate().flat_map(|(value, of_result)| {
            of_result.into_iter().flat_map(move |Alike { labels, ranges }| {
                ranges.into_iter().map(move |(range, points)| (Key { value, labels: labels.clone(), range }, points))
            })
        });
        let item = move |(key, points): (Key, Points)| {
            let mut out = metric(&columns, &key);
            out.push_str(",\"values\":[");
            for (i, (ns, text)) in points.iter().enumerate() {
                let _ = write!(out, "{}[{},", if i > 0 { "," } else { "" }, seconds(*ns));
                push_json_string(&mut out, text);
                out.push(']');
            }
            out.push_str("]}");
            out
        };
        Ok(response::list(MATRIX, series.map(item), END, memory))
    };
    asked.await.unwrap_or_else(|e| response::error(&e, "/select/logsql/stats_query_range"))
}

/// Calls back for each result with its series, time and text.
async fn each_value(
    state: &AppState,
    ask: &Ask,
    query: &Query,
    columns: &StatsColumns,
    mut call: impl FnMut(Key, Option<i64>, &str) -> Result<()> + Send,
) -> Result<()> {
    let (mut labels, mut values) =
        (vec![String::new(); columns.labels.len()], vec![String::new(); columns.values.len()]);
    let read = state.engines.logsql.each_row(query, &ask.scope, &ask.ctx, |row| {
        labels.iter_mut().chain(&mut values).for_each(String::clear);
        let mut time = None;
        for (name, value) in row {
            if name == TIME {
                time = parse_rfc3339(value);
            }
            if let Some(i) = columns.labels.iter().position(|label| label == name) {
                labels[i].push_str(value);
            }
            if let Some(i) = columns.values.iter().position(|own| own == name) {
                values[i].push_str(value);
            }
        }
        // A result without a value, such as `min` of a missing field, is an empty string.
        values.iter().enumerate().try_for_each(|(value, text)| match buckets_of(columns, value, text) {
            None => call(Key { value, labels: labels.clone(), range: None }, time, text),
            Some(buckets) => buckets.into_iter().try_for_each(|(range, hits)| {
                let key = Key { value, labels: labels.clone(), range: Some(range.to_owned()) };
                call(key, time, &hits.to_string())
            }),
        })
    });
    read.await
}

/// The buckets of a value; `None` unless it is of a histogram. An empty list is one of no buckets only then.
fn buckets_of<'a>(columns: &StatsColumns, value: usize, text: &'a str) -> Option<Vec<(&'a str, u64)>> {
    if columns.histograms.contains(&columns.values[value]) { histogram_buckets(text) } else { None }
}

fn key_bytes(key: &Key) -> usize {
    ENTRY_BYTES + key.labels.iter().chain(&key.range).map(|label| text_bytes(label)).sum::<usize>()
}

/// Begins a series: `{"metric":{..}`; its values follow.
fn metric(columns: &StatsColumns, key: &Key) -> String {
    let mut out = String::from("{\"metric\":{\"__name__\":");
    let name = &columns.values[key.value];
    match key.range {
        None => push_json_string(&mut out, name),
        Some(_) => push_json_string(&mut out, &format!("{name}_bucket")),
    }
    let labels = columns.labels.iter().map(String::as_str).zip(&key.labels);
    for (name, label) in labels.chain(key.range.iter().map(|range| ("vmrange", range))) {
        out.push(',');
        push_json_string(&mut out, name);
        out.push(':');
        push_json_string(&mut out, label);
    }
    out.push('}');
    out
}

/// Unix seconds; an integer if there is no fraction.
fn seconds(ns: i64) -> String {
    if ns % 1_000_000_000 == 0 { (ns / 1_000_000_000).to_string() } else { ((ns / 1_000_000) as f64 / 1e3).to_string() }
}

const VECTOR: &str = "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[";
const MATRIX: &str = "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[";
const END: &str = "]}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_a_fraction_where_there_is_one() {
        let texts = [0, 2_000_000_000, 1_500_000_000, -500_000_000, 1_741_600_001_123_999_999].map(seconds);
        assert_eq!(texts, ["0", "2", "1.5", "-0.5", "1741600001.123"]);
    }

    #[test]
    fn labels_are_written_as_json() {
        let columns = StatsColumns {
            labels: vec!["a\"b".into(), "c".into()],
            values: vec!["n".into(), "m".into()],
            histograms: vec!["m".into()],
            ..Default::default()
        };
        let key = |range| Key { value: 1, labels: vec!["x\n".into(), String::new()], range };
        assert_eq!(metric(&columns, &key(None)), r#"{"metric":{"__name__":"m","a\"b":"x\n","c":""}"#);
        let bucket = metric(&columns, &key(Some("0...1".to_owned())));
        assert_eq!(bucket, r#"{"metric":{"__name__":"m_bucket","a\"b":"x\n","c":"","vmrange":"0...1"}"#);
    }

    #[test]
    fn only_histograms_have_buckets() {
        let columns =
            StatsColumns { values: vec!["u".into(), "h".into()], histograms: vec!["h".into()], ..Default::default() };
        let one = r#"[{"vmrange":"0...1","hits":2}]"#;
        assert_eq!([0, 1].map(|value| buckets_of(&columns, value, one)), [None, Some(vec![("0...1", 2)])]);
        assert_eq!([0, 1].map(|value| buckets_of(&columns, value, "[]")), [None, Some(vec![])]);
    }
}
