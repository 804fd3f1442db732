//! Operators between floats: loops over dense slices that do not check presence.

use super::{Operation, Side};
use crate::ast::BinaryOp;
use crate::kernel::SeriesOut;

/// Applies an operator to two scalars; comparisons return 1 or 0. Set and trim operators return NaN.
pub fn scalar(op: BinaryOp, lhs: f64, rhs: f64) -> f64 {
    if let Some(f) = comparison(op) {
        return f64::from(f(lhs, rhs));
    }
    arithmetic(op).map_or(f64::NAN, |f| f(lhs, rhs))
}

fn arithmetic(op: BinaryOp) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        BinaryOp::Add => |a, b| a + b,
        BinaryOp::Sub => |a, b| a - b,
        BinaryOp::Mul => |a, b| a * b,
        BinaryOp::Div => |a, b| a / b,
        BinaryOp::Mod => |a, b| a % b,
        BinaryOp::Pow => f64::powf,
        BinaryOp::Atan2 => f64::atan2,
        _ => return None,
    })
}

fn comparison(op: BinaryOp) -> Option<fn(f64, f64) -> bool> {
    Some(match op {
        BinaryOp::Eql => |a, b| a == b,
        BinaryOp::Neq => |a, b| a != b,
        BinaryOp::Lss => |a, b| a < b,
        BinaryOp::Lte => |a, b| a <= b,
        BinaryOp::Gtr => |a, b| a > b,
        BinaryOp::Gte => |a, b| a >= b,
        _ => return None,
    })
}

pub(super) fn apply(operation: Operation, lhs: &Side<'_>, rhs: &Side<'_>, out: &mut SeriesOut<'_>) {
    let Operation { op, return_bool } = operation;
    presence(lhs, rhs, out.present);
    // One loop per operator, so that each is compiled for its arithmetic.
    match op {
        BinaryOp::Add => map(lhs, rhs, out.values, |a, b| a + b),
        BinaryOp::Sub => map(lhs, rhs, out.values, |a, b| a - b),
        BinaryOp::Mul => map(lhs, rhs, out.values, |a, b| a * b),
        BinaryOp::Div => map(lhs, rhs, out.values, |a, b| a / b),
        BinaryOp::Mod => map(lhs, rhs, out.values, |a, b| a % b),
        BinaryOp::Pow => map(lhs, rhs, out.values, f64::powf),
        BinaryOp::Atan2 => map(lhs, rhs, out.values, f64::atan2),
        BinaryOp::Eql => compare(return_bool, lhs, rhs, out, |a, b| a == b),
        BinaryOp::Neq => compare(return_bool, lhs, rhs, out, |a, b| a != b),
        BinaryOp::Lss => compare(return_bool, lhs, rhs, out, |a, b| a < b),
        BinaryOp::Lte => compare(return_bool, lhs, rhs, out, |a, b| a <= b),
        BinaryOp::Gtr => compare(return_bool, lhs, rhs, out, |a, b| a > b),
        BinaryOp::Gte => compare(return_bool, lhs, rhs, out, |a, b| a >= b),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Unless | BinaryOp::TrimUpper | BinaryOp::TrimLower => {
            out.present.fill(false);
        }
    }
}

/// A result needs a float on both sides.
fn presence(lhs: &Side<'_>, rhs: &Side<'_>, present: &mut [bool]) {
    match (lhs, rhs) {
        (Side::Row { present: a, .. }, Side::Row { present: b, .. }) => {
            present.iter_mut().zip(a.iter().zip(*b)).for_each(|(p, (&a, &b))| *p = a & b);
        }
        (Side::Row { present: a, .. }, _) | (_, Side::Row { present: a, .. }) => present.copy_from_slice(a),
        _ => present.fill(true),
    }
}

fn map(lhs: &Side<'_>, rhs: &Side<'_>, out: &mut [f64], f: impl Fn(f64, f64) -> f64) {
    match (slice(lhs), slice(rhs)) {
        (Operand::Slice(a), Operand::Slice(b)) => {
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (&a, &b))| *o = f(a, b));
        }
        (Operand::Slice(a), Operand::Constant(b)) => out.iter_mut().zip(a).for_each(|(o, &a)| *o = f(a, b)),
        (Operand::Constant(a), Operand::Slice(b)) => out.iter_mut().zip(b).for_each(|(o, &b)| *o = f(a, b)),
        (Operand::Constant(a), Operand::Constant(b)) => out.fill(f(a, b)),
    }
}

fn compare(return_bool: bool, lhs: &Side<'_>, rhs: &Side<'_>, out: &mut SeriesOut<'_>, f: impl Fn(f64, f64) -> bool) {
    if return_bool {
        map(lhs, rhs, out.values, |a, b| f64::from(f(a, b)));
        return;
    }
    map(lhs, rhs, out.values, |a, b| f64::from(f(a, b)));
    out.present.iter_mut().zip(out.values.iter()).for_each(|(p, &holds)| *p &= holds != 0.0);
    // Keep the value of the vector, even if it is on the right of a scalar.
    let kept = if matches!(lhs, Side::Scalar(_)) { rhs } else { lhs };
    match slice(kept) {
        Operand::Slice(values) => out.values.copy_from_slice(&values[..out.values.len()]),
        Operand::Constant(value) => out.values.fill(value),
    }
}

