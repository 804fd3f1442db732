//! Errors and warnings about the parameter of an aggregation, determined over all steps at once.

use quiver_types::go_format::float_text;
use quiver_types::{Error, ErrorKind, Result};

use crate::annotation::{AnnotationPlace, Annotations};
use crate::ast::{AggregateOp, PosRange};
use crate::functions::ScalarSteps;
use crate::functions::annotations;
use crate::functions::math::{go_max, go_min};

/// Checks the parameter of `topk`, `bottomk`, `limitk`, `limit_ratio` or `quantile`; `pos` is its position and `operand`
/// that of what is aggregated. Returns `false` if the result is empty whatever the input is. Call it even if the input
/// has no rows.
///
/// # Errors
/// Kind `Execution` for NaN and for numbers beyond those of i64.
pub fn check_params(
    op: AggregateOp,
    params: &ScalarSteps<'_>,
    (pos, operand): (PosRange, PosRange),
    annotations: &mut Annotations,
) -> Result<bool> {
    const I64_MAX: f64 = 9_223_372_036_854_774_784.0;
    const I64_MIN: f64 = -9_223_372_036_854_775_808.0;
    let values = params.values();
    let fold = |start, f: fn(f64, f64) -> f64| values.iter().fold(start, |a, &b| f(a, b));
    let (max, min) = match params.constant() {
        Some(v) => (v, v),
        None => (fold(f64::MIN, go_max), fold(f64::MAX, go_min)),
    };
    let has_nan = values.iter().any(|v| v.is_nan());
    let mut warn = |text: String| annotations.warn(AnnotationPlace { shown: pos, evaluated: operand }, text);
    let fail = |message: String| Err(Error::new(ErrorKind::Execution, message));
    match op {
        AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk => {
            if max < 1.0 {
                return Ok(false);
            }
            if has_nan {
                return fail("Parameter value is NaN".to_owned());
            }
            if min <= I64_MIN {
                return fail(format!("Scalar value {} underflows int64", float_text(min)));
            }
            if max >= I64_MAX {
                return fail(format!("Scalar value {} overflows int64", float_text(max)));
            }
        }
        AggregateOp::LimitRatio => {
            if max == 0.0 && min == 0.0 {
                return Ok(false);
            }
            if has_nan {
                return fail("Ratio value is NaN".to_owned());
            }
            if max > 1.0 {
                warn(annotations::invalid_ratio(max, 1.0));
            }
            if min < -1.0 {
                warn(annotations::invalid_ratio(min, -1.0));
            }
        }
        AggregateOp::Quantile => {
            if has_nan {
                warn(annotations::invalid_quantile(f64::NAN));
            }
            if max > 1.0 {
                warn(annotations::invalid_quantile(max));
            }
            if min < 0.0 {
                warn(annotations::invalid_quantile(min));
            }
        }
        _ => {}
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Level;

    fn check(op: AggregateOp, params: &[f64], expected: Result<bool, &str>, warnings: usize) {
        let mut annotations = Annotations::default();
        let got =
            check_params(op, &ScalarSteps::new(params), (PosRange::default(), PosRange::default()), &mut annotations);
        assert_eq!(got.map_err(|e| e.message), expected.map_err(str::to_owned), "{op:?} {params:?}");
        assert_eq!(annotations.texts(Level::Warning, "").len(), warnings);
    }

    #[test]
    fn of_all_operators() {
        let nan = f64::NAN;
        check(AggregateOp::Topk, &[0.9], Ok(false), 0);
        check(AggregateOp::Topk, &[0.0, 3.0], Ok(true), 0);
        check(AggregateOp::Bottomk, &[nan], Err("Parameter value is NaN"), 0);
        check(AggregateOp::Limitk, &[1e30], Err("Scalar value 1e+30 overflows int64"), 0);
        check(AggregateOp::Limitk, &[-1e30], Ok(false), 0);
        check(AggregateOp::Limitk, &[-1e30, 2.0], Err("Scalar value -1e+30 underflows int64"), 0);
        check(AggregateOp::LimitRatio, &[0.0], Ok(false), 0);
        check(AggregateOp::LimitRatio, &[nan], Err("Ratio value is NaN"), 0);
        check(AggregateOp::LimitRatio, &[-1.1, 1.1], Ok(true), 2);
        check(AggregateOp::Quantile, &[0.5], Ok(true), 0);
        check(AggregateOp::Quantile, &[nan], Ok(true), 1);
        check(AggregateOp::Quantile, &[-0.5, 2.0], Ok(true), 2);
        check(AggregateOp::Sum, &[nan], Ok(true), 0);
    }

    #[test]
    fn at_the_ends_of_whole_numbers() {
        let largest = 9_223_372_036_854_774_784.0_f64;
        for op in [AggregateOp::Topk, AggregateOp::Bottomk, AggregateOp::Limitk] {
            check(op, &[1.0], Ok(true), 0);
            check(op, &[1.0_f64.next_down()], Ok(false), 0);
            check(op, &[largest.next_down()], Ok(true), 0);
            check(op, &[largest], Err("Scalar value 9.223372036854775e+18 overflows int64"), 0);
            check(op, &[f64::INFINITY], Err("Scalar value +Inf overflows int64"), 0);
            check(op, &[f64::NEG_INFINITY], Ok(false), 0);
            check(op, &[f64::NEG_INFINITY, 1.0], Err("Scalar value -Inf underflows int64"), 0);
            check(op, &[0.5, f64::NAN], Err("Parameter value is NaN"), 0);
            check(op, &[-5.0, 0.0], Ok(false), 0);
        }
        check(AggregateOp::LimitRatio, &[-1.0, 1.0], Ok(true), 0);
        check(AggregateOp::LimitRatio, &[0.0, -0.0], Ok(false), 0);
        check(AggregateOp::LimitRatio, &[0.0, f64::NAN], Err("Ratio value is NaN"), 0);
        check(AggregateOp::LimitRatio, &[f64::INFINITY], Ok(true), 1);
        check(AggregateOp::Quantile, &[0.0, 1.0], Ok(true), 0);
        check(AggregateOp::Quantile, &[f64::INFINITY, f64::NEG_INFINITY], Ok(true), 2);
    }
}
