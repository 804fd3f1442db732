//! Filters: operators with checked values (`olap-api.md` 4).

use crate::dates::range::WallRange;
use crate::model::MemberId;

/// A condition, perhaps of several.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// All must hold.
    And(Vec<Filter>),
    /// One must hold.
    Or(Vec<Filter>),
    /// A condition on a member.
    Leaf(Leaf),
}

/// A condition on a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// The dimension or measure whose value is tested.
    pub member: MemberId,
    /// The operator as given.
    pub operator: String,
    /// Values as given, as texts.
    pub values: Vec<Option<String>>,
    /// Whether the member is a measure.
    pub is_measure: bool,
    /// What must hold.
    pub test: Test,
}

/// A value to compare with.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// Text, for members whose values are texts, places or words of a switch.
    Text(String),
    /// Whole number of 64 bits.
    Integer(i64),
    /// A number with a fraction.
    Double(f64),
    /// `true` or `false`; read of the texts `true`, `1`, `false` and `0`.
    Boolean(bool),
    /// Instant in nanoseconds.
    Instant(i64),
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Greater.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
}

/// Where a text occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurs {
    /// Anywhere in the value.
    Within,
    /// At the beginning.
    AtStart,
    /// At the end.
    AtEnd,
}

/// What must hold of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// One of some values; `null`: NULL is among them.
    In {
        /// The values but NULL.
        values: Vec<Literal>,
        /// Whether NULL is among them.
        null: bool,
        /// Whether it must be none of them.
        negated: bool,
    },
    /// A text occurs, ignoring case.
    Text {
        /// Where in the value: at its begin, its end or anywhere.
        occurs: Occurs,
        /// The texts, one of which must occur.
        values: Vec<String>,
        /// Whether none may.
        negated: bool,
    },
    /// Compared with one value.
    Compare(Comparison, Literal),
    /// Not NULL, or NULL.
    Set(bool),
    /// Within a range of wall time, or outside.
    Range(WallRange, bool),
    /// The rows that a measure counts.
    MeasureFilter,
}

impl Test {
    /// How many conditions it comes to: each text is looked for by itself.
    pub fn conditions(&self) -> usize {
        match self {
            Self::Text { values, .. } => values.len().max(1),
            Self::In { .. } | Self::Compare(..) | Self::Set(_) | Self::Range(..) | Self::MeasureFilter => 1,
        }
    }
}

impl Filter {
    /// All conditions on members.
    pub fn leaves(&self) -> Vec<&Leaf> {
        match self {
            Self::And(inner) | Self::Or(inner) => inner.iter().flat_map(Self::leaves).collect(),
            Self::Leaf(leaf) => vec![leaf],
        }
    }

    /// What is left without conditions on some members; a choice that lacks a branch would keep less, so it goes as a whole.
    pub fn without(&self, is_gone: &dyn Fn(&MemberId) -> bool) -> Option<Self> {
        match self {
            Self::And(inner) => Some(Self::And(inner.iter().filter_map(|f| f.without(is_gone)).collect())),
            Self::Or(inner) => inner.iter().map(|f| f.without(is_gone)).collect::<Option<Vec<_>>>().map(Self::Or),
            Self::Leaf(leaf) => (!is_gone(&leaf.member)).then(|| self.clone()),
        }
    }

    /// Whether it is about measures.
    pub fn is_about_measures(&self) -> bool {
        self.leaves().iter().any(|leaf| leaf.is_measure && leaf.test != Test::MeasureFilter)
    }
}
