//! Functions of `stats`: one file each. A function is an aggregate of DataFusion over columns of texts; its state is
//! vectorised over groups, travels as Arrow columns between partial and final aggregation, and its result is a text.

mod accumulator;
mod any;
mod args;
mod avg;
mod count;
mod count_uniq;
mod count_uniq_hash;
mod field_extreme;
mod grouped;
mod histogram;
mod json_values;
mod key_set;
mod min_max;
mod quantile;
mod registry;
mod row_any;
mod row_extreme;
mod sample;
mod state;
mod state_bytes;
mod stddev;
mod sum;
mod sum_len;
mod udaf;
mod uniq_values;
mod values;

pub use accumulator::StatsAccumulator;
pub use args::{Arg, NamePattern};
pub use registry::Function;
pub use state::GroupRows;
pub use udaf::{StatsUdaf, stats_udaf};

#[cfg(test)]
mod tests;
