//! Drill-down: from a row of a result to the rows behind one of its measures (`olap-api.md` 12.2).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::dates::range::{Point, WallRange};
use crate::error::{OlapResult, QueryError, Reason};
use crate::model::catalog::{Catalog, MemberKind, ResolvedMember};
use crate::model::{Dimension, DimensionType, MemberId};
use crate::plan::Tree;
use crate::query::request::{QueryType, Request};
use crate::query::{LIMIT_MAX, Query, TimeEntry, whole_number};

/// Rows unless asked otherwise.
const LIMIT_DEFAULT: u64 = 100;
/// What is escaped in a value of a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'*');

/// What is asked for beside the query.
#[derive(Debug, Clone)]
pub struct DrillDownRequest {
    /// The row of the answer that is looked behind: its members with their values.
    pub row: Map<String, Value>,
    /// The measure; none: the only one.
    pub measure: Option<String>,
    /// Most rows that are shown.
    pub limit: u64,
    /// When it is asked, Unix nanoseconds: relative ranges of the query count from there.
    pub now_ns: i64,
}

impl DrillDownRequest {
    /// Reads the body of a request that came at this time.
    ///
    /// # Errors
    /// `BAD_TYPE`, `BAD_LIMIT`.
    pub fn parse(body: &Value, now_ns: i64) -> Result<Self, QueryError> {
        let bad = |key: &str, what: &str| {
            Err(QueryError::new(Reason::BadType, format!("/{key}"), format!("`{key}` is {what}")))
        };
        let row = match body.get("row") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(row)) => row.clone(),
            Some(_) => return bad("row", "a row of the answer: an object of members and values"),
        };
        let measure = match body.get("measure") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return bad("measure", "the name of a measure"),
        };
        let limit = match body.get("limit") {
            None | Some(Value::Null) => LIMIT_DEFAULT,
            Some(value) => whole_number(value).filter(|n| *n <= LIMIT_MAX).ok_or_else(|| {
                let text = format!("`limit` is a whole number from 0 to {LIMIT_MAX}, not `{value}`");
                QueryError::new(Reason::BadLimit, "/limit", text)
            })?,
        };
        Ok(Self { row, measure, limit, now_ns })
    }
}

/// The query of a request that a row belongs to, and the measure of it.
///
/// # Errors
/// There is none; the measure is none of the query's, or has no rows of its own.
pub fn choose<'r>(
    catalog: &Catalog,
    request: &'r Request,
    asked: &DrillDownRequest,
) -> Result<(&'r Query, MemberId), QueryError> {
    let query = match request.query_type {
        QueryType::Regular => &request.queries[0],
        QueryType::CompareDateRange => {
            let named = asked.row.get("compareDateRange").and_then(Value::as_str);
            let of = |q: &&Query| request.extra_column(q).and_then(|(_, value)| value).as_deref() == named;
            request.queries.iter().find(of).ok_or_else(|| {
                let text = "the row says by `compareDateRange` which range it is of";
                QueryError::new(Reason::BadValue, "/row/compareDateRange", text)
            })?
        }
        QueryType::Blending => {
            let text = "a row of blended queries belongs to one of them: give that one as `query`";
            return Err(QueryError::new(Reason::BadValue, "/query", text));
        }
    };
    let wrong = |text: String| QueryError::new(Reason::BadValue, "/measure", text);
    let measure = match (&asked.measure, query.measures.as_slice()) {
        (Some(name), all) => all.iter().find(|id| id.to_string() == *name).cloned(),
        (None, [only]) => Some(only.clone()),
        (None, _) => return Err(wrong("`measure` says which of the query's measures is meant".to_owned())),
    };
    let Some(measure) = measure else {
        return Err(wrong(format!("the query has no measure `{}`", asked.measure.as_deref().unwrap_or_default())));
    };
    if let Some(MemberKind::Measure(m)) = catalog.find(&measure).map(|f| f.kind)
        && (m.multi_stage || m.rolling_window.is_some() || m.apart)
    {
        let text = format!("measure `{measure}` is made of other rows than those of its group, and has none to show");
        return Err(wrong(text));
    }
    Ok((query, measure))
}

