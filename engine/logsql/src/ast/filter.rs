//! Filters: a tree of and, or, not over tests of one field, of the stream and of the time.

use serde::{Deserialize, Serialize};

use super::Query;
use super::field::FieldPattern;
use super::literal::Literal;
use super::time::TimeFilter;

/// A condition on rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Filter {
    /// `*`: every row.
    All,
    /// All of them; at least two.
    And(#[serde(with = "quiver_types::nesting")] Vec<Filter>),
    /// Any of them; at least two.
    Or(#[serde(with = "quiver_types::nesting")] Vec<Filter>),
    /// The rows the inner filter does not select.
    Not(#[serde(with = "quiver_types::nesting")] Box<Filter>),
    /// A test of one field (or of any field of a group).
    Field {
        /// Which field; a group matches when any of its fields does.
        field: FieldPattern,
        /// What is asked of its value.
        test: Test,
    },
    /// `{app="nginx", env!="dev"}`: on the labels of streams.
    Stream(StreamFilter),
    /// `_stream_id:x`, `_stream_id:in(...)`: identifiers in hex.
    StreamId(Values),
    /// `_time:5m` and the like: on the time of rows.
    Time(TimeFilter),
}

/// The list of `in(...)` and its like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Values as written.
    List(Vec<String>),
    /// The values a query yields in its one field. No plan has it: it was run before, and its values stand in its place.
    #[serde(skip)]
    Subquery(Box<Query>),
}

/// A test of one value. A missing field is the empty text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// `word`, `"a phrase"`: at word borders; the empty phrase matches the empty value only.
    Phrase(String),
    /// `pre*`: begins at a word border; the empty prefix matches every value that is not empty.
    Prefix(String),
    /// `*sub*`: anywhere, whatever stands around it.
    Substring(String),
    /// `i(phrase)`: a phrase without regard to case.
    AnyCasePhrase(String),
    /// `i(pre*)`: a prefix without regard to case.
    AnyCasePrefix(String),
    /// `=x`: the whole value.
    Exact(String),
    /// `=x*`: the beginning of the value.
    ExactPrefix(String),
    /// `in(a, b)`: the whole value is one of these.
    In(Values),
    /// `contains_all(a, b)`: the value has all of these phrases; an empty list matches every value.
    ContainsAll(Values),
    /// `contains_any(a, b)`: the value has one of these phrases; an empty list matches none.
    ContainsAny(Values),
    /// `equals_common_case(a, b)`: as `in`, over the cases that each text is commonly written in.
    EqualsCommonCase(Vec<String>),
    /// `contains_common_case(a, b)`: as `contains_any`, over the cases that each text is commonly written in.
    ContainsCommonCase(Vec<String>),
    /// `seq(...)`: phrases in this order.
    Sequence(Vec<String>),
    /// `~re`: RE2 text, already checked.
    Regexp(String),
    /// `range[a, b)` and comparisons with a number; both bounds are numbers.
    Range {
        /// The least value that matches, or the one below it.
        min: RangeBound<f64>,
        /// The greatest value that matches, or the one above it.
        max: RangeBound<f64>,
        /// The text of the test as it is printed: `range[1, 2)`, `>=10`.
        text: String,
    },
    /// `>x` and so on where x is not a number: by bytes. One of the bounds may be open.
    TextCompare {
        /// The operator as written.
        op: CompareOp,
        /// The other side.
        value: String,
    },
    /// `ipv4_range(a, b)`, both included.
    Ipv4Range {
        /// The least address that matches.
        min: u32,
        /// The greatest address that matches.
        max: u32,
    },
    /// `ipv6_range(a, b)`, both included.
    Ipv6Range {
        /// The least address that matches.
        min: u128,
        /// The greatest address that matches.
        max: u128,
    },
    /// `string_range(a, b)`: `a <= value < b` by bytes.
    StringRange {
        /// The least value that matches.
        min: String,
        /// The least value that is too great.
        max: String,
    },
    /// `len_range(a, b)`: number of characters, both included.
    LenRange {
        /// Least number of characters that matches.
        min: Literal<u64>,
        /// Greatest number of characters that matches; `u64::MAX` for `inf`.
        max: Literal<u64>,
    },
    /// `eq_field(other)`: both fields have the same text.
    EqField(String),
    /// `le_field(other)`: not greater than the value of the other field, as numbers when both are, else by bytes.
    LeField(String),
    /// `lt_field(other)`: less than the value of the other field, as numbers when both are, else by bytes.
    LtField(String),
    /// `value_type(t)`: the text looks like `uint64`, `int64`, `float64`, `ipv4` or `iso8601`, or else is a `string`.
    ValueType(String),
    /// `pattern_match("..")` and its anchored forms.
    PatternMatch {
        /// Where in the value.
        place: PatternPlace,
        /// Text with `<N>`, `<UUID>`, `<IP4>`, `<TIME>`, `<DATE>`, `<DATETIME>`, `<W>`.
        pattern: String,
    },
    /// `json_array_contains_any(a, b)`: a JSON array, one of whose items is one of these texts.
    JsonArrayContainsAny(Vec<String>),
}

/// One end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum RangeBound<T> {
    /// The value itself belongs to the range.
    Included(T),
    /// It does not.
    Excluded(T),
}

/// How a value is compared with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareOp {
    /// `>`: greater by bytes
    Gt,
    /// `>=`: greater by bytes, or equal
    Ge,
    /// `<`: less by bytes
    Lt,
    /// `<=`: less by bytes, or equal
    Le,
}

impl CompareOp {
    /// The sign that a query has it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Lt => "<",
            Self::Le => "<=",
        }
    }
}

/// Where a pattern must stand in the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PatternPlace {
    /// In any part of a value.
    Any,
    /// It is the whole value.
    Full,
    /// At the beginning.
    Prefix,
    /// At the end.
    Suffix,
}

/// `{a="b",c=~"d" or e="f"}`: a row's stream must fit all matchers of at least one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFilter {
    /// Alternatives; no group at all is `{}`.
    pub groups: Vec<Vec<StreamMatch>>,
}

/// One condition on a stream label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMatch {
    /// The name of the stream's label.
    pub label: String,
    /// How it is compared.
    pub op: StreamOp,
}

/// How a stream label is compared; a missing label is the empty text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamOp {
    /// `=`: the label has this value
    Equal(String),
    /// `!=`: the label has another value
    NotEqual(String),
    /// `=~`, anchored at both ends.
    Regexp(String),
    /// `!~`, anchored at both ends.
    NotRegexp(String),
    /// `in (...)`: the label has one of these values
    In(Vec<String>),
    /// `not_in (...)`: the label has none of these values
    NotIn(Vec<String>),
}
