//! Endpoints that count: rows by time, by field, by stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::parse_rfc3339;
use quiver_logsql::request::{hits as hits_query, without_pipes};
use quiver_logsql::{parse, stream_labels};
use quiver_types::{Error, Result};
use serde_json::{Map, Value, json as value};

use super::{Ask, json};
use crate::error::plain_error;
use crate::params::invalid;
use crate::state::AppState;

/// Most groups that `hits` gives unless asked otherwise.
const FIELDS_LIMIT: usize = 1000;

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

/// Rows as names and values.
async fn rows(state: &AppState, ask: &Ask, query: &Query) -> Result<Vec<Vec<(String, String)>>> {
    let mut all = Vec::new();
    for rows in state.logsql.collect(query, &ask.scope, &ask.ctx).await? {
        all.extend(rows.to_texts()?);
    }
    Ok(all)
}

/// The query's filter with other pipes behind it.
fn with_pipes(ask: &Ask, pipes: &str) -> Result<Query> {
    let mut query = without_pipes(ask.query.clone());
    query.pipes = parse(&format!("* | {pipes}"))?.pipes;
    Ok(query)
}

fn take(fields: &[(String, String)], name: &str) -> String {
    fields.iter().find(|(own, _)| own == name).map_or_else(String::new, |(_, value)| value.clone())
}

/// One group of `hits`.
#[derive(Debug, Default)]
struct Group {
    points: BTreeMap<i64, u64>,
    total: u64,
}

async fn run_hits(state: &AppState, ask: &Ask) -> Result<Response> {
    let (step_ns, step) = ask.step()?;
    let offset = ask.duration("offset", "0s")?;
    let fields: Vec<String> = ask.params.all("field").map(str::to_owned).collect();
    let limit = match ask.number("fields_limit")? {
        0 => FIELDS_LIMIT,
        n => n as usize,
    };
    let offset = (offset.0 != 0).then_some((offset.0, offset.1.as_str()));
    let query = hits_query(ask.query.clone(), (step_ns, &step), offset, &fields);
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    for row in rows(state, ask, &query).await? {
        let key = fields.iter().map(|field| take(&row, field)).collect();
        let count: u64 = take(&row, "__q_hits").parse().unwrap_or(0);
        let group = groups.entry(key).or_default();
        *group.points.entry(parse_rfc3339(&take(&row, "_time")).unwrap_or(0)).or_insert(0) += count;
        group.total += count;
    }
    let (named, other) = largest(groups, limit);
    let mut all: Vec<Value> = named
        .into_iter()
        .map(|(key, group)| {
            let labels = fields.iter().cloned().zip(key.into_iter().map(Value::String)).collect();
            group_json(labels, group)
        })
        .collect();
    all.extend(other.map(|group| group_json(Map::new(), group)));
    Ok(json(value!({ "hits": all }).to_string()))
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

fn group_json(fields: Map<String, Value>, group: Group) -> Value {
    let text = |ns: &i64| {
        let mut out = String::new();
        quiver_logsql::kernels::values::push_rfc3339(&mut out, *ns);
        out
    };
    let timestamps: Vec<String> = group.points.keys().map(text).collect();
    let values: Vec<u64> = group.points.values().copied().collect();
    value!({ "fields": fields, "timestamps": timestamps, "values": values, "total": group.total })
}

/// `{"values":[{"value","hits"}]}`, most hits first.
fn values_json(mut all: Vec<(String, u64)>, limit: u64) -> Response {
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if limit > 0 {
        all.truncate(limit as usize);
    }
    let values: Vec<Value> = all.into_iter().map(|(v, hits)| value!({ "value": v, "hits": hits })).collect();
    json(value!({ "values": values }).to_string())
}

/// Counts the values of a field; `None` when the plans were asked for.
async fn counted(state: &AppState, ask: &Ask, pipes: &str, name: &str) -> Result<Result<Vec<(String, u64)>, Response>> {
    let query = with_pipes(ask, pipes)?;
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(Err(plans));
    }
    let all = rows(state, ask, &query).await?;
    Ok(Ok(all.iter().map(|row| (take(row, name), take(row, "__q_hits").parse().unwrap_or(0))).collect()))
}

async fn run_field_names(state: &AppState, ask: &Ask) -> Result<Response> {
    let limit = ask.number("limit")?;
    let query = with_pipes(ask, "field_names as __q_name | rename hits as __q_hits")?;
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let all = rows(state, ask, &query).await?;
    let counts = all.iter().map(|row| (take(row, "__q_name"), take(row, "__q_hits").parse().unwrap_or(0))).collect();
    Ok(values_json(counts, limit))
}

async fn values_of(state: &AppState, ask: &Ask, field: &str) -> Result<Response> {
    let limit = ask.number("limit")?;
    let pipes = format!("stats by ({}) count() as __q_hits", serde_json::to_string(field).unwrap_or_default());
    match counted(state, ask, &pipes, field).await? {
        Ok(counts) => Ok(values_json(counts, limit)),
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
    let limit = ask.number("limit")?;
    let streams = match counted(state, ask, "stats by (_stream) count() as __q_hits", "_stream").await? {
        Ok(streams) => streams,
        Err(plans) => return Ok(plans),
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (stream, hits) in streams {
        for text in told(stream_labels(&stream)) {
            *counts.entry(text).or_insert(0) += hits;
        }
    }
    Ok(values_json(counts.into_iter().collect(), limit))
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
    let mut fields: Vec<(String, Vec<Value>)> = Vec::new();
    for row in rows(state, ask, &query).await? {
        let name = take(&row, "field_name");
        let hits: u64 = take(&row, "hits").parse().unwrap_or(0);
        let one = value!({ "field_value": take(&row, "field_value"), "hits": hits });
        match fields.last_mut().filter(|(last, _)| *last == name) {
            Some((_, values)) => values.push(one),
            None => fields.push((name, vec![one])),
        }
    }
    let all: Vec<Value> =
        fields.into_iter().map(|(name, values)| value!({ "field_name": name, "values": values })).collect();
    Ok(json(value!({ "facets": all }).to_string()))
}
