//! Texts and names in which letters are written by their numbers: `U&'d\0061t!+000061'`, `U&"d!0061ta" UESCAPE '!'`. The
//! parser knows neither such names, nor other escapes than backslashes, nor letters of two surrogates.

use std::borrow::Cow;

use datafusion::sql::sqlparser::tokenizer::Location;
use quiver_types::Result;

use crate::error::unreadable;

/// A statement in which such texts and names are plain ones, each in as many letters, so that everything else keeps its place.
///
/// # Errors
/// Invalid: an escape is no letter, or what stands before escapes may not.
pub fn plain(text: &str) -> Result<Cow<'_, str>> {
    let has_any = text.as_bytes().windows(3).any(|part| matches!(part, [b'u' | b'U', b'&', b'\'' | b'"']));
    if !has_any {
        return Ok(Cow::Borrowed(text));
    }
    let (mut out, mut done, mut at) = (String::with_capacity(text.len()), 0, 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if !is_of_word(first) {
            at += skipped(rest).unwrap_or(first.len_utf8());
            continue;
        }
        let word = rest.find(|letter| !is_of_word(letter) && letter != '$').unwrap_or(rest.len());
        let behind = &rest[word..];
        if rest[..word].eq_ignore_ascii_case("e") && behind.starts_with('\'') {
            at += word + quoted(behind, '\'', true).unwrap_or(behind.len());
        } else if rest[..word].eq_ignore_ascii_case("u")
            && let Some((literal, length)) = behind.strip_prefix('&').and_then(literal)
        {
            let read = literal.read().map_err(|what| unreadable(what, location(text, at)))?;
            out.push_str(&text[done..at]);
            out.push_str(&read);
            let written = text[at..at + word + 1 + length].chars().count();
            out.extend(std::iter::repeat_n(' ', written.saturating_sub(read.chars().count())));
            at += word + 1 + length;
            done = at;
        } else {
            at += word;
        }
    }
    out.push_str(&text[done..]);
    Ok(Cow::Owned(out))
}

/// What stands for a line break that was written by its number, until the text is whole: it must not begin a line. No text
/// holds it.
const LINE_BREAK: char = '\0';

/// A text or a name behind `U&`, with the letter before its escapes.
struct UnicodeLiteral<'t> {
    quote: char,
    inner: &'t str,
    escape: Option<&'t str>,
}

/// What is written behind `U&`, and in how many bytes; none: it is in no quotes.
fn literal(rest: &str) -> Option<(UnicodeLiteral<'_>, usize)> {
    let quote = rest.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let length = quoted(rest, quote, false)?;
    let inner = &rest[1..length - 1];
    let behind = rest[length..].trim_start();
    let word = "uescape";
    let escape = behind.get(..word.len()).filter(|begin| begin.eq_ignore_ascii_case(word)).and_then(|_| {
        let value = behind[word.len()..].trim_start();
        let end = value.starts_with('\'').then(|| quoted(value, '\'', false)).flatten()?;
        Some((value, end))
    });
    Some(match escape {
        Some((value, end)) => {
            let whole = rest.len() - value.len() + end;
            (UnicodeLiteral { quote, inner, escape: Some(&value[1..end - 1]) }, whole)
        }
        None => (UnicodeLiteral { quote, inner, escape: None }, length),
    })
}

impl UnicodeLiteral<'_> {
    /// The plain text or name.
    fn read(&self) -> Result<String, &'static str> {
        let mut escapes = self.escape.unwrap_or("\\").chars();
        let (Some(escape), None) = (escapes.next(), escapes.next()) else {
            return Err("invalid Unicode escape character");
        };
        if escape.is_ascii_hexdigit() || escape.is_ascii_whitespace() || matches!(escape, '+' | '\'' | '"') {
            return Err("invalid Unicode escape character");
        }
        let mut out = String::with_capacity(self.inner.len() + 2);
        out.push(self.quote);
        let (mut rest, mut high) = (self.inner, None::<u32>);
        while let Some((before, escaped)) = rest.split_once(escape) {
            if high.is_some() && !before.is_empty() {
                return Err("invalid Unicode surrogate pair");
            }
            // Quotes within are doubled already.
            out.push_str(before);
            if let Some(behind) = escaped.strip_prefix(escape).filter(|_| high.is_none()) {
                out.push(escape);
                rest = behind;
                continue;
            }
            let (begin, digits) = if escaped.starts_with('+') { (1, 6) } else { (0, 4) };
            let code = escaped.get(begin..begin + digits).filter(|code| code.bytes().all(|d| d.is_ascii_hexdigit()));
            let code = code.and_then(|code| u32::from_str_radix(code, 16).ok()).ok_or("invalid Unicode escape")?;
            rest = &escaped[begin + digits..];
            let code = match high.take() {
                Some(high) if (0xDC00..0xE000).contains(&code) => 0x1_0000 + ((high - 0xD800) << 10) + (code - 0xDC00),
                Some(_) => return Err("invalid Unicode surrogate pair"),
                None if (0xD800..0xDC00).contains(&code) => {
                    high = Some(code);
                    continue;
                }
                None => code,
            };
            let letter = char::from_u32(code).filter(|letter| *letter != '\0').ok_or("invalid Unicode escape value")?;
            match letter {
                '\n' if self.quote == '\'' => out.push(LINE_BREAK),
                letter if letter == self.quote => out.extend([letter; 2]),
                letter => out.push(letter),
            }
        }
        if high.is_some() {
            return Err("invalid Unicode surrogate pair");
        }
        out.push_str(rest);
        out.push(self.quote);
        if out.contains(LINE_BREAK) {
            out = format!("E{}", out.replace('\\', "\\\\").replace(LINE_BREAK, "\\n"));
        }
        Ok(out)
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The bytes of a text, a name or a comment that begins a text; none: it is none of these.
fn skipped(rest: &str) -> Option<usize> {
    let first = rest.chars().next()?;
    if matches!(first, '\'' | '"') {
        return Some(quoted(rest, first, false).unwrap_or(rest.len()));
    }
    if rest.starts_with("--") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(commented(rest));
    }
    let tag = &rest[..=rest.strip_prefix('$')?.find('$')? + 1];
    let name = &tag[1..tag.len() - 1];
    let is_tag = name.chars().all(is_of_word) && !name.starts_with(|first: char| first.is_ascii_digit());
    let inner = &rest[tag.len()..];
    is_tag.then(|| inner.find(tag).map_or(rest.len(), |end| end + 2 * tag.len()))
}

