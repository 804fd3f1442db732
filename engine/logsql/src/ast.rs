//! What a query says: options, a filter, pipes. The types hold the meaning of the text and, where a literal may be
//! written in several ways (times, durations, numbers), the text itself, so that printing gives back what was asked.
//!
//! Nothing here knows how a query is run; pipes, which do, stand in `pipes`.

pub mod field;
pub mod filter;
pub mod literal;
pub mod math;
pub mod stats;
pub mod time;

pub use field::{FieldPattern, Originals, PatternPair};
pub use filter::{CompareOp, Filter, PatternPlace, RangeBound, StreamFilter, StreamMatch, StreamOp, Test, Values};
pub use literal::{Literal, Overwrite};
pub use math::{MathExpr, MathFunc, MathOp};
pub use stats::{GroupBy, StatsCall, StatsFunc};
pub use time::{TimeBucket, TimeFilter, TimePoint};

use crate::pipes::pipe::Output;
pub use crate::pipes::pipe::Pipe;

/// A query: options, one filter, any number of pipes.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// `options(...)` before the filter.
    pub options: Options,
    /// What rows enter the first pipe.
    pub filter: Filter,
    /// What happens to them, in order.
    pub pipes: Vec<Pipe>,
}

/// `options(...)`. What is `None` was not written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Upper bound on worker threads; never changes the answer.
    pub concurrency: Option<u64>,
    /// Upper bound on readers; never changes the answer.
    pub parallel_readers: Option<u64>,
    /// The time range of the request does not apply to this query.
    pub ignore_global_time_filter: Option<bool>,
    /// Rows older by this many nanoseconds are selected and moved forward by it.
    pub time_offset: Option<Literal<i64>>,
    /// A condition for this query and all its subqueries, beside their own.
    pub global_filter: Option<Box<Filter>>,
    /// Whether an answer may miss unreachable nodes.
    pub allow_partial_response: Option<bool>,
}

impl Options {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Query {
    /// Says whether its rows are chosen by their time anywhere in its filter.
    pub fn has_time_filter(&self) -> bool {
        fn has(filter: &Filter) -> bool {
            match filter {
                Filter::And(inner) | Filter::Or(inner) => inner.iter().any(has),
                Filter::Not(inner) => has(inner),
                Filter::Time(_) => true,
                _ => false,
            }
        }
        has(&self.filter) || self.options.global_filter.as_deref().is_some_and(has)
    }

    /// The one field that each row of the answer has, if the pipes say so: what `in(query)` compares with.
    pub fn output_field(&self) -> Option<&str> {
        self.pipes.iter().rev().find_map(|pipe| match pipe.kind().output() {
            Output::Same => None,
            Output::One(name) => Some(Some(name)),
            Output::Others => Some(None),
        })?
    }
}
