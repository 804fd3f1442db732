//! Patterns of text and placeholders, as `collapse_nums prettify` makes them: `<IP4> - <N>us`.
//!
//! A placeholder takes what the pipe would have collapsed at its place: the longest run, at borders where a number can
//! begin and end.

use memchr::memmem;
use quiver_types::logs::{is_word_char, word_before};

/// Where a pattern must stand in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPlace {
    /// The pattern may match any part of a value.
    Any,
    /// It is the whole value.
    Full,
    /// At the beginning.
    Prefix,
    /// At the end.
    Suffix,
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Text(String),
    /// `<N>`: a decimal number, or hex digits of an even count of at least 4.
    Number,
    /// `<UUID>`: five numbers with `-` between, such as `2edfed59-3e98-4073-bbb2-28d321ca71a7`.
    Uuid,
    /// `<IP4>`: four numbers with `.` between, such as `10.0.0.1`.
    Ip4,
    /// `<TIME>`: `15:21:02`, with a fraction.
    Time,
    /// `<DATE>`: `2024-12-08`, `2024/12/08`.
    Date,
    /// `<DATETIME>`: a date and a time, with a zone.
    DateTime,
    /// `<W>`: a word, or a text in quotes.
    Word,
}

/// A pattern taken apart: texts, and placeholders such as `<N>` between them.
#[derive(Debug, Clone)]
pub struct Pattern {
    pieces: Vec<Piece>,
}

const PLACEHOLDERS: [(&str, Piece); 7] = [
    ("<N>", Piece::Number),
    ("<UUID>", Piece::Uuid),
    ("<IP4>", Piece::Ip4),
    ("<TIME>", Piece::Time),
    ("<DATE>", Piece::Date),
    ("<DATETIME>", Piece::DateTime),
    ("<W>", Piece::Word),
];

impl Pattern {
    /// Reads a pattern. Every text is one; what is no placeholder is text.
    pub fn new(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some((name, piece)) = PLACEHOLDERS.iter().find(|(name, _)| rest.starts_with(name)) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(piece.clone());
                rest = &rest[name.len()..];
            } else {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Self { pieces }
    }

    /// Its pieces; two texts are never neighbours.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Says whether a value holds the pattern at the place.
    pub fn matches(&self, value: &str, place: PatternPlace) -> bool {
        match place {
            PatternPlace::Full => self.end_at(value, 0) == Some(value.len()),
            PatternPlace::Prefix => self.end_at(value, 0).is_some(),
            PatternPlace::Any => self.any(value, |_| true),
            PatternPlace::Suffix => self.any(value, |end| end == value.len()),
        }
    }

    /// Whether the pattern stands anywhere with an end that is wanted.
    fn any(&self, value: &str, wanted: impl Fn(usize) -> bool) -> bool {
        let fits = |at: usize| self.end_at(value, at).is_some_and(&wanted);
        match self.pieces.first() {
            None => wanted(value.len()),
            Some(Piece::Text(text)) => places(value, text).any(fits),
            // A pattern that may stand anywhere begins with words and not with quotes, as in the reference. What begins
            // inside of a word ends as what begins with that word.
            Some(Piece::Word) => {
                value.char_indices().any(|(at, c)| is_word_char(c) && !word_before(value, at) && fits(at))
            }
            Some(_) => value.char_indices().any(|(at, c)| is_word_char(c) && number_may_begin(value, at) && fits(at)),
        }
    }

    /// The end of the pattern that begins at a place.
    fn end_at(&self, value: &str, start: usize) -> Option<usize> {
        self.pieces.iter().try_fold(start, |at, piece| match piece {
            Piece::Text(text) => value[at..].starts_with(text.as_str()).then_some(at + text.len()),
            Piece::Number => number(value, at),
            Piece::Uuid => uuid(value, at),
            Piece::Ip4 => joined_numbers(value, at, b'.', 4),
            Piece::Time => time(value, at),
            Piece::Date => date(value, at),
            Piece::DateTime => date_time(value, at),
            Piece::Word => word(value, at),
        })
    }
}

/// All places of a text, also those that overlap.
fn places<'a>(value: &'a str, text: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + memmem::find(value.as_bytes().get(from..)?, text.as_bytes())?;
        from = at + 1;
        Some(at)
    })
}

/// Whether a number may begin at a place. Asked where a pattern begins with one; behind a text of the pattern it is the
/// pattern that says where the number begins: `foo<N>` is in `foo108`.
fn number_may_begin(value: &str, at: usize) -> bool {
    value[..at].chars().next_back().is_none_or(number_may_follow)
}

/// Whether a number may begin right after a character: at a border, and after letters such as those of `v2`. Letters
/// beyond ASCII are borders of numbers, unlike those of words.
pub(crate) fn number_may_follow(c: char) -> bool {
    !c.is_ascii_alphanumeric() || matches!(c, 'T' | 'X' | 'x' | 'v' | 's' | 'h' | 'm')
}

