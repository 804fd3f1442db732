//! Search and lists of the `/traces` API.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::response::Response;
use quiver_traces::lists::histogram::{SeriesRequest, default_step};
use quiver_traces::lists::tags::{INTRINSICS, KeyOf};
use quiver_traces::{ListOptions, ParamError, Search, Selection, TraceError};
use quiver_types::spans::{Place, SpanFilter, TagRequest};
use serde_json::{Value, json};

use super::data::Data;
use super::groupings::{MEASURES, measure, split_by};
use super::problem::derived;
use super::{Call, rows, search};
use crate::state::AppState;
use crate::traces_params::{TraceParams, place};

/// Default number of rows of a list, and of values of a key.
const ROWS: u64 = 10_000;
const VALUES: u64 = 1_000;
/// Most series of a histogram; the rest is `other`.
const SERIES: usize = 100;

/// Lists with a path of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Search,
    Services,
    Operations,
    Instances,
    Tags,
    Values,
    Dependencies,
    Histogram,
    Heatmap,
    Facets,
    Difference,
    Compare,
}

pub(super) const PATHS: &[(&str, List)] = &[
    ("/traces", List::Search),
    ("/traces/services", List::Services),
    ("/traces/operations", List::Operations),
    ("/traces/instances", List::Instances),
    ("/traces/tags", List::Tags),
    ("/traces/tags/{key}/values", List::Values),
    ("/traces/dependencies", List::Dependencies),
    ("/traces/histogram", List::Histogram),
    ("/traces/heatmap", List::Heatmap),
    ("/traces/facets", List::Facets),
    ("/traces/difference", List::Difference),
    ("/traces/compare", List::Compare),
];

pub(super) async fn answer_list(
    list: List,
    State(state): State<Arc<AppState>>,
    path: RawPathParams,
    request: Request,
) -> Response {
    let key = path.iter().find(|(name, _)| *name == "key").map(|(_, value)| value.to_owned());
    let run = async {
        let call = Call::of(state, request).await?;
        answer(list, &call, key).await
    };
    run.await.unwrap_or_else(|e| derived(&e, "/traces"))
}

async fn answer(list: List, call: &Call, key: Option<String>) -> Result<Response, TraceError> {
    if list == List::Compare {
        return compare_two(call).await;
    }
    // Lists take all filters of a search, too, so that the parameters are parsed in one place.
    let mut search = if list == List::Search {
        search::search(&call.params, call.now)?
    } else {
        search::filter_alone(&call.params, call.now)?
    };
    // In lists of names these parameters are parts of the filter.
    if matches!(list, List::Histogram | List::Heatmap | List::Facets | List::Difference) {
        search::add_traceql(&mut search, &call.params)?;
    }
    search.conditions.extend(call.segments()?);
    let key = key.unwrap_or_default();
    let (traces, ctx, range) = (&call.state.engines.traces, &call.ctx, search.range);
    let mut cursor = None;
    // The limit of rows, with this default.
    let listing = |default: u64| -> Result<ListOptions, TraceError> {
        let limit = call.params.number("limit", 1..=100_000)?.unwrap_or(default) as usize;
        Ok(ListOptions { like: call.params.one("q")?.map(str::to_lowercase), limit: Some(limit), by_name: false })
    };
    let data = match list {
        List::Search => {
            let page = traces.search(ctx, search, call.now).await?;
            cursor = page.cursor.map(|cursor| cursor.to_string());
            Data::rows(page.rows, |row| rows::summary(&row))
        }
        List::Services => {
            let bare = call.params.switch("names")?.unwrap_or(false);
            let services = traces.services(ctx, range, search.conditions, listing(ROWS)?).await?;
            Data::rows(services, move |one| if bare { one.name.into() } else { rows::service(&one) })
        }
        List::Operations => {
            let operations = traces.operations(ctx, range, search.conditions, listing(ROWS)?).await?;
            Data::rows(operations, |row| rows::operation(&row))
        }
        List::Instances => {
            let listing = ListOptions { like: None, ..listing(ROWS)? };
            let instances = traces.instances(ctx, range, search.conditions, listing).await?;
            Data::rows(instances, |row| rows::instance(&row))
        }
        List::Tags => tags(call, search.filter(), listing(ROWS)?).await?,
        List::Values => values(call, search.filter(), &key, listing(VALUES)?).await?,
        List::Dependencies => dependencies(call, search).await?,
        List::Histogram => histogram(call, search.filter(), range).await?,
        List::Heatmap => heatmap(call, search.filter(), range).await?,
        List::Facets => {
            let limit = call.params.number("limit", 1..=1000)?.unwrap_or(10) as usize;
            let keys = call.params.all("keys").flat_map(|k| k.split(',')).map(str::to_owned).collect();
            Data::rows(traces.facets(ctx, search.filter(), keys, limit).await?, rows::facet)
        }
        List::Difference => {
            let limit = call.params.number("limit", 1..=1000)?.unwrap_or(50) as usize;
            let selected = selected(call)?;
            Data::short(rows::difference(traces.difference(ctx, search.filter(), selected, limit).await?))
        }
        List::Compare => unreachable!("answered above: it has two searches"),
    };
    call.answer_data(data, Some(range), cursor)
}

