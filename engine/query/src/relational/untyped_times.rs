//! Texts that are compared with times or intervals (`time > '2024-01-01 05:00'`) may be written in any form that
//! PostgreSQL accepts; Arrow accepts only one.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime::date_trunc;
use datafusion::functions::datetime::now::NowFunc;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::durations::worded;
use crate::plan_walk::{change_expressions, change_nodes};
use crate::time_literals::{TimeLiteralKind, in_form};

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct UntypedTimes;

impl AnalyzerRule for UntypedTimes {
    fn name(&self) -> &'static str {
        "untyped_times"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| change_expressions(node, &mut |e| Ok(completed(e, options))))
    }
}

/// Puts a literal text that is cast to a time or an interval into a form that Arrow reads.
fn completed(expr: Expr, options: &ConfigOptions) -> Transformed<Expr> {
    let (inner, kind) = match &expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        _ => return Transformed::no(expr),
    };
    let Expr::Literal(value, metadata) = &**inner else { return Transformed::no(expr) };
    let Some(text) = value.try_as_str().flatten() else { return Transformed::no(expr) };
    if let (DataType::Timestamp(..) | DataType::Date32, Some(moment)) = (kind, named(text, options)) {
        return Transformed::yes(cast(moment, kind.clone()));
    }
    let whole = match kind {
        DataType::Timestamp(_, None) => in_form(text, TimeLiteralKind::Reading),
        DataType::Timestamp(_, Some(_)) => in_form(text, TimeLiteralKind::Zoned),
        DataType::Date32 | DataType::Date64 => in_form(text, TimeLiteralKind::Date),
        DataType::Time32(_) | DataType::Time64(_) => in_form(text, TimeLiteralKind::Time),
        DataType::Interval(_) => worded(text),
        _ => None,
    };
    let Some(whole) = whole else { return Transformed::no(expr) };
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

/// The time that a special word such as `today` means; `None` if the text is no such word.
fn named(text: &str, options: &ConfigOptions) -> Option<Expr> {
    let now = || ScalarUDF::from(NowFunc::new_with_config(options)).call(Vec::new());
    let today = || date_trunc().call(vec![lit("day"), now()]);
    let day = || lit(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 1, 0))));
    Some(match text.trim().to_ascii_lowercase().as_str() {
        "now" => now(),
        "today" => today(),
        "yesterday" => today() - day(),
        "tomorrow" => today() + day(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{IntervalUnit, TimeUnit};

    use super::*;

    #[test]
    fn texts_that_become_times_are_completed() {
        let time = || DataType::Timestamp(TimeUnit::Nanosecond, None);
        let interval = || DataType::Interval(IntervalUnit::MonthDayNano);
        for (text, kind, expected) in [
            ("2024-01-01 05:00", time(), "2024-01-01 05:00:00"),
            ("Jan 5, 2024", DataType::Date32, "2024-01-05"),
            ("1 day ago", interval(), "-1 day"),
        ] {
            let found = completed(cast(lit(text), kind.clone()), &ConfigOptions::default());
            assert_eq!(found.data, cast(lit(expected), kind), "{text}");
        }
        for other in [cast(lit("2024-01-01 05:00"), DataType::Utf8View), lit("2024-01-01 05:00")] {
            assert!(!completed(other, &ConfigOptions::default()).transformed);
        }
    }

    #[tokio::test]
    async fn rows_are_chosen_by_times_as_people_write_them() {
        let rows = "select count(*) from (values (timestamp '2024-01-05 05:00:00')) as t(x)";
        for (condition, expected) in [
            ("x > 'Jan 5, 2024 04:59'", "1"),
            ("x > 'Jan 5, 24 05:00'", "0"),
            ("x = '1/5/2024 5:00 AM'", "1"),
            ("x between '2024-01-05' and '5-Jan-2024 05:00:00.5'", "1"),
            ("x in ('2024-01-05 06:00', '20240105T050000')", "1"),
            ("'1 day 02:00' + x = '2024-01-06 07:00'", "1"),
            ("x > 'yesterday'", "0"),
            ("x < 'now' and x < 'today'", "1"),
        ] {
            let statement = format!("{rows} where {condition}");
            assert_eq!(crate::testing::answered(&statement).await.unwrap(), [expected], "{statement}");
        }
    }
}
