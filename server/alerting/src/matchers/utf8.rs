//! The newer syntax: names and values are any text without reserved characters, or double-quoted with Go's escapes.

use quiver_types::matcher::Patterns;
use quiver_types::{MatchOp, Matcher};

use super::syntax::{MatcherError, is_reserved, matcher_among};
use crate::text::unquote;

#[derive(Debug, Clone, PartialEq, Eq)]
enum TokenKind {
    Open,
    Close,
    Comma,
    Op(MatchOp),
    Quoted,
    Unquoted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    kind: TokenKind,
    text: String,
    /// Columns in characters: of the start, and after the end.
    start: usize,
    end: usize,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    fn shown(&self, start: usize) -> String {
        let text: String = self.chars[start..self.at].iter().collect();
        format!("{start}:{}: {text}", self.at)
    }

    fn next(&mut self) -> Result<Option<Token>, MatcherError> {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&c) = self.chars.get(start) else { return Ok(None) };
        self.at += 1;
        let kind = match c {
            '{' => TokenKind::Open,
            '}' => TokenKind::Close,
            ',' => TokenKind::Comma,
            '=' => {
                if self.chars.get(self.at) == Some(&'~') {
                    self.at += 1;
                    TokenKind::Op(MatchOp::Regex)
                } else {
                    TokenKind::Op(MatchOp::Equal)
                }
            }
            '!' => match self.chars.get(self.at) {
                Some('=') => {
                    self.at += 1;
                    TokenKind::Op(MatchOp::NotEqual)
                }
                Some('~') => {
                    self.at += 1;
                    TokenKind::Op(MatchOp::NotRegex)
                }
                Some(_) => {
                    let message = format!("{}: expected one of '=~'", self.shown(start));
                    return Err(MatcherError::new(self.at + 1, message));
                }
                None => {
                    let message = format!("{start}:{}: unexpected end of input, expected one of '=~'", self.at);
                    return Err(MatcherError::new(self.at + 1, message));
                }
            },
            '"' => {
                self.quoted(start)?;
                TokenKind::Quoted
            }
            c if is_reserved(c) => {
                return Err(MatcherError::new(start + 1, format!("{}: invalid input", self.shown(start))));
            }
            _ => {
                while self.chars.get(self.at).is_some_and(|c| !is_reserved(*c)) {
                    self.at += 1;
                }
                TokenKind::Unquoted
            }
        };
        let text = self.chars[start..self.at].iter().collect();
        Ok(Some(Token { kind, text, start, end: self.at }))
    }

    fn quoted(&mut self, start: usize) -> Result<(), MatcherError> {
        let mut escaped = false;
        while let Some(&c) = self.chars.get(self.at) {
            self.at += 1;
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Ok(()),
                _ => {}
            }
        }
        Err(MatcherError::new(start + 1, format!("{}: missing end \"", self.shown(start))))
    }
}

/// Parses matchers.
///
/// # Errors
/// With the columns and words of Alertmanager's parser.
pub fn parse(text: &str) -> Result<Vec<Matcher>, MatcherError> {
    among(text, &mut Patterns::default())
}

/// Parses some of several whose patterns are bounded together.
pub(super) fn among(text: &str, patterns: &mut Patterns) -> Result<Vec<Matcher>, MatcherError> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0 };
    let mut matchers = Vec::new();
    let mut token = lexer.next()?;
    let open = token.as_ref().is_some_and(|t| t.kind == TokenKind::Open);
    if token.is_none() {
        return Ok(matchers);
    }
    if open {
        token = lexer.next()?;
    }
    if !matches!(&token, Some(t) if t.kind == TokenKind::Close) && token.is_some() {
        loop {
            matchers.push(matcher(&mut lexer, token, patterns)?);
            token = lexer.next().map_err(|e| expected(e, "a comma or close brace"))?;
            match &token {
                Some(t) if t.kind == TokenKind::Comma => {
                    token = lexer.next().map_err(|e| expected(e, "a matcher or close brace after comma"))?;
                    match &token {
                        None => break,
                        Some(t) if t.kind == TokenKind::Close => break,
                        Some(t) if matches!(t.kind, TokenKind::Quoted | TokenKind::Unquoted) => {}
                        Some(t) => return Err(unexpected(t, "a matcher or close brace after comma")),
                    }
                }
                Some(t) if t.kind != TokenKind::Close => return Err(unexpected(t, "a comma or close brace")),
                _ => break,
            }
        }
    }
    match (open, token) {
        (true, Some(_)) | (false, None) => {}
        (true, None) => {
            let at = lexer.at;
            return Err(MatcherError::new(at + 1, format!("0:{at}: end of input: expected close brace")));
        }
        (false, Some(t)) => {
            return Err(MatcherError::new(t.start + 1, format!("0:{}: }}: expected opening brace", t.end)));
        }
    }
    match lexer.next().map_err(|e| expected(e, "end of input"))? {
        Some(t) => {
            let message = format!("{}:{}: {}: expected end of input", t.start, t.end, t.text);
            Err(MatcherError::new(t.start + 1, message))
        }
        None => Ok(matchers),
    }
}

