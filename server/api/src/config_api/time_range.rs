//! The time range of a special operation (`config-api` 1.7): `start` and `end` in the query string or in the body.

use quiver_config::{Problem, Result};
use quiver_query::quoting;
use serde_json::{Map, Value};

use super::request::Ask;

/// The default length: an hour.
const DEFAULT_NS: i64 = 3_600_000_000_000;

/// A time range in Unix nanoseconds, including the start and excluding the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: i64,
    pub(super) end: i64,
}

impl Window {
    /// Both times as SQL literals.
    pub(super) fn sql(&self) -> (String, String) {
        (quoting::time(self.start), quoting::time(self.end))
    }
}

impl Ask {
    /// Now, in Unix nanoseconds.
    pub(super) fn now_ns(&self) -> i64 {
        self.state.clock.now_ms().saturating_mul(1_000_000)
    }

    /// The range in the query string.
    pub(super) fn window(&self) -> Result<Window> {
        let (start, end) = self.given_times()?;
        self.of_times(start, end).ok_or_else(|| Problem::parameter("`start` must come before `end`"))
    }

    /// `start` and `end` of the query string, if they are given.
    pub(super) fn given_times(&self) -> Result<(Option<i64>, Option<i64>)> {
        let time = |name: &str| match self.parameter(name)? {
            None => Ok(None),
            Some(text) => {
                let read = crate::traces_params::time(text, self.now_ns());
                read.map(Some).ok_or_else(|| Problem::parameter(format!("`{name}` must be a time")))
            }
        };
        Ok((time("start")?, time("end")?))
    }

    /// The range in a body.
    pub(super) fn window_of(&self, body: &Map<String, Value>) -> Result<Window> {
        let (start, end) = self.times_of(body)?;
        let later = || Problem::field("/start", "INVALID_VALUE", "must come before `end`");
        self.of_times(start, end).ok_or_else(later)
    }

    /// `start` and `end` of a body, if they are given.
    pub(crate) fn times_of(&self, body: &Map<String, Value>) -> Result<(Option<i64>, Option<i64>)> {
        let time = |name: &str| {
            let text = match body.get(name) {
                None | Some(Value::Null) => return Ok(None),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(_) => return Err(Problem::field(format!("/{name}"), "INVALID_TYPE", "must be a time")),
            };
            let read = crate::traces_params::time(&text, self.now_ns());
            read.map(Some).ok_or_else(|| Problem::field(format!("/{name}"), "INVALID_VALUE", "must be a time"))
        };
        Ok((time("start")?, time("end")?))
    }

    fn of_times(&self, start: Option<i64>, end: Option<i64>) -> Option<Window> {
        let (start, end) = self.closed_range((start, end))?;
        (start < end).then_some(Window { start, end })
    }

    /// A range with both of its ends, by default the last hour; `None` if it ends before it starts.
    pub(crate) fn closed_range(&self, (start, end): (Option<i64>, Option<i64>)) -> Option<(i64, i64)> {
        let end = end.unwrap_or_else(|| self.now_ns());
        let start = start.unwrap_or(end.saturating_sub(DEFAULT_NS));
        (start <= end).then_some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_in_statements_with_their_zone() {
        let (start, end) = Window { start: -5, end: i64::MAX }.sql();
        assert_eq!(start, r#"arrow_cast(CAST(-5 AS BIGINT), 'Timestamp(Nanosecond, Some("UTC"))')"#);
        assert!(end.contains("CAST(9223372036854775807 AS BIGINT)"), "{end}");
    }
}
