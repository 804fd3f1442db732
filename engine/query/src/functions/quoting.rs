//! Texts as parts of statements, as PostgreSQL writes them.

use super::keywords::is_reserved;
use super::text_functions::Texts;
use crate::quoting;

/// A name: in quotes, unless it is one without. Words of the language need them, though some are names here and there.
pub(super) fn quote_ident(args: &Texts<'_>) -> Option<String> {
    let name = (*args.first()?)?;
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain = first && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '$'));
    Some(if plain && !is_reserved(name) { name.to_owned() } else { quoting::name(name) })
}

/// A text in single quotes; one with a backslash says that these are doubled, whatever is read with or without them.
pub(super) fn quote_literal(args: &Texts<'_>) -> Option<String> {
    let text = (*args.first()?)?.replace('\'', "''");
    Some(if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") })
}

#[cfg(test)]
mod tests {
    use super::super::testing::draws;
    use super::*;

    #[test]
    fn quotes() {
        let ident = |name| quote_ident(&[Some(name)]).unwrap();
        assert_eq!(
            (ident("spans"), ident("a.b"), ident("a\"b")),
            ("spans".into(), "\"a.b\"".into(), "\"a\"\"b\"".into())
        );
        for (word, expected) in [
            ("select", "\"select\""),
            ("user", "\"user\""),
            ("time", "\"time\""),
            ("left", "\"left\""),
            ("name", "name"),
            ("selected", "selected"),
        ] {
            assert_eq!(ident(word), expected);
        }
        assert_eq!(quote_literal(&[Some("it's")]).unwrap(), "'it''s'");
        assert_eq!(quote_literal(&[Some(r"it's a\b")]).unwrap(), r"E'it''s a\\b'");
        assert_eq!(quote_ident(&[None]), None);
    }

    /// Breaks if a quoted text is read as another one, whatever it contains.
    #[test]
    fn quoted_texts_read_back() {
        let mut draw = draws(181);
        for _ in 0..500 {
            let letters = ["a", "B", "_", "1", "$", "'", "\"", "\\", " ", "ä", "\n", "."];
            let text: String = (0..=draw(6)).map(|_| letters[draw(letters.len())]).collect();
            let name = quote_ident(&[Some(&text)]).unwrap();
            match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
                Some(inner) => assert_eq!(inner.replace("\"\"", "\""), text, "{name}"),
                None => assert_eq!(name, text),
            }
            // Without quotes a name is one of small letters, as those are read that have none.
            assert!(
                name.starts_with('"') || name.bytes().all(|b| b"abcdefghijklmnopqrstuvwxyz_0123456789$".contains(&b))
            );
            assert!(name.starts_with('"') || !name.starts_with(|c: char| c.is_ascii_digit() || c == '$'), "{name}");
            let literal = quote_literal(&[Some(&text)]).unwrap();
            let inner =
                literal.trim_start_matches('E').strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap();
            let read = inner.replace("''", "'");
            assert_eq!(if literal.starts_with('E') { read.replace("\\\\", "\\") } else { read }, text, "{literal}");
            assert_eq!(literal.starts_with('E'), text.contains('\\'), "{literal}");
        }
    }
}
