//! Lines within quotes and brackets that stand no deeper than the key, and tabs between a key and its value.
//!
//! YAML 1.2 wants them deeper, and so does the parser; readers that follow libyaml, Go's among them, do not, and rule files
//! that people write rely on it. Blanks at the start of such a line mean nothing: the lines are moved to the right. A tab
//! behind a colon parts as a blank does, in YAML, too; the parser takes it before some values only.

use crate::problem::{Place, Problem};

/// What the parser says of a quoted scalar with such lines, at the place of its first quote.
const QUOTED: &str = "invalid indentation in quoted scalar";

/// What it says of a line between brackets, at the first word of it; of other lines it says neither.
const BETWEEN: [&str; 2] = ["invalid indentation", "invalid indentation in flow construct"];

/// What it says of a tab behind a colon, at the value behind that.
const COLON: &str = "':' must be followed by a valid YAML whitespace";

/// Blanks that a line between brackets is moved by; where they are too few, it is moved again.
const BLANKS: &str = "                ";

/// Most blanks that are put into one scalar.
const BLANKS_MAX: usize = 64 << 10;

/// Gives a text with those lines moved that the parser complains of; none where it complains of something else.
pub(super) fn moved(text: &str, problem: &Problem) -> Option<String> {
    let line_at = match problem.place.line.checked_sub(2) {
        Some(before) => text.match_indices('\n').nth(before as usize)?.0 + 1,
        None => 0,
    };
    match problem.message.as_str() {
        QUOTED => quoted(text, line_at, problem.place),
        COLON => parted(text, line_at, problem.place),
        told if BETWEEN.contains(&told) => Some([&text[..line_at], BLANKS, &text[line_at..]].concat()),
        _ => None,
    }
}

/// Puts blanks where tabs part a value from its key.
fn parted(text: &str, line_at: usize, value: Place) -> Option<String> {
    let at = line_at + text[line_at..].char_indices().nth((value.column as usize).checked_sub(1)?)?.0;
    let from = text[..at].trim_end_matches(['\t', ' ']).len();
    let blanks = " ".repeat(at - from);
    text[from..at].contains('\t').then(|| [&text[..from], blanks.as_str(), &text[at..]].concat())
}