/// The bytes of what stands in quotes, which are doubled within, or behind backslashes; none: it does not end.
fn quoted(rest: &str, quote: char, has_backslashes: bool) -> Option<usize> {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && has_backslashes {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// The bytes of a comment, which may hold others.
fn commented(rest: &str) -> usize {
    let (mut at, mut depth) = (2, 1_usize);
    while depth > 0 {
        let Some(next) = rest[at..].find(['*', '/']) else { return rest.len() };
        at += next;
        let mark = rest.get(at..at + 2);
        match mark {
            Some("/*") => depth += 1,
            Some("*/") => depth -= 1,
            _ => {}
        }
        at += if matches!(mark, Some("/*" | "*/")) { 2 } else { 1 };
    }
    at
}

/// The line and column of a byte.
fn location(text: &str, byte: usize) -> Location {
    let before = &text[..byte];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Location { line: before.split('\n').count() as u64, column: line.chars().count() as u64 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_written_by_their_numbers() {
        for (written, expected) in [
            (r"select U&'d\0061t\+000061' x", "select 'data' x"),
            (r#"select u&"d!0061ta"  UESCAPE  '!' from t"#, r#"select "data" from t"#),
            (r"select U&'\d83d\de00'", "select '😀'"),
            (r"select U&'a''\0027\\'", r"select 'a''''\'"),
            (r"select U&'!!\0061' uescape '!'", r"select '!\0061'"),
            (r"select U&''", "select ''"),
            (r"select U&'a\000ab\\\0027'", r"select E'a\nb\\'''"),
            // These only look like such literals.
            (r"select 'U&''\0061' || E'\'U&\'\0061'", r"select 'U&''\0061' || E'\'U&\'\0061'"),
            (r#"select "U&'\0061'" -- U&'\0061"#, r#"select "U&'\0061'" -- U&'\0061"#),
            (
                r"/* /* */ U&'\0061' */ select $a$ U&'\0061' $$ $a$",
                r"/* /* */ U&'\0061' */ select $a$ U&'\0061' $$ $a$",
            ),
            (r"select au&'\0061', u & '\0061', u&5", r"select au&'\0061', u & '\0061', u&5"),
            (r"select $1, u'&', U&'ä\00e4' || $$", r"select $1, u'&', 'ää' || $$"),
            ("select U&'a", "select U&'a"),
        ] {
            let found = plain(written).unwrap();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&found), words(expected), "{written}");
            // Blanks replace dropped letters, so that positions in errors stay right.
            assert_eq!(found.chars().count(), written.chars().count(), "{written}");
        }
    }

    #[test]
    fn what_is_no_letter_is_refused() {
        for (written, what) in [
            (r"select 1, U&'\006'", "invalid Unicode escape at line 1, column 11"),
            ("select 1,\n U&'\\00é1'", "invalid Unicode escape at line 2, column 2"),
            (r"select U&'\0000'", "escape value"),
            (r"select U&'\d83d'", "surrogate pair"),
            (r"select U&'\d83dx\de00'", "surrogate pair"),
            (r"select U&'\de00'", "escape value"),
            (r"select U&'a' uescape '+'", "escape character"),
            (r"select U&'a' uescape '!!'", "escape character"),
            (r"select U&'a' uescape ''", "escape character"),
        ] {
            let error = plain(written).unwrap_err();
            assert!(error.message.contains(what), "{written}: {error}");
        }
    }
}
