//! Comparisons of numbers of a set of spans: aggregates, literals, arithmetic with these.

use super::super::ast::{Aggregate, Scalar, Stage};
use super::super::expressions::{ExprValue, Sign, Term};
use super::super::fields::Field;
use super::{CONDITIONS_MAX, Op, Parser, Result};

impl Parser<'_> {
    /// Reads a comparison.
    pub(super) fn compared_scalars(&mut self) -> Result<Stage> {
        let begin = self.at;
        let left = self.scalar()?;
        let at = self.at;
        let Some(Op::Number(compare)) = self.op() else {
            self.at = at;
            return Err(self.unexpected());
        };
        let right = self.scalar()?;
        if !left.has_aggregate() && !right.has_aggregate() {
            return Err(self.error_at(begin, "a comparison of numbers needs an aggregate"));
        }
        Ok(Stage::Scalar(left, compare, right))
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let mut left = self.scalar_product()?;
        while let Some(sign) = self.sign(&[("+", Sign::Plus), ("-", Sign::Minus)]) {
            let right = self.scalar_product()?;
            left = self.joined_scalars(left, sign, right)?;
        }
        Ok(left)
    }

    fn scalar_product(&mut self) -> Result<Scalar> {
        let mut left = self.scalar_power()?;
        while let Some(sign) = self.sign(&[("*", Sign::Times), ("/", Sign::By), ("%", Sign::Remainder)]) {
            let right = self.scalar_power()?;
            left = self.joined_scalars(left, sign, right)?;
        }
        Ok(left)
    }

    fn scalar_power(&mut self) -> Result<Scalar> {
        let left = self.scalar_one()?;
        let Some(sign) = self.sign(&[("^", Sign::Power)]) else { return Ok(left) };
        let right = self.deeper(Self::scalar_power)?;
        self.joined_scalars(left, sign, right)
    }

    fn scalar_one(&mut self) -> Result<Scalar> {
        if self.eat("(") {
            return self.deeper(|p| {
                let inner = p.scalar()?;
                p.expect(")")?;
                Ok(inner)
            });
        }
        let begin = self.at;
        if self.is_negation() {
            self.eat("-");
            let inner = self.deeper(Self::scalar_one)?;
            if matches!(inner, Scalar::Fixed(_)) {
                return self.joined_scalars(Scalar::Fixed(ExprValue::Whole(0)), Sign::Minus, inner);
            }
            // Only constants have a sign.
            self.at = begin;
            return Err(self.unexpected());
        }
        if self.is_number() {
            let value = self.number()?.value().ok_or_else(|| self.unexpected())?;
            self.blank();
            return Ok(Scalar::Fixed(value));
        }
        let name = self.take(|c| c.is_alphanumeric() || c == '_');
        self.blank();
        let function = match name {
            "count" => Aggregate::Count,
            "avg" => Aggregate::Avg,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            "sum" => Aggregate::Sum,
            _ => {
                self.at = begin;
                return Err(self.unexpected());
            }
        };
        self.expect_only("(")?;
        let term = if function == Aggregate::Count {
            self.expect_only(")")?;
            None
        } else {
            let term = self.term()?;
            self.expect(")")?;
            if matches!(&term, Term::Field(Field::Intrinsic(intrinsic)) if !intrinsic.is_number()) {
                let what = format!("{}({term})", function.name());
                let text = format!("aggregate field expressions must resolve to a number type: {what}");
                return Err(self.error_at(begin, text));
            }
            Some(term)
        };
        let name = format!("{}({})", function.name(), term.as_ref().map(ToString::to_string).unwrap_or_default());
        Ok(Scalar::Aggregate(function, term, name.into()))
    }

    fn joined_scalars(&mut self, left: Scalar, sign: Sign, right: Scalar) -> Result<Scalar> {
        // Each counts, so that what is read is not nested without bounds.
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(self.error_at(self.at, format!("more than {CONDITIONS_MAX} conditions")));
        }
        // Constants at once: whole ones stay whole, as in Tempo (`foldConstArith`).
        if let (Scalar::Fixed(left), Scalar::Fixed(right)) = (&left, &right) {
            let folded = left.worked(sign, right).ok_or_else(|| self.error_at(self.at, "a number without bounds"))?;
            return Ok(Scalar::Fixed(folded));
        }
        Ok(Scalar::Worked(Box::new(left), sign, Box::new(right)))
    }
}
