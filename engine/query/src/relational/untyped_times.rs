//! Texts that are compared with times or intervals (`time > '2024-01-01 05:00'`) may be written in any form that
//! PostgreSQL accepts; Arrow accepts only one.

use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime::date_trunc;
use datafusion::functions::datetime::now::NowFunc;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::durations::worded;
use crate::plan_walk::{change_expressions, change_nodes};
use crate::time_literals::{TimeLiteralKind, in_form, is_end_of_day};

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
        Expr::BinaryExpr(_) | Expr::Between(_) => return compared(expr),
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

/// Puts the end of a day (`24:00`) where times of a day are compared with it. Elsewhere it is refused, since arrow shows no such
/// time.
fn compared(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let ends = [end_of_day(&left), end_of_day(&right)];
            let is_other = ends.iter().any(Option::is_some);
            let [first, second] = ends;
            let (left, right) = (first.map_or(left, Box::new), second.map_or(right, Box::new));
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_other)
        }
        Expr::Between(mut between) => {
            let ends = [end_of_day(&between.low), end_of_day(&between.high)];
            let is_other = ends.iter().any(Option::is_some);
            let [low, high] = ends;
            between.low = low.map_or(between.low, Box::new);
            between.high = high.map_or(between.high, Box::new);
            Transformed::new_transformed(Expr::Between(between), is_other)
        }
        other => Transformed::no(other),
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// The end of a day, of a literal that is cast to a time of one.
fn end_of_day(value: &Expr) -> Option<Expr> {
    const DAY_NS: i64 = 86_400_000_000_000;
    let Expr::Cast(cast) = value else { return None };
    let Expr::Literal(text, _) = &*cast.expr else { return None };
    let end = match cast.field.data_type() {
        DataType::Time64(TimeUnit::Nanosecond) => ScalarValue::Time64Nanosecond(Some(DAY_NS)),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(Some(DAY_NS / 1_000)),
        _ => return None,
    };
    is_end_of_day(text.try_as_str().flatten()?).then(|| lit(end))
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
    use arrow::datatypes::IntervalUnit;

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
    async fn times_are_compared_with_the_end_of_a_day() {
        let rows = "select count(*) from (values (time '10:00:00'), (time '23:59:59.9')) as t(x)";
        for (condition, expected) in [
            ("x < '24:00'", "2"),
            ("'23:59:60' > x", "2"),
            ("x >= time '24:00:00'", "0"),
            ("x between '18:00' and '24:00'", "1"),
            ("x not between '18:00' and '24:00'", "1"),
        ] {
            let statement = format!("{rows} where {condition}");
            assert_eq!(crate::testing::answered(&statement).await.unwrap(), [expected], "{statement}");
        }
        let error = crate::testing::answered("select time '24:00'").await.unwrap_err();
        assert!(error.message.contains("out of range"), "{error}");
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