/// Whether digits are a number: decimal ones, or hex ones that are even in count and at least 4. Behind them is a border,
/// a unit, or what stands in times; behind letters alone it must be a border, since `default` begins with no number.
pub(crate) fn is_number(digits: &[u8], after: Option<char>) -> bool {
    let decimal = digits.iter().filter(|b| b.is_ascii_digit()).count();
    let may_follow = |c: char| {
        if decimal == 0 {
            return !is_word_char(c);
        }
        !c.is_ascii_alphanumeric() || matches!(c, 'T' | 'Z' | 's' | 'm' | 'h' | 'u' | 'n')
    };
    let enough = decimal == digits.len() || (digits.len() >= 4 && digits.len().is_multiple_of(2));
    enough && after.is_none_or(may_follow)
}

/// The end of the number that begins at a place.
fn number(value: &str, at: usize) -> Option<usize> {
    let digits = value.as_bytes()[at..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let end = at + digits;
    let after = value[end..].chars().next();
    (digits > 0 && is_number(&value.as_bytes()[at..end], after)).then_some(end)
}

/// Some numbers with a separator between them.
fn joined_numbers(value: &str, at: usize, separator: u8, count: usize) -> Option<usize> {
    let mut end = number(value, at)?;
    for _ in 1..count {
        if value.as_bytes().get(end) != Some(&separator) {
            return None;
        }
        end = number(value, end + 1)?;
    }
    Some(end)
}

fn uuid(value: &str, at: usize) -> Option<usize> {
    joined_numbers(value, at, b'-', 5)
}

fn date(value: &str, at: usize) -> Option<usize> {
    joined_numbers(value, at, b'-', 3).or_else(|| joined_numbers(value, at, b'/', 3))
}

fn time(value: &str, at: usize) -> Option<usize> {
    let end = joined_numbers(value, at, b':', 3)?;
    match value.as_bytes().get(end) {
        Some(b'.' | b',') => Some(number(value, end + 1).unwrap_or(end)),
        _ => Some(end),
    }
}

fn date_time(value: &str, at: usize) -> Option<usize> {
    let end = date(value, at)?;
    if !matches!(value.as_bytes().get(end), Some(b'T' | b' ')) {
        return None;
    }
    let end = time(value, end + 1)?;
    match value.as_bytes().get(end) {
        Some(b'Z') => Some(end + 1),
        Some(b'+' | b'-') => Some(joined_numbers(value, end + 1, b':', 2).unwrap_or(end)),
        _ => Some(end),
    }
}

/// Longest text in quotes, in bytes: texts without an end would be read again from each of their quotes.
const QUOTED_MAX: usize = 4096;

/// Longest rest of a word that a text of the pattern began, in characters: it would be read again from each such place.
const REST_MAX: usize = 256;

/// A word, or a text in quotes. As in the reference, it may be empty before what is no word, but not at the end.
fn word(value: &str, at: usize) -> Option<usize> {
    let rest = &value[at..];
    if rest.is_empty() {
        return None;
    }
    if let Some(quote @ (b'"' | b'\'' | b'`')) = rest.as_bytes().first() {
        let mut escaped = false;
        for (i, b) in rest.bytes().enumerate().take(QUOTED_MAX).skip(1) {
            if escaped {
                escaped = false;
            } else if b == b'\\' && *quote != b'`' {
                escaped = true;
            } else if b == *quote {
                return Some(at + i + 1);
            }
        }
        return None;
    }
    let most = if word_before(value, at) { REST_MAX } else { usize::MAX };
    let length: usize = rest.chars().take_while(|c| is_word_char(*c)).take(most).map(char::len_utf8).sum();
    Some(at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        use PatternPlace::{Any, Full, Prefix, Suffix};

        let check = |pattern: &str, place: PatternPlace, value: &str, want: bool| {
            assert_eq!(Pattern::new(pattern).matches(value, place), want, "{pattern} {place:?} {value}");
        };
        check("<N>us", Any, "took 123us", true);
        check("<N>us", Any, "took 1 us", false);
        check("<N>", Full, "123", true);
        check("<N>", Full, "deadbeef", true);
        check("<N>", Full, "abc", false);
        check("<N>", Full, "", false);
        check("<IP4> - - ", Any, "x 1.2.3.4 - - y", true);
        check("<IP4> - - \"GET ", Prefix, "1.2.3.4 - - \"GET /", true);
        check("<IP4> - - \"GET ", Prefix, " 1.2.3.4 - - \"GET /", false);
        check(" <N>us", Suffix, "a 1us b 22us", true);
        check(" <N>us", Suffix, "a 1us b 22us ", false);
        check("<DATE> <TIME> INFO", Any, "2024-12-08 15:22:32,123 INFO x", true);
        check("<DATETIME> err", Prefix, "2024-12-08T15:22:32.342Z err", true);
        check("<DATETIME> err", Prefix, "2024-12-08 15:22:32+10:30 err", true);
        check("id=<UUID>;", Any, "id=2edfed59-3e98-4073-bbb2-28d321ca71a7;", true);
        check("user <W> in", Any, "a user \"x \\\" y\" in", true);
        check("user <W> in", Any, "a user bob in", true);
        check("user <W> in", Any, "a user  in", true);
        check("user <W>", Any, "a user ", false);
        check("<W> in", Any, " in", false);
        check("<W> in", Prefix, " in", true);
        check("<W> in", Any, "\"a b\" in", false);
        check("<W> in", Prefix, "\"a b\" in", true);
        check("u<W>", Full, "user", true);
        check("id_<N>é", Any, "id_12é", true);
        check("foo<N>", Any, "a foo108 b", true);
        check("foo<N>", Full, "foo108", true);
        check("foo<N>", Any, "foobar", false);
        check("xx<N>", Any, "xxxxxx123", true);
        check("xx<N>", Full, "xxxxxx123", false);
        check("<N>us", Any, "g12us", false);
        check("plain", Any, "a plainer one", true);
        check("plain", Full, "plain", true);
        check("", Any, "x", true);
        check("<X>", Full, "<X>", true);
    }

    fn full(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern = Pattern::new(pattern);
        for value in yes {
            assert!(pattern.matches(value, PatternPlace::Full), "{pattern:?} is not {value}");
        }
        for value in no {
            assert!(!pattern.matches(value, PatternPlace::Full), "{pattern:?} is {value}");
        }
    }

    #[test]
    fn placeholders() {
        full(
            "<N>",
            &["0", "007", "12", "abcd", "ABCD", "12ab", "deadbeef"],
            &["abc", "abcde", "1a", "1.5", "-1", "1 ", "x"],
        );
        full("<IP4>", &["1.2.3.4", "999.1.1.1", "abcd.1.2.3"], &["1.2.3", "1.2.3.4.5", "1.2.3.", "1,2,3,4"]);
        full(
            "<UUID>",
            &["1-2-3-4-5", "2edfed59-3e98-4073-bbb2-28d321ca71a7"],
            &["1-2-3-4", "1-2-3-4-5-6", "1-2-3-4-x"],
        );
        full(
            "<TIME>",
            &["15:21:02", "1:2:3", "15:21:02.748877", "15:21:02,7"],
            &["15:21", "15:21:02.", "15:21:02.x", "1:2:3:4"],
        );
        full("<DATE>", &["2024-12-08", "2024/12/08"], &["2024-12/08", "2024-12", "2024.12.08"]);
        full(
            "<DATETIME>",
            &[
                "2024-12-08T15:22:32Z",
                "2024-12-08 15:22:32",
                "2024/12/08T15:22:32.5+01:00",
                "2024-12-08T15:22:32,5-01:30",
            ],
            &["2024-12-08T15:22", "2024-12-08_15:22:32", "2024-12-08t15:22:32", "2024-12-08T15:22:32+01", "2024-12-08"],
        );
        full(
            "<W>",
            &["user", "größe_1", "\"a b\"", "'a \\' b'", "`a\\`", "\"\""],
            &["", "-", "a b", "\"a", "\"a\\\"", "'a\"", "a-b"],
        );
        full("<W>=<N>;", &["abc=12;", "\"a=b\"=1;", "=12;"], &["abc=x;", "abc=12", "-=12;"]);
        // A run is taken as a whole: nothing is left of it for a second placeholder, or for a text.
        full("<N><N>", &[], &["12", "1234"]);
        full("a<N>b", &[], &["a1b"]);
        full("a<N>s", &["a1s"], &["a1"]);
        // What ends behind a time is left for the text.
        full("<TIME>.", &["15:21:02.", "15:21:02.5."], &["15:21:02"]);
        full("<DATETIME>+", &["2024-12-08T15:22:32+"], &["2024-12-08T15:22:32+01:00"]);
        full("<n>< N><N", &["<n>< N><N"], &["1"]);
    }

    #[test]
    fn numbers_have_borders() {
        let any = Pattern::new("<N>");
        for value in
            ["12", "v12", "12s", "é12", "12é", "_12", "12_", "(12)", "0x12", "T12Z", "a 12", "dead-letter", "12ab_x"]
        {
            assert!(any.matches(value, PatternPlace::Any), "{value}");
        }
        for value in ["", "a12", "12x", "g12", "x", "12a", "1a2b3", "default", "dead_letter", "abacus", "faceé"] {
            assert!(!any.matches(value, PatternPlace::Any), "{value}");
        }
        assert!(any.matches("a 1 b 2", PatternPlace::Suffix) && !any.matches("1 b", PatternPlace::Suffix));
        assert!(any.matches("12s", PatternPlace::Prefix) && !any.matches(" 12", PatternPlace::Prefix));
    }

    #[test]
    fn words_are_looked_at_as_far_as_is_bearable() {
        let quoted = |length: usize| format!("\"{}\"", "a".repeat(length - 2));
        full("<W>", &[&quoted(QUOTED_MAX)], &[&quoted(QUOTED_MAX + 1)]);
        // A word has no bound, the rest of one has.
        full("<W>", &[&"ä".repeat(REST_MAX * 4)], &[]);
        full("x<W>", &[&format!("x{}", "ä".repeat(REST_MAX))], &[&format!("x{}", "ä".repeat(REST_MAX + 1))]);
    }
}
