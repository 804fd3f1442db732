//! Splits a template into tokens, as Go's `text/template/parse` does.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// An error at this position, with its message.
    Error,
    Eof,
    Text,
    LeftDelim,
    RightDelim,
    Space,
    Assign,
    Declare,
    Pipe,
    Comma,
    OtherChar,
    LeftParen,
    RightParen,
    Quoted,
    RawText,
    CharConstant,
    Number,
    Bool,
    Dot,
    Field,
    Variable,
    Identifier,
    Nil,
    Keyword(Keyword),
}

/// A keyword that begins an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
}

/// A token: its text, and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) pos: usize,
    pub(super) text: String,
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Splits a text into tokens; the last one is [`TokenKind::Eof`] or [`TokenKind::Error`].
pub(super) fn lex(input: &str) -> Vec<Token> {
    let mut lexer = Lexer { input, pos: 0, start: 0, tokens: Vec::new() };
    if let Err(message) = lexer.text() {
        let pos = lexer.start;
        lexer.tokens.push(Token { kind: TokenKind::Error, pos, text: message });
    }
    lexer.tokens
}

struct Lexer<'a> {
    input: &'a str,
    pos: usize,
    start: usize,
    tokens: Vec<Token>,
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphabetic() || c.is_numeric()
}

/// Whether a trim marker and a space follow the opening braces.
fn trims_left(rest: &str) -> bool {
    rest.starts_with('-') && rest[1..].starts_with(SPACES)
}