fn expected(error: MatcherError, what: &str) -> MatcherError {
    MatcherError { message: format!("{}: expected {what}", error.message), ..error }
}

fn unexpected(token: &Token, what: &str) -> MatcherError {
    let message = format!("{}:{}: unexpected {}: expected {what}", token.start, token.end, token.text);
    MatcherError::new(token.start + 1, message)
}

fn end(lexer: &Lexer, what: &str) -> MatcherError {
    MatcherError::new(lexer.at + 1, format!("0:{}: end of input: expected {what}", lexer.at))
}

fn word(token: &Token) -> Result<String, MatcherError> {
    if token.kind != TokenKind::Quoted {
        return Ok(token.text.clone());
    }
    unquote(&token.text).ok_or_else(|| {
        let message = format!("{}:{}: {}: invalid input", token.start, token.end, token.text);
        MatcherError::new(token.start + 1, message)
    })
}

fn matcher(lexer: &mut Lexer, name: Option<Token>, patterns: &mut Patterns) -> Result<Matcher, MatcherError> {
    const OPERATOR: &str = "an operator such as '=', '!=', '=~' or '!~'";
    let name = match name {
        Some(t) if matches!(t.kind, TokenKind::Quoted | TokenKind::Unquoted) => t,
        Some(t) => return Err(unexpected(&t, "label name")),
        None => return Err(end(lexer, "label name")),
    };
    let name = word(&name)?;
    let op = match lexer.next().map_err(|e| expected(e, OPERATOR))? {
        Some(Token { kind: TokenKind::Op(op), .. }) => op,
        Some(t) => return Err(unexpected(&t, OPERATOR)),
        None => return Err(end(lexer, OPERATOR)),
    };
    let value = match lexer.next().map_err(|e| expected(e, "label value"))? {
        Some(t) if matches!(t.kind, TokenKind::Quoted | TokenKind::Unquoted) => t,
        Some(t) => return Err(unexpected(&t, "label value")),
        None => return Err(end(lexer, "label value")),
    };
    let text = word(&value)?;
    matcher_among(name, op, text, patterns).map_err(|e| MatcherError::new(value.start + 1, e.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).map_err(|e| e.message), Err(expected.to_owned()), "{text}");
        };
        check("}", "0:1: }: expected opening brace");
        check("foo=bar}", "0:8: }: expected opening brace");
        check("{foo=bar", "0:8: end of input: expected close brace");
        check("{foo=:\"bar\"}", "6:11: unexpected \"bar\": expected a comma or close brace");
        check("{foo=\"bar\\w\"}", "5:12: \"bar\\w\": invalid input");
        check("{foo=bar\\n}", "8:9: \\: invalid input: expected a comma or close brace");
        check("{\"foo\"=\"\\xf0\\x9f\"}", "7:17: \"\\xf0\\x9f\": invalid input");
        check("a=b}c", "0:4: }: expected opening brace");
        check("{a=b}c", "5:6: c: expected end of input");
        for t in ["a", "a=", "a!b", "a=\"b", ",", "{,}", "a=b,,c=d", "a=~\"[\""] {
            assert!(parse(t).is_err(), "{t}");
        }
    }

    #[test]
    fn accepted() {
        let check = |text: &str, count: usize| assert_eq!(parse(text).map(|m| m.len()), Ok(count), "{text}");
        check("", 0);
        check("{}", 0);
        check("{ foo = bar , b!~\"x\" , }", 2);
        check("🙂=\"\\U0001f642\"", 1);
        check("a=b,", 1);
    }

    /// From Alertmanager's own tests: the parsed matchers, formatted as in group keys.
    #[test]
    fn read_as_written() {
        let check = |text: &str, expected: &str| {
            let got = parse(text).map(|m| m.iter().map(super::super::show).collect::<Vec<_>>().join(","));
            assert_eq!(got.as_deref(), Ok(expected), "{text}");
        };
        for (text, expected) in [
            ("{}", ""),
            ("   ", ""),
            ("{ }", ""),
            ("{foo=\"bar\"}", "foo=\"bar\""),
            ("{foo=\"bar\",}", "foo=\"bar\""),
            ("{foo!=\"bar\"}", "foo!=\"bar\""),
            ("{foo=~\"[a-z]+\"}", "foo=~\"[a-z]+\""),
            ("{foo!~\"[a-z]+\"}", "foo!~\"[a-z]+\""),
            ("{foo=\"🙂\"}", "foo=\"🙂\""),
            ("{foo=🙂}", "foo=\"🙂\""),
            ("{🙂=bar}", "🙂=\"bar\""),
            ("foo=bar", "foo=\"bar\""),
            ("foo=bar,", "foo=\"bar\""),
            ("foo=\"bar\"", "foo=\"bar\""),
            ("foo =\tbar\n", "foo=\"bar\""),
            ("{foo=\"\"}", "foo=\"\""),
            ("{foo=\"bar\\n\"}", "foo=\"bar\\n\""),
            ("{foo=\"\\\"bar\\\"\"}", "foo=\"\\\"bar\\\"\""),
            ("{foo=\"bar\\\\\"}", "foo=\"bar\\\\\""),
            ("{foo=\"a,b}\"}", "foo=\"a,b}\""),
            ("{foo=bar,bar!=baz}", "foo=\"bar\",bar!=\"baz\""),
            ("{foo=bar,foo=~baz}", "foo=\"bar\",foo=~\"baz\""),
            ("{\"foo=bar\"=\"a\"}", "\"foo=bar\"=\"a\""),
            ("{\"foo\"=bar}", "foo=\"bar\""),
            ("{1a=2}", "1a=\"2\""),
            ("{a.b/c-d:e=f.g/h-i:j}", "a.b/c-d:e=\"f.g/h-i:j\""),
            ("{\"\"=\"bar\"}", "=\"bar\""),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn told_what_was_expected_where() {
        const OPERATOR: &str = "expected an operator such as '=', '!=', '=~' or '!~'";
        let check = |text: &str, column: u32, expected: &str| {
            let told = parse(text).expect_err(text);
            assert_eq!((told.column, told.message.as_str()), (column, expected), "{text}");
        };
        check("{", 2, "0:1: end of input: expected close brace");
        check("{foo=\"bar\"", 11, "0:10: end of input: expected close brace");
        check("foo=\"bar\"}", 10, "0:10: }: expected opening brace");
        check("=\"bar\"", 1, "0:1: unexpected =: expected label name");
        check("{=bar}", 2, "1:2: unexpected =: expected label name");
        check("{,}", 2, "1:2: unexpected ,: expected label name");
        check("{foo}", 5, &format!("4:5: unexpected }}: {OPERATOR}"));
        check("foo", 4, &format!("0:3: end of input: {OPERATOR}"));
        check("{foo=}", 6, "5:6: unexpected }: expected label value");
        check("foo=", 5, "0:4: end of input: expected label value");
        check("foo==bar", 5, "4:5: unexpected =: expected label value");
        check("foo!bar", 5, &format!("3:4: !: expected one of '=~': {OPERATOR}"));
        check("foo!", 5, &format!("3:4: unexpected end of input, expected one of '=~': {OPERATOR}"));
        check("a=b c=d", 5, "4:5: unexpected c: expected a comma or close brace");
        check("a=b,,", 5, "4:5: unexpected ,: expected a matcher or close brace after comma");
        check("{a=b}{", 6, "5:6: {: expected end of input");
        check("{a=b},", 6, "5:6: ,: expected end of input");
        check("a=\"b", 3, "2:4: \"b: missing end \": expected label value");
        check("'a'=b", 1, "0:1: ': invalid input");
        check("a=`b`", 3, "2:3: `: invalid input: expected label value");
        // Columns are counted in characters.
        check("{🙂=bar", 7, "0:6: end of input: expected close brace");
    }
}
