//! `alert_rules`: alerting and recording rules in the current configuration. The owner of the configuration makes the
//! rows; here they are filtered by the caller's rights.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use futures::future::BoxFuture;
use quiver_types::{Domain, Error, Result};

use super::cells::{text, time};
use super::named_table::{Ask, NamedTable};
use crate::error::from_datafusion;

/// The column with the service that the caller must be allowed to see.
const SERVICE: &str = "service_name";

/// A rule; empty texts are NULL.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfiguredRule<'a> {
    /// Id in the configuration.
    pub id: &'a str,
    /// Name of the alert that it creates.
    pub alert: &'a str,
    /// Name of the series that it records.
    pub record: &'a str,
    /// The namespace of its group.
    pub namespace: &'a str,
    /// The name of its group.
    pub group: &'a str,
    /// `promql`, `logsql`, `olap`.
    pub language: &'a str,
    /// The expression in its language.
    pub expr: &'a str,
    /// Label `severity` of its alerts.
    pub severity: &'a str,
    /// The service that it belongs to. Callers who may not see the service do not see the rule.
    pub service: &'a str,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Who manages it.
    pub managed_by: &'a str,
    /// When it was last changed, Unix milliseconds.
    pub updated_ms: i64,
}

#[derive(Debug)]
pub(super) struct RuleTable;

fn rule_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("id"),
        text("alert"),
        text("record"),
        text("namespace"),
        text("rule_group"),
        text("language"),
        text("expr"),
        text("severity"),
        text(SERVICE),
        Field::new("enabled", DataType::Boolean, true),
        text("managed_by"),
        time("updated_at", TimeUnit::Millisecond),
    ]))
}

/// Rows of `alert_rules`.
///
/// # Errors
///
/// Internal only.
pub fn rule_rows(rules: &[ConfiguredRule<'_>]) -> Result<RecordBatch> {
    let texts = |of: for<'r> fn(&ConfiguredRule<'r>) -> &'r str| -> ArrayRef {
        Arc::new(rules.iter().map(|rule| Some(of(rule)).filter(|t| !t.is_empty())).collect::<StringViewArray>())
    };
    let updated: TimestampMillisecondArray = rules.iter().map(|rule| Some(rule.updated_ms)).collect();
    let columns: Vec<ArrayRef> = vec![
        texts(|rule| rule.id),
        texts(|rule| rule.alert),
        texts(|rule| rule.record),
        texts(|rule| rule.namespace),
        texts(|rule| rule.group),
        texts(|rule| rule.language),
        texts(|rule| rule.expr),
        texts(|rule| rule.severity),
        texts(|rule| rule.service),
        Arc::new(rules.iter().map(|rule| Some(rule.enabled)).collect::<BooleanArray>()),
        texts(|rule| rule.managed_by),
        Arc::new(updated.with_timezone("UTC")),
    ];
    RecordBatch::try_new(rule_columns(), columns).map_err(|e| Error::internal("cannot list rules").with_source(e))
}

impl NamedTable for RuleTable {
    fn name(&self) -> &'static str {
        "alert_rules"
    }

    fn domain(&self) -> Domain {
        Domain::Alerting
    }

    fn columns(&self) -> SchemaRef {
        rule_columns()
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let all = ask.sources.configuration.rules().await?;
            let mut rows = all.unwrap_or_else(|| RecordBatch::new_empty(rule_columns()));
            let access = ask.access(Domain::Alerting);
            if !access.is_full() {
                let services = rows.column_by_name(SERVICE).and_then(|column| column.as_string_view_opt());
                let services = services.ok_or_else(|| Error::internal("services of rules are no texts"))?;
                // Rules without a service are visible to callers who see all.
                let sees = |row: usize| services.is_valid(row) && access.allows(services.value(row));
                let seen: BooleanArray = (0..rows.num_rows()).map(|row| Some(sees(row))).collect();
                let cut = filter_record_batch(&rows, &seen);
                rows = cut.map_err(|e| Error::internal("cannot choose rules").with_source(e))?;
            }
            Ok(Arc::new(MemTable::try_new(rule_columns(), vec![vec![rows]]).map_err(from_datafusion)?)
                as Arc<dyn TableProvider>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_texts_are_null() {
        let one = ConfiguredRule { id: "1", alert: "Down", enabled: true, updated_ms: 5, ..ConfiguredRule::default() };
        let rows = rule_rows(&[one]).unwrap();
        assert_eq!((rows.num_rows(), rows.schema()), (1, RuleTable.columns()));
        let is_null = |name: &str| rows.column_by_name(name).unwrap().is_null(0);
        assert_eq!((is_null("alert"), is_null("record"), is_null(SERVICE)), (false, true, true));
    }

    #[test]
    fn each_value_stands_in_its_column() {
        let rule = ConfiguredRule {
            id: "id",
            alert: "alert",
            record: "record",
            namespace: "namespace",
            group: "rule_group",
            language: "language",
            expr: "expr",
            severity: "severity",
            service: SERVICE,
            enabled: true,
            managed_by: "managed_by",
            updated_ms: 5,
        };
        let rows = rule_rows(&[rule]).unwrap();
        let misplaced = crate::testing::misplaced(&rows);
        assert!(misplaced.is_empty(), "{misplaced:?}");
        assert!(rows.column_by_name("enabled").unwrap().as_boolean().value(0));
    }
}
