//! State changes of alerts in the table `alert_events`, for lists over HTTP.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, TimestampMillisecondType};
use chrono::{DateTime, SecondsFormat};
use quiver_config::{Problem, ProblemKind};
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer, Params, Request};
use quiver_types::{Error, ErrorKind, Millis, Result};
use serde_json::{Map, Value, json};

use crate::error::public_text;
use crate::metrics::phases::Language;
use crate::state::AppState;

/// State changes of the alerts of a rule, newest first.
const STATEMENT: &str = "SELECT time, labels, from_state, to_state, value FROM quiver.alert_events \
    WHERE rule_id = $1 AND time >= to_timestamp_millis($2) AND time <= to_timestamp_millis($3) \
    ORDER BY time DESC, episode_id, to_state";

/// State changes of the alerts of a stored rule within a closed time range, newest first.
///
/// # Errors
/// Those of the query.
pub(crate) async fn of_rule(
    state: &Arc<AppState>,
    rule: &str,
    (start, end): (Millis, Millis),
    limit: usize,
) -> Result<Vec<Value>> {
    let request = Request {
        text: STATEMENT.to_owned(),
        params: Params::of_json(&json!([rule, start, end]))?,
        limit: Some(limit),
        ..Request::default()
    };
    let ctx = state.begin(state.asked(Language::Sql, STATEMENT), state.limits());
    let access = DomainAccess::of(|domain| state.access(domain));
    let Answer::Rows(mut rows) = state.engines.sql.query(request, &access, &ctx).await? else {
        return Err(Error::internal("a statement gave a plan"));
    };
    let mut out = Vec::new();
    while let Some(batch) = rows.next().await? {
        let odd = || Error::internal("a column of `alert_events` is of another type");
        let times = batch.column(0).as_primitive_opt::<TimestampMillisecondType>().ok_or_else(odd)?;
        let labels = batch.column(1).as_map_opt().ok_or_else(odd)?;
        let [from, to] = [2, 3].map(|i| batch.column(i).as_string_view_opt());
        let (from, to) = (from.ok_or_else(odd)?, to.ok_or_else(odd)?);
        let values = batch.column(4).as_primitive_opt::<Float64Type>().ok_or_else(odd)?;
        for row in 0..batch.num_rows() {
            let entries = labels.value(row);
            let (keys, texts) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
            let set: Map<String, Value> =
                (0..keys.len()).map(|i| (keys.value(i).to_owned(), texts.value(i).into())).collect();
            let at = DateTime::from_timestamp_millis(times.value(row)).unwrap_or_default();
            out.push(json!({
                "at": at.to_rfc3339_opts(SecondsFormat::Millis, true), "labels": set, "from": from.value(row),
                "to": to.value(row), "value": values.is_valid(row).then(|| number(values.value(row))),
            }));
        }
    }
    Ok(out)
}

/// A JSON number; a string for values that JSON does not have.
fn number(value: f64) -> Value {
    match value {
        v if v.is_nan() => "NaN".into(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.into(),
        v => json!(v),
    }
}

/// Converts an error of [`of_rule`] to a problem of the configuration API.
pub(crate) fn problem(error: &Error) -> Problem {
    match error.kind {
        ErrorKind::Invalid | ErrorKind::LimitExceeded => {
            Problem::new(ProblemKind::Invalid, "QUERY_TOO_EXPENSIVE", public_text(error))
        }
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Cancelled => {
            Problem::new(ProblemKind::Busy, "STORE_BUSY", public_text(error))
        }
        _ => Problem::internal(public_text(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_texts() {
        for (value, expected) in [
            (1.5, json!(1.5)),
            (-0.0, json!(-0.0)),
            (f64::NAN, json!("NaN")),
            (f64::INFINITY, json!("+Inf")),
            (f64::NEG_INFINITY, json!("-Inf")),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
    }

    #[test]
    fn what_passes_is_told_from_what_is_asked_too_much() {
        for kind in [ErrorKind::Invalid, ErrorKind::LimitExceeded] {
            let problem = problem(&Error::new(kind, "too many"));
            assert_eq!((problem.kind, problem.code), (ProblemKind::Invalid, "QUERY_TOO_EXPENSIVE"), "{kind:?}");
            assert_eq!(problem.detail, "too many");
        }
        for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Cancelled] {
            let problem = problem(&Error::new(kind, "no room"));
            assert_eq!((problem.kind, problem.detail.as_str()), (ProblemKind::Busy, "no room"), "{kind:?}");
        }
        let ours = problem(&Error::internal("a disk"));
        assert_eq!((ours.kind, ours.cause.as_deref()), (ProblemKind::Internal, Some("a disk")));
    }
}
