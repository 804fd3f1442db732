//! Expressions of the `math` pipe, by climbing precedence.

use super::names::field_name;
use super::{MATH_OPS_MAX, Parser};
use crate::ast::{Literal, MathExpr, MathFunc, MathOp};
use crate::error::Result;
use crate::literal::parse_number;

const OPS: &[MathOp] = &[
    MathOp::Pow,
    MathOp::Mul,
    MathOp::Div,
    MathOp::Rem,
    MathOp::Add,
    MathOp::Sub,
    MathOp::And,
    MathOp::Xor,
    MathOp::Or,
    MathOp::Default,
];

/// Functions: least and greatest number of arguments.
const FUNCS: &[(MathFunc, usize, usize)] = &[
    (MathFunc::Abs, 1, 1),
    (MathFunc::Ceil, 1, 1),
    (MathFunc::Exp, 1, 1),
    (MathFunc::Floor, 1, 1),
    (MathFunc::Ln, 1, 1),
    (MathFunc::Max, 2, usize::MAX),
    (MathFunc::Min, 2, usize::MAX),
    (MathFunc::Now, 0, 0),
    (MathFunc::Rand, 0, 0),
    (MathFunc::Round, 1, 2),
];

/// What ends a name without quotes.
const STOPS: &[&str] = &["=", "+", "-", "*", "/", "%", "^", "&", ",", "(", ")", "[", "]", "|", "!"];

impl Parser<'_> {
    /// An expression of operators that bind at least as tight as `loosest`.
    pub(crate) fn math(&mut self, loosest: u8) -> Result<MathExpr> {
        self.deeper(|parser| {
            let mut left = parser.math_operand()?;
            while let Some(op) = parser.math_op(loosest) {
                parser.advance();
                parser.math_ops += 1;
                if parser.math_ops > MATH_OPS_MAX {
                    return Err(parser.fault(format!("more than {MATH_OPS_MAX} operators")));
                }
                // Operators of one rank group from the left, so the right side binds tighter.
                let right = parser.math(op.text().1 - 1)?;
                left = MathExpr::Binary { op, left: Box::new(left), right: Box::new(right) };
            }
            Ok(left)
        })
    }

    fn math_op(&self, loosest: u8) -> Option<MathOp> {
        OPS.iter().copied().find(|op| self.is(op.text().0) && op.text().1 <= loosest)
    }

    fn math_operand(&mut self) -> Result<MathExpr> {
        if self.skip("(") {
            let inner = self.math(u8::MAX)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.skip("-") {
            let inner = self.deeper(Self::math_operand)?;
            return Ok(match inner {
                MathExpr::Number(number) if !number.text.starts_with('-') => {
                    MathExpr::Number(Literal::new(-number.value, format!("-{}", number.text)))
                }
                inner => MathExpr::Negate(Box::new(inner)),
            });
        }
        if self.skip("+") {
            return self.deeper(Self::math_operand);
        }
        if self.token().is_word() && self.after_next().is("(") {
            return self.math_call();
        }
        if self.at_end() || self.is_any(STOPS) {
            return Err(self.unexpected("a number, a field or `(`"));
        }
        let text = self.math_word();
        Ok(match parse_number(&text).filter(|_| text.starts_with(|c: char| c.is_ascii_digit() || c == '.')) {
            Some(value) => MathExpr::Number(Literal::new(value, text)),
            None if ["inf", "nan"].contains(&text.to_ascii_lowercase().as_str()) => {
                MathExpr::Number(Literal::new(parse_number(&text).unwrap_or(f64::NAN), text))
            }
            None => {
                let name = field_name(text);
                self.count_read(&name)?;
                MathExpr::Field(name)
            }
        })
    }

    /// A name or number; the sign of an exponent (`1e-5`) belongs to it.
    fn math_word(&mut self) -> String {
        let exponent = !self.token().quoted
            && self.token().raw.starts_with(|c: char| c.is_ascii_digit())
            && self.token().raw.ends_with(['e', 'E'])
            && !self.token().raw.starts_with("0x")
            && !self.token().raw.starts_with("0X");
        if exponent && self.after_next().is_any(&["+", "-"]) && !self.after_next().spaced {
            let mut text = self.token().raw.to_owned();
            for _ in 0..2 {
                self.advance();
                text.push_str(self.token().raw);
            }
            self.advance();
            return text;
        }
        self.join(|token| token.is_any(STOPS))
    }

    fn math_call(&mut self) -> Result<MathExpr> {
        let at = self.next;
        let name = self.token().text.to_ascii_lowercase();
        let Some(&(func, least, most)) = FUNCS.iter().find(|(func, ..)| func.name() == name) else {
            return Err(self.unknown(at, "math function", FUNCS.iter().map(|(func, ..)| func.name())));
        };
        self.advance();
        let args = self.in_parens(|parser| parser.math(u8::MAX))?;
        if args.len() < least || args.len() > most {
            let wanted = if most == usize::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
            return Err(self.fault_at(at, format!("`{name}` takes {wanted} arguments, got {}", args.len())));
        }
        Ok(MathExpr::Call { func, args })
    }
}
