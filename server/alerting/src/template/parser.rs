//! Tokens to a tree, with the rules and words of Go's `text/template/parse`.

use std::collections::BTreeMap;

use super::ast::{Arg, ArgKind, Branch, Command, List, Number, Pipe, Statement, is_empty};
use super::complex::complex;
use super::lexer::{Keyword, Kind, Token, lex};
use super::{ParseError, Source};
use crate::text::{quote, unquote};

/// Deepest nesting of parentheses and of `if`, `with`, `range` and `define`.
const DEPTH_MAX: usize = 100;

/// A definition: what it does, and where it was read.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) list: List,
    pub(super) source: Source,
}

/// Parses a text into its definitions; the text itself is the one called `name`.
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
enum Ending {
    End,
    /// `else`; with `if` or `with` behind it the word is still to be read.
    Else,
}

enum Piece {
    Statement(Statement),
    Ending(Ending),
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        // The last token stays for ever.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len());
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == Kind::Space {
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

    fn fail<T>(&self, pos: usize, message: impl Into<String>) -> Parsed<T> {
        Err(ParseError::new(&self.source, pos, message))
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> Parsed<T> {
        let shown = match token.kind {
            Kind::Error => return self.fail(token.pos, token.text.clone()),
            Kind::Eof => "EOF".to_owned(),
            Kind::Keyword(_) | Kind::Nil => format!("<{}>", token.text),
            _ if token.text.chars().count() > 10 => {
                let head: String = token.text.chars().take(10).collect();
                format!("{}...", quote(&head))
            }
            _ => quote(&token.text),
        };
        self.fail(token.pos, format!("unexpected {shown} in {context}"))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Parsed<Token> {
        let token = self.next_word();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            let pos = self.peek().pos;
            return self.fail(pos, "max expression depth exceeded");
        }
        self.depth += 1;
        let out = read(self);
        self.depth -= 1;
        out
    }

    fn define(&mut self, name: &str, list: List) -> Parsed<()> {
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

    /// Reads all to the end; definitions may stand here only.
    fn top(&mut self) -> Parsed<List> {
        let mut list = List::new();
        loop {
            match self.peek().kind {
                Kind::Eof => return Ok(list),
                Kind::LeftDelim => {
                    let before = self.at;
                    self.at += 1;
                    if self.next_word().kind == Kind::Keyword(Keyword::Define) {
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
                Piece::Ending(Ending::End) => return self.fail(pos, "unexpected {{end}}"),
                Piece::Ending(Ending::Else) => return self.fail(pos, "unexpected {{else}}"),
            }
        }
    }

    fn template_name(&mut self, context: &str) -> Parsed<(usize, String)> {
        let token = self.next_word();
        if !matches!(token.kind, Kind::Quoted | Kind::RawText) {
            return self.unexpected(&token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok((token.pos, name)),
            None => self.fail(token.pos, "invalid syntax"),
        }
    }

    fn definition(&mut self) -> Parsed<()> {
        let (_, name) = self.template_name("define clause")?;
        self.expect(Kind::RightDelim, "define clause")?;
        let list = self.own_scope("define clause")?;
        self.define(&name, list)
    }

    /// Reads a definition's body: variables from outside are not seen in it.
    fn own_scope(&mut self, context: &str) -> Parsed<List> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let range_depth = std::mem::take(&mut self.range_depth);
        let pos = self.peek().pos;
        let (list, ending) = self.deeper(Self::list)?;
        if ending != Ending::End {
            return self.fail(pos, format!("unexpected {{{{else}}}} in {context}"));
        }
        (self.variables, self.range_depth) = (variables, range_depth);
        Ok(list)
    }

    fn list(&mut self) -> Parsed<(List, Ending)> {
        let mut list = List::new();
        while self.peek_word().kind != Kind::Eof {
            match self.piece()? {
                Piece::Statement(statement) => list.push(statement),
                Piece::Ending(ending) => return Ok((list, ending)),
            }
        }
        let pos = self.peek().pos;
        self.fail(pos, "unexpected EOF")
    }

    fn piece(&mut self) -> Parsed<Piece> {
        let token = self.next_word();
        match token.kind {
            Kind::Text => Ok(Piece::Statement(Statement::Text(token.text))),
            Kind::LeftDelim => self.action(),
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> Parsed<Piece> {
        let token = self.peek_word().clone();
        let Kind::Keyword(word) = token.kind else {
            let pipe = self.pipeline("command", Kind::RightDelim)?;
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
                if !matches!(next, Kind::Keyword(Keyword::If | Keyword::With)) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Piece::Ending(Ending::Else));
            }
            Keyword::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Piece::Ending(Ending::End));
            }
            Keyword::If => Statement::If(self.deeper(|p| p.control("if"))?),
            Keyword::With => Statement::With(self.deeper(|p| p.control("with"))?),
            Keyword::Range => Statement::Range(self.deeper(|p| p.control("range"))?),
            Keyword::Template => {
                let (pos, name) = self.template_name("template clause")?;
                let pipe = if self.peek_word().kind == Kind::RightDelim {
                    self.next();
                    None
                } else {
                    Some(self.pipeline("template clause", Kind::RightDelim)?)
                };
                Statement::Template { pos, name, pipe }
            }
        };
        Ok(Piece::Statement(statement))
    }

    fn leave(&mut self, token: &Token, shown: &str, statement: Statement) -> Parsed<Statement> {
        let next = self.next_word();
        if next.kind != Kind::RightDelim {
            return self.unexpected(&next, shown);
        }
        if self.range_depth == 0 {
            return self.fail(token.pos, format!("{shown} outside {{{{range}}}}"));
        }
        Ok(statement)
    }

    fn block(&mut self) -> Parsed<Statement> {
        let (pos, name) = self.template_name("block clause")?;
        let pipe = self.pipeline("block clause", Kind::RightDelim)?;
        let list = self.own_scope("block clause")?;
        self.define(&name, list)?;
        Ok(Statement::Template { pos, name, pipe: Some(pipe) })
    }

    fn control(&mut self, context: &'static str) -> Parsed<Branch> {
        let variables = self.variables.len();
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        let is_range = usize::from(context == "range");
        self.range_depth += is_range;
        let (then, ending) = self.list()?;
        self.range_depth -= is_range;
        let mut otherwise = None;
        if ending == Ending::Else {
            let next = self.peek().kind;
            otherwise = Some(match (context, next) {
                // `else if` is an `if` within `else`, with one `end` for both.
                ("if", Kind::Keyword(Keyword::If)) => {
                    self.next();
                    vec![Statement::If(self.deeper(|p| p.control("if"))?)]
                }
                ("with", Kind::Keyword(Keyword::With)) => {
                    self.next();
                    vec![Statement::With(self.deeper(|p| p.control("with"))?)]
                }
                _ => {
                    let pos = self.peek().pos;
                    let (list, ending) = self.list()?;
                    if ending != Ending::End {
                        return self.fail(pos, "expected end; found {{else}}");
                    }
                    list
                }
            });
        }
        self.variables.truncate(variables);
        Ok(Branch { pipe, then, otherwise })
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Parsed<Pipe> {
        let pos = self.peek_word().pos;
        let mut pipe = Pipe { pos, assigns: false, variables: Vec::new(), commands: Vec::new() };
        self.declarations(context, &mut pipe)?;
        loop {
            let token = self.peek_word().clone();
            match token.kind {
                kind if kind == end => {
                    self.next();
                    break;
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawText
                | Kind::Quoted
                | Kind::Variable
                | Kind::LeftParen => pipe.commands.push(self.command()?),
                _ => return self.unexpected(&token, context),
            }
        }
        if pipe.commands.is_empty() {
            return self.fail(pos, format!("missing value for {context}"));
        }
        for (i, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = &command.args[0];
            if matches!(
                first.kind,
                ArgKind::Bool(_) | ArgKind::Dot | ArgKind::Nil | ArgKind::Number { .. } | ArgKind::Text { .. }
            ) {
                return self.fail(first.pos, format!("non executable command in pipeline stage {}", i + 1));
            }
        }
        Ok(pipe)
    }

    fn declarations(&mut self, context: &str, pipe: &mut Pipe) -> Parsed<()> {
        while self.peek_word().kind == Kind::Variable {
            let before = self.at;
            let variable = self.next();
            let next = self.peek_word().clone();
            match next.kind {
                Kind::Assign | Kind::Declare => {
                    self.next();
                    pipe.assigns = next.kind == Kind::Assign;
                    self.declare(variable.text, pipe);
                    return Ok(());
                }
                Kind::Comma => {
                    self.next();
                    self.declare(variable.text, pipe);
                    if context != "range" || pipe.variables.len() >= 2 {
                        return self.fail(next.pos, format!("too many declarations in {context}"));
                    }
                    let after = self.peek_word();
                    if !matches!(after.kind, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                        let pos = after.pos;
                        return self.fail(pos, "range can only initialize variables");
                    }
                }
                _ => {
                    self.at = before;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: String, pipe: &mut Pipe) {
        self.variables.push(name.clone());
        pipe.variables.push(name);
    }

    fn command(&mut self) -> Parsed<Command> {
        let pos = self.peek_word().pos;
        let mut args = Vec::new();
        loop {
            self.skip_space();
            if let Some(arg) = self.operand()? {
                args.push(arg);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.at -= 1;
                    break;
                }
                Kind::Pipe => break,
                _ => return self.unexpected(&token, "operand"),
            }
        }
        if args.is_empty() {
            return self.fail(pos, "empty command");
        }
        Ok(Command { pos, args })
    }

    fn operand(&mut self) -> Parsed<Option<Arg>> {
        let Some(mut arg) = self.term()? else { return Ok(None) };
        let pos = self.peek().pos;
        let mut fields = Vec::new();
        while self.peek().kind == Kind::Field {
            fields.push(self.next().text[1..].to_owned());
        }
        if fields.is_empty() {
            return Ok(Some(arg));
        }
        match &mut arg.kind {
            // As in Go's, errors of such a word are told where its second name stands.
            ArgKind::Field(names) | ArgKind::Variable(names) => {
                names.append(&mut fields);
                arg.pos = pos;
            }
            ArgKind::Bool(_) | ArgKind::Text { .. } | ArgKind::Number { .. } | ArgKind::Nil | ArgKind::Dot => {
                let shown = quote(&arg.to_string());
                return self.fail(pos, format!("unexpected . after term {shown}"));
            }
            _ => arg = Arg { pos, kind: ArgKind::Chain(Box::new(arg), fields) },
        }
        Ok(Some(arg))
    }

    fn term(&mut self) -> Parsed<Option<Arg>> {
        let token = self.peek_word().clone();
        let kind = match token.kind {
            Kind::Identifier => {
                if !(self.is_function)(&token.text) {
                    return self.fail(token.pos, format!("function {} not defined", quote(&token.text)));
                }
                ArgKind::Identifier(token.text)
            }
            Kind::Dot => ArgKind::Dot,
            Kind::Nil => ArgKind::Nil,
            Kind::Variable => {
                if !self.variables.contains(&token.text) {
                    return self.fail(token.pos, format!("undefined variable {}", quote(&token.text)));
                }
                ArgKind::Variable(vec![token.text])
            }
            Kind::Field => ArgKind::Field(vec![token.text[1..].to_owned()]),
            Kind::Bool => ArgKind::Bool(token.text == "true"),
            Kind::CharConstant | Kind::Number => match complex(&token.text).or_else(|| number(&token.text)) {
                Some(value) => ArgKind::Number { text: token.text, value },
                None if token.kind == Kind::CharConstant => {
                    return self.fail(token.pos, format!("malformed character constant: {}", token.text));
                }
                None => return self.fail(token.pos, format!("illegal number syntax: {}", quote(&token.text))),
            },
            Kind::LeftParen => {
                self.next();
                let pipe = self.deeper(|p| p.pipeline("parenthesized pipeline", Kind::RightParen))?;
                return Ok(Some(Arg { pos: pipe.pos, kind: ArgKind::Pipe(Box::new(pipe)) }));
            }
            Kind::Quoted | Kind::RawText => match unquote(&token.text) {
                Some(value) => ArgKind::Text { written: token.text, value },
                None => return self.fail(token.pos, "invalid syntax"),
            },
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(Arg { pos: token.pos, kind }))
    }
}

/// Reads a constant as Go does.
fn number(text: &str) -> Option<Number> {
    if text.starts_with('\'') {
        let value = unquote(text)?;
        let mut chars = value.chars();
        let c = chars.next()?;
        return chars.next().is_none().then_some(Number::Int(c as i64));
    }
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || digits.ends_with('_') || digits.starts_with('_') || digits.contains("__") {
        return None;
    }
    let plain = digits.replace('_', "").to_ascii_lowercase();
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find(|(prefix, _)| plain.starts_with(prefix));
    let whole = match radix {
        Some((prefix, radix)) => i128::from_str_radix(&plain[prefix.len()..], radix).ok(),
        None if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit()) => {
            i128::from_str_radix(&plain, 8).ok()
        }
        None => plain.parse::<i128>().ok(),
    };
    let signed = whole.map(|w| if negative { -w } else { w });
    if let Some(whole) = signed {
        return match (i64::try_from(whole), u64::try_from(whole)) {
            (Ok(int), _) => Some(Number::Int(int)),
            (_, Ok(uint)) => Some(Number::Uint(uint)),
            _ => None,
        };
    }
    if radix.is_some_and(|(_, radix)| radix == 16) {
        let value = hex_float(&plain[2..])?;
        return Some(Number::Float(if negative { -value } else { value }));
    }
    if radix.is_some() || !plain.contains(['.', 'e']) || !plain.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: f64 = plain.parse().ok().filter(|v: &f64| v.is_finite())?;
    Some(Number::Float(if negative { -value } else { value }))
}

/// Reads digits and a power of two, behind `0x`: `1.8p1`. The digits are as many as a float holds exactly.
fn hex_float(text: &str) -> Option<f64> {
    const DIGITS_MAX: usize = 13;
    let (mantissa, power) = text.split_once('p')?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, part].concat();
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(&digits, 16).ok()? as f64;
    let power = power.parse::<i32>().ok()?.saturating_sub(4 * part.len() as i32);
    Some(value * 2_f64.powi(power)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        let check = |text: &str, expected: Option<Number>| assert_eq!(number(text), expected, "{text}");
        check("12", Some(Number::Int(12)));
        check("-0x10", Some(Number::Int(-16)));
        check("010", Some(Number::Int(8)));
        check("1e3", Some(Number::Float(1000.0)));
        check("18446744073709551615", Some(Number::Uint(u64::MAX)));
        check("'a'", Some(Number::Int(97)));
        check("''", None);
        check("08", None);
        check("1_000", Some(Number::Int(1000)));
        check(".", None);
        check("0x1p4", Some(Number::Float(16.0)));
        check("-0x1.8P1", Some(Number::Float(-3.0)));
        check("0x.8p-1", Some(Number::Float(0.25)));
        check("0x_1p4_0", Some(Number::Float(1_099_511_627_776.0)));
        for wrong in ["0x1p", "0xp1", "0x1.8", "0x+1p4", "0x1p99999"] {
            check(wrong, None);
        }
    }

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
        let deep = "{{if 1}}".repeat(500);
        assert!(parse("t", &deep, &|_| true).expect_err("deep").to_string().contains("depth exceeded"));
    }
}
