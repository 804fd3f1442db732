//! `math e as r`: arithmetic in 64-bit floats. What is no number is NaN.

use std::cell::Cell;

use crate::ast::math::{MathExpr, MathFunc, MathOp};
use crate::kernels::values::numeric;

/// An expression whose fields are numbered.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A constant; what has a unit was turned into a number when it was parsed.
    Number(f64),
    /// The field with this number.
    Field(usize),
    /// `-x`: the other sign
    Negate(Box<Expr>),
    /// `left op right`
    Binary(MathOp, Box<Expr>, Box<Expr>),
    /// A function of its arguments, in order.
    Call(MathFunc, Vec<Expr>),
}

/// What an evaluation needs beside the row.
#[derive(Debug)]
pub struct Context {
    /// Time of the evaluation, Unix nanoseconds.
    pub now_ns: i64,
    /// State of `rand()`.
    seed: Cell<u64>,
}

impl Context {
    /// Makes a context; the seed begins the sequence of `rand()`.
    pub fn new(now_ns: i64, seed: u64) -> Self {
        Self { now_ns, seed: Cell::new(seed) }
    }

    /// SplitMix64: 53 bits, from 0 to 1.
    fn random(&self) -> f64 {
        let state = self.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.seed.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Expr {
    /// Compiles an expression; fields that are new to `fields` are appended there.
    pub fn compile(expr: &MathExpr, fields: &mut Vec<String>) -> Self {
        match expr {
            MathExpr::Number(n) => Self::Number(n.value),
            MathExpr::Field(name) => {
                let known = fields.iter().position(|f| f == name);
                Self::Field(known.unwrap_or_else(|| {
                    fields.push(name.clone());
                    fields.len() - 1
                }))
            }
            MathExpr::Binary { op, left, right } => {
                Self::Binary(*op, Box::new(Self::compile(left, fields)), Box::new(Self::compile(right, fields)))
            }
            MathExpr::Negate(inner) => Self::Negate(Box::new(Self::compile(inner, fields))),
            MathExpr::Call { func, args } => Self::Call(*func, args.iter().map(|a| Self::compile(a, fields)).collect()),
        }
    }

    /// Gives the value for one row; `field` gives a field as a number, NaN for what is none ([`numeric`]).
    pub fn evaluate(&self, field: &impl Fn(usize) -> f64, ctx: &Context) -> f64 {
        match self {
            Self::Number(n) => *n,
            Self::Field(i) => field(*i),
            Self::Negate(inner) => -inner.evaluate(field, ctx),
            Self::Binary(op, left, right) => {
                let left = left.evaluate(field, ctx);
                if *op == MathOp::Default && !left.is_nan() {
                    return left;
                }
                binary(*op, left, right.evaluate(field, ctx))
            }
            Self::Call(func, args) => {
                let arg = |i: usize| args.get(i).map_or(f64::NAN, |a| a.evaluate(field, ctx));
                match func {
                    MathFunc::Abs => arg(0).abs(),
                    MathFunc::Ceil => arg(0).ceil(),
                    MathFunc::Exp => arg(0).exp(),
                    MathFunc::Floor => arg(0).floor(),
                    MathFunc::Ln => arg(0).ln(),
                    MathFunc::Max => best(args.len(), arg, |x, best| x > best),
                    MathFunc::Min => best(args.len(), arg, |x, best| x < best),
                    MathFunc::Now => ctx.now_ns as f64,
                    MathFunc::Rand => ctx.random(),
                    MathFunc::Round if args.len() == 1 => arg(0).round(),
                    MathFunc::Round => round(arg(0), arg(1)),
                }
            }
        }
    }
}

/// A text as a number of an expression.
pub fn field_value(text: &str) -> f64 {
    numeric(text).unwrap_or(f64::NAN)
}

fn best(count: usize, arg: impl Fn(usize) -> f64, better: impl Fn(f64, f64) -> bool) -> f64 {
    (0..count).map(arg).fold(f64::NAN, |best, x| if best.is_nan() || better(x, best) { x } else { best })
}

fn binary(op: MathOp, x: f64, y: f64) -> f64 {
    match op {
        MathOp::Pow => x.powf(y),
        MathOp::Mul => x * y,
        MathOp::Div => x / y,
        MathOp::Rem => remainder(x, y),
        MathOp::Add => x + y,
        MathOp::Sub => x - y,
        MathOp::And => bits(x, y, |x, y| x & y),
        MathOp::Or => bits(x, y, |x, y| x | y),
        MathOp::Xor => bits(x, y, |x, y| x ^ y),
        MathOp::Default => {
            if x.is_nan() {
                y
            } else {
                x
            }
        }
    }
}

/// By zero NaN. What is left of a number is exact whatever its size; zero that is left of whole numbers has no sign.
fn remainder(x: f64, y: f64) -> f64 {
    let left = x % y;
    if left == 0.0 && x.trunc() == x && y.trunc() == y { 0.0 } else { left }
}

fn bits(x: f64, y: f64, op: impl Fn(u64, u64) -> u64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    op(whole(x), whole(y)) as f64
}

/// What is no integer of 64 bits, with or without sign, becomes 2^63.
fn whole(f: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if (-HALF..0.0).contains(&f) {
        f as i64 as u64
    } else if (0.0..2.0 * HALF).contains(&f) {
        f as u64
    } else {
        1 << 63
    }
}

/// To the nearest multiple of a step, halves away from zero, with the decimals of the step: the multiple is found a
/// hair above or below, so what is behind them is rounded away, not cut off.
fn round(x: f64, step: f64) -> f64 {
    let scale = decimals_scale(step);
    let moved = x + (0.5 * step).copysign(x);
    let multiple = moved - moved % step;
    (multiple * scale).round() / scale
}

/// The power of ten that makes the shortest decimal text of a step a whole number with no zero at its end.
fn decimals_scale(step: f64) -> f64 {
    if step == 0.0 || !step.is_finite() {
        return 1.0;
    }
    let text = format!("{step:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len() as i32);
    let exponent = exponent.parse::<i32>().unwrap_or(0) - decimals;
    format!("1e{}", -exponent).parse().unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::literal::Literal;
    use crate::kernels::values::float_text;

    fn op(op: MathOp, x: f64, y: f64) -> String {
        float_text(binary(op, x, y))
    }

    #[test]
    fn operators() {
        for (got, want) in [
            (op(MathOp::Div, 1.0, 0.0), "+Inf"),
            (op(MathOp::Rem, 1.0, 0.0), "NaN"),
            (op(MathOp::Rem, 1.5, 0.0), "NaN"),
            (op(MathOp::Rem, -7.0, 3.0), "-1"),
            (op(MathOp::Rem, i64::MIN as f64, -1.0), "0"),
            (op(MathOp::Pow, 2.0, 10.0), "1024"),
            (op(MathOp::And, 6.0, 3.0), "2"),
            (op(MathOp::Xor, 6.0, 3.0), "5"),
            (op(MathOp::Or, 6.0, f64::NAN), "NaN"),
            (op(MathOp::Default, f64::NAN, 3.0), "3"),
        ] {
            assert_eq!(got, want);
        }
        for (x, step, want) in [
            (1.0_f64.exp(), 0.01, "2.72"),
            (2.0_f64.exp(), 0.01, "7.39"),
            (0.513, 0.1, "0.5"),
            (1048.577, 0.1, "1048.6"),
            (-1.25, 0.5, "-1.5"),
            (12_345.0, 100.0, "12300"),
            (1.0, 0.0, "NaN"),
            (250.0 / 807.0, 0.001, "0.31"),
            (9.25, 0.3, "9.3"),
            (-9.25, 0.3, "-9.3"),
            (12.4, 0.3, "12.3"),
            (2.2, 0.7, "2.1"),
        ] {
            assert_eq!(float_text(round(x, step)), want);
        }
        let all = [3.0, f64::NAN, 5.0];
        assert_eq!(best(3, |i| all[i], |x, b| x > b), 5.0);
        assert_eq!(best(3, |i| all[i], |x, b| x < b), 3.0);
    }

    #[test]
    fn rows() {
        let field = |name: &str| Box::new(MathExpr::Field(name.into()));
        let quotient = MathExpr::Binary { op: MathOp::Div, left: field("a"), right: field("b") };
        let expr = MathExpr::Binary { op: MathOp::Default, left: Box::new(quotient), right: field("c") };
        let mut fields = Vec::new();
        let compiled = Expr::compile(&expr, &mut fields);
        assert_eq!(fields, ["a", "b", "c"]);
        let ctx = Context::new(0, 1);
        let row = |values: [&str; 3]| float_text(compiled.evaluate(&|i| field_value(values[i]), &ctx));
        assert_eq!(row(["v1", "2", "3"]), "3");
        assert_eq!(row(["0", "0", "3"]), "3");
        assert_eq!(row(["3", "2", ""]), "1.5");
        assert_eq!(row(["3", "foo", ""]), "NaN");
        let random = [(); 100].map(|()| Expr::Call(MathFunc::Rand, vec![]).evaluate(&|_| 0.0, &ctx));
        assert!(random.iter().all(|r| (0.0..1.0).contains(r)) && random[0] != random[1]);
        let number = MathExpr::Negate(Box::new(MathExpr::Number(Literal::new(1500.0, "1.5K"))));
        assert_eq!(Expr::compile(&number, &mut fields).evaluate(&|_| 0.0, &ctx), -1500.0);
    }

    fn number(n: f64) -> Expr {
        Expr::Number(n)
    }

    #[test]
    fn functions() {
        let ctx = Context::new(1_700_000_000_000_000_000, 7);
        let call = |func: MathFunc, args: &[f64]| {
            let args = args.iter().copied().map(number).collect();
            float_text(Expr::Call(func, args).evaluate(&|_| f64::NAN, &ctx))
        };
        for (got, want) in [
            (call(MathFunc::Abs, &[-3.0]), "3"),
            (call(MathFunc::Ceil, &[1.2]), "2"),
            (call(MathFunc::Floor, &[-1.2]), "-2"),
            (call(MathFunc::Exp, &[0.0]), "1"),
            (call(MathFunc::Ln, &[-1.0]), "NaN"),
            (call(MathFunc::Round, &[2.5]), "3"),
            (call(MathFunc::Round, &[-2.5]), "-3"),
            (call(MathFunc::Round, &[7.0, 5.0]), "5"),
            (call(MathFunc::Round, &[7.0, f64::NAN]), "NaN"),
            (call(MathFunc::Round, &[f64::NAN, 1.0]), "NaN"),
            (call(MathFunc::Max, &[]), "NaN"),
            (call(MathFunc::Max, &[f64::NAN, f64::NAN]), "NaN"),
            (call(MathFunc::Max, &[f64::NEG_INFINITY, -5.0, f64::NAN]), "-5"),
            (call(MathFunc::Min, &[f64::NAN, 4.0, f64::INFINITY]), "4"),
            (call(MathFunc::Now, &[]), "1700000000000000000"),
            (call(MathFunc::Abs, &[]), "NaN"),
        ] {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn operators_at_their_ends() {
        for (got, want) in [
            (op(MathOp::Div, 0.0, 0.0), "NaN"),
            (op(MathOp::Div, -1.0, 0.0), "-Inf"),
            (op(MathOp::Rem, 5.5, 2.0), "1.5"),
            (op(MathOp::Rem, -6.0, 3.0), "0"),
            (op(MathOp::Rem, f64::INFINITY, 2.0), "NaN"),
            (op(MathOp::Rem, 5.0, f64::INFINITY), "5"),
            (op(MathOp::Pow, 0.0, 0.0), "1"),
            (op(MathOp::Pow, -8.0, 0.5), "NaN"),
            (op(MathOp::And, -1.0, 255.0), "255"),
            (op(MathOp::And, 1.9, 3.0), "1"),
            (op(MathOp::Or, 1e30, 0.0), "9223372036854776000"),
            (op(MathOp::Or, -1e30, 0.0), "9223372036854776000"),
            (op(MathOp::Xor, f64::INFINITY, f64::INFINITY), "0"),
            (op(MathOp::Xor, 1.0, f64::NAN), "NaN"),
            (op(MathOp::Sub, f64::INFINITY, f64::INFINITY), "NaN"),
            (op(MathOp::Default, f64::INFINITY, 1.0), "+Inf"),
            (op(MathOp::Default, f64::NAN, f64::NAN), "NaN"),
        ] {
            assert_eq!(got, want);
        }
        for (step, scale) in [
            (0.25, 100.0),
            (100.0, 0.01),
            (1500.0, 0.01),
            (1e-7, 1e7),
            (3.0, 1.0),
            (-0.5, 10.0),
            (0.0, 1.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
        ] {
            assert_eq!(decimals_scale(step), scale, "{step}");
        }
    }

    #[test]
    fn what_a_default_stands_for_is_not_worked_out() {
        let random = || Box::new(Expr::Call(MathFunc::Rand, vec![]));
        let first = random().evaluate(&|_| 0.0, &Context::new(0, 5));
        let ctx = Context::new(0, 5);
        let known = Expr::Binary(MathOp::Default, Box::new(number(1.0)), random());
        assert_eq!(known.evaluate(&|_| 0.0, &ctx), 1.0);
        let unknown = Expr::Binary(MathOp::Default, Box::new(Expr::Field(0)), random());
        assert_eq!(unknown.evaluate(&|_| f64::NAN, &ctx), first);
        // Fields are numbered once.
        let field = |name: &str| MathExpr::Field(name.to_owned());
        let sum = MathExpr::Binary { op: MathOp::Add, left: Box::new(field("a")), right: Box::new(field("a")) };
        let mut fields = vec!["b".to_owned()];
        let compiled = Expr::compile(&sum, &mut fields);
        assert_eq!(fields, ["b", "a"]);
        assert_eq!([10.0, 20.0].map(|a| compiled.evaluate(&|i| [1.0, a][i], &ctx)), [20.0, 40.0]);
        for (text, want) in [("1KB", "1000"), ("1.2.3.4", "16909060"), ("", "NaN"), ("x", "NaN"), ("-inf", "-Inf")] {
            assert_eq!(float_text(field_value(text)), want, "{text}");
        }
    }
}
