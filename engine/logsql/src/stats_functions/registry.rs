//! The registry of stats functions: for each of them its state, and how that is serialized.

use std::cmp::Ordering;

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

use super::any::AnyValueState;
use super::avg::Avg;
use super::count::{Count, CountTarget};
use super::count_uniq::CountUniq;
use super::count_uniq_hash::CountUniqHash;
use super::field_extreme::FieldExtreme;
use super::grouped::GroupedStates;
use super::histogram::Histogram;
use super::json_values::{JsonValues, JsonValuesConfig};
use super::min_max::Extreme;
use super::quantile::Quantile;
use super::row_any::RowAny;
use super::row_extreme::RowExtreme;
use super::state::StatsState;
use super::stddev::Stddev;
use super::sum::Sum;
use super::sum_len::SumLen;
use super::uniq_values::UniqValues;
use super::values::Values;
use crate::kernels::columns::NumberRule;

/// A function with what it is called with beside columns. `limit` is `None` for no limit; numbers are kept as bits, so
/// that a function can be compared and hashed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Function {
    /// `count()`: rows; the columns do not matter.
    CountRows,
    /// `count(a, b)`: rows with at least one of the fields.
    Count,
    /// `count_empty(a, b)`: rows without any of the fields.
    CountEmpty,
    /// `count_uniq(a, b)`: distinct combinations of values, but for that of empty ones
    CountUniq {
        /// `limit N`: counting stops here; `None`: never.
        limit: Option<u64>,
    },
    /// `count_uniq_hash(a, b)`: distinct 64-bit hashes of combinations
    CountUniqHash {
        /// `limit N`: counting stops here; `None`: never.
        limit: Option<u64>,
    },
    /// `sum(...)`: the reference counts values with units over all rows, and plain numbers only under `by`; which of the
    /// rules holds is the caller's choice, for the functions that follow too.
    Sum(NumberRule),
    /// `avg(...)`: mean of the numbers; NaN without any
    Avg(NumberRule),
    /// `stddev(...)`: standard deviation of the population
    Stddev(NumberRule),
    /// `min(...)`: the least value as text, by the order of values
    Min,
    /// `max(...)`: the greatest value as text, by the order of values
    Max,
    /// `quantile(phi, ...)`, `median(...)`
    Quantile {
        /// From 0 to 1, as bits of a double.
        phi_bits: u64,
    },
    /// `rate()`: rows per second.
    Rate {
        /// Seconds of the range, as bits of a double; rows without them.
        seconds_bits: Option<u64>,
    },
    /// `rate_sum(...)`: sum per second
    RateSum {
        /// As in `sum`.
        rule: NumberRule,
        /// Seconds of the range, as bits of a double; the sum without them.
        seconds_bits: Option<u64>,
    },
    /// `uniq_values(...)`: distinct values that are not empty, a sorted JSON array
    UniqValues {
        /// At most so many values; `None`: all.
        limit: Option<u64>,
    },
    /// `values(...)`: all values, a JSON array
    Values {
        /// At most so many values; `None`: all.
        limit: Option<u64>,
    },
    /// `json_values(...)`: the last columns are those of `sort by`.
    JsonValues {
        /// For each of the last columns whether descending.
        sort: Vec<bool>,
        /// At most so many objects; `None`: all.
        limit: Option<u64>,
    },
    /// `row_any(...)`: some row as a JSON object
    RowAny,
    /// `row_min(f, ...)`: the first column is f.
    RowMin,
    /// `row_max(f, ...)`: the first column is f.
    RowMax,
    /// `any(...)`: some value that is not empty
    Any,
    /// `field_min(f, g)`: value of g in the row with the least f
    FieldMin,
    /// `field_max(f, g)`: value of g in the row with the greatest f
    FieldMax,
    /// `sum_len(...)`: length of all values in bytes
    SumLen,
    /// `histogram(a)`: number of values in each range, as a JSON array
    Histogram,
}

impl Function {
    /// Makes `quantile(phi, ...)`; phi is from 0 to 1.
    pub fn quantile(phi: f64) -> Self {
        Self::Quantile { phi_bits: phi.to_bits() }
    }

    /// `rate()` over a range of so many seconds, if there is one.
    pub fn rate(seconds: Option<f64>) -> Self {
        Self::Rate { seconds_bits: seconds.map(f64::to_bits) }
    }

    /// Makes `rate_sum(...)` over a range of so many seconds, if there is one.
    pub fn rate_sum(rule: NumberRule, seconds: Option<f64>) -> Self {
        Self::RateSum { rule, seconds_bits: seconds.map(f64::to_bits) }
    }

