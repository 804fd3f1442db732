//! Details of a result: the rows that a measure is made of (`drill`), and values of a dimension (`meta/values`).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_olap::query::LIMIT_MAX;
use quiver_olap::query::request::Request as Asked;
use quiver_olap::{OlapError, QueryError, Reason, drill_down as drilling};
use serde_json::{Value, json};

use super::problem::problem;
use super::{ParsedRequest, access, begin, forms, frame, json_answer};
use crate::state::AppState;

/// Default number of values.
const VALUES: u64 = 100;

/// The rows from which a measure in a row of a response was computed.
pub(super) async fn drill(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let given = ParsedRequest::read(&state, request).await?;
        given.only(&["query", "row", "measure", "limit"])?;
        let (query, now_ns) = (given.query()?, state.clock.now_ms() * 1_000_000);
        let catalog = state.engines.olap.catalog().with_open(&given.body);
        let access = access(&state);
        let asked = Asked::of_caller(&query, &catalog, &access, now_ns)?;
        let row = drilling::DrillDownRequest::parse(&given.body, now_ns)?;
        let ctx = begin(&state, &given, &query)?;
        let found = state.engines.olap.drill(&catalog, &asked, &row, &access, &ctx).await?;
        let sets = std::slice::from_ref(&found.rows);
        let memory = state.engines.query.collected("answer of analytics", &ctx);
        memory.add(2 * forms::made_bytes(sets))?;
        let mut answer = frame(&state, &catalog).load(&found.request, sets, false)?;
        Ok::<_, OlapError>(json_answer(&json!({
            "query": answer["query"].take(), "data": answer["data"].take(),
            "annotation": answer["annotation"].take(), "links": found.links,
        })))
    };
    run.await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/drill"))
}

/// Places in the generated query, and the parameters that they come from. The first filter is always there, without a
/// `search`.
const PLACES: [(&str, &str); 4] = [
    ("/dimensions", "/member"),
    ("/filters/0", "/member"),
    ("/filters/1", "/search"),
    ("/timeDimensions", "/dateRange"),
];

/// Reports an error in the generated query at the parameter that it was made of.
fn of_parameter(error: QueryError, member: &str) -> QueryError {
    let place = PLACES.iter().find(|(place, _)| error.pointer.starts_with(place)).map(|(_, parameter)| *parameter);
    match place {
        Some("/search") => {
            QueryError::new(Reason::BadValue, "/search", format!("`search` looks for texts, and `{member}` has none"))
        }
        Some(place) => QueryError { pointer: place.to_owned(), ..error },
        None => error,
    }
}

/// Values of a dimension that the caller sees, with the number of rows of each, most frequent first.
pub(super) async fn values(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let given = ParsedRequest::read(&state, request).await?;
        let bad = |name: &str, text: String| QueryError::new(Reason::BadValue, format!("/{name}"), text);
        let member = given.word("member")?.ok_or_else(|| bad("member", "`member` names a dimension".to_owned()))?;
        let limit = match given.word("limit")? {
            None => VALUES,
            Some(text) => text.parse::<u64>().ok().filter(|n| *n <= LIMIT_MAX).ok_or_else(|| {
                let text = format!("`limit` is a whole number from 0 to {LIMIT_MAX}, not `{text}`");
                QueryError::new(Reason::BadLimit, "/limit", text)
            })?,
        };
        let mut query = json!({
            "dimensions": [member], "filters": [{"member": member, "operator": "set"}], "limit": limit,
        });
        if let Some(text) = given.word("search")?.filter(|text| !text.is_empty())
            && let Some(filters) = query["filters"].as_array_mut()
        {
            filters.push(json!({"member": member, "operator": "contains", "values": [text]}));
        }
        if let Some(zone) = given.word("timezone")? {
            query["timezone"] = zone.into();
        }
        let catalog = state.engines.olap.catalog().with_open(&query);
        let (access, now_ns) = (access(&state), state.clock.now_ms() * 1_000_000);
        // Checked before the time dimension is looked up: a caller without rights must not learn whether the model
        // has one.
        let read = |query: &Value| {
            Asked::of_caller(query, &catalog, &access, now_ns).map_err(|error| of_parameter(error, member))
        };
        let mut asked = read(&query)?;
        if let Some(range) = given.word("dateRange")? {
            let time = quiver_olap::plan::time_of(&catalog, member);
            let time = time.ok_or_else(|| bad("dateRange", format!("the model of `{member}` has no time")))?;
            // A pair is written as a JSON list, a phrase as plain text.
            let range = serde_json::from_str::<Value>(range).ok().filter(Value::is_array).unwrap_or(range.into());
            query["timeDimensions"] = json!([{"dimension": time, "dateRange": range}]);
            asked = read(&query)?;
        }
        let ctx = begin(&state, &given, &query)?;
        let set = state.engines.olap.values(&catalog, &asked.queries[0], &access, &ctx).await?;
        let memory = state.engines.query.collected("answer of analytics", &ctx);
        memory.add(2 * forms::made_bytes(std::slice::from_ref(&set)))?;
        let rows = frame(&state, &catalog).load(&asked, std::slice::from_ref(&set), false)?;
        let column = set.columns.first().cloned().unwrap_or_default();
        let rows = rows["data"].as_array().into_iter().flatten();
        let values = rows.map(|row| json!({"value": row[&column], "count": row["count"]}));
        Ok::<_, OlapError>(json_answer(&json!({"member": member, "values": values.collect::<Vec<_>>()})))
    };
    run.await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/meta/values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_of_the_parameter() {
        let check = |pointer: &str, expected: &str, text: &str| {
            let told = of_parameter(QueryError::new(Reason::UnknownKey, pointer, "why"), "logs.size");
            assert_eq!((told.pointer.as_str(), told.message.as_str()), (expected, text), "{pointer}");
        };
        check("/dimensions", "/member", "why");
        check("/dimensions/0", "/member", "why");
        check("/filters/0/member", "/member", "why");
        check("/timeDimensions/0/dateRange", "/dateRange", "why");
        check("/filters/1/operator", "/search", "`search` looks for texts, and `logs.size` has none");
        // Errors that belong to no single parameter keep their place.
        check("", "", "why");
        check("/timezone", "/timezone", "why");
        check("/limit", "/limit", "why");
        let searched = of_parameter(QueryError::new(Reason::UnknownKey, "/filters/1", "why"), "m");
        assert_eq!(searched.reason, Reason::BadValue, "it is the value that is wrong, not a key of the query");
        let kept = of_parameter(QueryError::new(Reason::BadLimit, "/filters/0", "why"), "m");
        assert_eq!(kept.reason, Reason::BadLimit);
    }
}
