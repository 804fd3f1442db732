//! Endpoints that count rows: by time, by field, by stream.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::counting::{self, CountedBy, HITS, IS_OTHER};
use quiver_logsql::kernels::values::{parse_rfc3339, push_json_string, push_rfc3339};
use quiver_logsql::pipes::facets::Facets;
use quiver_query::QueryReservation;
use quiver_types::logs::{STREAM, STREAM_ID, TIME};
use quiver_types::{Error, Result};

use super::Ask;
use super::response::{self, ENTRY_BYTES, quoted, text_bytes};
use crate::params::invalid;
use crate::state::AppState;

/// Default maximum number of groups of `hits`.
const FIELDS_LIMIT: u64 = 1000;

macro_rules! endpoint {
    ($name:ident, $run:ident) => {
        pub(super) async fn $name(State(state): State<Arc<AppState>>, request: Request) -> Response {
            let asked = async {
                let ask = Ask::of(&state, request).await?;
                $run(&state, &ask).await
            };
            asked.await.unwrap_or_else(|e: Error| response::error(&e, concat!("/select/logsql/", stringify!($name))))
        }
    };
}

endpoint!(hits, run_hits);
endpoint!(field_names, run_field_names);
endpoint!(field_values, run_field_values);
endpoint!(streams, run_streams);
endpoint!(stream_ids, run_stream_ids);
endpoint!(stream_field_names, run_stream_field_names);
endpoint!(stream_field_values, run_stream_field_values);
endpoint!(facets, run_facets);

/// Calls back with the values of some fields of each row.
async fn each_row<const N: usize>(
    state: &AppState,
    ask: &Ask,
    query: &Query,
    names: [&str; N],
    mut each: impl FnMut([&str; N]) -> Result<()> + Send,
) -> Result<()> {
    let found = state.engines.logsql.each_row(query, &ask.scope, &ask.ctx, |fields| {
        let mut found = [""; N];
        for (name, value) in fields {
            if let Some(i) = names.iter().position(|own| *own == name) {
                found[i] = value;
            }
        }
        each(found)
    });
    found.await
}

/// Bytes of a point in a list that grows, and points that are written at once.
const POINT_BYTES: usize = 32;
const TEXT_POINTS: usize = 1000;

/// One group of `hits`.
#[derive(Debug, Default)]
struct Group {
    /// Values of the fields; `None`: all other groups together.
    key: Option<Vec<String>>,
    points: Vec<(i64, u64)>,
    total: u64,
}

async fn run_hits(state: &AppState, ask: &Ask) -> Result<Response> {
    let (step_ns, step) = ask.step()?;
    let offset = ask.offset()?;
    let fields: Vec<String> = ask.params.all("field").map(str::to_owned).collect();
    let limit = match ask.number("fields_limit")? {
        0 => FIELDS_LIMIT,
        n => n,
    };
    let offset = offset.as_ref().map(|(ns, text)| (*ns, text.as_str()));
    let query = counting::hits(ask.query.clone(), (step_ns, &step), offset, &fields, limit);
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let memory = state.engines.logsql.collected("hits", &ask.ctx);
    let mut groups: Vec<Group> = Vec::new();
    let mut values = vec![String::new(); fields.len()];
    let read = state.engines.logsql.each_row(&query, &ask.scope, &ask.ctx, |row| {
        let (mut count, mut time, mut is_other) = (0u64, 0, false);
        values.iter_mut().for_each(String::clear);
        for (name, value) in row {
            match name {
                HITS => count = value.parse().unwrap_or(0),
                TIME => time = parse_rfc3339(value).unwrap_or(0),
                IS_OTHER => is_other = true,
                _ => {}
            }
            for (_, own) in fields.iter().zip(&mut values).filter(|(own, _)| *own == name) {
                own.push_str(value);
            }
        }
        let key = (!is_other).then_some(&values);
        if groups.last().is_none_or(|group| group.key.as_ref() != key) {
            let texts = key.into_iter().flatten().map(|part| text_bytes(part)).sum::<usize>();
            memory.add(2 * ENTRY_BYTES + texts)?;
            groups.push(Group { key: key.cloned(), ..Group::default() });
        }
        memory.add(POINT_BYTES)?;
        if let Some(group) = groups.last_mut() {
            group.points.push((time, count));
            group.total += count;
        }
        Ok(())
    });
    read.await?;
    let groups = groups.into_iter().map(move |group| group_texts(&fields, group));
    Ok(response::long_list("{\"hits\":[", groups, "]}", memory))
}

