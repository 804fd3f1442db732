//! Texts that become times by what they stand beside (`time > '2024-01-01 05:00'`): they may go without seconds, as in
//! PostgreSQL and DuckDB, where arrow wants these.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule; it comes after those that give types.
#[derive(Debug)]
pub(crate) struct UntypedTimes;

impl AnalyzerRule for UntypedTimes {
    fn name(&self) -> &'static str {
        "untyped_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let completed = expr.transform_up(|e| Ok(completed(e)))?;
                // Most have no such text, and keep what they are called without an alias.
                Ok(if completed.transformed { completed.update_data(|e| name.restore(e)) } else { completed })
            })
        });
        Ok(changed?.data)
    }
}

/// A literal text in a cast to a time, with its seconds.
fn completed(expr: Expr) -> Transformed<Expr> {
    let (inner, kind) = match &expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        _ => return Transformed::no(expr),
    };
    let (Expr::Literal(value, metadata), DataType::Timestamp(..)) = (&**inner, kind) else {
        return Transformed::no(expr);
    };
    let Some(whole) = value.try_as_str().flatten().and_then(with_seconds) else { return Transformed::no(expr) };
    let whole = Box::new(Expr::Literal(ScalarValue::Utf8(Some(whole)), metadata.clone()));
    Transformed::yes(match expr {
        Expr::Cast(mut cast) => {
            cast.expr = whole;
            Expr::Cast(cast)
        }
        Expr::TryCast(mut cast) => {
            cast.expr = whole;
            Expr::TryCast(cast)
        }
        other => other,
    })
}

/// `2024-01-01 05:00`, maybe with a zone behind it, as `2024-01-01 05:00:00`.
pub fn with_seconds(text: &str) -> Option<String> {
    const FORM: &[u8] = b"0000-00-00 00:00";
    let (minutes, zone) = (text.get(..FORM.len())?, text.get(FORM.len()..)?);
    let fits = minutes.bytes().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T'),
        other => byte == *other,
    });
    let ends = zone.is_empty() || zone.starts_with(['Z', '+', '-', ' ']);
    (fits && ends).then(|| format!("{minutes}:00{zone}"))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use datafusion::logical_expr::{cast, lit};

    use super::*;

    #[test]
    fn seconds_are_added_where_there_are_none() {
        for (text, expected) in [
            ("2024-01-01 05:00", Some("2024-01-01 05:00:00")),
            ("2024-01-01T05:00Z", Some("2024-01-01T05:00:00Z")),
            ("2024-01-01 05:00+02", Some("2024-01-01 05:00:00+02")),
            ("2024-01-01 05:00:10", None),
            ("2024-01-01", None),
            ("yesterday at 05:00", None),
        ] {
            assert_eq!(with_seconds(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_become_times_are_completed() {
        let time = || DataType::Timestamp(TimeUnit::Nanosecond, None);
        let found = completed(cast(lit("2024-01-01 05:00"), time()));
        assert_eq!(found.data, cast(lit("2024-01-01 05:00:00"), time()));
        for other in [cast(lit("2024-01-01 05:00"), DataType::Utf8View), lit("2024-01-01 05:00")] {
            assert!(!completed(other).transformed);
        }
    }
}
