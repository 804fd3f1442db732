//! Previews a segment before it is saved: rows of each signal by service, as far as the caller may see them.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::future::BoxFuture;
use quiver_config::{Caller, Problem, Result};
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer as SqlAnswer, Request as SqlRequest};
use quiver_types::matcher::Patterns;
use quiver_types::{AccessSegment, Domain, Error, ErrorKind};
use serde_json::{Map, Value, json};

use super::filter_of;
use super::scan_filters::{signal_of, within};
use crate::config_api::body_members::only_members;
use crate::config_api::request::Ask;
use crate::config_api::response::Answer;
use crate::metrics::phases::Language;
use crate::partial_responses::query_context;
use crate::query_problem::query_problem;

/// Most services that are listed per signal.
const SERVICES_MAX: usize = 1000;

/// The signals: domain, what is counted, table, time column.
const SIGNALS: [(Domain, &str, &str, Option<&str>); 3] = [
    (Domain::Metrics, "series", "metric_series", None),
    (Domain::Logs, "rows", "logs", Some("time")),
    (Domain::Traces, "spans", "spans", Some("start_time")),
];

fn refused(error: Error) -> Problem {
    match error.kind {
        ErrorKind::Invalid | ErrorKind::Unsupported => Problem::field("/segment", "INVALID_VALUE", error.message),
        ErrorKind::LimitExceeded => Problem::field("", "LIMIT_EXCEEDED", error.message),
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Cancelled => query_problem(error),
        _ => Problem::internal(error),
    }
}

/// Values of variables: a string, number or boolean each, or a list of them.
fn given(body: &Map<String, Value>) -> Result<Vec<(String, String)>> {
    let wrong = |name: &str| Problem::field(format!("/variables/{name}"), "INVALID_TYPE", "must be a value, or a list");
    let mut found = Vec::new();
    let variables = match body.get("variables") {
        None | Some(Value::Null) => return Ok(found),
        Some(Value::Object(variables)) => variables,
        Some(_) => return Err(Problem::field("/variables", "INVALID_TYPE", "must be an object")),
    };
    for (name, value) in variables {
        for value in value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice) {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => return Err(wrong(name)),
            };
            found.push((name.clone(), text));
        }
    }
    Ok(found)
}

/// Answers `POST /platform-api/segments/preview`.
pub(crate) fn preview<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["segment", "key", "variables", "start", "end"])?;
        let segment = segment_of(ask, &body).await?;
        let (start, end) = times(ask, &body)?;
        let values = given(&body)?;
        let values: Vec<(&str, &str)> = values.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let (mut all, mut known) = (Vec::new(), Vec::new());
        for (domain, ..) in SIGNALS {
            let signal = signal_of(domain).unwrap_or_default();
            let narrowed = filter_of(&segment, ("preview", signal), &values, &mut known, &mut Patterns::default())
                .map_err(refused)?;
            let narrowed: Vec<_> = narrowed.into_iter().collect();
            all.push(within(&ask.state, domain, &narrowed).map_err(refused)?);
        }
        if let Some((name, _)) = values.iter().find(|(name, _)| known.iter().all(|k| k != name)) {
            let text = format!("the segment has no variable `{name}`");
            return Err(Problem::field(format!("/variables/{name}"), "UNKNOWN_FIELD", text));
        }
        let mut answer = Map::new();
        for ((domain, what, table, time), within) in SIGNALS.into_iter().zip(all) {
            let narrowed = within.is_some();
            let counts = if ask.state.access(domain).sees_some() {
                counts(ask, (domain, table, time), within, (start, end)).await?
            } else {
                Vec::new()
            };
            let total: i64 = counts.iter().map(|(_, count)| count).sum();
            let services = counts.iter().take(SERVICES_MAX);
            let services: Vec<Value> =
                services.map(|(service, count)| json!({"service": service, "count": count})).collect();
            let signal = signal_of(domain).unwrap_or_default();
            answer.insert(signal.to_owned(), json!({"narrowed": narrowed, what: total, "services": services}));
        }
        Ok(Answer::ok(json!({"signals": answer})))
    })
}

