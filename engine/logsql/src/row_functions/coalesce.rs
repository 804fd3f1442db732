//! `coalesce(a, b) [default v]`.

/// Gives the first value that is not empty, else the default.
pub fn coalesce<'a>(values: impl IntoIterator<Item = &'a str>, default: &'a str) -> &'a str {
    values.into_iter().find(|v| !v.is_empty()).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_not_empty() {
        let cases: [(&[&str], &str); 5] =
            [(&["a", "b"], "a"), (&["", "b", "c"], "b"), (&["", ""], "none"), (&[], "none"), (&[" "], " ")];
        for (values, want) in cases {
            assert_eq!(coalesce(values.iter().copied(), "none"), want, "{values:?}");
        }
    }
}
