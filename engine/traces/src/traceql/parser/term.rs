//! Sides of comparisons: a field, a literal, or arithmetic with these.

use super::super::{Expr, Fixed, Sign, Term};
use super::{CONDITIONS_MAX, Literal, Op, Parser, Result, turned};

/// A side; a literal alone stands for itself.
pub(super) type Side = std::result::Result<Term, Literal>;

impl Parser<'_> {
    /// Reads a side of a comparison.
    pub(super) fn side(&mut self) -> Result<Side> {
        let mut left = self.product()?;
        while let Some(sign) = self.sign(&[("+", Sign::Plus), ("-", Sign::Minus)]) {
            let at = self.at;
            let right = self.product()?;
            left = self.worked(left, sign, right, at)?;
        }
        Ok(left)
    }

    /// Makes the condition of two sides, which begin at these places.
    pub(super) fn compared(&mut self, left: Side, op: Op, right: Side, (begin, at): (usize, usize)) -> Result<Expr> {
        match (left, right) {
            (Ok(Term::Field(field)), Err(literal)) => self.condition(field, op, literal, at),
            (Err(literal), Ok(Term::Field(field))) => self.condition(field, turned(op), literal, begin),
            (Err(_), Err(_)) => Err(self.error_at(at, "a condition needs a field")),
            (left, right) => {
                let Op::Number(compare) = op else {
                    return Err(self.error_at(at, "a regular expression is a text"));
                };
                let wrong = "arithmetic compares with numbers and fields";
                let left = constant(left).ok_or_else(|| self.error_at(begin, wrong))?;
                let right = constant(right).ok_or_else(|| self.error_at(at, wrong))?;
                Ok(Expr::Compare(left, compare, right))
            }
        }
    }

    fn product(&mut self) -> Result<Side> {
        let mut left = self.power()?;
        while let Some(sign) = self.sign(&[("*", Sign::Times), ("/", Sign::By), ("%", Sign::Remainder)]) {
            let at = self.at;
            let right = self.power()?;
            left = self.worked(left, sign, right, at)?;
        }
        Ok(left)
    }

    fn power(&mut self) -> Result<Side> {
        let left = self.single()?;
        let Some(sign) = self.sign(&[("^", Sign::Power)]) else { return Ok(left) };
        let at = self.at;
        let right = self.deeper(Self::power)?;
        self.worked(left, sign, right, at)
    }

    fn single(&mut self) -> Result<Side> {
        if self.eat("(") {
            return self.deeper(|p| {
                let inner = p.side()?;
                p.expect(")")?;
                Ok(inner)
            });
        }
        Ok(self.operand()?.map(Term::Field))
    }

    fn sign(&mut self, signs: &[(&str, Sign)]) -> Option<Sign> {
        signs.iter().find(|(text, _)| self.eat(text)).map(|(_, sign)| *sign)
    }

    /// Joins two sides; numbers at once.
    fn worked(&mut self, left: Side, sign: Sign, right: Side, at: usize) -> Result<Side> {
        // Each counts, so that what is read is not nested without bounds.
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(self.error_at(at, format!("more than {CONDITIONS_MAX} conditions")));
        }
        let no_number = || self.error_at(at, "arithmetic needs numbers");
        let number =
            |side: Side| constant(side).filter(|term| !matches!(term, Term::Fixed(Fixed::Text(_) | Fixed::Bool(_))));
        let (left, right) = (number(left).ok_or_else(no_number)?, number(right).ok_or_else(no_number)?);
        if let (Term::Fixed(Fixed::Number(left)), Term::Fixed(Fixed::Number(right))) = (&left, &right) {
            let value = sign.of(*left, *right);
            if !value.is_finite() {
                return Err(self.error_at(at, "a number without bounds"));
            }
            return Ok(Err(Literal::Number(value, value.to_string())));
        }
        Ok(Ok(Term::Worked(Box::new(left), sign, Box::new(right))))
    }
}

/// Gives a side as a term; none of what has no value.
fn constant(side: Side) -> Option<Term> {
    let literal = match side {
        Ok(term) => return Some(term),
        Err(literal) => literal,
    };
    Some(Term::Fixed(match literal {
        Literal::Number(v, _) => Fixed::Number(v),
        Literal::Text(text) => Fixed::Text(text),
        Literal::Bool(v) => Fixed::Bool(v),
        Literal::Nil | Literal::Word(_) => return None,
    }))
}
