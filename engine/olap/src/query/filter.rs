//! Filters: operators with validated values (`olap-api.md` 4).

use crate::dates::range::WallRange;
use crate::model::MemberId;

/// A condition, or a combination of conditions.
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
    /// The operator as given in the query.
    pub operator: String,
    /// The values as given, as texts; `None` is null.
    pub values: Vec<Option<String>>,
    /// Whether the member is a measure.
    pub is_measure: bool,
    /// The condition on the value.
    pub test: Test,
}

/// A value to compare with.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// A text, for members of type text, geo or switch.
    Text(String),
    /// A 64-bit integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A boolean, parsed from `true`, `1`, `false` or `0`.
    Boolean(bool),
    /// An instant in nanoseconds.
    Instant(i64),
}

impl Literal {
    /// Reads a number; words such as `nan` and `inf` are none.
    pub(crate) fn number(text: &str) -> Option<Self> {
        let number = text.trim();
        let fits = number.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        let double = || number.parse().ok().filter(|n: &f64| fits && n.is_finite()).map(Self::Double);
        number.parse().ok().map(Self::Integer).or_else(double)
    }
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

/// Where in the value a text must occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurs {
    /// Anywhere in the value.
    Within,
    /// At the beginning.
    AtStart,
    /// At the end.
    AtEnd,
}

/// A condition on a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// The value is one of these.
    In {
        /// The values other than NULL.
        values: Vec<Literal>,
        /// Whether NULL is among them.
        null: bool,
        /// Whether the condition is negated.
        negated: bool,
    },
    /// A text occurs in the value, ignoring case.
    Text {
        /// Where in the value it must occur.
        occurs: Occurs,
        /// The texts, one of which must occur.
        values: Vec<String>,
        /// Whether NULL is among them.
        null: bool,
        /// Whether the condition is negated.
        negated: bool,
    },
    /// A comparison with one value.
    Compare(Comparison, Literal),
    /// Whether it must be not NULL (true) or NULL (false).
    Set(bool),
    /// Within a range of wall time; the flag tells whether outside of it instead.
    Range(WallRange, bool),
    /// The value is in a row that the measure counts.
    MeasureFilter,
}

impl Test {
    /// The number of conditions that it is planned as: each text of a text search counts.
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

    /// The filter without conditions on some members; `None` if nothing is left. An OR is dropped as a whole, because
    /// without a branch it would exclude rows.
    pub fn without(&self, is_gone: &dyn Fn(&MemberId) -> bool) -> Option<Self> {
        match self {
            Self::And(inner) => {
                let kept: Vec<Self> = inner.iter().filter_map(|f| f.without(is_gone)).collect();
                (inner.is_empty() || !kept.is_empty()).then_some(Self::And(kept))
            }
            Self::Or(inner) => inner.iter().map(|f| f.without(is_gone)).collect::<Option<Vec<_>>>().map(Self::Or),
            Self::Leaf(leaf) => (!is_gone(&leaf.member)).then(|| self.clone()),
        }
    }

    /// Whether it is on measures.
    pub fn is_about_measures(&self) -> bool {
        self.leaves().iter().any(|leaf| leaf.is_measure && leaf.test != Test::MeasureFilter)
    }
}
