//! Names and values as they stand in statements of SQL.

/// A name, read as it is, capitals and all.
pub fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal.
pub fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A moment, of Unix nanoseconds.
pub fn time(ns: i64) -> String {
    format!("arrow_cast(CAST({ns} AS BIGINT), 'Timestamp(Nanosecond, Some(\"UTC\"))')")
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments_may_lie_before_1970() {
        assert_eq!(super::time(-5), r#"arrow_cast(CAST(-5 AS BIGINT), 'Timestamp(Nanosecond, Some("UTC"))')"#);
    }

    #[test]
    fn quotes_within_are_doubled() {
        assert_eq!(super::name("a\"b'c"), "\"a\"\"b'c\"");
        assert_eq!(super::text("a\"b'c"), "'a\"b''c'");
    }
}
