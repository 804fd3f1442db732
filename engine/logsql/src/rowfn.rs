//! Pipes that transform one row at a time: one file each, as functions from texts to texts. The planner feeds them
//! fields and stores what they give; `len` and `drop_empty_fields` need no code of their own.

pub mod coalesce;
mod codec;
pub mod collapse_nums;
pub mod decolorize;
pub mod extract;
pub mod extract_regexp;
pub mod fields;
pub mod format;
pub mod hash;
pub mod json;
pub mod json_array_concat;
pub mod json_array_len;
pub mod math;
pub mod pack;
mod quoted;
pub mod replace;
pub mod replace_regexp;
pub mod split;
pub mod template;
pub mod time_add;
pub mod unpack_logfmt;
pub mod unpack_syslog;
pub mod unpack_words;
pub mod unroll;

/// Longest value that a pipe may make, in bytes. What makes longer ones stops soon after.
pub const VALUE_LEN_MAX: usize = 8 << 20;

pub use coalesce::coalesce;
pub use collapse_nums::collapse_nums;
pub use decolorize::decolorize;
pub use extract::Extract;
pub use extract_regexp::ExtractRegexp;
pub use fields::Fields;
pub use format::Format;
pub use hash::hash;
pub use json::object_fields as unpack_json;
pub(crate) use json::wanted_fields as unpack_json_fields;
pub use json_array_concat::json_array_concat;
pub use json_array_len::json_array_len;
pub use pack::{pack_json, pack_logfmt};
pub use replace::Replace;
pub use replace_regexp::ReplaceRegexp;
pub use split::split;
pub use time_add::time_add;
pub use unpack_logfmt::unpack_logfmt;
pub use unpack_syslog::{SyslogContext, unpack_syslog};
pub use unpack_words::unpack_words;
pub use unroll::unroll;
