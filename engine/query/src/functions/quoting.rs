//! Texts as parts of statements, as PostgreSQL writes them.

use super::texts::Texts;

/// A name: in quotes, unless it is one without.
pub(super) fn quote_ident(args: &Texts<'_>) -> Option<String> {
    let name = (*args.first()?)?;
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain = first && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '$'));
    Some(if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) })
}

/// A text in single quotes; one with a backslash says that these are doubled, whatever is read with or without them.
pub(super) fn quote_literal(args: &Texts<'_>) -> Option<String> {
    let text = (*args.first()?)?.replace('\'', "''");
    Some(if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes() {
        let ident = |name| quote_ident(&[Some(name)]).unwrap();
        assert_eq!(
            (ident("spans"), ident("a.b"), ident("a\"b")),
            ("spans".into(), "\"a.b\"".into(), "\"a\"\"b\"".into())
        );
        assert_eq!(quote_literal(&[Some("it's")]).unwrap(), "'it''s'");
        assert_eq!(quote_literal(&[Some(r"it's a\b")]).unwrap(), r"E'it''s a\\b'");
        assert_eq!(quote_ident(&[None]), None);
    }
}
