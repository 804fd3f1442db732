//! SQL/JSON paths as parsed: steps from the document (`$`) or the current item (`@`), arithmetic, and conditions.

mod reader;

use std::cmp::Ordering;

use regex::Regex;

pub(super) use reader::read;

/// The last level, whichever that is.
pub(super) const LAST: u32 = u32::MAX;

/// A path that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Path {
    /// Whether what is not there, or of another form, is a fault.
    pub(super) is_strict: bool,
    pub(super) body: Body,
}

#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// What it leads to.
    Items(Expression),
    /// Whether something holds.
    Condition(Condition),
}

#[derive(Debug, PartialEq)]
pub(super) enum Expression {
    Steps(Steps),
    /// Numbers with a sign, which may be turned.
    Signed {
        turns: bool,
        of: Box<Expression>,
    },
    /// A number, and what is calculated with it from left to right.
    Calculated(Box<Expression>, Vec<(Arithmetic, Expression)>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Arithmetic {
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
}

impl Arithmetic {
    /// How it is written.
    pub(super) fn sign(self) -> char {
        match self {
            Self::Plus => '+',
            Self::Minus => '-',
            Self::Times => '*',
            Self::Divided => '/',
            Self::Modulo => '%',
        }
    }
}

/// Steps one after the other.
#[derive(Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) base: Base,
    pub(super) each: Vec<Step>,
}

/// Where steps begin.
#[derive(Debug, PartialEq)]
pub(super) enum Base {
    /// The document (`$`).
    Root,
    /// The item at hand (`@`).
    Item,
    /// The place of the last item of the array that is looked at.
    Last,
    /// A value that is written out, as JSON.
    Written(String),
    Items(Box<Expression>),
    Truth(Box<Condition>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Member(String),
    /// The values of all members.
    Members,
    /// All items of an array (`[*]`).
    Items,
    /// Items at places, or from one place to another.
    Between(Vec<(Expression, Option<Expression>)>),
    /// Items of which a condition holds.
    Kept(Condition),
    /// What is within, from one level to another; it itself is on level 0.
    Deep(u32, u32),
    Method(Method),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Method {
    Size,
    Type,
    Abs,
    Ceiling,
    Double,
    Floor,
    KeyValue,
}

impl Method {
    /// All of them.
    pub(super) const ALL: [Self; 7] =
        [Self::Abs, Self::Ceiling, Self::Double, Self::Floor, Self::KeyValue, Self::Size, Self::Type];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Type => "type",
            Self::Abs => "abs",
            Self::Ceiling => "ceiling",
            Self::Double => "double",
            Self::Floor => "floor",
            Self::KeyValue => "keyvalue",
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// Whether it is not known that a condition holds, nor that it does not.
    IsUnknown(Box<Condition>),
    /// Whether there is something.
    Exists(Expression),
    Compared(Expression, Operator, Expression),
    StartsWith(Expression, String),
    Matches(Expression, Pattern),
}

/// A regular expression of a path.
#[derive(Debug)]
pub(super) struct Pattern(pub(super) Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    /// Whether it holds between two values in this order.
    pub(super) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests;
