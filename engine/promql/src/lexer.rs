//! Splits the text of an expression into tokens, lazily, one at a time.
//!
//! What a character means depends on where it stands: inside braces only matchers are read, a bracket starts with a
//! duration expression, elsewhere stand operators, words, numbers and strings. Unbalanced parentheses and brackets
//! are found here, so that errors name the same place as in Prometheus (3.14 `promql/parser/lex.go`).

pub(crate) mod number;
pub(crate) mod quote;
pub(crate) mod string;
pub(crate) mod token;

use crate::ast::{BinaryOp, PosRange};
use crate::error::{ParseError, Result};
use quote::quote_char;
use token::{Token, TokenKind, keyword};

/// The reader of tokens.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    pos: usize,
    /// Where the token under way starts.
    start: usize,
    paren_depth: usize,
    brace_open: bool,
    bracket: Option<Bracket>,
}

/// What was seen since a bracket was opened.
#[derive(Debug, Default)]
struct Bracket {
    colon: bool,
    /// A number. Before the first one only a duration expression can stand, and no colon, not even after `step()`.
    number: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, pos: 0, start: 0, paren_depth: 0, brace_open: false, bracket: None }
    }

    /// Gives the next token; after the last one [`TokenKind::Eof`] again and again.
    pub(crate) fn token(&mut self) -> Result<Token> {
        self.skip(is_space);
        let in_duration = self.bracket.as_ref().is_some_and(|b| !b.number);
        while !in_duration && self.peek() == Some('#') {
            self.skip(|c| !matches!(c, '\n' | '\r'));
            self.skip(is_space);
        }
        self.start = self.pos;
        let kind = if self.brace_open {
            self.in_braces()?
        } else if in_duration {
            self.in_bracket()?
        } else {
            self.in_expression()?
        };
        Ok(Token { kind, pos: PosRange { start: self.start as u32, end: self.pos as u32 } })
    }

    fn in_expression(&mut self) -> Result<TokenKind> {
        let Some(c) = self.next() else { return self.end() };
        Ok(match c {
            ',' => TokenKind::Comma,
            '*' => TokenKind::Op(BinaryOp::Mul),
            '/' => TokenKind::Op(BinaryOp::Div),
            '%' => TokenKind::Op(BinaryOp::Mod),
            '+' => TokenKind::Op(BinaryOp::Add),
            '-' => TokenKind::Op(BinaryOp::Sub),
            '^' => TokenKind::Op(BinaryOp::Pow),
            '@' => TokenKind::At,
            '=' if self.accept('=') => TokenKind::Op(BinaryOp::Eql),
            '=' if self.peek() == Some('~') => return self.fail("unexpected character after '=': '~'"),
            '=' => TokenKind::Equal,
            '!' => match self.next() {
                Some('=') => TokenKind::Op(BinaryOp::Neq),
                other => return self.fail(format!("unexpected character after '!': {}", quote_char(other))),
            },
            '<' if self.accept('=') => TokenKind::Op(BinaryOp::Lte),
            '<' if self.accept('/') => TokenKind::Op(BinaryOp::TrimUpper),
            '<' => TokenKind::Op(BinaryOp::Lss),
            '>' if self.accept('=') => TokenKind::Op(BinaryOp::Gte),
            '>' if self.accept('/') => TokenKind::Op(BinaryOp::TrimLower),
            '>' => TokenKind::Op(BinaryOp::Gtr),
            '0'..='9' => return self.number(),
            '.' if self.peek().is_some_and(|c| c.is_ascii_digit()) => return self.number(),
            '"' | '\'' | '`' => return self.string(),
            ':' if self.bracket.is_some() => return self.colon(),
            _ if is_alpha(c) && self.bracket.is_some() => match self.duration_word(c) {
                Some(kind) => kind,
                None => return self.fail(format!("unexpected character: {}, expected ':'", quote_char(Some(c)))),
            },
            _ if is_alpha(c) || c == ':' => self.word(),
            '(' => self.open_paren(),
            ')' => return self.close_paren(),
            '{' => {
                self.brace_open = true;
                TokenKind::LeftBrace
            }
            '[' if self.bracket.is_some() => return self.fail("unexpected left bracket '['"),
            '[' => {
                self.bracket = Some(Bracket::default());
                TokenKind::LeftBracket
            }
            ']' if self.bracket.is_some() => self.close_bracket(),
            ']' => return self.fail("unexpected right bracket ']'"),
            _ => return self.fail(format!("unexpected character: {}", quote_char(Some(c)))),
        })
    }

    /// Reads after `[` or `:`, up to the first number.
    fn in_bracket(&mut self) -> Result<TokenKind> {
        let Some(c) = self.next() else { return self.fail("unexpected end of input in duration expression") };
        Ok(match c {
            ']' => self.close_bracket(),
            ':' => {
                self.start = self.pos;
                return self.fail("unexpected colon before duration in duration expression");
            }
            '(' => self.open_paren(),
            ')' => return self.close_paren(),
            '+' => TokenKind::Op(BinaryOp::Add),
            '-' => TokenKind::Op(BinaryOp::Sub),
            '*' => TokenKind::Op(BinaryOp::Mul),
            '/' => TokenKind::Op(BinaryOp::Div),
            '%' => TokenKind::Op(BinaryOp::Mod),
            '^' => TokenKind::Op(BinaryOp::Pow),
            ',' => TokenKind::Comma,
            '0'..='9' => return self.number(),
            '.' if self.peek().is_some_and(|c| c.is_ascii_digit()) => return self.number(),
            _ => {
                let message = format!("unexpected character in duration expression: {}", quote_char(Some(c)));
                return self.duration_word(c).map_or_else(|| self.fail(message), Ok);
            }
        })
    }

    fn in_braces(&mut self) -> Result<TokenKind> {
        let Some(c) = self.next() else { return self.fail("unexpected end of input inside braces") };
        Ok(match c {
            ',' => TokenKind::Comma,
            '"' | '\'' | '`' => return self.string(),
            '=' if self.accept('~') => TokenKind::EqualRegex,
            '=' => TokenKind::Equal,
            '!' => match self.next() {
                Some('~') => TokenKind::NotRegex,
                Some('=') => TokenKind::Op(BinaryOp::Neq),
                c => return self.fail(format!("unexpected character after '!' inside braces: {}", quote_char(c))),
            },
            '{' => return self.fail("unexpected left brace '{'"),
            '}' => {
                self.brace_open = false;
                TokenKind::RightBrace
            }
            _ if is_alpha(c) => {
                self.skip(is_alphanumeric);
                TokenKind::Identifier
            }
            _ => return self.fail(format!("unexpected character inside braces: {}", quote_char(Some(c)))),
        })
    }

    fn end(&self) -> Result<TokenKind> {
        match (self.paren_depth, self.bracket.is_some()) {
            (0, false) => Ok(TokenKind::Eof),
            (0, true) => self.fail("unclosed left bracket"),
            _ => self.fail("unclosed left parenthesis"),
        }
    }

    fn open_paren(&mut self) -> TokenKind {
        self.paren_depth += 1;
        TokenKind::LeftParen
    }

    fn close_paren(&mut self) -> Result<TokenKind> {
        if self.paren_depth == 0 {
            self.start = self.pos;
            return self.fail("unexpected right parenthesis ')'");
        }
        self.paren_depth -= 1;
        Ok(TokenKind::RightParen)
    }

    fn close_bracket(&mut self) -> TokenKind {
        self.bracket = None;
        TokenKind::RightBracket
    }

    fn colon(&mut self) -> Result<TokenKind> {
        match self.bracket.as_mut() {
            Some(bracket) if !bracket.colon => {
                bracket.colon = true;
                Ok(TokenKind::Colon)
            }
            _ => self.fail("unexpected colon ':'"),
        }
    }

    /// Reads a word of duration expressions that starts with `first`, which is already read.
    fn duration_word(&mut self, first: char) -> Option<TokenKind> {
        if !matches!(first.to_ascii_lowercase(), 's' | 'r' | 'm') {
            return None;
        }
        self.skip(is_alpha);
        let kind = keyword(&self.text[self.start..self.pos])?;
        let known = matches!(kind, TokenKind::Step | TokenKind::Range | TokenKind::MinOf | TokenKind::MaxOf);
        known.then_some(kind)
    }

    fn word(&mut self) -> TokenKind {
        self.skip(|c| is_alphanumeric(c) || c == ':');
        let word = &self.text[self.start..self.pos];
        match keyword(word) {
            // Metrics may bear these names, so only the form of a call makes them keywords.
            Some(TokenKind::Fill | TokenKind::FillLeft | TokenKind::FillRight)
                if !self.text[self.pos..].trim_start_matches(is_space).starts_with('(') =>
            {
                TokenKind::Identifier
            }
            Some(kind) => kind,
            None if word.contains(':') => TokenKind::MetricIdentifier,
            None => TokenKind::Identifier,
        }
    }

    fn number(&mut self) -> Result<TokenKind> {
        let (length, kind) = number::scan(&self.text[self.start..]);
        self.pos = self.start + length;
        if let Some(bracket) = &mut self.bracket {
            bracket.number = true;
        }
        kind.map_or_else(
            || {
                let text = quote::quote(&self.text[self.start..self.pos]);
                self.fail(format!("bad number or duration syntax: {text}"))
            },
            Ok,
        )
    }

    fn string(&mut self) -> Result<TokenKind> {
        match string::decode(&self.text[self.start..]) {
            Ok((_, length)) => {
                self.pos = self.start + length;
                Ok(TokenKind::String)
            }
            Err(message) => self.fail(message),
        }
    }

    /// Makes an error about what stands from the start of the token on.
    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(PosRange { start: self.start as u32, end: self.text.len() as u32 }, message))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.pos..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn accept(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.pos += c.len_utf8();
        }
        found
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut lexer = Lexer::new(text);
        let mut shown = Vec::new();
        loop {
            match lexer.token() {
                Ok(token) if token.kind == TokenKind::Eof => break,
                Ok(token) => shown.push(token.describe(text)),
                Err(error) => {
                    shown.push(format!("{}:{}", error.pos.start, error.message));
                    break;
                }
            }
        }
        assert_eq!(shown.join(" "), expected, "{text}");
    }

    #[test]
    fn tokens() {
        check(
            "1 5m .5 0x1F 1_000 NaN",
            r#"number "1" duration "5m" number ".5" number "0x1F" number "1_000" number "NaN""#,
        );
        check("a:b a1 # c\n:x", r#"metric identifier "a:b" identifier "a1" metric identifier ":x""#);
        check("sum BY and <= @ =", r#"<aggr:sum> <BY> <op:and> <op:<=> <op:@> "=""#);
        check("step() fill fill (", r#""step" "(" ")" identifier "fill" <fill> "(" 18:unclosed left parenthesis"#);
        check("{sum=~'a', \"b\"}", r#""{" identifier "sum" <op:=~> string "'a'" "," string "\"b\"" "}""#);
        check("'0123456789x'", r#"string "'012345678"..."#);
        check(
            "x[ 1s+step():step()]",
            r#"identifier "x" "[" duration "1s" <op:+> "step" "(" ")" ":" "step" "(" ")" "]""#,
        );
    }

    #[test]
    fn errors() {
        check("(1))", r#""(" number "1" ")" 4:unexpected right parenthesis ')'"#);
        check("a[:5m]", r#"identifier "a" "[" 3:unexpected colon before duration in duration expression"#);
        check("a[5m:1m:", r#"identifier "a" "[" duration "5m" ":" duration "1m" 7:unexpected colon ':'"#);
        check("a[-:", r#"identifier "a" "[" <op:-> 4:unexpected colon before duration in duration expression"#);
        // Only a number is a duration there, as in Prometheus.
        let error = "9:unexpected colon before duration in duration expression";
        check("a[step():step()]", &format!(r#"identifier "a" "[" "step" "(" ")" {error}"#));
        check("1 ! ", r#"number "1" 2:unexpected character after '!': ' '"#);
        check("1 !", "number \"1\" 2:unexpected character after '!': '\u{fffd}'");
        check("ü", "0:unexpected character: 'ü'");
        check("a[5m x", r#"identifier "a" "[" duration "5m" 5:unexpected character: 'x', expected ':'"#);
        check("a[foo", r#"identifier "a" "[" 2:unexpected character in duration expression: 'f'"#);
    }
}