/// The graph of services, or what lies near to those that are named.
async fn dependencies(call: &Call, mut search: Search) -> Result<Data, TraceError> {
    let depth = call.params.number("depth", 1..=20)?.unwrap_or(1) as usize;
    // The graph needs both ends of a call, so the service restricts what is shown, not what is read.
    search.conditions.retain(|c| !of_services(c));
    let mut graph = call.state.engines.traces.dependencies(&call.ctx, search.range, search.conditions).await?;
    let services: Vec<String> = call.params.all("service").map(str::to_owned).collect();
    if !services.is_empty() {
        graph.near(&services, depth);
    }
    Ok(Data::short(rows::dependencies(&graph)))
}

async fn histogram(call: &Call, filter: SpanFilter, range: (i64, i64)) -> Result<Data, TraceError> {
    let request = SeriesRequest {
        filter,
        range,
        step: call.params.duration("step")?.unwrap_or_else(|| default_step(range)),
        holds_ends: false,
        by: split_by(call.params.one("by")?)?,
        measure: measure(call.params.word("measure", &MEASURES)?.unwrap_or("count")),
        series_max: Some(SERIES),
    };
    let found = call.state.engines.traces.histogram(&call.ctx, request).await?;
    let points = found.series.iter().map(|one| one.points.len()).sum();
    Ok(Data::written(points, move |w| rows::histogram(&found, w)))
}

async fn heatmap(call: &Call, filter: SpanFilter, range: (i64, i64)) -> Result<Data, TraceError> {
    let step = call.params.duration("step")?.unwrap_or_else(|| default_step(range));
    let buckets = call.params.number("buckets", 1..=60)?.unwrap_or(30) as usize;
    let found = call.state.engines.traces.heatmap(&call.ctx, filter, range, step, buckets).await?;
    Ok(Data::written(found.times.len() * buckets, move |w| rows::heatmap(&found, w)))
}

/// Whether a condition only tests services.
fn of_services(condition: &SpanFilter) -> bool {
    match condition {
        SpanFilter::Service(_) => true,
        SpanFilter::Or(any) => any.iter().all(|one| matches!(one, SpanFilter::Service(_))),
        _ => false,
    }
}

/// Parses the selection of a search: times and durations, or a filter.
fn selected(call: &Call) -> Result<SpanFilter, TraceError> {
    if let Some(filter) = call.params.one("selectFilter")? {
        return Ok(search::condition("selectFilter", filter)?);
    }
    let wrong = |reason: &str| ParamError::new("select", reason);
    let text = call.params.one("select")?.ok_or_else(|| wrong("give `select` or `selectFilter`"))?;
    let inner = TraceParams::of_json(text.as_bytes()).map_err(|_| wrong("expected a JSON object"))?;
    let known = ["timeFrom", "timeTo", "minDuration", "maxDuration"];
    if let Some((name, _)) = inner.pairs().find(|(name, _)| !known.contains(name)) {
        return Err(wrong(&format!("`{name}` is none of {}", known.join(", "))).into());
    }
    let from = inner.time("timeFrom", call.now)?.unwrap_or(i64::MIN);
    let to = inner.time("timeTo", call.now)?.unwrap_or(i64::MAX);
    let min = inner.duration("minDuration")?.unwrap_or(0);
    let max = inner.duration("maxDuration")?.unwrap_or(i64::MAX);
    Ok(SpanFilter::Starts(from, to).and(SpanFilter::Duration(min, max)))
}

