//! Parses `DECLARE`, `FETCH` and `MOVE`.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Command, Words, statement_parts};
use crate::postgres::error::Fault;

/// A cursor to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct Declare {
    pub(in crate::postgres) name: String,
    pub(in crate::postgres) query: String,
    /// Whether it outlives its transaction (`WITH HOLD`).
    pub(in crate::postgres) is_held: bool,
    /// Whether it also goes backward (`SCROLL`).
    pub(in crate::postgres) scrolls: bool,
}

/// Where a `FETCH` or `MOVE` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum Motion {
    /// So many rows onward, or all (`None`); 0: the current row once more.
    Forward(Option<u32>),
    /// So many rows back, or all (`None`).
    Backward(Option<u32>),
    /// To the row of this place, from 1; negative: counted from the end; 0: before the first.
    Absolute(i64),
    /// To the row at this distance from the current one.
    Relative(i64),
}

/// Parses the motion and the cursor of a `FETCH`.
pub(super) fn fetch(words: &mut Words) -> Option<(String, Motion)> {
    let motion = if words.takes(&["next"]) {
        Motion::Forward(Some(1))
    } else if words.takes(&["prior"]) {
        Motion::Backward(Some(1))
    } else if words.takes(&["first"]) {
        Motion::Absolute(1)
    } else if words.takes(&["last"]) {
        Motion::Absolute(-1)
    } else if words.takes(&["absolute"]) {
        Motion::Absolute(signed(words)?)
    } else if words.takes(&["relative"]) {
        Motion::Relative(signed(words)?)
    } else if words.takes(&["backward"]) {
        back(rows(words)?)
    } else {
        words.takes(&["forward"]);
        rows(words)?
    };
    words.takes(&["from", "in"]);
    let name = words.name();
    name.filter(|_| words.ends()).map(|name| (name, motion))
}

/// Consumes a number of rows, or `ALL`, or nothing, which is one row.
fn rows(words: &mut Words) -> Option<Motion> {
    if words.takes(&["all"]) {
        return Some(Motion::Forward(None));
    }
    if !matches!(words.tokens.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus)) {
        return Some(Motion::Forward(Some(1)));
    }
    let rows = signed(words)?;
    let forward = Motion::Forward(Some(u32::try_from(rows.unsigned_abs()).ok()?));
    Some(if rows < 0 { back(forward) } else { forward })
}

/// The same rows in the other direction.
fn back(motion: Motion) -> Motion {
    match motion {
        Motion::Forward(Some(0)) => motion,
        Motion::Forward(rows) => Motion::Backward(rows),
        Motion::Backward(rows) => Motion::Forward(rows),
        other => other,
    }
}

/// Consumes a whole number of 32 bits, with or without a sign.
fn signed(words: &mut Words) -> Option<i64> {
    let is_negative = words.tokens.peek() == Some(&Token::Minus);
    if is_negative || words.tokens.peek() == Some(&Token::Plus) {
        words.tokens.next();
    }
    let Some(Token::Number(digits, _)) = words.tokens.next() else { return None };
    let number = i64::from(digits.parse::<u32>().ok()?);
    Some(if is_negative { -number } else { number })
}

/// `DECLARE name [[NO] SCROLL] CURSOR [WITH HOLD] FOR query`.
pub(super) fn declare(words: &mut Words, query: Option<&str>) -> Result<Option<Command>, Fault> {
    let Some(name) = words.name() else { return Ok(None) };
    let mut scrolls = false;
    loop {
        if words.takes(&["binary"]) {
            let text = "cursors in binary form are not made here: they give rows in the form that the client asks for";
            return Err(Fault::new("0A000", text));
        }
        if words.takes(&["scroll"]) {
            scrolls = true;
        } else if words.takes(&["no"]) {
            if !words.takes(&["scroll"]) || scrolls {
                return Ok(None);
            }
        } else if !words.takes(&["insensitive", "asensitive"]) {
            break;
        }
    }
    if !words.takes(&["cursor"]) {
        return Ok(None);
    }
    let is_held = words.takes(&["with"]);
    if (is_held || words.takes(&["without"])) && !words.takes(&["hold"]) {
        return Ok(None);
    }
    if !words.takes(&["for"]) {
        return Ok(None);
    }
    Ok(query.map(|query| Command::Declare(Declare { name, query: query.to_owned(), is_held, scrolls })))
}

/// The text after the `FOR` of a `DECLARE`. `FOR` may also occur as, or in, the name of the cursor.
pub(super) fn behind_for<'t>(text: &'t str, tokens: &[TokenWithSpan]) -> Option<&'t str> {
    let found = tokens.iter().skip(2).find(|token| statement_parts::is_word(&token.token, "for"))?;
    text.get(statement_parts::offset(text, found.span.start)? + "for".len()..)
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn motions() {
        for (text, expected) in [
            ("next", Motion::Forward(Some(1))),
            ("prior", Motion::Backward(Some(1))),
            ("first", Motion::Absolute(1)),
            ("LAST", Motion::Absolute(-1)),
            ("absolute -3", Motion::Absolute(-3)),
            ("absolute +3", Motion::Absolute(3)),
            ("relative 0", Motion::Relative(0)),
            ("relative -2", Motion::Relative(-2)),
            ("-2", Motion::Backward(Some(2))),
            ("forward -2", Motion::Backward(Some(2))),
            ("backward", Motion::Backward(Some(1))),
            ("backward all", Motion::Backward(None)),
            ("backward 3", Motion::Backward(Some(3))),
            ("backward -3", Motion::Forward(Some(3))),
            ("backward 0", Motion::Forward(Some(0))),
            ("-0", Motion::Forward(Some(0))),
        ] {
            let name = || "c".to_owned();
            assert_eq!(read(&format!("fetch {text} from c")), Ok(Command::Fetch(name(), expected)), "{text}");
            assert_eq!(read(&format!("move {text} in c")), Ok(Command::Move(name(), expected)), "{text}");
        }
        for bad in ["absolute", "relative all", "absolute 1.5", "- -1", "- all", "backward next", "-4294967296"] {
            assert_eq!(read(&format!("fetch {bad} from c")).map_err(|fault| fault.code), Err("42601"), "{bad}");
        }
    }

    #[test]
    fn cursors_that_scroll() {
        for (text, expected) in [
            ("declare c scroll cursor for select 1", true),
            ("declare c insensitive scroll cursor with hold for select 1", true),
            ("declare c no scroll cursor for select 1", false),
            ("declare c cursor for select 1", false),
        ] {
            let Ok(Command::Declare(declare)) = read(text) else { panic!("{text}") };
            assert_eq!(declare.scrolls, expected, "{text}");
        }
        let both = read("declare c scroll no scroll cursor for select 1");
        assert_eq!(both.map_err(|fault| fault.code), Err("42601"));
    }
}
