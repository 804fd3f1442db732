//! Parses tokens to a syntax tree, with the rules and messages of Go's `text/template/parse`: statements here, their
//! contents in `pipeline`.

mod number;
mod pipeline;

use std::collections::BTreeMap;

use super::ast::{Branch, List, Statement, is_empty};
use super::lexer::{Keyword, Token, TokenKind, lex};
use super::{ParseError, Source};
use crate::text::{quote, unquote};

/// Deepest nesting of parentheses, and of `if`, `with`, `range` and `define`.
const DEPTH_MAX: usize = 100;

/// A definition: its statements and its source.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) list: List,
    pub(super) source: Source,
}

/// Parses a text into its definitions; the text itself is the definition `name`.
pub(super) fn parse(
    name: &str,
    text: &str,
    is_function: &dyn Fn(&str) -> bool,
) -> Result<BTreeMap<String, Definition>, ParseError> {
    let source = Source::new(name, text);
    let mut parser = Parser {
        tokens: lex(text),
        at: 0,
        variables: vec!["$".to_owned()],
        range_depth: 0,
        depth: 0,
        is_function,
        definitions: BTreeMap::new(),
        source,
    };
    let list = parser.top()?;
    parser.define(name, list)?;
    Ok(parser.definitions)
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    variables: Vec<String>,
    range_depth: usize,
    depth: usize,
    is_function: &'a dyn Fn(&str) -> bool,
    definitions: BTreeMap<String, Definition>,
    source: Source,
}

/// How a list of statements ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListTerminator {
    End,
    /// `else`; a following `if` or `with` was not consumed yet.
    Else,
}

enum Piece {
    Statement(Statement),
    Ending(ListTerminator),
}

