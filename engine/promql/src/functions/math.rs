//! Mathematical functions of a float, and the two of scalars.

use super::definition::{FunctionDef, Kernel, VECTOR};
use super::elementwise::ElementwiseKernel;
use crate::ast::ValueType;

const fn float(name: &'static str, f: fn(f64) -> f64, doc: &'static str) -> FunctionDef {
    FunctionDef::new(name, VECTOR, ValueType::Vector, Kernel::Elementwise(ElementwiseKernel::Float(f)), doc)
}

pub(super) const ABS: FunctionDef = float("abs", f64::abs, "The absolute value.");
pub(super) const CEIL: FunctionDef = float("ceil", f64::ceil, "The next integer upwards.");
pub(super) const FLOOR: FunctionDef = float("floor", f64::floor, "The next integer downwards.");
pub(super) const EXP: FunctionDef = float("exp", f64::exp, "e to the power of the value.");
pub(super) const SQRT: FunctionDef = float("sqrt", f64::sqrt, "The square root.");
pub(super) const LN: FunctionDef = float("ln", f64::ln, "The natural logarithm.");
pub(super) const LOG2: FunctionDef = float("log2", f64::log2, "The logarithm to base 2.");
pub(super) const LOG10: FunctionDef = float("log10", f64::log10, "The logarithm to base 10.");
pub(super) const SIN: FunctionDef = float("sin", f64::sin, "The sine of an angle in radians.");
pub(super) const COS: FunctionDef = float("cos", f64::cos, "The cosine of an angle in radians.");
pub(super) const TAN: FunctionDef = float("tan", f64::tan, "The tangent of an angle in radians.");
pub(super) const ASIN: FunctionDef = float("asin", f64::asin, "The arcsine in radians.");
pub(super) const ACOS: FunctionDef = float("acos", f64::acos, "The arccosine in radians.");
pub(super) const ATAN: FunctionDef = float("atan", f64::atan, "The arctangent in radians.");
pub(super) const SINH: FunctionDef = float("sinh", f64::sinh, "The hyperbolic sine.");
pub(super) const COSH: FunctionDef = float("cosh", f64::cosh, "The hyperbolic cosine.");
pub(super) const TANH: FunctionDef = float("tanh", f64::tanh, "The hyperbolic tangent.");
pub(super) const ASINH: FunctionDef = float("asinh", asinh, "The inverse hyperbolic sine.");
pub(super) const ACOSH: FunctionDef = float("acosh", acosh, "The inverse hyperbolic cosine.");
pub(super) const ATANH: FunctionDef = float("atanh", f64::atanh, "The inverse hyperbolic tangent.");
pub(super) const RAD: FunctionDef = float("rad", |v| v * std::f64::consts::PI / 180.0, "Degrees converted to radians.");
pub(super) const DEG: FunctionDef = float("deg", |v| v * 180.0 / std::f64::consts::PI, "Radians converted to degrees.");
pub(super) const SGN: FunctionDef = float("sgn", sgn, "The sign: 1, -1, or the value itself when it is zero or NaN.");

const SCALARS: &[ValueType] = &[ValueType::Scalar, ValueType::Scalar];

pub(super) const MAX_OF: FunctionDef =
    FunctionDef::new("max_of", SCALARS, ValueType::Scalar, Kernel::Scalar(go_max), "The larger of two scalars.")
        .experimental();
pub(super) const MIN_OF: FunctionDef =
    FunctionDef::new("min_of", SCALARS, ValueType::Scalar, Kernel::Scalar(go_min), "The smaller of two scalars.")
        .experimental();

/// From here on the square root in the formulas of `asinh` and `acosh` is the value itself; the standard library's
/// overflow near the largest float.
const LARGE: f64 = (1_u64 << 28) as f64;

fn asinh(v: f64) -> f64 {
    if v.is_finite() && v.abs() > LARGE { (v.abs().ln() + std::f64::consts::LN_2).copysign(v) } else { v.asinh() }
}

fn acosh(v: f64) -> f64 {
    if v.is_finite() && v >= LARGE { v.ln() + std::f64::consts::LN_2 } else { v.acosh() }
}

fn sgn(v: f64) -> f64 {
    if v < 0.0 {
        -1.0
    } else if v > 0.0 {
        1.0
    } else {
        v
    }
}

/// Go's `math.Max`: infinity beats NaN, NaN beats numbers, +0 beats -0.
pub(crate) fn go_max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

