//! `clamp`, `clamp_min`, `clamp_max` and `round`: functions of a float and scalars that may change by step.

use super::call::ScalarSteps;
use super::definition::{FunctionDef, Kernel};
use super::elementwise::ElementwiseKernel;
use super::math::{go_max, go_min};
use crate::ast::ValueType::{self, Scalar, Vector};

type RowKernel = fn(&mut [f64], &mut [bool], &[ScalarSteps<'_>]);

const fn scalars(name: &'static str, args: &'static [ValueType], f: RowKernel, doc: &'static str) -> FunctionDef {
    FunctionDef::new(name, args, Vector, Kernel::Elementwise(ElementwiseKernel::WithScalars(f)), doc)
}

pub(super) const CLAMP: FunctionDef = scalars(
    "clamp",
    &[Vector, Scalar, Scalar],
    clamp,
    "The value moved into a closed interval; nothing if it is empty.",
);
pub(super) const CLAMP_MIN: FunctionDef =
    scalars("clamp_min", &[Vector, Scalar], clamp_min, "The value, but no less than a minimum.");
pub(super) const CLAMP_MAX: FunctionDef =
    scalars("clamp_max", &[Vector, Scalar], clamp_max, "The value, but no more than a maximum.");
pub(super) const ROUND: FunctionDef =
    scalars("round", &[Vector, Scalar], round, "The nearest multiple of a number (1 by default), ties upwards.")
        .variadic(1);

fn clamp_between(values: &mut [f64], present: &mut [bool], min: impl Fn(usize) -> f64, max: impl Fn(usize) -> f64) {
    for (step, (v, p)) in values.iter_mut().zip(present).enumerate() {
        let (min, max) = (min(step), max(step));
        if max < min {
            *p = false;
        } else {
            *v = go_max(min, go_min(max, *v));
        }
    }
}

fn clamp(values: &mut [f64], present: &mut [bool], params: &[ScalarSteps<'_>]) {
    clamp_between(values, present, |s| params[0].at(s), |s| params[1].at(s));
}

fn clamp_min(values: &mut [f64], present: &mut [bool], params: &[ScalarSteps<'_>]) {
    clamp_between(values, present, |s| params[0].at(s), |_| f64::INFINITY);
}

fn clamp_max(values: &mut [f64], present: &mut [bool], params: &[ScalarSteps<'_>]) {
    clamp_between(values, present, |_| f64::NEG_INFINITY, |s| params[0].at(s));
}

fn round(values: &mut [f64], _present: &mut [bool], params: &[ScalarSteps<'_>]) {
    for (step, v) in values.iter_mut().enumerate() {
        // Multiplying by the inverse gives smaller rounding errors than dividing by the multiple.
        let inverse = 1.0 / params.first().map_or(1.0, |p| p.at(step));
        *v = (*v * inverse + 0.5).floor() / inverse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(f: RowKernel, values: &[f64], params: &[&[f64]], expected: &[Option<f64>]) {
        let mut values = values.to_vec();
        let mut present = vec![true; values.len()];
        let params: Vec<_> = params.iter().map(|p| ScalarSteps::new(p)).collect();
        f(&mut values, &mut present, &params);
        let got: Vec<_> = values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn clamping_by_step() {
        check(clamp, &[-5.0, 0.5, 7.0], &[&[0.0], &[1.0]], &[Some(0.0), Some(0.5), Some(1.0)]);
        check(clamp, &[1.0, 1.0], &[&[0.0, 2.0], &[1.0]], &[Some(1.0), None]);
        check(clamp_min, &[-5.0, 5.0], &[&[0.0]], &[Some(0.0), Some(5.0)]);
        check(clamp_max, &[-5.0, 5.0], &[&[0.0]], &[Some(-5.0), Some(0.0)]);
    }

    #[test]
    fn rounding() {
        check(round, &[2.5, -2.5, 0.1], &[], &[Some(3.0), Some(-2.0), Some(0.0)]);
        check(round, &[5.1, 7.6], &[&[5.0]], &[Some(5.0), Some(10.0)]);
    }

    #[test]
    fn clamping_what_is_no_number() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let one = |f: RowKernel, value: f64, params: &[f64]| {
            let params: Vec<[f64; 1]> = params.iter().map(|p| [*p]).collect();
            let params: Vec<ScalarSteps<'_>> = params.iter().map(|p| ScalarSteps::new(p)).collect();
            let (mut values, mut present) = ([value], [true]);
            f(&mut values, &mut present, &params);
            present[0].then_some(values[0])
        };
        let is_nan = |found: Option<f64>| found.is_some_and(f64::is_nan);
        assert!(is_nan(one(clamp, nan, &[0.0, 1.0])) && is_nan(one(clamp_min, nan, &[0.0])));
        assert!(
            is_nan(one(clamp, 0.5, &[nan, 1.0])) && is_nan(one(clamp, 0.5, &[0.0, nan])),
            "not empty, but no interval"
        );
        assert!(is_nan(one(clamp_max, 0.5, &[nan])));
        assert_eq!(one(clamp, inf, &[-1.0, 1.0]), Some(1.0));
        assert_eq!(one(clamp, -inf, &[-1.0, 1.0]), Some(-1.0));
        assert_eq!(one(clamp, 3.0, &[-inf, inf]), Some(3.0));
        assert_eq!(one(clamp, 3.0, &[inf, -inf]), None);
        assert_eq!(one(clamp, 3.0, &[2.0, 2.0]), Some(2.0));
        assert_eq!(one(clamp_min, -inf, &[7.0]), Some(7.0));
        assert_eq!(one(clamp_max, 3.0, &[-inf]), Some(-inf));
    }

    #[test]
    fn rounding_ties_and_multiples() {
        let of = |value: f64, to: &[f64]| {
            let mut values = [value];
            let params: Vec<ScalarSteps<'_>> = if to.is_empty() { vec![] } else { vec![ScalarSteps::new(to)] };
            round(&mut values, &mut [true], &params);
            values[0]
        };
        for (value, expected) in [(2.5, 3.0), (-2.5, -2.0), (0.5, 1.0), (-0.5, 0.0), (2.4, 2.0), (-2.6, -3.0)] {
            assert_eq!(of(value, &[]), expected, "{value}");
        }
        for (value, to, expected) in
            [(7.0, 5.0, 5.0), (8.0, 5.0, 10.0), (7.0, -5.0, 5.0), (5.3, 0.25, 5.25), (13.0, 8.0, 16.0)]
        {
            assert_eq!(of(value, &[to]), expected, "{value} to {to}");
        }
        assert_eq!((of(f64::INFINITY, &[]), of(f64::NEG_INFINITY, &[2.0])), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(of(f64::NAN, &[]).is_nan() && of(1.0, &[0.0]).is_nan() && of(1.0, &[f64::NAN]).is_nan());
    }
}
