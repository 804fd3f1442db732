//! The `stats` pipe: groups and functions.

use super::field::FieldPattern;
use super::filter::Filter;
use super::literal::Literal;
use super::time::TimeBucket;

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
    /// The function, with its fields and options.
    pub func: StatsFunc,
    /// `if (filter)`: only rows that match are looked at; `None`: all rows.
    pub condition: Option<Filter>,
    /// Field of the result: as written, else the text of the call.
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
        /// `limit N`: counting stops here; `None`: never.
        limit: Option<u64>,
    },
    /// `count_uniq_hash(a, b) [limit N]`
    CountUniqHash {
        /// The fields whose values make a combination.
        fields: Vec<String>,
        /// `limit N`: counting stops here; `None`: never.
        limit: Option<u64>,
    },
    /// `count_uniq_hll(a, b)`: answered as exactly as `count_uniq_hash`
    CountUniqHll(Vec<String>),
    /// `sum(a, b)`: of all values of the fields that are numbers; NaN without any
    Sum(Vec<FieldPattern>),
    /// `avg(a, b)`: mean of all values of the fields that are numbers; NaN without any
    Avg(Vec<FieldPattern>),
    /// `stddev(a, b)`: standard deviation of the population, of the values that are numbers
    Stddev(Vec<FieldPattern>),
    /// `min(a, b)`: the least value of the fields, as text; numbers compare as numbers
    Min(Vec<FieldPattern>),
    /// `max(a, b)`: the greatest value of the fields, as text; numbers compare as numbers
    Max(Vec<FieldPattern>),
    /// `median(a, b)`: `quantile(0.5, a, b)`
    Median(Vec<FieldPattern>),
    /// `quantile(phi, a, b)`: nearest rank; exact up to 65 536 values of a group, beyond from a sample of half as many
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
        /// `limit N`: at most so many values; `None`: all.
        limit: Option<u64>,
    },
    /// `values(...) [limit N]`
    Values {
        /// Over the values of all of them.
        fields: Vec<FieldPattern>,
        /// `limit N`: at most so many values; `None`: all.
        limit: Option<u64>,
    },
    /// `json_values(...) [sort by (...)] [limit N]`
    JsonValues {
        /// Fields of the objects.
        fields: Vec<FieldPattern>,
        /// Order of the objects: field, descending.
        sort: Vec<(String, bool)>,
        /// `limit N`: at most so many objects; `None`: all.
        limit: Option<u64>,
    },
    /// `row_any(a, b)`: fields of some row as a JSON object
    RowAny(Vec<FieldPattern>),
    /// `row_min(f, a, b)`: fields of the row with the least f as a JSON object
    RowMin {
        /// The row with the least value of it.
        by: String,
        /// Fields of the object.
        fields: Vec<FieldPattern>,
    },
    /// `row_max(f, a, b)`: fields of the row with the greatest f as a JSON object
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
    /// `field_max(f, g)`: value of g in the row with the greatest f
    FieldMax {
        /// The row with the greatest value of it.
        by: String,
        /// The value taken.
        field: String,
    },
    /// `sum_len(a, b)`: length of all values in bytes
    SumLen(Vec<FieldPattern>),
    /// `histogram(a)`: number of values in each range, 18 ranges per decade
    Histogram(String),
}
