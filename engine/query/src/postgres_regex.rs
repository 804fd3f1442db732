//! Translates PostgreSQL's regular expressions to those of the engine. In PostgreSQL `.` and negated brackets (`[^a]`)
//! match the end of a line unless an option says otherwise, options precede the pattern (`(?n)…`, `***=…`), and a
//! bracket within a bracket is a plain character.

use std::iter::Peekable;
use std::str::Chars;

use quiver_types::{Error, ErrorKind, Result};

/// Letters of options that may stand before a pattern.
const LETTERS: &str = "bceimnpqstwx";

/// What the ends of lines are to a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Lines {
    /// Letters as others are.
    #[default]
    Letters,
    /// Neither a dot nor what a bracket leaves out.
    Apart,
    /// Letters, and places of `^` and `$`.
    Ends,
    /// These places alone.
    ApartEnds,
}

impl Lines {
    /// Whether a dot, and what a bracket leaves out, may be the end of a line.
    fn are_letters(self) -> bool {
        matches!(self, Self::Letters | Self::Ends)
    }

    /// Whether `^` and `$` are there at each line.
    fn are_ends(self) -> bool {
        matches!(self, Self::Ends | Self::ApartEnds)
    }
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether case is ignored; `None`: as the caller says.
    folds: Option<bool>,
    /// Whether spaces and comments are left out of it.
    is_spaced: bool,
    /// Whether it is a text, and no pattern.
    is_literal: bool,
    lines: Lines,
    is_global: bool,
}

impl Options {
    /// Those that flags of a call say, of which later ones come before earlier ones.
    ///
    /// # Errors
    /// Invalid: an unknown option. Unsupported: an option for older forms of patterns.
    pub fn of(flags: &str) -> Result<Self> {
        let mut options = Self::default();
        for flag in flags.chars() {
            if flag == 'g' {
                options.is_global = true;
            } else {
                options.add(flag)?;
            }
        }
        Ok(options)
    }