/// Whether the text begins with a space and a trim marker.
fn trims_right(rest: &str) -> bool {
    rest.starts_with(SPACES) && rest[1..].starts_with('-')
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.input[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn emit(&mut self, kind: TokenKind) {
        let text = self.input[self.start..self.pos].to_owned();
        self.tokens.push(Token { kind, pos: self.start, text });
        self.start = self.pos;
    }

    fn ignore(&mut self) {
        self.start = self.pos;
    }

    fn text(&mut self) -> Result<(), String> {
        loop {
            let Some(found) = self.rest().find("{{") else {
                self.pos = self.input.len();
                if self.pos > self.start {
                    self.emit(TokenKind::Text);
                }
                self.emit(TokenKind::Eof);
                return Ok(());
            };
            let open = self.pos + found;
            let trims = trims_left(&self.input[open + 2..]);
            self.pos = open;
            if trims {
                self.pos = self.start + self.input[self.start..open].trim_end_matches(SPACES).len();
            }
            if self.pos > self.start {
                self.emit(TokenKind::Text);
            }
            self.pos = open;
            self.ignore();
            self.pos += 2;
            let after = if trims { 2 } else { 0 };
            if self.input[self.pos + after..].starts_with("/*") {
                self.pos += after;
                self.comment()?;
                continue;
            }
            self.emit(TokenKind::LeftDelim);
            self.pos += after;
            self.ignore();
            self.action()?;
        }
    }

    fn comment(&mut self) -> Result<(), String> {
        self.ignore();
        let end = self.rest()[2..].find("*/").ok_or("unclosed comment")?;
        self.pos += end + 4;
        let (delim, trims) = self.at_right_delim();
        if !delim {
            return Err("comment ends before closing delimiter".to_owned());
        }
        self.skip_right_delim(trims);
        self.ignore();
        Ok(())
    }

    fn at_right_delim(&self) -> (bool, bool) {
        let rest = self.rest();
        if trims_right(rest) && rest[2..].starts_with("}}") {
            return (true, true);
        }
        (rest.starts_with("}}"), false)
    }

    fn skip_right_delim(&mut self, trims: bool) {
        if trims {
            self.pos += 2;
        }
        self.pos += 2;
        if trims {
            let rest = self.rest();
            self.pos += rest.len() - rest.trim_start_matches(SPACES).len();
        }
    }

    /// Lexes an action up to its closing braces.
    fn action(&mut self) -> Result<(), String> {
        let mut parens = 0_usize;
        loop {
            let (delim, trims) = self.at_right_delim();
            if delim {
                if parens > 0 {
                    return Err("unclosed left paren".to_owned());
                }
                if trims {
                    self.pos += 2;
                    self.ignore();
                }
                self.pos += 2;
                self.emit(TokenKind::RightDelim);
                if trims {
                    let rest = self.rest();
                    self.pos += rest.len() - rest.trim_start_matches(SPACES).len();
                    self.ignore();
                }
                return Ok(());
            }
            let Some(c) = self.next() else { return Err("unclosed action".to_owned()) };
            match c {
                c if SPACES.contains(&c) => self.space(),
                '=' => self.emit(TokenKind::Assign),
                ':' => {
                    if self.next() != Some('=') {
                        return Err("expected :=".to_owned());
                    }
                    self.emit(TokenKind::Declare);
                }
                '|' => self.emit(TokenKind::Pipe),
                '"' => self.quoted('"', "unterminated quoted string", TokenKind::Quoted)?,
                '\'' => self.quoted('\'', "unterminated character constant", TokenKind::CharConstant)?,
                '`' => {
                    let end = self.rest().find('`').ok_or("unterminated raw quoted string")?;
                    self.pos += end + 1;
                    self.emit(TokenKind::RawText);
                }
                '$' => self.name(TokenKind::Variable, TokenKind::Variable)?,
                '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                    self.name(TokenKind::Field, TokenKind::Dot)?;
                }
                '.' | '+' | '-' | '0'..='9' => {
                    self.pos -= 1;
                    self.number()?;
                }
                c if is_word(c) => {
                    self.pos -= c.len_utf8();
                    self.word()?;
                }
                '(' => {
                    parens += 1;
                    self.emit(TokenKind::LeftParen);
                }
                ')' => {
                    parens = parens.checked_sub(1).ok_or("unexpected right paren")?;
                    self.emit(TokenKind::RightParen);
                }
                ',' => self.emit(TokenKind::Comma),
                c if c.is_ascii_graphic() => self.emit(TokenKind::OtherChar),
                c => return Err(format!("unrecognized character in action: {}", named(c))),
            }
        }
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|c| SPACES.contains(&c)) {
            // The last space may belong to a trim marker.
            if trims_right(self.rest()) && self.rest()[2..].starts_with("}}") {
                break;
            }
            self.pos += 1;
        }
        let before = self.pos - 1;
        if trims_right(&self.input[before..]) && self.input[before + 2..].starts_with("}}") {
            self.pos = before;
            if self.pos == self.start {
                return;
            }
        }
        self.emit(TokenKind::Space);
    }

    fn quoted(&mut self, quote: char, unterminated: &str, kind: TokenKind) -> Result<(), String> {
        loop {
            match self.next() {
                Some('\\') if !matches!(self.peek(), None | Some('\n')) => drop(self.next()),
                None | Some('\n' | '\\') => return Err(unterminated.to_owned()),
                Some(c) if c == quote => {
                    self.emit(kind);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(c) if SPACES.contains(&c) => true,
            Some(_) => self.rest().starts_with("}}"),
        }
    }

    fn bad_character(&self) -> String {
        self.peek().map_or_else(|| "bad character EOF".to_owned(), |c| format!("bad character {}", named(c)))
    }

    /// Lexes what follows a dot or a dollar sign.
    fn name(&mut self, kind: TokenKind, alone: TokenKind) -> Result<(), String> {
        if self.at_terminator() {
            self.emit(alone);
            return Ok(());
        }
        while self.peek().is_some_and(is_word) {
            self.next();
        }
        if !self.at_terminator() {
            return Err(self.bad_character());
        }
        self.emit(kind);
        Ok(())
    }

    fn word(&mut self) -> Result<(), String> {
        while self.peek().is_some_and(is_word) {
            self.next();
        }
        if !self.at_terminator() {
            return Err(self.bad_character());
        }
        let kind = match &self.input[self.start..self.pos] {
            "block" => TokenKind::Keyword(Keyword::Block),
            "break" => TokenKind::Keyword(Keyword::Break),
            "continue" => TokenKind::Keyword(Keyword::Continue),
            "define" => TokenKind::Keyword(Keyword::Define),
            "else" => TokenKind::Keyword(Keyword::Else),
            "end" => TokenKind::Keyword(Keyword::End),
            "if" => TokenKind::Keyword(Keyword::If),
            "range" => TokenKind::Keyword(Keyword::Range),
            "template" => TokenKind::Keyword(Keyword::Template),
            "with" => TokenKind::Keyword(Keyword::With),
            "nil" => TokenKind::Nil,
            "true" | "false" => TokenKind::Bool,
            _ => TokenKind::Identifier,
        };
        self.emit(kind);
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let mut fine = self.scan_number();
        if fine && matches!(self.peek(), Some('+' | '-')) {
            // A complex constant; it ends with its imaginary part.
            fine = self.scan_number() && self.input[..self.pos].ends_with('i');
        }
        if !fine {
            return Err(format!("bad number syntax: {}", crate::text::quote(&self.input[self.start..self.pos])));
        }
        self.emit(TokenKind::Number);
        Ok(())
    }

    /// Skips a number; `false` if the word continues after it.
    fn scan_number(&mut self) -> bool {
        let accept = |lexer: &mut Self, set: &str| {
            let found = lexer.peek().is_some_and(|c| set.contains(c));
            lexer.pos += usize::from(found);
            found
        };
        let run = |lexer: &mut Self, set: &str| while accept(lexer, set) {};
        accept(self, "+-");
        let mut digits = "0123456789_";
        if accept(self, "0") {
            if accept(self, "xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if accept(self, "oO") {
                digits = "01234567_";
            } else if accept(self, "bB") {
                digits = "01_";
            }
        }
        run(self, digits);
        if accept(self, ".") {
            run(self, digits);
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if !exponent.is_empty() && accept(self, exponent) {
            accept(self, "+-");
            run(self, "0123456789_");
        }
        accept(self, "i");
        if let Some(c) = self.peek().filter(|c| is_word(*c)) {
            self.pos += c.len_utf8();
            return false;
        }
        true
    }
}

/// Formats a character as Go's `%#U` does.
fn named(c: char) -> String {
    let code = format!("U+{:04X}", c as u32);
    if c.is_control() || c.is_whitespace() && c != ' ' { code } else { format!("{code} '{c}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let got: Vec<String> = lex(text).into_iter().filter(|t| t.kind != TokenKind::Space).map(|t| t.text).collect();
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn cut() {
        check("a {{- .X.y | f \"q}}\" -}} b", &["a", "{{", ".X", ".y", "|", "f", "\"q}}\"", "}}", "b", ""]);
        check("{{/* c */ -}}  x", &["x", ""]);
        check("{{$x:=-3.5e2}}{{$}}", &["{{", "$x", ":=", "-3.5e2", "}}", "{{", "$", "}}", ""]);
        check("{{", &["{{", "unclosed action"]);
        check("{{ \u{a0} }}", &["{{", "unrecognized character in action: U+00A0"]);
        check("{{1x}}", &["{{", "bad number syntax: \"1x\""]);
        check("{{1+2}}", &["{{", "bad number syntax: \"1+2\""]);
        check("{{1+2i}}", &["{{", "1+2i", "}}", ""]);
        check("{{x*}}", &["{{", "bad character U+002A '*'"]);
        check("{{(}}", &["{{", "(", "unclosed left paren"]);
        check("{{'a'}}{{`r\n`}}", &["{{", "'a'", "}}", "{{", "`r\n`", "}}", ""]);
    }

    #[test]
    fn trimmed() {
        check("{{}}", &["{{", "}}", ""]);
        check("{{-3}}", &["{{", "-3", "}}", ""]);
        check("{{- 3 -}}", &["{{", "3", "}}", ""]);
        check("a \n{{- \"x\"}}", &["a", "{{", "\"x\"", "}}", ""]);
        check("  {{- 1}}", &["{{", "1", "}}", ""]);
        check("{{x -}} \n b", &["{{", "x", "}}", "b", ""]);
        check("a {{x}} b", &["a ", "{{", "x", "}}", " b", ""]);
        check("a {{- /* {{x}} */ -}} b", &["a", "b", ""]);
        // Only ASCII spaces are trimmed.
        check("a\u{a0}{{- 1 -}}\u{a0}b", &["a\u{a0}", "{{", "1", "}}", "\u{a0}b", ""]);
        check("ä{{.ö}}ü", &["ä", "{{", ".ö", "}}", "ü", ""]);
        check("}} {", &["}} {", ""]);
    }

    #[test]
    fn what_ends_it() {
        let check = |text: &str, expected: &str| {
            let last = lex(text).pop().expect("there is one");
            assert_eq!((last.kind, last.text.as_str()), (TokenKind::Error, expected), "{text}");
        };
        check("{{/* a", "unclosed comment");
        check("{{/* a */ b}}", "comment ends before closing delimiter");
        check("{{\"a}}", "unterminated quoted string");
        check("{{\"a\nb\"}}", "unterminated quoted string");
        check("{{\"a\\", "unterminated quoted string");
        check("{{'a}}", "unterminated character constant");
        check("{{`a}}", "unterminated raw quoted string");
        check("{{a:b}}", "expected :=");
        check("{{a :", "expected :=");
        check("{{)}}", "unexpected right paren");
        check("{{(a}}", "unclosed left paren");
        check("{{a", "unclosed action");
        check("{{.a$}}", "bad character U+0024 '$'");
        check("{{$a\"}}", "bad character U+0022 '\"'");
        check("{{a}b}}", "bad character U+007D '}'");
        check("{{\u{1}}}", "unrecognized character in action: U+0001");
        check("{{0x1G}}", "bad number syntax: \"0x1G\"");
        check("{{0b2}}", "bad number syntax: \"0b2\"");
        check("{{1e5x}}", "bad number syntax: \"1e5x\"");
    }

    #[test]
    fn kinds_and_places() {
        let tokens = lex("{{if nil true $x .y . 1 'a' \"s\" `r` f | , = :=}}{{end}}");
        let kinds: Vec<TokenKind> = tokens.iter().map(|t| t.kind).filter(|kind| *kind != TokenKind::Space).collect();
        assert_eq!(
            kinds,
            [
                TokenKind::LeftDelim,
                TokenKind::Keyword(Keyword::If),
                TokenKind::Nil,
                TokenKind::Bool,
                TokenKind::Variable,
                TokenKind::Field,
                TokenKind::Dot,
                TokenKind::Number,
                TokenKind::CharConstant,
                TokenKind::Quoted,
                TokenKind::RawText,
                TokenKind::Identifier,
                TokenKind::Pipe,
                TokenKind::Comma,
                TokenKind::Assign,
                TokenKind::Declare,
                TokenKind::RightDelim,
                TokenKind::LeftDelim,
                TokenKind::Keyword(Keyword::End),
                TokenKind::RightDelim,
                TokenKind::Eof,
            ]
        );
        let places: Vec<(usize, String)> = lex("ä {{- .x }}").into_iter().map(|t| (t.pos, t.text)).collect();
        let expected = [(0, "ä"), (3, "{{"), (7, ".x"), (9, " "), (10, "}}"), (12, "")];
        assert_eq!(places, expected.map(|(pos, text)| (pos, text.to_owned())));
    }

    #[test]
    fn numbers() {
        for number in [
            "0", "00", "1_000", "0x1F", "0X1p-2", "0b101", "0o17", "1e+5", "1E5", ".5", "5.", "+1", "-.5i", "1+2i",
            "'a'",
        ] {
            check(&format!("{{{{{number}}}}}"), &["{{", number, "}}", ""]);
        }
    }
}
