//! Endpoints that count: rows by time, by field, by stream.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::{parse_rfc3339, push_json_string, push_rfc3339};
use quiver_logsql::request::{hits as hits_query, without_pipes};
use quiver_logsql::{parse, stream_labels};
use quiver_query::Collected;
use quiver_types::logs::TIME;
use quiver_types::{Error, Result};

use super::Ask;
use super::answer::{self, ENTRY_BYTES, quoted, text_bytes};
use crate::error::plain_error;
use crate::params::invalid;
use crate::state::AppState;

/// Most groups that `hits` gives unless asked otherwise.
const FIELDS_LIMIT: usize = 1000;

/// The column of counts in the queries that are made here.
const COUNT: &str = "__q_hits";

macro_rules! endpoint {
    ($name:ident, $run:ident) => {
        pub(super) async fn $name(State(state): State<Arc<AppState>>, request: Request) -> Response {
            let asked = async {
                let ask = Ask::of(&state, request).await?;
                $run(&state, &ask).await
            };
            asked.await.unwrap_or_else(|e: Error| plain_error(&e, concat!("/select/logsql/", stringify!($name))))
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
    mut each: impl FnMut([&str; N]) -> Result<()>,
) -> Result<()> {
    let found = state.logsql.each_row(query, &ask.scope, &ask.ctx, |fields| {
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

/// The query's filter with other pipes behind it.
fn with_pipes(ask: &Ask, pipes: &str) -> Result<Query> {
    let mut query = without_pipes(ask.query.clone());
    query.pipes = parse(&format!("* | {pipes}"))?.pipes;
    Ok(query)
}

/// One group of `hits`.
#[derive(Debug, Default)]
struct Group {
    points: BTreeMap<i64, u64>,
    total: u64,
}

async fn run_hits(state: &AppState, ask: &Ask) -> Result<Response> {
    let (step_ns, step) = ask.step()?;
    let offset = ask.offset()?;
    let fields: Vec<String> = ask.params.all("field").map(str::to_owned).collect();
    let limit = match ask.number("fields_limit")? {
        0 => FIELDS_LIMIT,
        n => n as usize,
    };
    let offset = offset.as_ref().map(|(ns, text)| (*ns, text.as_str()));
    let query = hits_query(ask.query.clone(), (step_ns, &step), offset, &fields);
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let memory = state.logsql.collected("hits", &ask.ctx);
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    let read = state.logsql.each_row(&query, &ask.scope, &ask.ctx, |row| {
        let (mut key, mut count, mut time) = (vec![String::new(); fields.len()], 0u64, 0);
        for (name, value) in row {
            match name {
                COUNT => count = value.parse().unwrap_or(0),
                TIME => time = parse_rfc3339(value).unwrap_or(0),
                _ => {}
            }
            for (_, part) in fields.iter().zip(&mut key).filter(|(own, _)| *own == name) {
                value.clone_into(part);
            }
        }
        let group = match groups.get_mut(&key) {
            Some(group) => group,
            None => {
                memory.add(2 * ENTRY_BYTES + key.iter().map(|part| text_bytes(part)).sum::<usize>())?;
                groups.entry(key).or_default()
            }
        };
        if !group.points.contains_key(&time) {
            // The point, and its texts when the group is written.
            memory.add(2 * ENTRY_BYTES)?;
        }
        *group.points.entry(time).or_insert(0) += count;
        group.total += count;
        Ok(())
    });
    read.await?;
    let (named, other) = largest(groups, limit);
    let named = named.into_iter().map(move |(key, group)| group_json(fields.iter().zip(key), &group));
    let other = other.into_iter().map(|group| group_json(std::iter::empty(), &group));
    Ok(answer::list("{\"hits\":[", named.chain(other), "]}", memory))
}

/// The largest groups by themselves, the others as one.
fn largest(groups: BTreeMap<Vec<String>, Group>, limit: usize) -> (Vec<(Vec<String>, Group)>, Option<Group>) {
    let mut all: Vec<_> = groups.into_iter().collect();
    if all.len() <= limit {
        return (all, None);
    }
    all.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
    let mut other = Group::default();
    for (_, group) in all.split_off(limit) {
        other.total += group.total;
        group.points.into_iter().for_each(|(time, count)| *other.points.entry(time).or_insert(0) += count);
    }
    (all, Some(other))
}

fn group_json<'f>(fields: impl Iterator<Item = (&'f String, String)>, group: &Group) -> String {
    let mut out = String::from("{\"fields\":{");
    for (i, (name, value)) in fields.enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        push_json_string(&mut out, name);
        out.push(':');
        push_json_string(&mut out, &value);
    }
    out.push_str("},\"timestamps\":[");
    for (i, ns) in group.points.keys().enumerate() {
        out.push_str(if i > 0 { ",\"" } else { "\"" });
        push_rfc3339(&mut out, *ns);
        out.push('"');
    }
    out.push_str("],\"values\":[");
    for (i, count) in group.points.values().enumerate() {
        let _ = write!(out, "{}{count}", if i > 0 { "," } else { "" });
    }
    let _ = write!(out, "],\"total\":{}}}", group.total);
    out
}

/// Values and how many rows have each, as they are collected.
struct Counted {
    all: Vec<(String, u64)>,
    memory: Collected,
}

impl Counted {
    fn new(state: &AppState, ask: &Ask) -> Self {
        Self { all: Vec::new(), memory: state.logsql.collected("values", &ask.ctx) }
    }

    fn push(&mut self, value: &str, hits: &str) -> Result<()> {
        self.memory.add(text_bytes(value))?;
        self.all.push((value.to_owned(), hits.parse().unwrap_or(0)));
        Ok(())
    }

    /// `{"values":[{"value","hits"}]}`, most hits first; of values that hold a text, if one is asked for.
    fn answer(self, ask: &Ask) -> Result<Response> {
        let Self { mut all, memory } = self;
        if let Some(text) = ask.params.get("filter") {
            all.retain(|(value, _)| value.contains(text));
        }
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        match ask.number("limit")? {
            0 => {}
            limit => all.truncate(usize::try_from(limit).unwrap_or(usize::MAX)),
        }
        let item = |(value, hits): (String, u64)| format!("{{\"value\":{},\"hits\":{hits}}}", quoted(&value));
        Ok(answer::list("{\"values\":[", all.into_iter().map(item), "]}", memory))
    }
}

/// Counts the values of a column by pipes; the plans instead, when they were asked for. What the answer leaves out is left
/// out by the plan: of very many values those that the answer has are held.
async fn counted(state: &AppState, ask: &Ask, pipes: &str, name: &str) -> Result<Result<Counted, Response>> {
    let mut pipes = pipes.to_owned();
    if let Some(text) = ask.params.get("filter").filter(|text| !text.is_empty()) {
        let _ = write!(pipes, " | filter {}:~{}", quoted(name), quoted(&regex::escape(text)));
    }
    match ask.number("limit")? {
        0 => {}
        limit => {
            let _ = write!(pipes, " | sort by ({COUNT} desc, {}) limit {limit}", quoted(name));
        }
    }
    let query = with_pipes(ask, &pipes)?;
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(Err(plans));
    }
    let mut found = Counted::new(state, ask);
    each_row(state, ask, &query, [name, COUNT], |[value, hits]| found.push(value, hits)).await?;
    Ok(Ok(found))
}

async fn run_field_names(state: &AppState, ask: &Ask) -> Result<Response> {
    match counted(state, ask, "field_names as __q_name | rename hits as __q_hits", "__q_name").await? {
        Ok(found) => found.answer(ask),
        Err(plans) => Ok(plans),
    }
}

async fn values_of(state: &AppState, ask: &Ask, field: &str) -> Result<Response> {
    match counted(state, ask, &format!("stats by ({}) count() as {COUNT}", quoted(field)), field).await? {
        Ok(found) => found.answer(ask),
        Err(plans) => Ok(plans),
    }
}

fn field(ask: &Ask) -> Result<String> {
    ask.params.get("field").map(str::to_owned).ok_or_else(|| invalid("field", "must be given"))
}

async fn run_field_values(state: &AppState, ask: &Ask) -> Result<Response> {
    let field = field(ask)?;
    values_of(state, ask, &field).await
}

async fn run_streams(state: &AppState, ask: &Ask) -> Result<Response> {
    values_of(state, ask, "_stream").await
}

async fn run_stream_ids(state: &AppState, ask: &Ask) -> Result<Response> {
    values_of(state, ask, "_stream_id").await
}

/// Counts rows by what is told of the labels of their stream.
async fn of_labels(
    state: &AppState,
    ask: &Ask,
    told: impl Fn(Vec<(String, String)>) -> Vec<String>,
) -> Result<Response> {
    let query = with_pipes(ask, &format!("stats by (_stream) count() as {COUNT}"))?;
    ask.number("limit")?;
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let memory = state.logsql.collected("values", &ask.ctx);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    each_row(state, ask, &query, ["_stream", COUNT], |[stream, hits]| {
        let hits: u64 = hits.parse().unwrap_or(0);
        for text in told(stream_labels(stream)) {
            match counts.get_mut(&text) {
                Some(count) => *count += hits,
                None => {
                    memory.add(text_bytes(&text))?;
                    counts.insert(text, hits);
                }
            }
        }
        Ok(())
    })
    .await?;
    Counted { all: counts.into_iter().collect(), memory }.answer(ask)
}

async fn run_stream_field_names(state: &AppState, ask: &Ask) -> Result<Response> {
    of_labels(state, ask, |labels| labels.into_iter().map(|(name, _)| name).collect()).await
}

async fn run_stream_field_values(state: &AppState, ask: &Ask) -> Result<Response> {
    let field = field(ask)?;
    of_labels(state, ask, |labels| {
        labels.into_iter().filter(|(name, _)| *name == field).map(|(_, value)| value).collect()
    })
    .await
}

async fn run_facets(state: &AppState, ask: &Ask) -> Result<Response> {
    let mut pipe = match ask.number("limit")? {
        0 => "facets".to_owned(),
        n => format!("facets {n}"),
    };
    for name in ["max_values_per_field", "max_value_len"] {
        match ask.number(name)? {
            0 => {}
            n => pipe.push_str(&format!(" {name} {n}")),
        }
    }
    match ask.params.get("keep_const_fields") {
        None | Some("0" | "false") => {}
        Some("1" | "true") => pipe.push_str(" keep_const_fields"),
        Some(other) => return Err(invalid("keep_const_fields", &format!("`{other}` is not one of true, false"))),
    }
    let query = with_pipes(ask, &pipe)?;
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let memory = state.logsql.collected("facets", &ask.ctx);
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
    Ok(answer::list("{\"facets\":[", fields.into_iter().map(item), "]}", memory))
}
