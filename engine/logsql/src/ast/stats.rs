//! The `stats` pipe: groups and functions.

use super::{FieldPattern, Filter, Literal, TimeBucket};

/// One field of `by (...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupBy {
    /// The field whose values, or buckets of them, make the groups.
    pub field: String,
    /// How wide buckets of its values are, if it has any.
    pub bucket: Option<TimeBucket>,
    /// `offset` of the buckets: nanoseconds for times, else a number.
    pub offset: Option<Literal<f64>>,
}

/// `f(...) [if (filter)] as name`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsCall {
    /// What is counted.
    pub func: StatsFunc,
    /// Only over rows that fit.
    pub condition: Option<Filter>,
    /// The name of the result.
    pub name: String,
}

/// A stats function with its arguments. An empty list of fields never occurs: `f()` is `f(*)`.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsFunc {
    /// `count(a, b)`: rows where at least one is not empty; `*` counts rows.
    Count(Vec<FieldPattern>),
    /// `count_empty(a, b)`: rows where all are empty.
    CountEmpty(Vec<FieldPattern>),
    /// `count_uniq(a, b) [limit N]`
    CountUniq {
        /// The fields whose values make a combination.
        fields: Vec<String>,
        /// Counting stops here.
        limit: Option<u64>,
    },
    /// `count_uniq_hash(a, b) [limit N]`
    CountUniqHash {
        /// The fields whose values make a combination.
        fields: Vec<String>,
        /// Counting stops here.
        limit: Option<u64>,
    },
    /// `sum(...)`
    Sum(Vec<FieldPattern>),
    /// `avg(...)`
    Avg(Vec<FieldPattern>),
    /// `stddev(...)`
    Stddev(Vec<FieldPattern>),
    /// `min(...)`
    Min(Vec<FieldPattern>),
    /// `max(...)`
    Max(Vec<FieldPattern>),
    /// `median(...)`
    Median(Vec<FieldPattern>),
    /// `quantile(phi, ...)`
    Quantile {
        /// From 0 to 1.
        phi: Literal<f64>,
        /// Over the values of all of them.
        fields: Vec<FieldPattern>,
    },
    /// `rate()`: rows per second.
    Rate,
    /// `rate_sum(...)`: sum per second.
    RateSum(Vec<FieldPattern>),
    /// `uniq_values(...) [limit N]`
    UniqValues {
        /// Over the values of all of them.
        fields: Vec<FieldPattern>,
        /// At most so many.
        limit: Option<u64>,
    },
    /// `values(...) [limit N]`
    Values {
        /// Over the values of all of them.
        fields: Vec<FieldPattern>,
        /// At most so many.
        limit: Option<u64>,
    },
    /// `json_values(...) [sort by (...)] [limit N]`
    JsonValues {
        /// Fields of the objects.
        fields: Vec<FieldPattern>,
        /// Order of the objects: field, descending.
        sort: Vec<(String, bool)>,
        /// At most so many.
        limit: Option<u64>,
    },
    /// `row_any(...)`
    RowAny(Vec<FieldPattern>),
    /// `row_min(f, ...)`
    RowMin {
        /// The row with the least value of it.
        by: String,
        /// Fields of the object.
        fields: Vec<FieldPattern>,
    },
    /// `row_max(f, ...)`
    RowMax {
        /// The row with the greatest value of it.
        by: String,
        /// Fields of the object.
        fields: Vec<FieldPattern>,
    },
    /// `any(...)`: a non-empty value.
    Any(Vec<FieldPattern>),
    /// `field_min(f, g)`: the value of g in the row with the least f.
    FieldMin {
        /// The row with the least value of it.
        by: String,
        /// The value taken.
        field: String,
    },
    /// `field_max(f, g)`
    FieldMax {
        /// The row with the greatest value of it.
        by: String,
        /// The value taken.
        field: String,
    },
    /// `sum_len(...)`
    SumLen(Vec<FieldPattern>),
    /// `histogram(a)`
    Histogram(String),
}