type ParseResult<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        // The last token is never consumed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len());
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == TokenKind::Space {
            self.at += 1;
        }
    }

    fn next_word(&mut self) -> Token {
        self.skip_space();
        self.next()
    }

    fn peek_word(&mut self) -> &Token {
        self.skip_space();
        self.peek()
    }

    fn fail<T>(&self, pos: usize, message: impl Into<String>) -> ParseResult<T> {
        Err(ParseError::new(&self.source, pos, message))
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> ParseResult<T> {
        let shown = match token.kind {
            TokenKind::Error => return self.fail(token.pos, token.text.clone()),
            TokenKind::Eof => "EOF".to_owned(),
            TokenKind::Keyword(_) | TokenKind::Nil => format!("<{}>", token.text),
            _ if token.text.chars().count() > 10 => {
                let head: String = token.text.chars().take(10).collect();
                format!("{}...", quote(&head))
            }
            _ => quote(&token.text),
        };
        self.fail(token.pos, format!("unexpected {shown} in {context}"))
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> ParseResult<Token> {
        let token = self.next_word();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= DEPTH_MAX {
            let pos = self.peek().pos;
            return self.fail(pos, "max expression depth exceeded");
        }
        self.depth += 1;
        let out = read(self);
        self.depth -= 1;
        out
    }

    fn define(&mut self, name: &str, list: List) -> ParseResult<()> {
        match self.definitions.get(name) {
            Some(there) if !is_empty(&there.list) => {
                if is_empty(&list) {
                    return Ok(());
                }
                let pos = self.peek().pos;
                return self.fail(pos, format!("template: multiple definition of template {}", quote(name)));
            }
            _ => {}
        }
        self.definitions.insert(name.to_owned(), Definition { list, source: self.source.clone() });
        Ok(())
    }

    /// Parses everything up to the end; definitions are only allowed here.
    fn top(&mut self) -> ParseResult<List> {
        let mut list = List::new();
        loop {
            match self.peek().kind {
                TokenKind::Eof => return Ok(list),
                TokenKind::LeftDelim => {
                    let before = self.at;
                    self.at += 1;
                    if self.next_word().kind == TokenKind::Keyword(Keyword::Define) {
                        self.definition()?;
                        continue;
                    }
                    self.at = before;
                }
                _ => {}
            }
            let pos = self.peek().pos;
            match self.piece()? {
                Piece::Statement(statement) => list.push(statement),
                Piece::Ending(ListTerminator::End) => return self.fail(pos, "unexpected {{end}}"),
                Piece::Ending(ListTerminator::Else) => return self.fail(pos, "unexpected {{else}}"),
            }
        }
    }

    fn template_name(&mut self, context: &str) -> ParseResult<(usize, String)> {
        let token = self.next_word();
        if !matches!(token.kind, TokenKind::Quoted | TokenKind::RawText) {
            return self.unexpected(&token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok((token.pos, name)),
            None => self.fail(token.pos, "invalid syntax"),
        }
    }

    fn definition(&mut self) -> ParseResult<()> {
        let (_, name) = self.template_name("define clause")?;
        self.expect(TokenKind::RightDelim, "define clause")?;
        let list = self.own_scope("define clause")?;
        self.define(&name, list)
    }

    /// Parses the body of a definition, which cannot see variables from outside.
    fn own_scope(&mut self, context: &str) -> ParseResult<List> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let range_depth = std::mem::take(&mut self.range_depth);
        let pos = self.peek().pos;
        let (list, ending) = self.deeper(Self::list)?;
        if ending != ListTerminator::End {
            return self.fail(pos, format!("unexpected {{{{else}}}} in {context}"));
        }
        (self.variables, self.range_depth) = (variables, range_depth);
        Ok(list)
    }

    fn list(&mut self) -> ParseResult<(List, ListTerminator)> {
        let mut list = List::new();
        while self.peek_word().kind != TokenKind::Eof {
            match self.piece()? {
                Piece::Statement(statement) => list.push(statement),
                Piece::Ending(ending) => return Ok((list, ending)),
            }
        }
        let pos = self.peek().pos;
        self.fail(pos, "unexpected EOF")
    }

    fn piece(&mut self) -> ParseResult<Piece> {
        let token = self.next_word();
        match token.kind {
            TokenKind::Text => Ok(Piece::Statement(Statement::Text(token.text))),
            TokenKind::LeftDelim => self.action(),
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> ParseResult<Piece> {
        let token = self.peek_word().clone();
        let TokenKind::Keyword(word) = token.kind else {
            let pipe = self.pipeline("command", TokenKind::RightDelim)?;
            return Ok(Piece::Statement(Statement::Action(pipe)));
        };
        self.next();
        let statement = match word {
            Keyword::Block => self.block()?,
            Keyword::Break => self.leave(&token, "{{break}}", Statement::Break)?,
            Keyword::Continue => self.leave(&token, "{{continue}}", Statement::Continue)?,
            Keyword::Define => return self.unexpected(&token, "command"),
            Keyword::Else => {
                let next = self.peek_word().kind;
                if !matches!(next, TokenKind::Keyword(Keyword::If | Keyword::With)) {
                    self.expect(TokenKind::RightDelim, "else")?;
                }
                return Ok(Piece::Ending(ListTerminator::Else));
            }
            Keyword::End => {
                self.expect(TokenKind::RightDelim, "end")?;
                return Ok(Piece::Ending(ListTerminator::End));
            }
            Keyword::If => Statement::If(self.deeper(|p| p.control("if"))?),
            Keyword::With => Statement::With(self.deeper(|p| p.control("with"))?),
            Keyword::Range => Statement::Range(self.deeper(|p| p.control("range"))?),
            Keyword::Template => {
                let (pos, name) = self.template_name("template clause")?;
                let pipe = if self.peek_word().kind == TokenKind::RightDelim {
                    self.next();
                    None
                } else {
                    Some(self.pipeline("template clause", TokenKind::RightDelim)?)
                };
                Statement::Template { pos, name, pipe }
            }
        };
        Ok(Piece::Statement(statement))
    }

    fn leave(&mut self, token: &Token, shown: &str, statement: Statement) -> ParseResult<Statement> {
        let next = self.next_word();
        if next.kind != TokenKind::RightDelim {
            return self.unexpected(&next, shown);
        }
        if self.range_depth == 0 {
            return self.fail(token.pos, format!("{shown} outside {{{{range}}}}"));
        }
        Ok(statement)
    }

    fn block(&mut self) -> ParseResult<Statement> {
        let (pos, name) = self.template_name("block clause")?;
        let pipe = self.pipeline("block clause", TokenKind::RightDelim)?;
        let list = self.own_scope("block clause")?;
        self.define(&name, list)?;
        Ok(Statement::Template { pos, name, pipe: Some(pipe) })
    }

    fn control(&mut self, context: &'static str) -> ParseResult<Branch> {
        let variables = self.variables.len();
        let pipe = self.pipeline(context, TokenKind::RightDelim)?;
        let is_range = usize::from(context == "range");
        self.range_depth += is_range;
        let (then, ending) = self.list()?;
        self.range_depth -= is_range;
        let mut otherwise = None;
        if ending == ListTerminator::Else {
            let next = self.peek().kind;
            otherwise = Some(match (context, next) {
                // `else if` is an `if` within `else`, with one `end` for both.
                ("if", TokenKind::Keyword(Keyword::If)) => {
                    self.next();
                    vec![Statement::If(self.deeper(|p| p.control("if"))?)]
                }
                ("with", TokenKind::Keyword(Keyword::With)) => {
                    self.next();
                    vec![Statement::With(self.deeper(|p| p.control("with"))?)]
                }
                _ => {
                    let pos = self.peek().pos;
                    let (list, ending) = self.list()?;
                    if ending != ListTerminator::End {
                        return self.fail(pos, "expected end; found {{else}}");
                    }
                    list
                }
            });
        }
        self.variables.truncate(variables);
        Ok(Branch { pipe, then, otherwise })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_the_line() {
        let check = |text: &str, expected: &str| {
            let error = parse("t", text, &|name| name == "f").expect_err(text);
            assert_eq!(error.to_string(), expected);
        };
        check("{{", "template: t:1: unclosed action");
        check("a\n{{ if }}{{end}}", "template: t:2: missing value for if");
        check("{{ $x }}", "template: t:1: undefined variable \"$x\"");
        check("{{ g 1 }}", "template: t:1: function \"g\" not defined");
        check("{{ if . }}", "template: t:1: unexpected EOF");
        check("{{ end }}", "template: t:1: unexpected {{end}}");
        check("{{ 1 | 2 }}", "template: t:1: non executable command in pipeline stage 2");
        check("{{$labels := .}}{{$labels.q * 100}}", "template: t:1: unexpected \"*\" in operand");
        check("{{break}}", "template: t:1: {{break}} outside {{range}}");
        check(
            "{{define \"a\"}}x{{end}}{{define \"a\"}}y{{end}}",
            "template: t:1: template: multiple definition of template \"a\"",
        );
        let deep = format!("{}1{}", "{{ ".to_owned() + &"(".repeat(500), ")".repeat(500) + " }}");
        assert!(parse("t", &deep, &|_| true).expect_err("deep").to_string().contains("depth exceeded"));
        // The root counts, too; a variable that is declared again does not count again.
        let one = |n: usize| format!("{{{{$v{n} := 1}}}}{{{{$v0 = 2}}}}");
        let many = |count: usize| (0..count).map(one).collect::<Vec<_>>().concat();
        assert!(parse("t", &many(255), &|_| true).is_ok());
        let told = parse("t", &many(256), &|_| true).expect_err("too many").to_string();
        assert_eq!(told, "template: t:1: more than 256 variables");
        let deep = "{{if 1}}".repeat(500);
        assert!(parse("t", &deep, &|_| true).expect_err("deep").to_string().contains("depth exceeded"));
    }
}
