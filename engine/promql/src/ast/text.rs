//! Quoted texts: escapes of bytes (`"\xff"`) may make them something other than UTF-8, which can name no label.

use crate::lexer::quote::{quote, quote_bytes};

/// What a quoted text stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text {
    shown: String,
    /// The very bytes, where they are no UTF-8.
    broken: Option<Vec<u8>>,
}

impl Text {
    /// Takes the bytes of a text.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(shown) => Self { shown, broken: None },
            Err(e) => Self { shown: replace_broken(e.as_bytes()), broken: Some(e.into_bytes()) },
        }
    }

    /// The text as JSON can represent it, with U+FFFD for each byte that is not valid UTF-8.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The text, unless it is no UTF-8.
    pub fn name(&self) -> Option<&str> {
        if self.broken.is_none() { Some(&self.shown) } else { None }
    }

    /// The text in quotes; reading it back gives the same bytes.
    pub(crate) fn quoted(&self) -> String {
        self.broken.as_ref().map_or_else(|| quote(&self.shown), |bytes| quote_bytes(bytes))
    }
}

/// The text with U+FFFD for each byte that is not valid UTF-8.
fn replace_broken(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_or_not() {
        let check = |bytes: &[u8], shown: &str, quoted: &str, name: bool| {
            let text = Text::new(bytes.to_vec());
            assert_eq!((text.shown(), text.quoted().as_str(), text.name().is_some()), (shown, quoted, name));
        };
        check("aü".as_bytes(), "aü", "\"aü\"", true);
        check(b"a\xc5z\xff", "a\u{fffd}z\u{fffd}", "\"a\\xc5z\\xff\"", false);
        check("\u{fffd}".as_bytes(), "\u{fffd}", "\"\\ufffd\"", true);
        assert_eq!(replace_broken(b"a\xf0\x9f\x98z\xc3"), "a\u{fffd}\u{fffd}\u{fffd}z\u{fffd}");
    }
}