/// Writes a group, some points at once.
fn group_texts(fields: &[String], group: Group) -> impl Iterator<Item = String> + use<> {
    let mut head = String::from("{\"fields\":{");
    for (i, (name, value)) in fields.iter().zip(group.key.iter().flatten()).enumerate() {
        head.push_str(if i > 0 { "," } else { "" });
        push_json_string(&mut head, name);
        head.push(':');
        push_json_string(&mut head, value);
    }
    head.push_str("},\"timestamps\":[");
    let count = group.points.len();
    let points = Arc::new(group.points);
    let again = Arc::clone(&points);
    let parts = move || (0..count).step_by(TEXT_POINTS).map(move |from| from..count.min(from + TEXT_POINTS));
    let times = parts().map(move |part| times_text(part.start, &points[part]));
    let values = parts().map(move |part| values_text(part.start, &again[part]));
    let tail = format!("],\"total\":{}}}", group.total);
    let between = "],\"values\":[".to_owned();
    std::iter::once(head).chain(times).chain([between]).chain(values).chain([tail])
}

/// Times of points, the first of which has so many before it.
fn times_text(before: usize, points: &[(i64, u64)]) -> String {
    let mut out = String::new();
    for (i, (ns, _)) in points.iter().enumerate() {
        out.push_str(if before + i > 0 { ",\"" } else { "\"" });
        push_rfc3339(&mut out, *ns);
        out.push('"');
    }
    out
}

/// Counts of points, the first of which has so many before it.
fn values_text(before: usize, points: &[(i64, u64)]) -> String {
    let mut out = String::new();
    for (i, (_, count)) in points.iter().enumerate() {
        let _ = write!(out, "{}{count}", if before + i > 0 { "," } else { "" });
    }
    out
}

/// Values with their numbers of rows.
struct CountedValues {
    all: Vec<(String, u64)>,
    memory: QueryReservation,
}

impl CountedValues {
    fn new(state: &AppState, ask: &Ask) -> Self {
        Self { all: Vec::new(), memory: state.engines.logsql.collected("values", &ask.ctx) }
    }

    fn push(&mut self, value: &str, hits: &str) -> Result<()> {
        self.memory.add(text_bytes(value))?;
        self.all.push((value.to_owned(), hits.parse().unwrap_or(0)));
        Ok(())
    }

    /// Sends the whole response: `{"values":[{"value","hits"}]}`.
    fn answer(self) -> Response {
        let item = |(value, hits): (String, u64)| format!("{{\"value\":{},\"hits\":{hits}}}", quoted(&value));
        response::list("{\"values\":[", self.all.into_iter().map(item), "]}", self.memory)
    }
}

/// Lists what was counted, most hits first; or the plans, if the request asks for them.
async fn counted(state: &AppState, ask: &Ask, mut by: CountedBy) -> Result<Response> {
    if let Some(text) = ask.params.get("filter").filter(|text| !text.is_empty()) {
        by = by.containing(text)?;
    }
    let limit = Some(ask.number("limit")?).filter(|limit| *limit > 0);
    let (query, column) = by.of(ask.query.clone(), limit);
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let mut found = CountedValues::new(state, ask);
    each_row(state, ask, &query, [column.as_str(), HITS], |[value, hits]| found.push(value, hits)).await?;
    Ok(found.answer())
}

async fn run_field_names(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::field_names()?).await
}

fn field(ask: &Ask) -> Result<String> {
    ask.params.get("field").map(str::to_owned).ok_or_else(|| invalid("field", "must be given"))
}

async fn run_field_values(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::values(&field(ask)?)?).await
}

async fn run_streams(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::values(STREAM)?).await
}

async fn run_stream_ids(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::values(STREAM_ID)?).await
}

async fn run_stream_field_names(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::stream_labels(None)).await
}

async fn run_stream_field_values(state: &AppState, ask: &Ask) -> Result<Response> {
    counted(state, ask, CountedBy::stream_labels(Some(&field(ask)?))).await
}

