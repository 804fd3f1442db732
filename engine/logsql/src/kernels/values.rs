//! Values: every value is a text; numbers, durations, sizes, addresses and times are recognised where they are needed.
//!
//! These functions run once for each dictionary entry or row: they work on bytes, do not allocate, and give up at the
//! first byte that cannot begin what they look for.

mod duration;
mod ip;
mod number;
mod order;
mod plain_number;
mod size;
mod text;
mod time;

pub use duration::{parse_duration, push_duration};
pub use ip::{parse_ipv4, parse_ipv4_mask, parse_ipv6, push_ipv4};
pub use number::{number, numeric};
pub use order::{Rank, compare, compare_ranked, push_plain_sort_key, push_sort_key, rank, rank_of_float, rank_of_int};
pub(crate) use plain_number::code;
pub use plain_number::{parse_float, parse_i64, parse_u64};
pub use size::parse_size;
pub use text::{float_text, push_f64, push_json_string};
pub use time::{
    parse_rfc3339, parse_unix, push_rfc3339, push_rfc3339_millis, truncate_to_month, truncate_to_year, unix_to_ns,
};

#[cfg(test)]
mod tests;
