//! Finds the position of a text or name that an error quotes, which clients use to mark it in the statement. The planner
//! reports positions of columns and tables only.

/// The position, in characters from 1, of what a message quotes; `None` if it quotes nothing that stands in the statement
/// once.
pub(super) fn position(message: &str, statement: &str) -> Option<usize> {
    let quoted = Quoted::of(message)?;
    let tokens = tokens(statement);
    let mut found = tokens.iter().enumerate().filter(|(at, token)| quoted.is(token, tokens.get(at + 1)));
    let (_, only) = found.next()?;
    found.next().is_none().then_some(only.at + 1)
}

/// What a message quotes.
enum Quoted<'m> {
    Text(&'m str),
    Name(&'m str),
    Function(&'m str),
}

impl<'m> Quoted<'m> {
    fn of(message: &'m str) -> Option<Self> {
        let within = |before: &str, behind: &str| Some(message.split_once(before)?.1.split_once(behind)?.0);
        for (before, behind) in [("Cannot cast string '", "' to value of"), ("Cannot cast value '", "' to value of")] {
            if let Some(text) = within(before, behind) {
                return Some(Self::Text(text));
            }
        }
        for before in ["nvalid input syntax for type ", "date/time field value out of range"] {
            if let Some((_, rest)) = message.split_once(before) {
                let text = rest.split_once(": \"")?.1;
                return Some(Self::Text(text.strip_suffix('"')?));
            }
        }
        if let Some(text) = message.strip_prefix('"').and_then(|rest| rest.split_once("\" is out of range for type ")) {
            return Some(Self::Text(text.0));
        }
        if let Some(name) = within("argument types '", "(") {
            return Some(Self::Function(name));
        }
        let name = within("there is no window `", "`").or_else(|| within("there is no column `", "`"));
        name.or_else(|| message.strip_prefix("Unsupported SQL type ")).map(Self::Name)
    }

    fn is(&self, token: &Token, next: Option<&Token>) -> bool {
        match (self, &token.kind) {
            (Self::Text(text), TokenKind::Text(written)) => written == text,
            (Self::Name(name), TokenKind::Word(word)) => word == name,
            (Self::Function(name), TokenKind::Word(word)) => {
                word == name && next.is_some_and(|next| matches!(next.kind, TokenKind::Bracket))
            }
            _ => false,
        }
    }
}

struct Token {
    /// Where it begins, in characters.
    at: usize,
    kind: TokenKind,
}

enum TokenKind {
    /// A text in single quotes, or in dollars.
    Text(String),
    /// A name, in small letters unless it is in quotes.
    Word(String),
    /// An opening bracket.
    Bracket,
    Other,
}

/// The tokens of a statement without blanks and comments.
fn tokens(statement: &str) -> Vec<Token> {
    let letters: Vec<char> = statement.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(letter) = letters.get(at) {
        let next = letters.get(at + 1);
        let (kind, end) = match (letter, next) {
            (letter, _) if letter.is_whitespace() => (None, at + 1),
            ('-', Some('-')) => (None, end_of(&letters, at, &['\n'])),
            ('/', Some('*')) => (None, comment(&letters, at)),
            ('\'', _) => {
                let (text, end) = quoted(&letters, at);
                (Some(TokenKind::Text(text)), end)
            }
            ('"', _) => {
                let (name, end) = quoted(&letters, at);
                (Some(TokenKind::Word(name)), end)
            }
            ('$', _) => match dollars(&letters, at) {
                Some((text, end)) => (Some(TokenKind::Text(text)), end),
                None => (Some(TokenKind::Other), at + 1),
            },
            ('(', _) => (Some(TokenKind::Bracket), at + 1),
            (letter, _) if letter.is_alphanumeric() || *letter == '_' => {
                let is_part = |letter: &&char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
                let word: String = letters[at..].iter().take_while(is_part).collect();
                let end = at + word.chars().count();
                (Some(TokenKind::Word(word.to_lowercase())), end)
            }
            _ => (Some(TokenKind::Other), at + 1),
        };
        tokens.extend(kind.map(|kind| Token { at, kind }));
        at = end;
    }
    tokens
}

/// Where the letters are over that some end, which begin at a place.
fn end_of(letters: &[char], at: usize, last: &[char]) -> usize {
    let found = letters[at..].windows(last.len()).position(|window| window == last);
    found.map_or(letters.len(), |found| at + found + last.len())
}

/// Where a comment ends, which may hold others.
fn comment(letters: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < letters.len() {
        match letters.get(at..at + 2) {
            Some(['/', '*']) => (depth, at) = (depth + 1, at + 2),
            Some(['*', '/']) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    letters.len()
}

/// What stands in quotes from a place on, and where it ends. A quote within is written twice.
fn quoted(letters: &[char], at: usize) -> (String, usize) {
    let (quote, mut text, mut at) = (letters[at], String::new(), at + 1);
    while let Some(letter) = letters.get(at) {
        at += 1;
        if *letter == quote {
            if letters.get(at) != Some(&quote) {
                break;
            }
            at += 1;
        }
        text.push(*letter);
    }
    (text, at)
}

/// The text of `$tag$ … $tag$`, and where it ends; `None` if there is none.
fn dollars(letters: &[char], at: usize) -> Option<(String, usize)> {
    let tag = letters[at + 1..].iter().position(|letter| !letter.is_alphanumeric() && *letter != '_')?;
    let mark = letters.get(at..at + tag + 2).filter(|mark| mark.last() == Some(&'$'))?;
    // `$1` is a parameter.
    if mark.get(1).is_some_and(char::is_ascii_digit) {
        return None;
    }
    let begin = at + mark.len();
    let length = letters[begin..].windows(mark.len()).position(|window| window == mark)?;
    Some((letters[begin..begin + length].iter().collect(), begin + length + mark.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_once_has_a_place() {
        for (message, statement, expected) in [
            ("Cannot cast string 'abc' to value of Int32 type", "select 'abc'::int", Some(8)),
            ("Cannot cast string 'it's' to value of Int32 type", "select 'é', 'it''s'::int", Some(13)),
            ("Cannot cast value 'maybe' to value of Boolean type", "select $$maybe$$::bool", Some(8)),
            ("invalid input syntax for type date: \"foo\"", "select date 'foo'", Some(13)),
            ("Parser error: Invalid input syntax for type interval: \"foo\"", "select interval 'foo'", Some(17)),
            ("date/time field value out of range: \"2024-02-30\"", "select date '2024-02-30'", Some(13)),
            ("x: date/time field value out of range: \"24:00\"", "select time '24:00'", Some(13)),
            ("\"1e400\" is out of range for type double precision", "select '1e400'::float8", Some(8)),
            (
                "No function matches the given name and argument types 'abs(Int64, Int64)'. You might",
                "select abs, \"x\" /* abs( /* */ */ + Abs (1, 2) -- abs(",
                Some(36),
            ),
            ("there is no window `w`", "select rank() over w from t", Some(20)),
            ("Unsupported SQL type notype", "select '1'::notype", Some(13)),
            ("there is no column `foo`", "select id from t order by foo", Some(27)),
            ("there is no column `Foo`; did you mean `x`?", "select foo, \"Foo\" from t", Some(13)),
            // Of two nobody knows which one it is.
            ("Cannot cast string 'a' to value of Int32 type", "select 'a'::int, 'a'", None),
            ("Cannot cast string 'a' to value of Int32 type", "select x::int from t", None),
            ("No function matches the given name and argument types 'substr(Int64)'", "select substring(1)", None),
            ("there is no column `t.foo`", "select t.foo from t", None),
            ("division by zero", "select 1/0", None),
            ("Cannot cast string 'a' to value of Int32 type", "select 'a", Some(8)),
            ("Cannot cast string 'a' to value of Int32 type", "select $1, $a$b$a$, /* 'a'", None),
            ("Cannot cast string 'a' to value of Int32 type", "", None),
        ] {
            assert_eq!(position(message, statement), expected, "{message} in {statement}");
        }
    }
}