    /// The name in the language.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CountRows | Self::Count => "count",
            Self::CountEmpty => "count_empty",
            Self::CountUniq { .. } => "count_uniq",
            Self::CountUniqHash { .. } => "count_uniq_hash",
            Self::Sum(_) => "sum",
            Self::Avg(_) => "avg",
            Self::Stddev(_) => "stddev",
            Self::Min => "min",
            Self::Max => "max",
            Self::Quantile { .. } => "quantile",
            Self::Rate { .. } => "rate",
            Self::RateSum { .. } => "rate_sum",
            Self::UniqValues { .. } => "uniq_values",
            Self::Values { .. } => "values",
            Self::JsonValues { .. } => "json_values",
            Self::RowAny => "row_any",
            Self::RowMin => "row_min",
            Self::RowMax => "row_max",
            Self::Any => "any",
            Self::FieldMin => "field_min",
            Self::FieldMax => "field_max",
            Self::SumLen => "sum_len",
            Self::Histogram => "histogram",
        }
    }

    /// Types of the columns of the state.
    pub fn state_types(&self) -> Vec<DataType> {
        match self {
            Self::CountRows | Self::Count | Self::CountEmpty | Self::Rate { .. } | Self::SumLen => {
                vec![DataType::UInt64]
            }
            Self::Sum(_) | Self::RateSum { .. } => vec![DataType::Float64],
            Self::Avg(_) => vec![DataType::Float64; 2],
            Self::Stddev(_) => vec![DataType::Float64; 3],
            _ => vec![DataType::LargeBinary],
        }
    }

    /// Says whether it may keep texts of all rows.
    pub(crate) fn keeps_texts(&self) -> bool {
        let kept = self.state_types() == [DataType::LargeBinary];
        kept && !matches!(self, Self::CountUniqHash { .. } | Self::Histogram)
    }

    pub(super) fn state(&self) -> Box<dyn StatsState> {
        let seconds = |bits: &Option<u64>| bits.map(f64::from_bits).filter(|s| *s > 0.0);
        let limit = |limit: &Option<u64>| limit.filter(|&n| n > 0).unwrap_or(u64::MAX);
        match self {
            Self::CountRows => Box::new(Count::new(CountTarget::Rows, None)),
            Self::Count => Box::new(Count::new(CountTarget::Filled, None)),
            Self::CountEmpty => Box::new(Count::new(CountTarget::Empty, None)),
            Self::Rate { seconds_bits } => Box::new(Count::new(CountTarget::Rows, seconds(seconds_bits))),
            Self::CountUniq { limit: n } => Box::new(GroupedStates::<CountUniq>::new(limit(n))),
            Self::CountUniqHash { limit: n } => Box::new(GroupedStates::<CountUniqHash>::new(limit(n))),
            Self::Sum(rule) => Box::new(Sum::new(*rule, None)),
            Self::RateSum { rule, seconds_bits } => Box::new(Sum::new(*rule, seconds(seconds_bits))),
            Self::Avg(rule) => Box::new(Avg::new(*rule)),
            Self::Stddev(rule) => Box::new(Stddev::new(*rule)),
            Self::Min => Box::new(GroupedStates::<Extreme>::new(Ordering::Less)),
            Self::Max => Box::new(GroupedStates::<Extreme>::new(Ordering::Greater)),
            Self::Quantile { phi_bits } => Box::new(GroupedStates::<Quantile>::new(f64::from_bits(*phi_bits))),
            Self::UniqValues { limit: n } => Box::new(GroupedStates::<UniqValues>::new(limit(n))),
            Self::Values { limit: n } => Box::new(GroupedStates::<Values>::new(limit(n))),
            Self::JsonValues { sort, limit: n } => {
                Box::new(GroupedStates::<JsonValues>::new(JsonValuesConfig { sort: sort.clone(), limit: limit(n) }))
            }
            Self::RowAny => Box::new(GroupedStates::<RowAny>::new(())),
            Self::RowMin => Box::new(GroupedStates::<RowExtreme>::new(Ordering::Less)),
            Self::RowMax => Box::new(GroupedStates::<RowExtreme>::new(Ordering::Greater)),
            Self::Any => Box::new(GroupedStates::<AnyValueState>::new(())),
            Self::FieldMin => Box::new(GroupedStates::<FieldExtreme>::new(Ordering::Less)),
            Self::FieldMax => Box::new(GroupedStates::<FieldExtreme>::new(Ordering::Greater)),
            Self::SumLen => Box::new(SumLen::default()),
            Self::Histogram => Box::new(GroupedStates::<Histogram>::new(())),
        }
    }
}