enum Operand<'a> {
    Slice(&'a [f64]),
    Constant(f64),
}

fn slice<'a>(side: &Side<'a>) -> Operand<'a> {
    match side {
        Side::Row { values, .. } => Operand::Slice(values),
        Side::Scalar(s) => s.constant().map_or(Operand::Slice(s.values()), Operand::Constant),
        Side::Fill(v) => Operand::Constant(*v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars() {
        let check = |op, a: f64, b: f64, expected: f64| {
            let got = scalar(op, a, b);
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{op:?} {a} {b}: {got}");
        };
        check(BinaryOp::Mod, -7.0, 3.0, -1.0);
        check(BinaryOp::Mod, 7.5, 2.0, 1.5);
        check(BinaryOp::Mod, 1.0, 0.0, f64::NAN);
        check(BinaryOp::Pow, 2.0, 10.0, 1024.0);
        check(BinaryOp::Div, 1.0, 0.0, f64::INFINITY);
        check(BinaryOp::Eql, f64::NAN, f64::NAN, 0.0);
        check(BinaryOp::Neq, f64::NAN, f64::NAN, 1.0);
        check(BinaryOp::Gte, 2.0, 2.0, 1.0);
        check(BinaryOp::Atan2, 0.0, -1.0, std::f64::consts::PI);
    }

    #[test]
    fn numbers_that_are_none() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (op, a, b, expected) in [
            (BinaryOp::Add, inf, -inf, nan),
            (BinaryOp::Mul, 0.0, inf, nan),
            (BinaryOp::Div, 0.0, 0.0, nan),
            (BinaryOp::Div, -1.0, 0.0, -inf),
            (BinaryOp::Div, 1.0, -0.0, -inf),
            (BinaryOp::Mod, 5.0, inf, 5.0),
            (BinaryOp::Mod, inf, 5.0, nan),
            (BinaryOp::Mod, 7.0, -3.0, 1.0),
            (BinaryOp::Pow, nan, 0.0, 1.0),
            (BinaryOp::Pow, 1.0, nan, 1.0),
            (BinaryOp::Pow, -8.0, 0.5, nan),
            (BinaryOp::Pow, 0.0, -1.0, inf),
            (BinaryOp::Atan2, 0.0, 0.0, 0.0),
            (BinaryOp::Atan2, nan, 1.0, nan),
            (BinaryOp::Lss, nan, 1.0, 0.0),
            (BinaryOp::Gte, nan, nan, 0.0),
            (BinaryOp::Eql, 0.0, -0.0, 1.0),
            (BinaryOp::Lte, -inf, inf, 1.0),
            (BinaryOp::And, 1.0, 1.0, nan),
            (BinaryOp::TrimUpper, 1.0, 1.0, nan),
        ] {
            let got = scalar(op, a, b);
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{a} {op:?} {b}: {got}");
        }
    }

    /// Dense loops do what the operators do with two numbers, whatever kinds of operands there are.
    #[test]
    fn rows_are_pairs_of_numbers() {
        let values = [-1.5, 0.0, 2.0, f64::NAN, f64::INFINITY];
        let turned = [2.0, 0.0, -3.0, 1.0, f64::INFINITY];
        let present = [true, true, false, true, true];
        let row = Side::Row { values: &values, present: &present, hists: &[] };
        let other = Side::Row { values: &turned, present: &[true, false, true, true, true], hists: &[] };
        let steps = Side::Scalar(crate::functions::ScalarSteps::new(&turned));
        let constant = Side::Scalar(crate::functions::ScalarSteps::new(&[2.0]));
        for op in BinaryOp::ALL.into_iter().filter(|op| !op.is_set()) {
            if matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
                continue;
            }
            for (lhs, rhs) in
                [(&row, &other), (&row, &steps), (&steps, &row), (&row, &constant), (&Side::Fill(3.0), &row)]
            {
                for return_bool in [false, true] {
                    if return_bool && !op.is_comparison() {
                        continue;
                    }
                    let (mut out_values, mut out_present) = ([0.0; 5], [false; 5]);
                    let mut out = SeriesOut { values: &mut out_values, present: &mut out_present, hists: vec![] };
                    apply(Operation { op, return_bool }, lhs, rhs, &mut out);
                    for step in 0..5 {
                        let pair = lhs.float(step).zip(rhs.float(step));
                        let expected = pair.and_then(|(a, b)| {
                            let value = scalar(op, a, b);
                            let kept = if matches!(lhs, Side::Scalar(_)) { b } else { a };
                            if !op.is_comparison() || return_bool {
                                Some(value)
                            } else {
                                (value == 1.0).then_some(kept)
                            }
                        });
                        let got = out_present[step].then_some(out_values[step]);
                        let equal = crate::functions::testing::same(got, expected);
                        assert!(equal, "{lhs:?} {op:?} {rhs:?} at {step}: {got:?}, not {expected:?}");
                    }
                }
            }
        }
    }
}
