//! `extract` and `date_part` of intervals as in PostgreSQL: quarters are computed from the months, and fields that only
//! a calendar date has (week, day of the week) are refused, and the epoch has years of 365.25 days. DataFusion computes
//! weeks from the days, knows no quarters, and takes each month for 30 days. Decades, centuries and millennia, which it
//! does not know of times either, are complete ones in an interval, and in a time those that it lies in. The year of a date
//! before our era is a number below zero.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, not_impl_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, lit, when};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::intervals;
use crate::plan_walk::{any_expression, change_expressions, change_nodes};
use crate::time_literals::era;

const FUNCTION: &str = "date_part";
/// Fields that an interval does not have.
const PLACES: [&str; 6] = ["week", "weeks", "dow", "doy", "isodow", "isoyear"];

/// Replaces or refuses extractions from intervals.
#[derive(Debug)]
pub(crate) struct IntervalParts;

impl AnalyzerRule for IntervalParts {
    fn name(&self) -> &'static str {
        "interval_parts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            if !any_expression(&node, &|e| extraction(e).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            change_expressions(node, &mut |e| of_interval(e, &schema))
        })
    }
}

/// The field (in lower case) that a call extracts, the call, and its argument.
fn extraction(expr: &Expr) -> Option<(String, &ScalarFunction, &Expr)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [Expr::Literal(part, _), value] = call.args.as_slice() else { return None };
    if call.func.name() != FUNCTION {
        return None;
    }
    let part = part.try_as_str().flatten()?;
    Some((part.trim_matches(['\'', '"']).to_lowercase(), call, value))
}

fn of_interval(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let other = match extraction(&expr) {
        Some((part, call, value)) => replaced(&part, call, value, schema)?,
        None => None,
    };
    Ok(other.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// What stands instead of an extraction; `None`: DataFusion knows the part of such a value.
fn replaced(part: &str, call: &ScalarFunction, value: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    // An expression without a type is reported elsewhere.
    let kind = value.get_type(schema).unwrap_or(DataType::Null);
    let of = |part: &str| call.func.call(vec![lit(part), value.clone()]);
    if let Some((years, less)) = era(part) {
        let less = if matches!(kind, DataType::Interval(_) | DataType::Duration(_)) { 0 } else { less };
        return Ok(Some((of("year") + lit(less)) / lit(years)));
    }
    // There is no year zero. Timestamps do not reach so far back.
    if kind == DataType::Date32 && matches!(part, "year" | "years") {
        let year = of("year");
        return when(year.clone().lt_eq(lit(0_i32)), year.clone() - lit(1_i32)).otherwise(year).map(Some);
    }
    let DataType::Interval(unit) = kind else { return Ok(None) };
    if PLACES.contains(&part) {
        return not_impl_err!("unit \"{part}\" not supported for type interval");
    }
    Ok(match part {
        "quarter" | "qtr" => Some(of("month") / lit(3_i32) + lit(1_i32)),
        "epoch" if unit == IntervalUnit::MonthDayNano => Some(intervals::seconds().call(vec![value.clone()])),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn intervals_have_no_places_in_a_calendar() {
        for (expression, expected) in [
            ("extract(quarter from interval '5 months')", "2"),
            ("extract(quarter from interval '-7 months')", "-1"),
            ("date_part('quarter', interval '14 months')", "1"),
            ("extract(month from interval '15 months')", "3"),
            ("extract(epoch from interval '1 month') = 2592000", "true"),
            ("date_part('epoch', interval '13 months 1 day') = 34236000", "true"),
            ("extract(epoch from timestamp '1970-01-02') = 86400", "true"),
            ("extract(week from timestamp '2005-01-01')", "53"),
            ("extract(quarter from timestamp '2024-05-01')", "2"),
            ("extract(quarter from cast(null as interval))", "NULL"),
            ("date_part('century', interval '250 years')", "2"),
            ("date_part('century', interval '-250 years')", "-2"),
            ("date_part('millennium', interval '25 years')", "0"),
            ("date_part('decade', interval '25 years')", "2"),
            ("date_part('century', timestamp '2000-12-31')", "20"),
            ("date_part('century', date '2001-01-01')", "21"),
            ("date_part('century', cast(null as timestamp))", "NULL"),
            ("extract(year from make_date(-44, 3, 15))", "-44"),
            ("extract(year from make_date(-1, 3, 15))", "-1"),
            ("date_part('year', date '2024-03-15')", "2024"),
            ("extract(year from cast(null as date))", "NULL"),
        ] {
            assert_eq!(answered(&format!("select {expression}")).await.unwrap(), [expected], "{expression}");
        }
        let grouped = "select extract(quarter from i), count(*) from (values (interval '4 months'), (interval '5 months')) \
                       as t(i) group by extract(quarter from i)";
        assert_eq!(answered(grouped).await.unwrap(), ["2|2"]);
        for part in ["week", "dow", "doy", "isodow", "isoyear"] {
            for statement in [
                format!("select extract({part} from interval '10 days')"),
                format!("select date_part('{part}', i) from (values (interval '10 days')) as t(i)"),
            ] {
                let refused = answered(&statement).await.unwrap_err().message;
                assert!(refused.contains(&format!("unit \"{part}\" not supported for type interval")), "{refused}");
            }
        }
    }
}
