//! `coalesce(a, b) [default v]`.

/// Gives the first value that is not empty, else the default.
pub fn coalesce<'a>(values: impl IntoIterator<Item = &'a str>, default: &'a str) -> &'a str {
    values.into_iter().find(|v| !v.is_empty()).unwrap_or(default)
}
