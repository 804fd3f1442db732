//! Filters: one file each. A matcher of one value says what prunes ([`MatchHints`](quiver_types::logs::MatchHints));
//! hints never lose a match.

mod any_case_phrase;
mod any_case_prefix;
mod common_case;
mod contains_all;
mod contains_any;
mod encoding;
mod exact;
mod exact_prefix;
mod field_compare;
mod hints;
mod in_list;
mod ipv4_range;
mod ipv6_range;
mod json_array_contains_any;
mod len_range;
mod matcher_form;
mod pattern_match;
mod phrase;
mod prefix;
mod range;
mod regexp;
mod sequence;
mod string_range;
mod substring;
mod text_compare;
mod value_type;

pub use any_case_phrase::AnyCasePhrase;
pub use any_case_prefix::AnyCasePrefix;
pub(crate) use common_case::check_common_cases;
pub use common_case::{ContainsCommonCase, EqualsCommonCase};
pub use contains_all::ContainsAll;
pub use contains_any::ContainsAny;
pub(crate) use encoding::MATCHERS;
pub use exact::Exact;
pub use exact_prefix::ExactPrefix;
pub use field_compare::{FieldCompare, FieldOp};
pub use in_list::InList;
pub use ipv4_range::Ipv4Range;
pub use ipv6_range::Ipv6Range;
pub use json_array_contains_any::JsonArrayContainsAny;
pub use len_range::LenRange;
pub use pattern_match::{PatternMatch, PatternPlace};
pub use phrase::Phrase;
pub use prefix::Prefix;
pub use range::Range;
pub use regexp::Regexp;
pub use sequence::Sequence;
pub use string_range::StringRange;
pub use substring::Substring;
pub use text_compare::{TextCompare, TextOp};
pub use value_type::ValueType;

#[cfg(test)]
mod tests;
