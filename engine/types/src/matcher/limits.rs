//! Size limits of compiled regular expressions.

/// Largest compiled regular expression, in bytes (`identity-and-access` section 7).
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Largest compiled regular expressions of one query together, in bytes.
pub const QUERY_REGEX_BYTES_MAX: usize = 10 << 20;
