//! Parses the operands of comparisons: fields, literals and arithmetic. In parentheses there may also be a condition.

use quiver_types::spans::Place;

use super::super::ast::{Expr, Stage};
use super::super::expressions::{Compare, ExprValue, Sign, Term};
use super::super::fields::Field;
use super::{CONDITIONS_MAX, Literal, Op, Parser, Result, turned};

/// A side; a literal alone stands for itself.
pub(super) type Side = std::result::Result<Term, Literal>;

/// What was read, before it is known what it is for.
pub(super) enum Node {
    Side(Side),
    Condition(Expr),
}

impl Node {
    fn side(self) -> Option<Side> {
        match self {
            Self::Side(side) => Some(side),
            Self::Condition(_) => None,
        }
    }

    /// Gives a condition that is known as the boolean that it is.
    fn known(self) -> Self {
        match self {
            Self::Condition(Expr::True) => Self::Side(Err(Literal::Bool(true))),
            Self::Condition(Expr::False) => Self::Side(Err(Literal::Bool(false))),
            other => other,
        }
    }
}

/// Says of what is never `nil`, as each span has it, what it is.
pub(super) fn always_there(field: &Field) -> Option<&'static str> {
    match field {
        Field::Intrinsic(_) => Some("intrinsics"),
        Field::Attribute(Some(Place::Resource), key) if key == "service.name" => Some("resource.service.name"),
        Field::Attribute(..) => None,
    }
}