/// Go's `math.Min`: -infinity beats NaN, NaN beats numbers, -0 beats +0.
pub(crate) fn go_min(a: f64, b: f64) -> f64 {
    -go_max(-a, -b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_as_go() {
        assert_eq!(go_max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert!(go_max(f64::NAN, 1.0).is_nan());
        assert!(go_min(f64::NAN, 1.0).is_nan());
        assert_eq!(go_min(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert!(go_max(-0.0, 0.0).is_sign_positive());
        assert!(go_min(0.0, -0.0).is_sign_negative());
        assert_eq!((go_min(1.0, 2.0), go_max(1.0, 2.0)), (1.0, 2.0));
    }

    #[test]
    fn signs() {
        assert_eq!((sgn(-3.0), sgn(0.5), sgn(0.0)), (-1.0, 1.0, 0.0));
        assert!(sgn(f64::NAN).is_nan());
    }

    /// The value of a function of one float, by its name.
    fn of(name: &str, value: f64) -> f64 {
        match super::super::lookup(name).map(|f| f.kernel) {
            Some(Kernel::Elementwise(ElementwiseKernel::Float(f))) => f(value),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn at_the_ends_of_their_ranges() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (name, value, expected) in [
            ("abs", -0.0, 0.0),
            ("abs", -inf, inf),
            ("ceil", -0.5, -0.0),
            ("ceil", 1.2, 2.0),
            ("floor", -0.5, -1.0),
            ("floor", inf, inf),
            ("exp", 0.0, 1.0),
            ("exp", -inf, 0.0),
            ("exp", 1000.0, inf),
            ("sqrt", 9.0, 3.0),
            ("sqrt", -0.0, -0.0),
            ("sqrt", -1.0, nan),
            ("ln", 1.0, 0.0),
            ("ln", 0.0, -inf),
            ("ln", -1.0, nan),
            ("log2", 8.0, 3.0),
            ("log10", 100.0, 2.0),
            ("log10", 0.0, -inf),
            ("sin", 0.0, 0.0),
            ("cos", 0.0, 1.0),
            ("tan", inf, nan),
            ("asin", 2.0, nan),
            ("acos", 1.0, 0.0),
            ("sinh", 0.0, 0.0),
            ("cosh", 0.0, 1.0),
            ("cosh", -inf, inf),
            ("tanh", inf, 1.0),
            ("asinh", 0.0, 0.0),
            ("acosh", 1.0, 0.0),
            ("acosh", 0.5, nan),
            ("acosh", inf, inf),
            ("acosh", f64::MAX, 710.475_860_073_943_9),
            ("asinh", f64::MAX, 710.475_860_073_943_9),
            ("asinh", -f64::MAX, -710.475_860_073_943_9),
            ("asinh", -inf, -inf),
            ("atanh", 1.0, inf),
            ("atanh", -1.0, -inf),
            ("atanh", 1.5, nan),
            ("rad", 0.0, 0.0),
            ("deg", inf, inf),
            ("sgn", -inf, -1.0),
            ("sgn", 1e-300, 1.0),
            ("sgn", -0.0, -0.0),
        ] {
            let got = of(name, value);
            let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
            assert!(same, "{name}({value}) is {got}, not {expected}");
        }
    }

    #[test]
    fn functions_and_their_inverses() {
        let pairs =
            [("sin", "asin"), ("tan", "atan"), ("sinh", "asinh"), ("tanh", "atanh"), ("rad", "deg"), ("exp", "ln")];
        for (there, back) in pairs {
            for i in -15..=15 {
                let value = f64::from(i) / 10.0;
                let again = of(back, of(there, value));
                assert!((again - value).abs() < 1e-12, "{back}({there}({value})) is {again}");
            }
        }
        assert!((of("deg", std::f64::consts::PI) - 180.0).abs() < 1e-12);
        assert!((of("atan", f64::INFINITY) - std::f64::consts::FRAC_PI_2).abs() < 1e-15);
    }

    #[test]
    fn the_larger_and_the_smaller_do_not_depend_on_the_order() {
        let values = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.0, f64::INFINITY, f64::NAN];
        for a in values {
            for b in values {
                for f in [go_max, go_min] {
                    let (one, other) = (f(a, b), f(b, a));
                    assert!(one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan()), "{a} {b}");
                }
                if !(a.is_nan() || b.is_nan()) {
                    assert!(
                        go_min(a, b) <= go_max(a, b) && go_max(a, b) == a.max(b) && go_min(a, b) == a.min(b),
                        "{a} {b}"
                    );
                }
            }
        }
    }
}
