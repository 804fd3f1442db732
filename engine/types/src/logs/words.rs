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
    Words { text, begin: 0, end: 0, bits: 0 }
}

/// Bytes that are looked at together.
const BLOCK: usize = 64;

/// See [`words`]. Goes from block to block of the text, and knows of each byte of a block whether it belongs to a word.
#[derive(Debug, Clone)]
pub struct Words<'a> {
    text: &'a str,
    /// The block at hand.
    begin: usize,
    end: usize,
    /// The bytes of words in it that were not given yet, the first in the lowest bit.
    bits: u64,
}

impl Words<'_> {
    /// Goes on to the next block; there is one.
    #[inline]
    fn advance(&mut self) {
        self.begin = self.end;
        let rest = &self.text.as_bytes()[self.begin..];
        if let Some(block) = rest.first_chunk::<BLOCK>() {
            self.end = self.begin + BLOCK;
            match ascii_words(block) {
                Some(bits) => self.bits = bits,
                None => self.advance_by_characters(),
            }
        } else {
            self.end = self.text.len();
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            match ascii_words(&block) {
                Some(bits) => self.bits = bits,
                None => self.advance_by_characters(),
            }
        }
    }

    /// Looks at a block with characters of several bytes; it ends before one that does not fit.
    #[cold]
    fn advance_by_characters(&mut self) {
        while !self.text.is_char_boundary(self.end) {
            self.end -= 1;
        }
        self.bits = 0;
        for (at, c) in self.text[self.begin..self.end].char_indices().filter(|(_, c)| is_word_char(*c)) {
            self.bits |= ((1 << c.len_utf8()) - 1) << at;
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        while self.bits == 0 {
            if self.end == self.text.len() {
                return None;
            }
            self.advance();
        }
        let first = self.bits.trailing_zeros();
        let start = self.begin + first as usize;
        let mut after = first + (!(self.bits >> first)).trailing_zeros();
        // A word that reaches the end of its block may go on in the next.
        while self.begin + after as usize == self.end {
            self.bits = 0;
            if self.end == self.text.len() {
                return Some(&self.text[start..]);
            }
            self.advance();
            after = (!self.bits).trailing_zeros();
        }
        self.bits &= u64::MAX << after;
        Some(&self.text[start..self.begin + after as usize])
    }
}

/// One bit for each byte of a word, the first in the lowest; `None` when a byte is not ASCII. The loops become vector
/// instructions.
#[inline]
fn ascii_words(block: &[u8; BLOCK]) -> Option<u64> {
    if !block.is_ascii() {
        return None;
    }
    let of_word = block.map(|b| {
        let (letter, digit) = ((b | 0x20).wrapping_sub(b'a') < 26, b.wrapping_sub(b'0') < 10);
        u8::from(letter) | u8::from(digit) | u8::from(b == b'_')
    });
    let (eights, _) = of_word.as_chunks::<8>();
    // Each product has the lowest bits of eight bytes side by side on top.
    let bits = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    Some(eights.iter().enumerate().fold(0, |all, (at, eight)| all | bits(eight) << (8 * at)))
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
    fn cut_wherever_blocks_end() {
        let plain = |text: &str| -> Vec<String> {
            text.split(|c| !is_word_char(c)).filter(|w| !w.is_empty()).map(str::to_owned).collect()
        };
        let mut random = 1u64;
        for round in 0..4000 {
            let mut text = String::new();
            for _ in 0..round % 300 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let of =
                    if round % 3 == 0 { ["a", "Z", "0", "_", " ", "@", "é", "→", "日", "𝒳"] } else { ["a"; 10] };
                // Long words, words of one letter, and none.
                text.push_str(if random >> 40 & 63 < round as u64 % 64 {
                    "-"
                } else {
                    of[(random >> 33) as usize % 10]
                });
            }
            assert_eq!(words(&text).collect::<Vec<_>>(), plain(&text), "{text}");
        }
        for c in (0..=0x7f).map(char::from) {
            assert_eq!(words(&c.to_string()).count() == 1, is_word_char(c), "{c:?}");
        }
    }

    #[test]
    fn borders() {
        let text = "aб, c";
        assert!(word_before(text, 3) && !word_at(text, 3) && word_at(text, 1));
        assert!(!word_before(text, 0) && !word_at(text, text.len()) && word_before(text, text.len()));
    }
}
