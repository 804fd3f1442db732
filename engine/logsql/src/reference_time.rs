//! The reference time of a query ("now"), to which its relative times are resolved.

/// What a filter is evaluated against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeScope {
    /// The moment that `now` means.
    pub(crate) now_ns: i64,
    /// Rows are this much older than what the filter says (`options(time_offset=d)`).
    pub(crate) offset_ns: i64,
}