async fn run_facets(state: &AppState, ask: &Ask) -> Result<Response> {
    let asked = Facets {
        limit: ask.number("limit")?,
        max_values_per_field: ask.number("max_values_per_field")?,
        max_value_len: ask.number("max_value_len")?,
        keep_const_fields: ask.switch("keep_const_fields")?,
    };
    let query = counting::facets(ask.query.clone(), &asked);
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let memory = state.engines.logsql.collected("facets", &ask.ctx);
    let mut fields: Vec<(String, Vec<(String, u64)>)> = Vec::new();
    each_row(state, ask, &query, ["field_name", "field_value", "hits"], |[name, value, hits]| {
        // The value, and its text when the field is written.
        memory.add(2 * text_bytes(value))?;
        let one = (value.to_owned(), hits.parse().unwrap_or(0));
        match fields.last_mut().filter(|(last, _)| *last == name) {
            Some((_, values)) => values.push(one),
            None => fields.push((name.to_owned(), vec![one])),
        }
        Ok(())
    })
    .await?;
    let item = |(name, values): (String, Vec<(String, u64)>)| {
        let mut out = format!("{{\"field_name\":{},\"values\":[", quoted(&name));
        for (i, (value, hits)) in values.iter().enumerate() {
            out.push_str(if i > 0 { ",{\"field_value\":" } else { "{\"field_value\":" });
            push_json_string(&mut out, value);
            let _ = write!(out, ",\"hits\":{hits}}}");
        }
        out.push_str("]}");
        out
    };
    Ok(response::list("{\"facets\":[", fields.into_iter().map(item), "]}", memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_hits() {
        let group = |key: Option<&[&str]>, points: &[(i64, u64)]| {
            let key = key.map(|key| key.iter().map(|part| (*part).to_owned()).collect());
            Group { key, points: points.to_vec(), total: points.iter().map(|point| point.1).sum() }
        };
        let check = |fields: &[&str], group: Group, expected: &str| {
            let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            assert_eq!(group_texts(&fields, group).collect::<String>(), expected);
        };
        let point = (1_741_600_001_500_000_000, 3);
        let times = r#""timestamps":["2025-03-10T09:46:41.5Z"],"values":[3],"total":3}"#;
        check(&[], group(Some(&[]), &[point]), &format!(r#"{{"fields":{{}},{times}"#));
        check(&["a", "b"], group(Some(&["x", ""]), &[point]), &format!(r#"{{"fields":{{"a":"x","b":""}},{times}"#));
        check(&["a"], group(None, &[point]), &format!(r#"{{"fields":{{}},{times}"#));
        let two =
            r#"{"fields":{},"timestamps":["1970-01-01T00:00:00Z","1970-01-01T00:00:01Z"],"values":[1,2],"total":3}"#;
        check(&[], group(Some(&[]), &[(0, 1), (1_000_000_000, 2)]), two);
    }

    #[test]
    fn long_groups_are_written_in_parts() {
        let points: Vec<(i64, u64)> = (0..2_500).map(|n| (n * 1_000_000_000, n as u64)).collect();
        let total = points.iter().map(|point| point.1).sum();
        let texts: Vec<String> = group_texts(&[], Group { key: None, points, total }).collect();
        // The beginning, three parts of times, what is between, three parts of values, the end.
        assert_eq!(texts.len(), 9);
        let shown: serde_json::Value = serde_json::from_str(&texts.concat()).expect("JSON");
        assert_eq!(shown["values"], serde_json::json!((0..2_500).collect::<Vec<u64>>()));
        let times = shown["timestamps"].as_array().expect("a list");
        assert_eq!((times.len(), times[2_499].as_str()), (2_500, Some("1970-01-01T00:41:39Z")));
    }

    #[test]
    fn names_and_values_of_groups_are_quoted() {
        let fields = ["a\"b".to_owned(), "ä".to_owned()];
        let group = Group { key: Some(vec!["x\n".to_owned(), "\\".to_owned()]), points: Vec::new(), total: u64::MAX };
        let shown: serde_json::Value =
            serde_json::from_str(&group_texts(&fields, group).collect::<String>()).expect("JSON");
        let expected = serde_json::json!({
            "fields": {"a\"b": "x\n", "ä": "\\"}, "timestamps": [], "values": [], "total": u64::MAX,
        });
        assert_eq!(shown, expected);
    }
}