/// Moves the further lines of a quoted scalar behind its first quote.
fn quoted(text: &str, line_at: usize, first: Place) -> Option<String> {
    let blanks = first.column as usize;
    let at = line_at + text[line_at..].char_indices().nth(blanks.checked_sub(1)?)?.0;
    let quote = text[at..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let end = at + 1 + length(&text[at + 1..], quote)?;
    let scalar = &text[at..end];
    // These end a document, also within quotes.
    let ends = scalar.lines().skip(1).any(|line| line.starts_with("---") || line.starts_with("..."));
    if ends || scalar.matches('\n').count().saturating_mul(blanks) > BLANKS_MAX {
        return None;
    }
    let lines = scalar.replace('\n', &format!("\n{}", " ".repeat(blanks)));
    Some([&text[..at], &lines, &text[end..]].concat())
}

/// Gives how many bytes stand before the quote that ends a text.
fn length(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && quote == '"' {
            chars.next();
        } else if c == quote && (quote == '"' || chars.next_if(|(_, next)| *next == quote).is_none()) {
            // Twice, a single quote is part of the text.
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::problem::Code;
    use crate::{Node, read};

    #[test]
    fn further_lines_stand_anywhere() {
        let text = "a:\n  d: \"a b\n  c\n\n  ü\\\"d\\\n  e\" # \"\n  s: 'it''s\n x\n'\n  l: [\"1\n 2\"]\n  n: 5\n";
        let root = read(text).expect("valid").remove(0);
        let a = root.get("a").expect("there");
        assert_eq!(a.get("d").and_then(Node::text), Some("a b c\nü\"de"));
        assert_eq!(a.get("s").and_then(Node::text), Some("it's x "));
        assert_eq!(a.get("n").and_then(Node::integer), Some(5));
        let between =
            ["a: {x: 1,\n  y: 2,\nz: 3\n}", "a: [\n{x: 1},\n{y: 2}\n]\n", "b:\n    a: {x: 'q\n r',\n    z: 1}\n"];
        for text in between {
            assert!(read(text).is_ok(), "{text}");
        }
        // Many of them, and what is wrong behind them is told in its line.
        let mut many = "a:\n".to_owned();
        (0..200).for_each(|i| {
            let _ = writeln!(many, "  k{i}: \"x\n  y\"");
        });
        assert!(read(&many).is_ok());
        many.push_str("  k0: 1\n");
        let wrong = read(&many).expect_err("twice");
        assert_eq!((wrong.place.line, wrong.place.column), (402, 3));
    }

    #[test]
    fn tabs_part_keys_and_values() {
        let text = "a:\tb\nü:\t -1\n\"d\":\t\tx # c\nf: {g:\th}\nt: |\n  k:\tv\n";
        let root = read(text).expect("valid").remove(0);
        let got = ["a", "ü", "d", "t"].map(|name| root.get(name).and_then(Node::text).unwrap_or_default());
        assert_eq!(got, ["b", "-1", "x", "k:\tv\n"]);
        assert_eq!(root.get("f").and_then(|f| f.get("g")).and_then(Node::text), Some("h"));
        for text in ["a:\tb: c\n", "a:\t- x\n", "a:\n\tb: c\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn others_are_refused_as_before() {
        for text in ["a:\n  d: \"a\n  b", "a:\n  d: \"a\n  b\n--- c\"", "a:\n  d: 'a\n  b''\n", "a: [1\nb: 2"] {
            assert!(read(text).is_err(), "{text}");
        }
        let wide = format!("a:\n  b: [{}\"{}\"]\n", " ".repeat(2000), "x\n".repeat(100));
        assert!(read(&wide).is_err());
    }

    #[test]
    fn where_quoted_texts_end() {
        for (text, quote, expected) in [
            ("ab\"c", '"', Some(2)),
            ("a\\\"b\"c", '"', Some(4)),
            ("a\\\\\"", '"', Some(3)),
            ("it''s' x", '\'', Some(5)),
            ("a\\' b", '\'', Some(2)),
            ("'", '\'', Some(0)),
            ("é\"", '"', Some(2)),
            ("open", '"', None),
            ("x\\\"", '"', None),
            ("''", '\'', None),
            ("", '"', None),
        ] {
            assert_eq!(length(text, quote), expected, "{text} {quote}");
        }
    }

    #[test]
    fn tabs_become_as_many_blanks() {
        let at = |column| Place { line: 1, column };
        assert_eq!(parted("a:\t\tb", 0, at(5)).as_deref(), Some("a:  b"));
        assert_eq!(parted("x\nü:\t -1", 2, at(5)).as_deref(), Some("x\nü:  -1"));
        assert_eq!(parted("a:  b", 0, at(5)), None, "there is no tab");
        assert_eq!(parted("a:\tb", 0, at(0)), None);
        assert_eq!(parted("a:\tb", 0, at(9)), None, "there is no such column");
    }

    #[test]
    fn lines_move_that_are_complained_of() {
        let told = |line, column, message: &str| {
            let place = Place { line, column };
            Problem { place, path: String::new(), code: Code::Malformed, message: message.to_owned() }
        };
        let text = "a: [\nb]\n";
        assert_eq!(moved(text, &told(2, 1, BETWEEN[1])).as_deref(), Some("a: [\n                b]\n"));
        assert_eq!(moved("a: \"x\ny\"\n", &told(1, 4, QUOTED)).as_deref(), Some("a: \"x\n    y\"\n"));
        assert_eq!(moved(text, &told(2, 1, "something else")), None);
        assert_eq!(moved(text, &told(9, 1, BETWEEN[0])), None, "there is no such line");
        assert_eq!(moved("a: x\n", &told(1, 4, QUOTED)), None, "no quote stands there");
    }
}