/// The rows behind a measure in a row, as a query. `tree` is how the models of the query are joined: rows that it counts
/// are rows of the same joins.
///
/// # Errors
/// Values of the row that are none of the query's columns or not of their types; a measure without drill members.
pub fn query(
    catalog: &Catalog,
    query: &Query,
    measure: &MemberId,
    asked: &DrillDownRequest,
    tree: Option<&Tree>,
) -> OlapResult<Query> {
    known(query, asked)?;
    if let (Some(tree), Some(found)) = (tree.filter(|tree| !tree.edges.is_empty()), catalog.find(measure))
        && found.model.entities
        && found.model.common.name != tree.root
    {
        let name = &found.model.common.name;
        let text = format!(
            "the joins of the query only choose entities of `{name}`, whose rows go by members of `{name}` alone"
        );
        return Err(QueryError::new(Reason::BadValue, "/measure", text).into());
    }
    let (measures, dimensions) = members(catalog, measure)?;
    let mut out = Query { format: None, exemplars: 0, ..query.clone() }.to_json();
    let mut filters: Vec<Value> = Vec::new();
    for (filter, shown) in query.filters.iter().zip(out["filters"].as_array().into_iter().flatten()) {
        if !filter.is_about_measures() {
            filters.push(shown.clone());
        }
    }
    for id in &query.dimensions {
        if let Some(value) = asked.row.get(&id.to_string()) {
            filters.push(equals(catalog, id, value)?);
        }
    }
    let mut times: Vec<(MemberId, Option<WallRange>)> = Vec::new();
    for entry in &query.times {
        let mut range = entry.range;
        match bucket(query, entry, asked)? {
            Place::NoTime => filters.push(json!({"member": entry.member.to_string(), "operator": "notSet"})),
            // A range on it keeps rows that lived then, but a bucket takes the time itself.
            Place::Within(bucket) if dimension(catalog, &entry.member).is_some_and(|d| d.since.is_some()) => {
                filters.push(json!({
                    "member": entry.member.to_string(), "operator": "inDateRange", "values": bucket.written(),
                }));
            }
            Place::Within(bucket) => range = Some(intersection(range, bucket)),
            Place::Any => {}
        }
        match times.iter_mut().find(|(id, _)| *id == entry.member) {
            Some((_, old)) => *old = range.map_or(*old, |range| Some(intersection(*old, range))),
            None => times.push((entry.member.clone(), range)),
        }
    }
    filters.push(json!({"member": measure.to_string(), "operator": "measureFilter"}));
    let times = times.into_iter().filter_map(|(id, range)| Some((id, range?.written())));
    out["timeDimensions"] = times.map(|(id, range)| json!({"dimension": id.to_string(), "dateRange": range})).collect();
    out["filters"] = filters.into();
    out["measures"] = measures.into();
    out["dimensions"] = dimensions.into();
    out["ungrouped"] = true.into();
    out["limit"] = asked.limit.into();
    if let Some(tree) = tree.filter(|_| query.hints.is_empty()) {
        let edges = tree.edges.iter().map(|(from, to)| json!([from, to]));
        out["joinHints"] = std::iter::once(json!([tree.root])).chain(edges).collect();
    }
    if let Some(map) = out.as_object_mut() {
        for key in &["order", "offset", "total", "rowLimit", "responseFormat"] {
            _ = map.remove(*key);
        }
    }
    let mut made = Request::parse(&out, catalog, asked.now_ns)?;
    Ok(made.queries.remove(0))
}

/// The rows of a model that others multiply: one for each key.
pub fn by_key(catalog: &Catalog, query: &Query, model: &str) -> Query {
    let mut grouped = Query { ungrouped: false, exemplars: 0, order: Some(Vec::new()), ..query.clone() };
    for key in catalog.model(model).key() {
        let id = MemberId::new(model, &key.common.name);
        if !grouped.dimensions.contains(&id) {
            grouped.dimensions.push(id);
        }
    }
    grouped
}

/// Refuses values of a row that belong to no column of the query.
fn known(query: &Query, asked: &DrillDownRequest) -> Result<(), QueryError> {
    let mut names: Vec<String> = query.group_columns();
    names.extend(query.measures.iter().map(ToString::to_string));
    names.extend(query.times.iter().map(|t| t.member.to_string()));
    let extra = |key: &str| key == "compareDateRange" || key.starts_with("time.");
    match asked.row.keys().find(|key| !names.contains(key) && !extra(key)) {
        None => Ok(()),
        Some(key) => {
            let text = format!("the row has `{key}`, which is no column of the query");
            Err(QueryError::new(Reason::BadValue, format!("/row/{key}"), text))
        }
    }
}

fn dimension<'c>(catalog: &'c Catalog, id: &MemberId) -> Option<&'c Dimension> {
    match catalog.find(id).map(|f| f.kind) {
        Some(MemberKind::Dimension(dimension)) => Some(dimension),
        _ => None,
    }
}

/// Members that are shown behind a measure: measures and dimensions, by the names that its model or view has for them.
fn members(catalog: &Catalog, measure: &MemberId) -> Result<(Vec<String>, Vec<String>), QueryError> {
    let (mut measures, mut dimensions) = (Vec::new(), Vec::new());
    if let Some(found @ ResolvedMember { kind: MemberKind::Measure(of), .. }) = catalog.find(measure) {
        // One that has none shows what the first of its model shows that has some.
        let others = found.model.measures.iter().map(|m| &m.drill_members);
        let shown = std::iter::once(&of.drill_members).chain(others).find(|members| !members.is_empty());
        for id in shown.into_iter().flatten() {
            let named = match found.view {
                None => Some(id.clone()),
                Some((view, _)) => view
                    .members
                    .iter()
                    .find(|m| m.target == *id)
                    .map(|m| MemberId::new(&view.common.name, &m.common.name)),
            };
            let Some(named) = named else { continue };
            match catalog.find(&named).filter(|f| catalog.is_public(f)).map(|f| f.kind) {
                Some(MemberKind::Measure(_)) => measures.push(named.to_string()),
                Some(MemberKind::Dimension(_)) => dimensions.push(named.to_string()),
                _ => {}
            }
        }
    }
    if dimensions.is_empty() {
        let text = format!("measure `{measure}` has no drill members");
        return Err(QueryError::new(Reason::BadValue, "/measure", text));
    }
    Ok((measures, dimensions))
}