    fn add(&mut self, letter: char) -> Result<()> {
        match letter {
            'i' => self.folds = Some(true),
            'c' => self.folds = Some(false),
            'n' | 'm' => self.lines = Lines::ApartEnds,
            'p' => self.lines = Lines::Apart,
            's' => self.lines = Lines::Letters,
            'w' => self.lines = Lines::Ends,
            'x' => self.is_spaced = true,
            't' => self.is_spaced = false,
            'q' => self.is_literal = true,
            'b' | 'e' => {
                let text = format!("the option `{letter}` of a regular expression, an older form, is not supported");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            other => {
                return Err(Error::invalid(format!(
                    "`{other}` is no flag of a regular expression: there are `g`, `i`, `c`, `n`, `p`, `s`, `w`, `x` and `q`"
                )));
            }
        }
        Ok(())
    }

    /// Whether all places are meant, and not the first one.
    pub fn is_global(self) -> bool {
        self.is_global
    }

    /// Whether it is a text that is looked for, and no pattern.
    pub fn is_literal(self) -> bool {
        self.is_literal
    }

    /// Takes out what a flag says about the case of letters: whether that is any.
    pub fn take_folds(&mut self) -> bool {
        self.folds.take() == Some(true)
    }

    /// Flags of the engine's patterns that say the same of a pattern that is not known; none: it has to be written otherwise.
    pub fn flags(self) -> Option<String> {
        if self.is_literal || !self.lines.are_letters() {
            return None;
        }
        let set = [(true, 's'), (self.folds == Some(true), 'i'), (self.lines.are_ends(), 'm'), (self.is_spaced, 'x')];
        Some(set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect())
    }

    /// A pattern as the engine writes it. What it has before it is never read as an option of PostgreSQL's with another
    /// meaning, so that a pattern may be written twice.
    ///
    /// # Errors
    /// Those of [`Self::of`], of options before the pattern.
    pub fn written(mut self, mut pattern: &str) -> Result<String> {
        if let Some(text) = pattern.strip_prefix("***=") {
            (self.is_literal, pattern) = (true, text);
        } else if let Some(rest) = pattern.strip_prefix("***:") {
            pattern = rest;
        }
        if !self.is_literal
            && let Some((letters, rest)) = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'))
            && !letters.is_empty()
            && letters.chars().all(|letter| LETTERS.contains(letter))
        {
            letters.chars().try_for_each(|letter| self.add(letter))?;
            pattern = rest;
        }
        let read = if self.is_literal {
            Read { text: regex::escape(pattern), has_dot: false, has_ends: false }
        } else {
            self.read(pattern)
        };
        let (mut on, mut off) = (String::new(), String::new());
        match self.folds {
            Some(true) => on.push('i'),
            Some(false) => off.push('i'),
            None => {}
        }
        if self.is_spaced && !self.is_literal {
            on.push('x');
        }
        let by_line = self.lines.are_ends() && read.has_ends;
        if by_line {
            on.push('m');
        }
        if read.has_dot && self.lines.are_letters() {
            on.push('s');
            // Together they mean something else to PostgreSQL.
            off.push_str(if by_line { "U" } else { "" });
        } else if by_line || read.has_dot {
            off.push('s');
        }
        let before = match (on.as_str(), off.as_str()) {
            ("", "") => String::new(),
            (on, "") => format!("(?{on})"),
            (on, off) => format!("(?{on}-{off})"),
        };
        Ok(before + &read.text)
    }

    /// A pattern with what stands in its brackets as it is meant.
    fn read(self, pattern: &str) -> Read {
        let mut read = Read { text: String::with_capacity(pattern.len() + 8), has_dot: false, has_ends: false };
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            read.text.push(letter);
            match letter {
                '\\' => read.text.extend(letters.next()),
                '.' => read.has_dot = true,
                '^' | '$' => read.has_ends = true,
                '[' => self.bracket(&mut letters, &mut read.text),
                // A comment is no pattern.
                '#' if self.is_spaced => {
                    for letter in letters.by_ref() {
                        read.text.push(letter);
                        if letter == '\n' {
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        read
    }

    /// The rest of a bracket.
    fn bracket(self, letters: &mut Peekable<Chars<'_>>, text: &mut String) {
        let is_negated = letters.next_if_eq(&'^').is_some();
        if is_negated {
            text.push('^');
        }
        // At the beginning `]` is an ordinary character.
        if letters.next_if_eq(&']').is_some() {
            text.push_str("\\]");
        }
        while let Some(letter) = letters.next() {
            match letter {
                ']' => {
                    if is_negated && !self.lines.are_letters() {
                        text.push_str("\\n");
                    }
                    text.push(']');
                    return;
                }
                '\\' => {
                    text.push(letter);
                    text.extend(letters.next());
                }
                // A class by its name: `[:alpha:]`.
                '[' if letters.peek() == Some(&':') => {
                    text.push(letter);
                    for letter in letters.by_ref() {
                        text.push(letter);
                        if letter == ']' {
                            break;
                        }
                    }
                }
                // The engine's own way to take classes from one another.
                '[' if text.ends_with("&&") || text.ends_with("--") || text.ends_with("~~") => text.push(letter),
                '[' => text.push_str("\\["),
                space if self.is_spaced && (space.is_whitespace() || space == '#') => {
                    text.extend(space.escape_unicode());
                }
                other => text.push(other),
            }
        }
    }
}

/// A pattern that was gone through.
struct Read {
    text: String,
    /// Whether it has a dot outside of brackets.
    has_dot: bool,
    /// Whether it has `^` or `$` there.
    has_ends: bool,
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn written(flags: &str, pattern: &str) -> String {
        Options::of(flags).unwrap().written(pattern).unwrap()
    }

    #[test]
    fn flags_say_what_lines_are() {
        // A pattern, a text, and under which flags of `n`, `p`, `s` and `w` it is found.
        for (pattern, text, expected) in [
            ("a.b", "a\nb", "sw"),
            ("a[^x]b", "a\nb", "sw"),
            ("a[^]x]b", "a\nb", "sw"),
            ("^b", "a\nb", "nw"),
            ("a$", "a\nb", "nw"),
            ("^.$", "ab\nc", "nw"),
            (r"\Ab", "a\nb", ""),
            (r"a\Db", "a\nb", "npsw"),
            ("a[x\n]b", "a\nb", "npsw"),
            ("a.b", "axb", "npsw"),
        ] {
            for flag in ["n", "p", "s", "w"] {
                let is_found = Regex::new(&written(flag, pattern)).unwrap().is_match(text);
                assert_eq!(is_found, expected.contains(flag), "{pattern} {text:?} {flag}");
            }
            // Without one they are as with `s`.
            let plain = Regex::new(&written("", pattern)).unwrap();
            assert_eq!(plain.is_match(text), expected.contains('s'), "{pattern} {text:?}");
            assert_eq!(written("m", pattern), written("n", pattern));
            assert_eq!(written("ps", pattern), written("", pattern));
            // Rewritten, it means the same, even to a reader for whom a dot matches every character.
            for flag in ["n", "p", "s", "w"] {
                let once = written(flag, pattern);
                for again in [written("", &once), format!("(?s){once}")] {
                    let is_found = Regex::new(&again).unwrap().is_match(text);
                    assert_eq!(is_found, expected.contains(flag), "{again} {text:?} {flag}");
                }
            }
        }
    }

    #[test]
    fn patterns_that_say_the_same_stay() {
        for pattern in [
            "",
            "abc",
            "^a+$",
            r"a\.b",
            "[.]",
            "(?:a|b)",
            "(?P<n>a)",
            "(?-i)a",
            "(?U)a+",
            "[[:alpha:]x]",
            "[",
            "a\\",
            "***",
        ] {
            assert_eq!(written("", pattern), pattern);
        }
    }

    #[test]
    fn others_are_written() {
        for (flags, pattern, expected) in [
            ("", "a.b", "(?s)a.b"),
            ("i", "a", "(?i)a"),
            ("ic", "a", "(?-i)a"),
            ("xt", "a b", "a b"),
            ("x", "a b # [\n[ #]", "(?x)a b # [\n[\\u{20}\\u{23}]"),
            ("n", "^[^a]", "(?m-s)^[^a\\n]"),
            ("w", "^.", "(?ms-U)^."),
            ("p", "^.", "(?-s)^."),
            ("q", "a.b", r"a\.b"),
            ("qi", "(", r"(?i)\("),
            // Options before the pattern come last.
            ("c", "(?i)a", "(?i)a"),
            ("", "(?nx)^a", "(?xm-s)^a"),
            ("", "(?q)a.", r"a\."),
            ("", "***=(?i)a", r"\(\?i\)a"),
            ("", "***:(?i)a", "(?i)a"),
            ("", "[[]", r"[\[]"),
            ("", "[^][]", r"[^\]\[]"),
            ("", "[a-z&&[^b]]", "[a-z&&[^b]]"),
            ("", "[[:digit:].].", "(?s)[[:digit:].]."),
        ] {
            assert_eq!(written(flags, pattern), expected, "{flags} {pattern}");
        }
    }

    #[test]
    fn flags_of_unknown_patterns() {
        let flags = |flags: &str| Options::of(flags).unwrap().flags();
        assert_eq!(flags("ix").as_deref(), Some("six"));
        assert_eq!(flags("wg").as_deref(), Some("sm"));
        assert_eq!(flags("c").as_deref(), Some("s"));
        assert_eq!((flags("n"), flags("p"), flags("q")), (None, None, None));
        assert!(Options::of("ig").unwrap().is_global() && !Options::of("i").unwrap().is_global());
        let mut both = Options::of("in").unwrap();
        assert!(both.take_folds() && !both.take_folds());
        assert_eq!(both, Options::of("n").unwrap());
    }

    #[test]
    fn what_is_no_flag_is_refused() {
        let refused = |flags: &str, pattern: &str| {
            let read = Options::of(flags).and_then(|options| options.written(pattern));
            read.expect_err("refused")
        };
        for (flags, pattern, kind) in [
            ("b", "a", ErrorKind::Unsupported),
            ("e", "a", ErrorKind::Unsupported),
            ("", "(?b)a", ErrorKind::Unsupported),
            ("I", "a", ErrorKind::Invalid),
            ("i,g", "a", ErrorKind::Invalid),
        ] {
            let error = refused(flags, pattern);
            assert_eq!(error.kind, kind, "{flags} {pattern}: {error}");
        }
        assert!(refused("y", "a").message.contains("`y`"));
    }
}
