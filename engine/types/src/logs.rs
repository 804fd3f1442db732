//! Logs as decoders, store and query language exchange them: the batch that is written, the filter that a scan
//! evaluates, and the traits through which a plan reaches the store.
//!
//! A row is a time in nanoseconds, a stream and `name: text` fields. A missing field and an empty one are the same, so
//! empty values are never stored or sent (`logs-api` section 1).

mod batch;
mod color;
mod counts;
mod encoding;
mod filter;
mod matching;
mod source;
mod stored_field;
mod stream;
mod substring_search;
mod words;

pub use batch::{BatchStream, FIELD_BYTES, LogsBatch, MSG, RecordMarks, RowFields};
pub use color::without_colors;
pub use counts::{CountedField, FIELD_NAME, FIELD_VALUE, ROW_COUNT, ValueCounts, ValueLimits};
pub use encoding::{MatcherForm, MatcherReaders, ReadRowMatcher, ReadValueMatcher, read_matchers};
pub use filter::{
    FieldNames, FieldPattern, LogFilter, MatchHints, NumberRange, RowMatcher, StreamSelector, TimePredicate,
    ValueMatcher,
};
pub use matching::{AllRows, ChosenRows, IfPresent, TextMatch, TypedValues, match_coded, match_typed};
pub use source::{LogColumn, LogForm, LogOrder, LogRequest, LogSnapshot, LogSource, StreamInfo};
pub use stored_field::{ID_BYTES, StoredField, read_float, read_int, write_float, write_int};
pub use stream::{StreamId, quote_into, stream_text};
pub use substring_search::SubstringSearch;
pub use words::{Words, is_word_char, word_at, word_before, words};

/// Time of a row, in the answers of the language.
pub const TIME: &str = "_time";
/// Text of the labels of a row's stream.
pub const STREAM: &str = "_stream";
/// Identifier of a row's stream.
pub const STREAM_ID: &str = "_stream_id";
/// The column of a scan that holds, as a map, all fields that have no column of their own.
pub const REST: &str = "__q_rest";
/// Name under which the number of the severity stands, for the analytical models; no field of the language.
pub const SEVERITY_NUMBER: &str = "__q_severity_number";
/// Name under which the time stands at which a record was observed; as [`SEVERITY_NUMBER`] no field of the language.
pub const OBSERVED_TIME: &str = "__q_observed_time";