/// Scopes of keys: places of attributes, and `intrinsic` for fields that are not attributes.
const SCOPES: [&str; 6] = ["resource", "span", "event", "link", "scope", "intrinsic"];

/// The request for a list of keys; `None` if the list is known without one.
fn tag_request(call: &Call, filter: SpanFilter) -> Result<Option<TagRequest>, TraceError> {
    let scope = call.params.word("scope", &SCOPES)?;
    let place = scope.and_then(|s| Place::ALL.into_iter().find(|p| p.name() == s));
    Ok((scope != Some("intrinsic")).then_some(TagRequest { filter, place, key: None }))
}

async fn tags(call: &Call, filter: SpanFilter, listing: ListOptions) -> Result<Data, TraceError> {
    let Some(request) = tag_request(call, filter)? else {
        let named = |name: &str| listing.like.as_ref().is_none_or(|q| name.to_lowercase().contains(q));
        let intrinsics = INTRINSICS.iter().filter(|n| named(n)).map(|n| json!({"key": n, "scope": "intrinsic"}));
        return Ok(Data::short(Value::Array(intrinsics.collect())));
    };
    let tags = call.state.engines.traces.tags(&call.ctx, request.filter, request.place, listing).await?;
    Ok(Data::rows(tags, |row| rows::tag(&row)))
}

fn key_of(call: &Call, key: &str) -> Result<KeyOf, TraceError> {
    Ok(match call.params.word("scope", &SCOPES)? {
        Some("intrinsic") if INTRINSICS.contains(&key) => KeyOf::Intrinsic(key.to_owned()),
        Some("intrinsic") => return Err(ParamError::new("key", format!("`{key}` is no intrinsic")).into()),
        Some(scope) => KeyOf::Attribute(Place::ALL.into_iter().find(|p| p.name() == scope), key.to_owned()),
        None => {
            let (place, key) = place(key);
            KeyOf::Attribute(place, key.to_owned())
        }
    })
}

async fn values(call: &Call, filter: SpanFilter, key: &str, listing: ListOptions) -> Result<Data, TraceError> {
    let values = call.state.engines.traces.values(&call.ctx, filter, key_of(call, key)?, listing).await?;
    Ok(Data::rows(values, |(value, count)| json!({"value": value, "count": count})))
}

async fn compare_two(call: &Call) -> Result<Response, TraceError> {
    let id = |name: &str| -> Result<_, TraceError> {
        let text = call.params.one(name)?.ok_or_else(|| ParamError::new(name, "is missing"))?;
        Selection::parse_id(text)
    };
    let (left, right) = (id("left")?, id("right")?);
    let left = call.trace(Selection::all(left)).await?;
    let right = call.trace(Selection::all(right)).await?;
    let paths = call.state.engines.traces.compare(&call.ctx, left, right).await?;
    call.answer_data(Data::rows(paths, rows::compared_path), None, None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_types::spans::TextTest;

    use super::*;

    #[test]
    fn conditions_that_only_name_services() {
        let service = || SpanFilter::Service(TextTest::Is("cart".to_owned()));
        for (condition, expected) in [
            (service(), true),
            (SpanFilter::Or(vec![service(), service()]), true),
            (SpanFilter::Or(vec![service(), SpanFilter::All]), false),
            (SpanFilter::And(vec![service()]), false),
            (SpanFilter::Not(Box::new(service())), false),
            (SpanFilter::All, false),
        ] {
            assert_eq!(of_services(&condition), expected, "{condition:?}");
        }
    }

    #[test]
    fn each_list_has_one_path() {
        let paths: BTreeSet<&str> = PATHS.iter().map(|(path, _)| *path).collect();
        assert_eq!(paths.len(), PATHS.len());
        let lists: BTreeSet<String> = PATHS.iter().map(|(_, list)| format!("{list:?}")).collect();
        assert_eq!(lists.len(), PATHS.len());
    }
}
