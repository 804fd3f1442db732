//! Quoted names and string literals of SQL.

/// A name, read as it is, capitals and all.
pub fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal.
pub fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_within_are_doubled() {
        assert_eq!(super::name("a\"b'c"), "\"a\"\"b'c\"");
        assert_eq!(super::text("a\"b'c"), "'a\"b''c'");
    }
}
