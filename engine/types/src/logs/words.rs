//! Words: what full-text filters look for and what token indexes hold.
//!
//! A word is a maximal run of letters, digits and `_`; "letter" and "digit" are the Unicode categories `L` and `Nd`.
//! Both sides must cut alike, or an index would drop rows that a filter wants: nobody else defines words.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// One bit for each code point.
static WORD_CHARS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut bits = vec![0u64; 0x11_0000 / 64];
    let hir = regex_syntax::parse(r"[\p{L}\p{Nd}_]").expect("a fixed expression");
    if let HirKind::Class(Class::Unicode(class)) = hir.kind() {
        for range in class.ranges() {
            for c in range.start() as usize..=range.end() as usize {
                bits[c / 64] |= 1 << (c % 64);
            }
        }
    }
    bits
});

const ASCII: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 128 {
        let c = b as u8;
        table[b] = c.is_ascii_alphanumeric() || c == b'_';
        b += 1;
    }
    table
};

/// Says whether a character belongs to words.
#[inline]
pub fn is_word_char(c: char) -> bool {
    if c.is_ascii() { ASCII[c as usize] } else { WORD_CHARS[c as usize / 64] & (1 << (c as usize % 64)) != 0 }
}

/// Says whether the character that ends right before a byte position belongs to words. False at the beginning.
#[inline]
pub fn word_before(text: &str, position: usize) -> bool {
    match text.as_bytes()[..position].last() {
        None => false,
        Some(&b) if b.is_ascii() => ASCII[b as usize],
        Some(_) => text[..position].chars().next_back().is_some_and(is_word_char),
    }
}

/// Says whether the character at a byte position belongs to words. False at the end.
#[inline]
pub fn word_at(text: &str, position: usize) -> bool {
    match text.as_bytes().get(position) {
        None => false,
        Some(&b) if b.is_ascii() => ASCII[b as usize],
        Some(_) => text[position..].chars().next().is_some_and(is_word_char),
    }
}

/// Gives the words of a text in their order, also those that occur more than once.
pub fn words(text: &str) -> Words<'_> {
    Words { text, position: 0 }
}

/// See [`words`].
#[derive(Debug, Clone)]
pub struct Words<'a> {
    text: &'a str,
    position: usize,
}

impl Words<'_> {
    /// The end of the run that begins at `start` and whose characters are word characters or not, as asked.
    #[inline]
    fn run(&self, start: usize, in_word: bool) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = start;
        while let Some(&b) = bytes.get(at) {
            if b.is_ascii() {
                if ASCII[b as usize] != in_word {
                    break;
                }
                at += 1;
            } else {
                match self.text[at..].chars().next() {
                    Some(c) if is_word_char(c) == in_word => at += c.len_utf8(),
                    _ => break,
                }
            }
        }
        at
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let start = self.run(self.position, false);
        let end = self.run(start, true);
        self.position = end;
        (start < end).then(|| &self.text[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_texts() {
        let check = |text: &str, want: &[&str]| assert_eq!(words(text).collect::<Vec<_>>(), want, "{text}");
        check("", &[]);
        check("foo", &["foo"]);
        check("foo-bar a_b", &["foo", "bar", "a_b"]);
        check("foo bar---.!!([baz]!!! %$# TaSte", &["foo", "bar", "baz", "TaSte"]);
        check("теСТ 1234 f12.34", &["теСТ", "1234", "f12", "34"]);
        check("раз два (три!)", &["раз", "два", "три"]);
        // Category So, Nl and Mn separate; Nd of other scripts does not.
        check("a→b x\u{2160}y e\u{301}t ١٢", &["a", "b", "x", "y", "e", "t", "١٢"]);
    }

    #[test]
    fn borders() {
        let text = "aб, c";
        assert!(word_before(text, 3) && !word_at(text, 3) && word_at(text, 1));
        assert!(!word_before(text, 0) && !word_at(text, text.len()) && word_before(text, text.len()));
    }
}