/// The condition that a dimension has the value of the row.
fn equals(catalog: &Catalog, id: &MemberId, value: &Value) -> Result<Value, QueryError> {
    let member = id.to_string();
    let is_time = dimension(catalog, id).is_some_and(|d| d.ty == DimensionType::Time);
    Ok(match value {
        Value::Null => json!({"member": member, "operator": "notSet"}),
        Value::String(text) if is_time => json!({"member": member, "operator": "inDateRange", "values": [text, text]}),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            json!({"member": member, "operator": "equals", "values": [value]})
        }
        _ => {
            let text = format!("`{member}` is a text, a number, a truth value or null");
            return Err(QueryError::new(Reason::BadType, format!("/row/{member}"), text));
        }
    })
}

/// Where the row lies in time.
enum Place {
    /// It does not say so.
    Any,
    /// Its rows have no time.
    NoTime,
    /// In a bucket.
    Within(WallRange),
}

/// The bucket that the row lies in.
fn bucket(query: &Query, entry: &TimeEntry, asked: &DrillDownRequest) -> Result<Place, QueryError> {
    let (Some(column), Some(granularity)) = (entry.column(), &entry.granularity) else {
        return Ok(Place::Any);
    };
    // The plain member stands for its finest bucket, which need not be this one.
    let alone = query.times.iter().filter(|t| t.member == entry.member && t.granularity.is_some()).count() == 1;
    let plain = entry.member.to_string();
    let plain = asked.row.get(&plain).filter(|_| alone && !query.dimensions.contains(&entry.member));
    let Some(value) = asked.row.get(&column).or(plain) else { return Ok(Place::Any) };
    let wall = match value {
        Value::Null => return Ok(Place::NoTime),
        Value::String(text) => Point::parse(text, query.tz),
        _ => None,
    };
    let Some(wall) = wall else {
        let text = format!("`{column}` is the start of a bucket, such as `2026-03-31T00:00:00.000`");
        return Err(QueryError::new(Reason::BadValue, format!("/row/{column}"), text));
    };
    let start_ns = granularity.buckets.floor(wall.range().start_ns);
    Ok(Place::Within(WallRange { start_ns, end_ns: granularity.buckets.next(start_ns) }))
}

fn intersection(range: Option<WallRange>, other: WallRange) -> WallRange {
    range.map_or(other, |range| WallRange {
        start_ns: range.start_ns.max(other.start_ns),
        end_ns: range.end_ns.min(other.end_ns),
    })
}

/// Addresses of traces and logs of the same service and time.
pub fn links(catalog: &Catalog, drilled: &Query, measure: &MemberId) -> Value {
    let model = catalog.find(measure).map(|f| f.model);
    let own = model.and_then(|m| Some(MemberId::new(&m.common.name, m.row_right.as_ref()?.services.first()?)));
    let leaves = drilled.filters.iter().flat_map(crate::query::Filter::leaves);
    let equal = leaves.filter(|l| l.operator == "equals" && catalog.find(&l.member).map(|f| f.id()) == own);
    let service = equal.filter_map(|l| l.values.first().cloned().flatten()).next_back();
    let range = drilled.times.iter().find_map(|t| t.range).map(|r| r.instants(drilled.tz));
    let ms = |ns: i64| ns.div_euclid(1_000_000).to_string();
    let (mut traces, mut logs) = (Vec::new(), Vec::new());
    if let Some((from, to)) = range {
        traces.extend([("from", ms(from)), ("to", ms(to))]);
        logs.extend([("start", ms(from)), ("end", ms(to - 1))]);
    }
    if let Some(service) = &service {
        traces.push(("service", service.clone()));
    }
    let filter = service.map_or_else(|| "*".to_owned(), |s| format!("service.name:={}", Value::from(s)));
    logs.insert(0, ("query", filter));
    let joined = |pairs: &[(&str, String)]| {
        let pairs = pairs.iter().map(|(k, v)| format!("{k}={}", utf8_percent_encode(v, ESCAPED)));
        pairs.collect::<Vec<_>>().join("&")
    };
    json!({
        "traces": format!("/traces?{}", joined(&traces)),
        "logs": format!("/logs-api/select/logsql/query?{}", joined(&logs)),
    })
}

#[cfg(test)]
mod tests;