/// The segment in the body, with defaults, or a saved one that the caller may see.
async fn segment_of(ask: &Ask, body: &Map<String, Value>) -> Result<Map<String, Value>> {
    match (body.get("segment"), body.get("key").and_then(Value::as_str)) {
        (Some(Value::Object(segment)), None) => {
            let mut segment = segment.clone();
            // An unsaved segment needs no name.
            for key in ["key", "name"] {
                segment.entry(key).or_insert_with(|| json!("preview"));
            }
            ask.config
                .checked(ask.place.family, &Caller::system(), segment)
                .map_err(|problem| problem.below("/segment"))
        }
        (None | Some(Value::Null), Some(key)) => {
            let all = ask.config.all(ask.place.family).await?;
            let named = |e: &&quiver_config::Entity| e.body.get("key").and_then(Value::as_str) == Some(key);
            let found = all.iter().find(|e| named(e) && ask.place.family.is_visible(&ask.caller, e));
            found.map(|e| e.body.clone()).ok_or_else(|| Problem::not_found(key))
        }
        _ => Err(Problem::field("/segment", "REQUIRED", "either `segment`, a segment, or `key`, that of a saved one")),
    }
}

fn times(ask: &Ask, body: &Map<String, Value>) -> Result<(i64, i64)> {
    let given = ask.times_of(body)?;
    ask.closed_range(given).ok_or_else(|| Problem::field("/start", "OUT_OF_RANGE", "must not be after `end`"))
}

/// Counts the rows of a signal by service, most first.
async fn counts(
    ask: &Ask,
    (domain, table, time): (Domain, &str, Option<&str>),
    within: Option<AccessSegment>,
    (start, end): (i64, i64),
) -> Result<Vec<(String, i64)>> {
    let state = &ask.state;
    let when = time.map(|time| {
        let at = |ns: i64| format!("to_timestamp_nanos({ns})");
        format!("WHERE {time} >= {} AND {time} <= {}", at(start), at(end))
    });
    let text = format!(
        "SELECT coalesce(service_name, '') AS service, count(*) AS n FROM quiver.{table} {} GROUP BY 1 ORDER BY 2 DESC, 1",
        when.unwrap_or_default()
    );
    let access = DomainAccess::of(|of| {
        let own = state.access(of);
        match &within {
            Some(within) if of == domain => own.narrowed(within.clone()),
            _ => own,
        }
    });
    let ctx = query_context(state, state.asked(Language::Sql, &text), state.limits());
    let request = SqlRequest { text, ..SqlRequest::default() };
    let mut found = Vec::new();
    let SqlAnswer::Rows(mut rows) = state.engines.sql.query(request, &access, &ctx).await.map_err(refused)? else {
        return Ok(found);
    };
    while let Some(batch) = rows.next().await.map_err(refused)? {
        found.extend(read(&batch).map_err(Problem::internal)?);
    }
    Ok(found)
}

fn read(batch: &RecordBatch) -> std::result::Result<Vec<(String, i64)>, arrow::error::ArrowError> {
    let services = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8)?;
    let services = services.as_string::<i32>();
    let counts = batch.column(1).as_primitive::<Int64Type>();
    Ok(services.iter().zip(counts.values()).map(|(s, n)| (s.unwrap_or_default().to_owned(), *n)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_values_or_lists_of_them() {
        let read = |body: Value| given(&body.as_object().cloned().unwrap_or_default());
        assert!(read(json!({})).unwrap().is_empty());
        assert!(read(json!({"variables": null})).unwrap().is_empty());
        let body = json!({"variables": {"env": "prod", "n": 5, "flag": true, "list": ["b", 1], "none": []}});
        let mut found = read(body).unwrap();
        found.sort();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("env", "prod"), ("flag", "true"), ("list", "1"), ("list", "b"), ("n", "5")]);
        for (body, place) in [
            (json!({"variables": []}), "/variables"),
            (json!({"variables": {"x": {}}}), "/variables/x"),
            (json!({"variables": {"x": null}}), "/variables/x"),
            (json!({"variables": {"x": ["a", ["b"]]}}), "/variables/x"),
        ] {
            let problem = read(body).unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), (place, "INVALID_TYPE"));
        }
    }

    #[test]
    fn what_is_wrong_with_a_segment_is_told_there() {
        for (kind, place, code) in [
            (ErrorKind::Invalid, Some("/segment"), "INVALID_VALUE"),
            (ErrorKind::Unsupported, Some("/segment"), "INVALID_VALUE"),
            (ErrorKind::LimitExceeded, Some(""), "LIMIT_EXCEEDED"),
            (ErrorKind::Unavailable, None, "STORE_BUSY"),
            (ErrorKind::Timeout, None, "STORE_BUSY"),
            (ErrorKind::Cancelled, None, "STORE_BUSY"),
            (ErrorKind::Internal, None, "INTERNAL"),
        ] {
            let problem = refused(Error::new(kind, "what is said"));
            let first = problem.errors.first();
            assert_eq!(first.map(|error| error.field.as_str()), place, "{kind:?}");
            assert_eq!(first.map_or(problem.code, |error| error.code), code, "{kind:?}");
        }
    }
}
