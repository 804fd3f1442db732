//! Aggregates and examples from stored telemetry: SQL statements, run with the caller's rights and limits.

use arrow::json::ArrayWriter;
use quiver_config::{Problem, Result};
pub(super) use quiver_query::quoting::{name as name_of, text as quoted};
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer as SqlAnswer, Request as SqlRequest};
use quiver_types::{Domain, Triple};
use serde_json::{Map, Value};

use super::request::Ask;
use crate::metrics::phases::Language;
use crate::query_problem::query_problem;

/// The condition of a failed span (`olap-models` 2).
pub(super) const IS_ERROR: &str = "COALESCE(status_code = 'ERROR' OR \"@error.type\" IS NOT NULL OR \
    (kind = 'SERVER' AND \"@http.response.status_code\" >= 500), false)";

/// A row of a result, without its NULL values.
pub(super) type Row = Map<String, Value>;

/// The number in a column of a row.
pub(super) fn number(row: &Row, key: &str) -> Value {
    row.get(key).cloned().unwrap_or(Value::Null)
}

/// The integer in a column of a row.
pub(super) fn count(row: &Row, key: &str) -> u64 {
    row.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// The limit on rows in a body, from 1 to 1000.
pub(super) fn limit(given: Option<&Value>, default: u64) -> Result<u64> {
    let Some(value) = given.filter(|value| !value.is_null()) else { return Ok(default) };
    let limit = value.as_u64().filter(|n| (1..=1000).contains(n));
    limit.ok_or_else(|| Problem::field("/limit", "OUT_OF_RANGE", "must be a number from 1 to 1000"))
}

impl Ask {
    /// Whether the caller may see anything of a domain.
    pub(super) fn sees(&self, domain: Domain) -> bool {
        self.state.access(domain).sees_some()
    }

    /// Refuses callers who may see nothing of a domain.
    pub(super) fn must_see(&self, domain: Domain) -> Result<()> {
        if self.sees(domain) {
            return Ok(());
        }
        let needed = Triple::everywhere(quiver_types::Right::View, domain);
        Err(Problem::forbidden(&needed.to_string()))
    }

    /// Runs a statement. The author of the statement must limit its rows.
    pub(super) async fn rows(&self, text: String) -> Result<Vec<Row>> {
        let ctx = self.state.begin(self.state.asked(Language::Sql, &text), self.state.limits());
        let access = DomainAccess::of(|domain| self.state.access(domain));
        let request = SqlRequest { text, ..SqlRequest::default() };
        let answer = self.state.engines.sql.query(request, &access, &ctx).await.map_err(query_problem)?;
        let SqlAnswer::Rows(mut rows) = answer else { return Err(Problem::internal("rows were asked for")) };
        let mut writer = ArrayWriter::new(Vec::new());
        while let Some(batch) = rows.next().await.map_err(query_problem)? {
            writer.write(&batch).map_err(Problem::internal)?;
        }
        writer.finish().map_err(Problem::internal)?;
        let bytes = writer.into_inner();
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        serde_json::from_slice(&bytes).map_err(Problem::internal)
    }

    /// Runs a statement with a single row.
    pub(super) async fn row(&self, text: String) -> Result<Row> {
        Ok(self.rows(text).await?.pop().unwrap_or_default())
    }

    /// The limit on rows in the query string, from 1 to 1000.
    pub(super) fn limit_parameter(&self, default: u64) -> Result<u64> {
        let Some(text) = self.parameter("limit")? else { return Ok(default) };
        let limit = text.parse().ok().filter(|n| (1..=1000).contains(n));
        limit.ok_or_else(|| Problem::parameter("`limit` must be a number from 1 to 1000"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_lack_what_is_null() {
        let row =
            Row::from_iter([("n".to_owned(), json!(7)), ("p50".to_owned(), json!(1.5)), ("bad".to_owned(), json!(-1))]);
        assert_eq!((count(&row, "n"), count(&row, "bad"), count(&row, "none")), (7, 0, 0));
        assert_eq!((number(&row, "p50"), number(&row, "none")), (json!(1.5), Value::Null));
    }

    #[test]
    fn limits_are_from_1_to_1000() {
        assert_eq!(limit(None, 20).unwrap(), 20);
        for (given, expected) in [(Value::Null, 20), (json!(1), 1), (json!(1000), 1000)] {
            assert_eq!(limit(Some(&given), 20).unwrap(), expected, "{given}");
        }
        for given in [json!(0), json!(1001), json!(-1), json!(1.5), json!("5"), json!([])] {
            let problem = limit(Some(&given), 20).unwrap_err();
            assert_eq!(
                (problem.errors[0].field.as_str(), problem.errors[0].code),
                ("/limit", "OUT_OF_RANGE"),
                "{given}"
            );
        }
    }
}
