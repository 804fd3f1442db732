//! Frames of `RANGE` whose key the planner does not measure: distances between intervals are those of their lengths, and a
//! time of a day is one of the first day. Where a frame has no distances, it has the rows of whole groups of equal keys, which
//! any key has.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::WindowFunctionParams;
use datafusion::logical_expr::{ExprSchemable as _, WindowFrame, WindowFrameBound, WindowFrameUnits, cast};

use super::interval::{in_order, length};
use crate::functions::intervals::{LENGTH_DIGITS, length_of};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Puts a frame and its keys as the planner takes them; returns whether they changed.
///
/// # Errors
/// Plan: a distance over a key that has none, or one that is no distance.
pub(super) fn translate(params: &mut WindowFunctionParams, schema: &DFSchema) -> Result<bool> {
    let frame = &params.window_frame;
    let (units, start, end) = (frame.units, frame.start_bound.clone(), frame.end_bound.clone());
    if units != WindowFrameUnits::Range {
        return Ok(in_order(&mut params.order_by, schema));
    }
    if is_open(&start) && is_open(&end) {
        let is_changed = in_order(&mut params.order_by, schema);
        let kind = params.order_by.first().and_then(|key| key.expr.get_type(schema).ok());
        if kind.is_none_or(|kind| is_framed(&kind)) {
            return Ok(is_changed);
        }
        params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
        return Ok(true);
    }
    let [key] = params.order_by.as_mut_slice() else { return Ok(false) };
    let Ok(kind) = key.expr.get_type(schema) else { return Ok(false) };
    if kind == INTERVAL {
        key.expr = length(key.expr.clone());
        params.window_frame = WindowFrame::new_bounds(units, measured(start)?, measured(end)?);
        return Ok(true);
    }
    if kind == DataType::Time64(TimeUnit::Nanosecond) {
        let nanoseconds = cast(key.expr.clone(), DataType::Int64);
        key.expr = cast(nanoseconds, DataType::Timestamp(TimeUnit::Nanosecond, None));
        return Ok(true);
    }
    if has_distances(&kind) {
        return Ok(false);
    }
    plan_err!("a `RANGE` with a distance is over one key that is a number, a time or an interval")
}

/// Whether a bound is no distance from the current row.
fn is_open(bound: &WindowFrameBound) -> bool {
    matches!(bound, WindowFrameBound::CurrentRow) || bound.is_unbounded()
}

/// Whether there are distances between values of a type.
fn has_distances(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => has_distances(values),
        DataType::Null | DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => true,
        other => other.is_numeric(),
    }
}

/// Whether the planner takes `RANGE` over a type.
fn is_framed(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_framed(values),
        DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..) => true,
        other => has_distances(other),
    }
}

/// A bound by the length of its interval.
fn measured(bound: WindowFrameBound) -> Result<WindowFrameBound> {
    Ok(match bound {
        WindowFrameBound::Preceding(distance) => WindowFrameBound::Preceding(length_in(distance)?),
        WindowFrameBound::Following(distance) => WindowFrameBound::Following(length_in(distance)?),
        WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
    })
}

/// The length of an interval that is written as text.
fn length_in(distance: ScalarValue) -> Result<ScalarValue> {
    let ScalarValue::Utf8(Some(text)) = distance else { return Ok(distance) };
    // The planner writes numbers as texts, too.
    if text.trim().parse::<f64>().is_ok() {
        return plan_err!("a `RANGE` over intervals has intervals as distances, such as `interval '1 hour'`");
    }
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = ScalarValue::try_from_string(text, &INTERVAL)? else {
        return plan_err!("the distance of a `RANGE` is not known");
    };
    let length = length_of(interval);
    if length < 0 {
        return plan_err!("invalid preceding or following size in window function");
    }
    Ok(ScalarValue::Decimal128(Some(length), LENGTH_DIGITS, 0))
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    const LENGTHS: &str = "(values (1, interval '1 hour'), (2, interval '90 minutes'), (3, interval '1 day'), \
                           (4, interval '1 month'), (5, interval '29 days 23 hours'), (6, null)) as t(k, i)";

    async fn check(window: &str, expected: &[&str]) {
        let statement = format!("select k, count(*) over ({window}) as n from {LENGTHS} order by k");
        assert_eq!(answered(&statement).await.unwrap(), expected, "{window}");
    }

    #[tokio::test]
    async fn distances_are_lengths_of_intervals() {
        check(
            "order by i range between interval '30 minutes' preceding and interval '1 day' following",
            &["1|3", "2|3", "3|1", "4|1", "5|2", "6|1"],
        )
        .await;
        check(
            "order by i desc range between interval '1 hour' preceding and current row",
            &["1|2", "2|1", "3|1", "4|1", "5|2", "6|1"],
        )
        .await;
        check(
            "order by i range between unbounded preceding and interval '1 month' preceding",
            &["1|0", "2|0", "3|0", "4|0", "5|0", "6|6"],
        )
        .await;
    }

    #[tokio::test]
    async fn keys_without_distances_have_groups() {
        let statement = "select k, count(*) over (order by t), rank() over (order by struct(t, 1)) from (values \
                         (1, time '02:00'), (2, time '01:00'), (3, time '02:00')) as v(k, t) order by k";
        assert_eq!(answered(statement).await.unwrap(), ["1|3|2", "2|1|1", "3|3|2"]);
    }

    #[tokio::test]
    async fn what_is_no_distance_is_refused() {
        for (window, named) in [
            ("order by i range between 1 preceding and current row", "`interval '1 hour'`"),
            ("order by i range between interval '-1 hour' preceding and current row", "invalid preceding"),
            ("order by i::text range between 1 preceding and current row", "a number, a time or an interval"),
            ("order by k > 1 range between 1 preceding and current row", "a number, a time or an interval"),
        ] {
            let error = answered(&format!("select count(*) over ({window}) from {LENGTHS}")).await.unwrap_err();
            assert!(error.to_string().contains(named), "{window}: {error}");
        }
    }
}
