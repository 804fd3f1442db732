//! Shortens error messages. They quote what was sent, and a query can build a value as large as its memory from a few
//! characters. Each escaped copy of such a value would take memory that no budget counts, and nobody reads it.

use std::fmt::{self, Display, Write};

/// Longest text that stays whole, in bytes.
const WHOLE_MAX: usize = 4 << 10;
/// How many bytes stay of the beginning of a longer text, and of its end, which often says what is wrong.
const BEGINNING: usize = 512;
const END: usize = 256;
/// Stands for what is left out.
const GAP: &str = " … ";

/// Writes a value as a text for people: whole, or, above 4 KiB, its beginning and its end. Of a longer text no more is held
/// while it is written.
pub fn brief(said: impl Display) -> String {
    let mut text = BriefText::default();
    // What fails to be written has been written up to there.
    let _ = write!(text, "{said}");
    text.finish()
}

/// Like [`brief`], for a text that is there: one that stays whole is not copied.
pub fn brief_text(text: String) -> String {
    if text.len() <= WHOLE_MAX { text } else { brief(&text) }
}

/// A text of which the middle may be left out.
#[derive(Debug, Default)]
struct BriefText {
    /// The first `WHOLE_MAX` bytes, up to where a character ends.
    beginning: String,
    /// The last `END` bytes of what follows them, from where a character begins.
    end: String,
}

/// The longest end of a text that has at most so many bytes.
fn end_of(text: &str, bytes_max: usize) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    text.get(from..).unwrap_or_default()
}

impl Write for BriefText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.end.is_empty() { WHOLE_MAX - self.beginning.len() } else { 0 };
        let (kept, rest) = text.split_at(text.floor_char_boundary(room));
        self.beginning.push_str(kept);
        self.end.push_str(end_of(rest, END));
        let passed = self.end.len() - end_of(&self.end, END).len();
        self.end.drain(..passed);
        Ok(())
    }
}

impl BriefText {
    fn finish(mut self) -> String {
        if self.end.is_empty() {
            return self.beginning;
        }
        let before = end_of(&self.beginning, END - self.end.len());
        let end = [GAP, before, &self.end].concat();
        self.beginning.truncate(self.beginning.floor_char_boundary(BEGINNING));
        self.beginning + &end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        let short = "a".repeat(WHOLE_MAX);
        assert_eq!((brief(&short), brief_text(short.clone())), (short.clone(), short.clone()));
        let long = format!("cannot read `{}` at line 1", "z".repeat(10_000));
        let cut = brief_text(long.clone());
        assert_eq!(cut.len(), BEGINNING + GAP.len() + END);
        assert!(cut.starts_with("cannot read `zzz") && cut.ends_with("zzz` at line 1") && cut.contains(GAP), "{cut}");
        assert_eq!((brief(&long), brief_text(cut.clone())), (cut.clone(), cut));
        // One byte more than stays: what is left out is the middle, and the end is as long as ever.
        let just = brief(format!("{short}b"));
        assert_eq!(just, ["a".repeat(BEGINNING).as_str(), GAP, &"a".repeat(END - 1), "b"].concat());
    }

    #[test]
    fn pieces_make_the_same_text_as_a_whole() {
        let letters: String = (0..9_000_u32).filter_map(|i| char::from_u32(0x3b1 + i % 24)).collect();
        let whole = brief(&letters);
        for piece in [1, 2, 7, 300, 5_000] {
            let chars: Vec<char> = letters.chars().collect();
            let mut text = BriefText::default();
            for part in chars.chunks(piece) {
                write!(text, "{}", part.iter().collect::<String>()).expect("nothing fails");
            }
            assert_eq!(text.finish(), whole, "{piece}");
        }
        // Characters of several bytes are left out as wholes.
        let odd = brief(format!("x{letters}"));
        assert!(odd.len() <= BEGINNING + GAP.len() + END && odd.starts_with("xα"), "{odd}");
    }

    #[test]
    fn what_is_long_is_not_held() {
        struct Endless;
        impl Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (0..100_000).try_for_each(|_| f.write_str("0123456789"))
            }
        }
        let mut text = BriefText::default();
        write!(text, "{Endless}").expect("nothing fails");
        assert!(text.beginning.capacity() <= 2 * WHOLE_MAX && text.end.capacity() <= 4 * END, "{text:?}");
        assert!(text.finish().ends_with("0123456789"));
    }
}
