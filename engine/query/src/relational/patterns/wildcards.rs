//! Matches `LIKE` patterns without regular expressions; matching stops when its query ends.

use quiver_types::cancellation;

/// Steps between two checks whether the query goes on.
const STEPS: usize = 1 << 16;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wildcards {
    pieces: Vec<Piece>,
    folds: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// `%`: any number of characters, none included.
    Many,
    /// `_`: exactly one character.
    One,
    Char(char),
}

impl Wildcards {
    /// Parses a pattern; a backslash escapes the next character. `folds`: ignores case (`ILIKE`).
    pub(super) fn new(pattern: &str, folds: bool) -> Self {
        let mut pieces = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let piece = match c {
                '%' => Piece::Many,
                '_' => Piece::One,
                '\\' => Piece::Char(chars.next().unwrap_or(c)),
                c => Piece::Char(c),
            };
            if piece != Piece::Many || pieces.last() != Some(&Piece::Many) {
                pieces.push(piece);
            }
        }
        Self { pieces, folds }
    }

    /// The number of `%` in the pattern.
    pub(super) fn gaps(&self) -> usize {
        self.pieces.iter().filter(|piece| **piece == Piece::Many).count()
    }

    fn fits(&self, piece: Piece, c: char) -> bool {
        match piece {
            Piece::Many => false,
            Piece::One => true,
            Piece::Char(wanted) => wanted == c || (self.folds && in_any_case(wanted, c)),
        }
    }

    /// Whether a text matches; `None` if the query has ended.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        let (mut at, mut piece, mut steps) = (0, 0, 0usize);
        // The position behind the last `%` and where matching was last tried there: no backtracking beyond that is
        // needed.
        let mut last: Option<(usize, usize)> = None;
        loop {
            steps += 1;
            if steps.is_multiple_of(STEPS) && !cancellation::goes_on(STEPS * 8) {
                return None;
            }
            let next = text[at..].chars().next();
            match (self.pieces.get(piece), next) {
                (Some(Piece::Many), _) => {
                    piece += 1;
                    if piece == self.pieces.len() {
                        return Some(true);
                    }
                    last = Some((piece, at));
                    continue;
                }
                (Some(wanted), Some(c)) if self.fits(*wanted, c) => {
                    piece += 1;
                    at += c.len_utf8();
                    continue;
                }
                (None, None) => return Some(true),
                // Later positions leave even less text.
                (Some(_), None) => return Some(false),
                _ => {}
            }
            let Some((behind, from)) = last else { return Some(false) };
            let from = from + text[from..].chars().next().map_or(1, char::len_utf8);
            last = Some((behind, from));
            (piece, at) = (behind, from);
        }
    }
}

fn in_any_case(a: char, b: char) -> bool {
    a.to_lowercase().eq(b.to_lowercase()) || a.to_uppercase().eq(b.to_uppercase())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn patterns() {
        let check = |text: &str, pattern: &str, expected: bool| {
            assert_eq!(Wildcards::new(pattern, false).matches(text), Some(expected), "{text} {pattern}");
        };
        for (pattern, expected) in [
            ("abc", true),
            ("ab", false),
            ("a%", true),
            ("%c", true),
            ("%b%", true),
            ("a_c", true),
            ("a__c", false),
            ("%%", true),
            ("", false),
            ("%a%b%c%", true),
            ("%c%b%", false),
            ("_%_", true),
            ("____", false),
            ("abc%", true),
            ("%abcd", false),
        ] {
            check("abc", pattern, expected);
        }
        check("", "", true);
        check("", "%", true);
        check("", "_", false);
        check("aab", "%ab", true);
        check("abab", "%ab", true);
        check("äöü", "_ö_", true);
        check("äöü", "%ü", true);
        check("10%", "10\\%", true);
        check("100", "10\\%", false);
        check("a\\", "a\\", true);
        check("a\nb", "a%b", true);
        assert_eq!(Wildcards::new("%ÄPFEL%", true).matches("viele Äpfel"), Some(true));
        assert_eq!(Wildcards::new("%ÄPFEL%", false).matches("viele Äpfel"), Some(false));
    }

    #[test]
    fn as_a_regular_expression_says() {
        let mut seed = 7u64;
        let mut next = move |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % n
        };
        for _ in 0..20_000 {
            let text: String = (0..next(9)).map(|_| ['a', 'b', 'ä'][next(3)]).collect();
            let pattern: String = (0..next(8)).map(|_| ['a', 'b', 'ä', '%', '%', '_'][next(6)]).collect();
            let regex = format!("(?s)^{}$", pattern.replace('%', ".*").replace('_', "."));
            let expected = regex::Regex::new(&regex).expect("valid").is_match(&text);
            assert_eq!(Wildcards::new(&pattern, false).matches(&text), Some(expected), "{text} {pattern}");
        }
    }

    #[test]
    fn many_gaps_are_quick() {
        let (text, pattern) = ("a".repeat(1 << 20), "%a".repeat(5000) + "b");
        // The machine may be busy in one of the attempts.
        let is_quick = (0..4).any(|_| {
            let began = Instant::now();
            assert_eq!(Wildcards::new(&pattern, false).matches(&text), Some(false));
            began.elapsed() < Duration::from_secs(5)
        });
        assert!(is_quick, "it takes more than 5 s");
    }
}
