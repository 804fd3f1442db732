//! Casts of times, intervals, floating-point numbers and lists to text, in PostgreSQL's form. The difference of two
//! timestamps becomes an interval of days and time, both there and for `extract`, whose microseconds are computed here. So
//! does a time of a day that is cast to an interval. Texts that are cast to decimals may have an exponent.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::{intervals, plain_digits, text_output};
use crate::plan_walk::{change_expressions, change_nodes};

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct TextCasts;

impl AnalyzerRule for TextCasts {
    fn name(&self) -> &'static str {
        "printing"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            // Conditions of scans come later.
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            change_expressions(node, &mut |e| Ok(in_form(e, &schema)))
        })
    }
}

/// Replaces a cast to text by the function that prints PostgreSQL's form, and one from text by what arrow reads.
fn in_form(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (inner, kind) = match &expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::ScalarFunction(call) if call.func.name() == "date_part" => return in_days(expr, schema),
        _ => return Transformed::no(expr),
    };
    if *kind == DataType::Interval(IntervalUnit::MonthDayNano) {
        return match inner.get_type(schema) {
            Ok(DataType::Time32(_) | DataType::Time64(_)) => Transformed::yes(since_midnight(inner)),
            _ => Transformed::no(expr),
        };
    }
    if matches!((&expr, kind), (Expr::Cast(_), DataType::Decimal128(..) | DataType::Decimal256(..))) {
        // Constants have been written out by now.
        let is_open = matches!(inner.get_type(schema), Ok(found) if found.is_string())
            && text_of(inner).is_none()
            && !matches!(&**inner, Expr::ScalarFunction(call) if call.func.name() == plain_digits::NAME);
        if !is_open {
            return Transformed::no(expr);
        }
        return Transformed::yes(cast(plain_digits::function().call(vec![inner.as_ref().clone()]), kind.clone()));
    }
    if !kind.is_string() {
        return Transformed::no(expr);
    }
    let value = match inner.get_type(schema) {
        Ok(DataType::Duration(_)) => intervals::spread().call(vec![inner.as_ref().clone()]),
        Ok(found) if text_output::is_printed(&found) => inner.as_ref().clone(),
        _ => return Transformed::no(expr),
    };
    let text = text_output::function().call(vec![value]);
    Transformed::yes(if *kind == DataType::Utf8View { text } else { cast(text, kind.clone()) })
}

/// A time of a day as an interval: arrow has no such cast.
fn since_midnight(time: &Expr) -> Expr {
    let kinds = [DataType::Time64(TimeUnit::Nanosecond), DataType::Int64, DataType::Duration(TimeUnit::Nanosecond)];
    intervals::spread().call(vec![kinds.into_iter().fold(time.clone(), cast)])
}

/// Replaces a field extracted from the difference of two times by one of an interval of days and time.
fn in_days(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_micros = |part: &Expr| text_of(part).is_some_and(|part| part.eq_ignore_ascii_case("microsecond"));
    let (is_between, is_micros) = match &expr {
        Expr::ScalarFunction(call) => match call.args.get(1).map(|value| value.get_type(schema)) {
            Some(Ok(DataType::Duration(_))) => (true, is_micros(&call.args[0])),
            Some(Ok(DataType::Interval(IntervalUnit::MonthDayNano))) => (false, is_micros(&call.args[0])),
            _ => (false, false),
        },
        _ => (false, false),
    };
    match expr {
        Expr::ScalarFunction(mut call) if is_between || is_micros => {
            let value = call.args.swap_remove(1);
            let value = if is_between { intervals::spread().call(vec![value]) } else { value };
            if is_micros {
                return Transformed::yes(intervals::micros().call(vec![value]));
            }
            call.args.push(value);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// The text of a literal.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Cast(cast) => text_of(&cast.expr),
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::expr::Case;
    use datafusion::logical_expr::lit;

    use super::*;

    #[test]
    fn times_alone_have_a_form() {
        let schema = DFSchema::empty();
        let time = || lit(ScalarValue::TimestampNanosecond(Some(0), None));
        let found = in_form(cast(time(), DataType::Utf8View), &schema);
        assert_eq!(found.data, text_output::function().call(vec![time()]));
        let found = in_form(cast(time(), DataType::Utf8), &schema);
        assert_eq!(found.data, cast(text_output::function().call(vec![time()]), DataType::Utf8));
        let between = || lit(ScalarValue::DurationNanosecond(Some(90_000_000_000_000)));
        let spread = || intervals::spread().call(vec![between()]);
        let found = in_form(cast(between(), DataType::Utf8View), &schema);
        assert_eq!(found.data, text_output::function().call(vec![spread()]));
        let part = |value| datafusion::functions::expr_fn::date_part(lit("hour"), value);
        assert_eq!(in_form(part(between()), &schema).data, part(spread()));
        let micros = |value| datafusion::functions::expr_fn::date_part(lit("MICROSECOND"), value);
        assert_eq!(in_form(micros(between()), &schema).data, intervals::micros().call(vec![spread()]));
        let interval = || lit(ScalarValue::new_interval_mdn(0, 1, 5));
        assert_eq!(in_form(micros(interval()), &schema).data, intervals::micros().call(vec![interval()]));
        let text = || Expr::Case(Case::new(None, vec![(Box::new(lit(true)), Box::new(lit("1e5")))], None));
        let decimal = DataType::Decimal128(38, 10);
        let written = cast(plain_digits::function().call(vec![text()]), decimal.clone());
        assert_eq!(in_form(cast(text(), decimal.clone()), &schema).data, written);
        for other in [
            written,
            cast(lit("1e5"), decimal.clone()),
            cast(lit(1.5), decimal),
            part(time()),
            part(interval()),
            micros(time()),
            cast(lit(5_i64), DataType::Utf8View),
            cast(lit(1.5), DataType::Int64),
            cast(time(), DataType::Timestamp(TimeUnit::Second, None)),
            lit("2024-01-01"),
        ] {
            assert!(!in_form(other, &schema).transformed);
        }
    }
}
