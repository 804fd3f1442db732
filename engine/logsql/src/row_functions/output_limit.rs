//! How much a function of one row may make.

/// Longest value that a pipe may make, in bytes. What makes longer ones stops soon after.
pub const VALUE_LEN_MAX: usize = 8 << 20;