impl Parser<'_> {
    /// Reads what is worked out of fields.
    pub(super) fn term(&mut self) -> Result<Term> {
        let begin = self.at;
        match self.side()? {
            Node::Side(Ok(term)) => Ok(term),
            _ => Err(self.error_at(begin, "expected a field")),
        }
    }

    /// Reads what sets are split by: a value, or whether a condition holds that asks for a field.
    pub(super) fn by_stage(&mut self) -> Result<Stage> {
        let begin = self.at;
        match self.any()?.known() {
            Node::Side(Ok(term)) => {
                let name = format!("by({term})").into();
                Ok(Stage::By(term, name))
            }
            Node::Condition(expr) => Ok(Stage::ByWhether(expr, format!("by({})", self.since(begin)).into())),
            Node::Side(Err(_)) => Err(self.error_at(begin, "expected a field")),
        }
    }

    /// Reads a side of a comparison.
    pub(super) fn side(&mut self) -> Result<Node> {
        let mut left = self.product()?;
        while let Some(sign) = self.sign(&[("+", Sign::Plus), ("-", Sign::Minus)]) {
            let at = self.at;
            let right = self.product()?;
            left = self.worked(left, sign, right, at)?;
        }
        Ok(left)
    }

    /// Makes the condition of two sides, which begin at these places.
    pub(super) fn compared(&mut self, left: Node, op: Op, right: Node, (begin, at): (usize, usize)) -> Result<Expr> {
        let (left, right) = match (left.known(), right.known()) {
            (Node::Side(left), Node::Side(right)) => (left, right),
            (Node::Condition(expr), Node::Side(Err(Literal::Bool(wanted))))
            | (Node::Side(Err(Literal::Bool(wanted))), Node::Condition(expr)) => {
                let is_same = match op {
                    Op::Number(Compare::Equal) => wanted,
                    Op::Number(Compare::NotEqual) => !wanted,
                    _ => return Err(self.error_at(at, "a condition has no order")),
                };
                return Ok(if is_same { expr } else { Expr::Not(Box::new(expr)) });
            }
            _ => return Err(self.error_at(at, "a condition compares with `true` and `false` only")),
        };
        let written = self.since(begin);
        match (left, right) {
            (Ok(Term::Field(field)), Err(literal)) => self.condition(field, op, literal, at, written),
            (Err(literal), Ok(Term::Field(field))) => self.condition(field, turned(op), literal, begin, written),
            (Err(left), Err(right)) => self.known(left, op, right, at, written),
            (left, right) => {
                let Op::Number(compare) = op else {
                    return Err(self.error_at(at, format!("invalid type for =~ or !~: {}", self.since(at))));
                };
                let wrong = "arithmetic compares with numbers and fields";
                let left = constant(left).ok_or_else(|| self.error_at(begin, wrong))?;
                let right = constant(right).ok_or_else(|| self.error_at(at, wrong))?;
                Ok(Expr::Compare(left, compare, right))
            }
        }
    }

    /// Compares two literals, which are written so.
    fn known(&self, left: Literal, op: Op, right: Literal, at: usize, written: &str) -> Result<Expr> {
        let differ = || self.error_at(at, format!("binary operations must operate on the same type: {written}"));
        let holds = match (op, left.or_number(), right.or_number()) {
            (Op::Matches, Literal::Text(text), Literal::Text(pattern)) => self.regex(&pattern, at)?.is_match(&text),
            (Op::MatchesNot, Literal::Text(text), Literal::Text(pattern)) => !self.regex(&pattern, at)?.is_match(&text),
            // Nothing is neither equal to nothing nor different, as there.
            (Op::Number(Compare::Equal | Compare::NotEqual), Literal::Nil, Literal::Nil) => false,
            (Op::Number(compare), Literal::Number(left, _), Literal::Number(right, _)) => compare.holds(left, right),
            (Op::Number(compare), Literal::Text(left), Literal::Text(right)) => {
                ExprValue::Text(left).compares(compare, &ExprValue::Text(right))
            }
            (Op::Number(compare), Literal::Bool(left), Literal::Bool(right)) => {
                ExprValue::Bool(left).compares(compare, &ExprValue::Bool(right))
            }
            _ => return Err(differ()),
        };
        Ok(if holds { Expr::True } else { Expr::False })
    }

    fn product(&mut self) -> Result<Node> {
        let mut left = self.power()?;
        while let Some(sign) = self.sign(&[("*", Sign::Times), ("/", Sign::By), ("%", Sign::Remainder)]) {
            let at = self.at;
            let right = self.power()?;
            left = self.worked(left, sign, right, at)?;
        }
        Ok(left)
    }

    fn power(&mut self) -> Result<Node> {
        let left = self.single()?;
        let Some(sign) = self.sign(&[("^", Sign::Power)]) else { return Ok(left) };
        let at = self.at;
        let right = self.deeper(Self::power)?;
        self.worked(left, sign, right, at)
    }

    fn single(&mut self) -> Result<Node> {
        if self.eat("(") {
            return self.deeper(|p| {
                let inner = p.any()?;
                p.expect(")")?;
                Ok(inner)
            });
        }
        if self.rest().starts_with('!') {
            self.eat("!");
            let at = self.at;
            let node = self.deeper(Self::single)?;
            return Ok(Node::Condition(match self.as_condition(node, at)? {
                Expr::True => Expr::False,
                Expr::False => Expr::True,
                other => Expr::Not(Box::new(other)),
            }));
        }
        if let Some(rest) = self.rest().strip_prefix('-') {
            let begin = self.at;
            let digits = rest.strip_prefix('.').unwrap_or(rest);
            if digits.starts_with(|c: char| c.is_ascii_digit()) {
                let literal = self.operand()?;
                if !self.rest().starts_with('^') {
                    return Ok(Node::Side(literal.map(Term::Field)));
                }
                self.at = begin;
            }
            self.eat("-");
            let at = self.at;
            // A power binds closer than the sign, also than that of a literal, as in Tempo's grammar.
            let inner = self.deeper(Self::power)?;
            let zero = Node::Side(Err(Literal::Number(0.0, "0".to_owned())));
            return self.worked(zero, Sign::Minus, inner, at);
        }
        Ok(Node::Side(self.operand()?.map(Term::Field)))
    }

    pub(super) fn sign(&mut self, signs: &[(&str, Sign)]) -> Option<Sign> {
        signs.iter().find(|(text, _)| self.eat(text)).map(|(_, sign)| *sign)
    }

    /// Joins two sides; numbers at once.
    fn worked(&mut self, left: Node, sign: Sign, right: Node, at: usize) -> Result<Node> {
        // Each counts, so that what is read is not nested without bounds.
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(self.error_at(at, format!("more than {CONDITIONS_MAX} conditions")));
        }
        let no_number = || self.error_at(at, "arithmetic needs numbers");
        let number = |node: Node| {
            node.side().and_then(constant).filter(|term| match term {
                Term::Fixed(fixed) => matches!(fixed, ExprValue::Number(_) | ExprValue::Whole(_) | ExprValue::Nanos(_)),
                Term::Field(Field::Intrinsic(intrinsic)) => intrinsic.is_number(),
                Term::Field(Field::Attribute(..)) | Term::Worked(..) => true,
            })
        };
        let (left, right) = (number(left).ok_or_else(no_number)?, number(right).ok_or_else(no_number)?);
        if let (Term::Fixed(left), Term::Fixed(right)) = (&left, &right) {
            let literal = match left.worked(sign, right) {
                Some(ExprValue::Whole(value)) => Literal::Number(value as f64, value.to_string()),
                // With a point, so that it is read as no whole number.
                Some(ExprValue::Number(value)) => Literal::Number(value, format!("{value:?}")),
                _ => return Err(self.error_at(at, "a number without bounds")),
            };
            return Ok(Node::Side(Err(literal)));
        }
        Ok(Node::Side(Ok(Term::Worked(Box::new(left), sign, Box::new(right)))))
    }
}

/// Gives a side as a term; none of what has no value.
fn constant(side: Side) -> Option<Term> {
    match side {
        Ok(term) => Some(term),
        Err(literal) => literal.value().map(Term::Fixed),
    }
}
