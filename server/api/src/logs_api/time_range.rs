//! `query_time_range`: the time range of a query, derived from its text. No row is read.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::push_rfc3339;
use quiver_logsql::request_params::own_range;
use quiver_types::Error;

use super::response;
use super::{Ask, GivenTimes};
use crate::encode::json::json_body;
use crate::state::AppState;

/// The range of the query's own `_time` filters; ends that these leave open are those of the request. Who shows a range
/// beside the query takes it from here, so "now" is not the end of the range that was shown before.
pub(super) async fn query_time_range(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        Ok(json_body(told(&ask.query, ask.times).into()))
    };
    asked.await.unwrap_or_else(|e: Error| response::error(&e, "/select/logsql/query_time_range"))
}

/// An end that nobody sets is that of all time.
fn told(query: &Query, times: GivenTimes) -> String {
    let (first, last) = own_range(query, times.now_ns.saturating_sub(1));
    let mut out = String::from("{\"start\":\"");
    push_rfc3339(&mut out, first.or(times.range_ns.0).unwrap_or(i64::MIN));
    out.push_str("\",\"end\":\"");
    push_rfc3339(&mut out, last.or(times.range_ns.1).unwrap_or(i64::MAX));
    out.push_str("\",\"hasTimeFilter\":");
    out.push_str(if first.is_some() || last.is_some() { "true}" } else { "false}" });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-03-10T00:00:00Z.
    const NOW_NS: i64 = 1_741_564_800_000_000_000;

    fn check(text: &str, given: (Option<i64>, Option<i64>), start: &str, end: &str, own: bool) {
        let query = quiver_logsql::parse(text).expect("a query");
        let seconds = |s: i64| s * 1_000_000_000;
        let times = GivenTimes { range_ns: (given.0.map(seconds), given.1.map(seconds)), now_ns: NOW_NS };
        let expected = format!("{{\"start\":\"{start}\",\"end\":\"{end}\",\"hasTimeFilter\":{own}}}");
        assert_eq!(told(&query, times), expected, "{text}");
    }

    #[test]
    fn the_querys_own_range_comes_first() {
        let (first, last) = ("1677-09-21T00:12:43.145224192Z", "2262-04-11T23:47:16.854775807Z");
        check("*", (None, None), first, last, false);
        check("error | limit 5", (Some(5), Some(90)), "1970-01-01T00:00:05Z", "1970-01-01T00:01:30Z", false);
        let (ago, now) = ("2025-03-09T23:54:59.999999999Z", "2025-03-09T23:59:59.999999999Z");
        check("_time:5m error", (Some(5), Some(90)), ago, now, true);
        check("_time:>5m", (Some(5), None), "1970-01-01T00:00:05Z", "2025-03-09T23:54:59.999999998Z", true);
        let (begin, end) = ("2025-03-08T00:00:00Z", "2025-03-08T23:59:59.999999999Z");
        check("_time:2025-03-08", (None, Some(90)), begin, end, true);
        check("_time:2025-03-09 offset 1d", (None, None), begin, end, true);
    }

    #[test]
    fn ranges_that_bind_all_rows_count() {
        let (begin, end) = ("2025-03-08T00:00:00Z", "2025-03-08T23:59:59.999999999Z");
        let (ten, two) = ("1970-01-01T00:00:10Z", "1970-01-01T00:00:02Z");
        let given = (Some(2), Some(10));
        check("a _time:>=2025-03-08 (b _time:<=2025-03-08)", given, begin, end, true);
        check("a | filter _time:2025-03-08 | limit 1", given, begin, end, true);
        check("options(global_filter=(_time:2025-03-08)) _time:2025", given, begin, end, true);
        // As rows show their times, which is as `start` and `end` ask for them.
        check("options(time_offset=1d) _time:2025-03-08", given, begin, end, true);
        for text in [
            "a or _time:2025-03-08",
            "!_time:2025-03-08",
            "_time:day_range[08:00, 18:00)",
            "_time:week_range[Mon, Fri]",
            "a:in(_time:2025-03-08 | fields a)",
            "* | limit 1 | filter _time:2025-03-08",
            "* | union (_time:2025-03-08)",
        ] {
            check(text, given, two, ten, false);
        }
    }
}
