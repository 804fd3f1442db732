//! A summary of one resource: its traffic according to spans, its alerts, its relationships.

use arrow::array::Array;
use futures::future::BoxFuture;
use quiver_config::families::{RESOURCE_TYPES, RESOURCES};
use quiver_config::{Entity, Problem, Result};
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer as SqlAnswer, Params, Request};
use quiver_types::{Domain, Error, ErrorKind};
use serde_json::{Value, json};

use super::request::Ask;
use super::response::Answer;
use crate::discovery::{identity_of, number};
use crate::metrics::phases::Language;
use crate::partial_responses::query_context;
use crate::query_problem::query_problem;

/// Converts an error of the statement, which is ours: if it is invalid, that is our fault.
fn failed(error: Error) -> Problem {
    if error.kind == ErrorKind::Invalid { Problem::internal(error) } else { query_problem(error) }
}

/// The length of a range in seconds. Never zero, since it is a divisor.
fn seconds((start, end): (i64, i64)) -> f64 {
    // The difference of two 64-bit times may not fit 64 bits.
    ((i128::from(end) - i128::from(start)) as f64 / 1e9).max(1e-9)
}

/// Requests of a resource within a time range.
#[derive(Debug, Default)]
struct Traffic {
    count: i64,
    errors: i64,
    p95_ns: Option<i64>,
}

impl Ask {
    fn times(&self) -> Result<(i64, i64)> {
        let given = self.given_times()?;
        self.closed_range(given).ok_or_else(|| Problem::parameter("`start` must not be after `end`"))
    }

    /// Aggregates the spans of a resource: those of requests that it served, or of calls to it if it sends no spans
    /// itself.
    async fn traffic(&self, of: &Entity, resource: &Entity, (start, end): (i64, i64)) -> Result<Traffic> {
        let Some((columns, is_sender)) = identity_of(of, resource) else { return Ok(Traffic::default()) };
        let kinds = if is_sender { "'SERVER', 'CONSUMER'" } else { "'CLIENT', 'PRODUCER'" };
        let (mut wanted, mut values) = (Vec::new(), Vec::new());
        for (n, (column, value)) in columns.into_iter().enumerate() {
            wanted.push(format!("CAST({column} AS VARCHAR) = ${}", n + 1));
            values.push(json!(value));
        }
        let text = format!(
            "SELECT count(*), count(*) FILTER (WHERE status_code = 'ERROR'), CAST(quantile(duration, 0.95) AS BIGINT) \
             FROM quiver.spans WHERE kind IN ({kinds}) AND start_time >= to_timestamp_nanos({start}) \
             AND start_time <= to_timestamp_nanos({end}) AND {}",
            wanted.join(" AND ")
        );
        let params = Params::of_json(&Value::Array(values)).map_err(Problem::internal)?;
        let state = &self.state;
        let ctx = query_context(state, state.asked(Language::Sql, &text), state.limits());
        let request = Request { text, params, ..Request::default() };
        let access = DomainAccess::of(|domain| state.access(domain));
        let SqlAnswer::Rows(mut rows) = state.engines.sql.query(request, &access, &ctx).await.map_err(failed)? else {
            return Ok(Traffic::default());
        };
        let mut traffic = Traffic::default();
        while let Some(batch) = rows.next().await.map_err(failed)? {
            if batch.num_rows() > 0 {
                traffic = Traffic {
                    count: number(&batch, 0, 0),
                    errors: number(&batch, 1, 0),
                    p95_ns: (!batch.column(2).is_null(0)).then(|| number(&batch, 2, 0)),
                };
            }
        }
        Ok(traffic)
    }

    /// The number of firing alerts of a service that the caller may see; `None` if the caller may see no alerts.
    fn open_alerts(&self, service: &str) -> Option<usize> {
        if !self.sees(Domain::Alerts) {
            return None;
        }
        if service.is_empty() {
            return Some(0);
        }
        let router = &self.state.alertd.router;
        let access = self.state.access(Domain::Alerts);
        if !access.allows(service) {
            return Some(0);
        }
        Some(router.live().iter().filter(|alert| alert.service(router.service_labels()) == service).count())
    }
}

/// Answers `GET /platform-api/resources/{id}/summary`.
pub(super) fn summary<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["start", "end"])?;
        let (start, end) = ask.times()?;
        let resource = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let part = |key: &str| resource.body.get(key).and_then(Value::as_str).unwrap_or_default();
        let of = ask.config.find(&RESOURCE_TYPES, part("typeId")).await?;
        // Without the right to see spans there are no figures.
        let traffic = match &of {
            _ if !ask.sees(Domain::Traces) => None,
            Some(of) => Some(ask.traffic(of, &resource, (start, end)).await?),
            None => Some(Traffic::default()),
        };
        let seconds = seconds((start, end));
        let called = traffic.as_ref().filter(|traffic| traffic.count > 0);
        let graph = ask.state.effects.graph(&ask.config).await?;
        let (incoming, outgoing) = graph.degree(&resource.id, &|e: &Entity| RESOURCES.is_visible(&ask.caller, e));
        Ok(Answer::ok(json!({
            "resource": resource.shown(),
            "health": part("health"),
            "openAlerts": ask.open_alerts(part("service")),
            "requestRate": traffic.as_ref().map(|traffic| traffic.count as f64 / seconds),
            "errorRate": called.map(|traffic| traffic.errors as f64 / traffic.count as f64),
            "p95Ms": traffic.as_ref().and_then(|traffic| traffic.p95_ns).map(|ns| ns as f64 / 1e6),
            "relationships": {"in": incoming, "out": outgoing},
        })))
    })
}

#[cfg(test)]
mod tests {
    use quiver_config::ProblemKind;

    use super::*;

    #[test]
    fn times_of_any_length_are_divided_by() {
        for (times, expected) in [
            ((0, 1_000_000_000), 1.0),
            ((-500_000_000, 1_000_000_000), 1.5),
            ((7, 7), 1e-9),
            ((0, 1), 1e-9),
            ((0, i64::MAX), 9_223_372_036.854_776),
            ((i64::MIN, i64::MAX), 18_446_744_073.709_553),
            ((-9_000_000_000_000_000_000, 9_000_000_000_000_000_000), 1.8e10),
        ] {
            assert_eq!(seconds(times), expected, "{times:?}");
        }
    }

    #[test]
    fn only_faults_of_the_statement_are_internal() {
        for (kind, expected) in [
            (ErrorKind::Unavailable, ProblemKind::Busy),
            (ErrorKind::Timeout, ProblemKind::Busy),
            (ErrorKind::Cancelled, ProblemKind::Busy),
            (ErrorKind::LimitExceeded, ProblemKind::Invalid),
            (ErrorKind::Invalid, ProblemKind::Internal),
            (ErrorKind::Internal, ProblemKind::Internal),
        ] {
            let problem = failed(Error::new(kind, "what is said"));
            assert_eq!(problem.kind, expected, "{kind:?}");
            let is_told = problem.detail.contains("what is said");
            assert_eq!(is_told, expected != ProblemKind::Internal, "{}", problem.detail);
        }
    }
}
