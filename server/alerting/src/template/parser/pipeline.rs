//! Parses pipelines: declarations of variables, commands, and operands.

use super::super::ast::{Arg, ArgKind, Command, Pipe};
use super::super::complex::complex;
use super::super::lexer::TokenKind;
use super::number::number;
use super::{ParseResult, Parser};
use crate::text::{quote, unquote};

/// Most variables in scope, since each use of one searches all of them.
const VARIABLES_MAX: usize = 256;

impl Parser<'_> {
    /// Parses a pipeline including its end.
    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> ParseResult<Pipe> {
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
                TokenKind::Bool
                | TokenKind::CharConstant
                | TokenKind::Dot
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::Nil
                | TokenKind::RawText
                | TokenKind::Quoted
                | TokenKind::Variable
                | TokenKind::LeftParen => pipe.commands.push(self.command()?),
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

    fn declarations(&mut self, context: &str, pipe: &mut Pipe) -> ParseResult<()> {
        while self.peek_word().kind == TokenKind::Variable {
            let before = self.at;
            let variable = self.next();
            let next = self.peek_word().clone();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    self.next();
                    pipe.assigns = next.kind == TokenKind::Assign;
                    return self.declare(variable.text, variable.pos, pipe);
                }
                TokenKind::Comma => {
                    self.next();
                    self.declare(variable.text, variable.pos, pipe)?;
                    if context != "range" || pipe.variables.len() >= 2 {
                        return self.fail(next.pos, format!("too many declarations in {context}"));
                    }
                    let after = self.peek_word();
                    if !matches!(after.kind, TokenKind::Variable | TokenKind::RightDelim | TokenKind::RightParen) {
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

    fn declare(&mut self, name: String, pos: usize, pipe: &mut Pipe) -> ParseResult<()> {
        if !self.variables.contains(&name) {
            if self.variables.len() >= VARIABLES_MAX {
                return self.fail(pos, format!("more than {VARIABLES_MAX} variables"));
            }
            self.variables.push(name.clone());
        }
        pipe.variables.push(name);
        Ok(())
    }

    fn command(&mut self) -> ParseResult<Command> {
        let pos = self.peek_word().pos;
        let mut args = Vec::new();
        loop {
            self.skip_space();
            if let Some(arg) = self.operand()? {
                args.push(arg);
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => {}
                TokenKind::RightDelim | TokenKind::RightParen => {
                    self.at -= 1;
                    break;
                }
                TokenKind::Pipe => break,
                _ => return self.unexpected(&token, "operand"),
            }
        }
        if args.is_empty() {
            return self.fail(pos, "empty command");
        }
        Ok(Command { pos, args })
    }

    fn operand(&mut self) -> ParseResult<Option<Arg>> {
        let Some(mut arg) = self.term()? else { return Ok(None) };
        let pos = self.peek().pos;
        let mut fields = Vec::new();
        while self.peek().kind == TokenKind::Field {
            fields.push(self.next().text[1..].to_owned());
        }
        if fields.is_empty() {
            return Ok(Some(arg));
        }
        match &mut arg.kind {
            // As in Go, errors in a chain are reported at its second name.
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

    fn term(&mut self) -> ParseResult<Option<Arg>> {
        let token = self.peek_word().clone();
        let kind = match token.kind {
            TokenKind::Identifier => {
                if !(self.is_function)(&token.text) {
                    return self.fail(token.pos, format!("function {} not defined", quote(&token.text)));
                }
                ArgKind::Identifier(token.text)
            }
            TokenKind::Dot => ArgKind::Dot,
            TokenKind::Nil => ArgKind::Nil,
            TokenKind::Variable => {
                if !self.variables.contains(&token.text) {
                    return self.fail(token.pos, format!("undefined variable {}", quote(&token.text)));
                }
                ArgKind::Variable(vec![token.text])
            }
            TokenKind::Field => ArgKind::Field(vec![token.text[1..].to_owned()]),
            TokenKind::Bool => ArgKind::Bool(token.text == "true"),
            TokenKind::CharConstant | TokenKind::Number => match complex(&token.text).or_else(|| number(&token.text)) {
                Some(value) => ArgKind::Number { text: token.text, value },
                None if token.kind == TokenKind::CharConstant => {
                    return self.fail(token.pos, format!("malformed character constant: {}", token.text));
                }
                None => return self.fail(token.pos, format!("illegal number syntax: {}", quote(&token.text))),
            },
            TokenKind::LeftParen => {
                self.next();
                let pipe = self.deeper(|p| p.pipeline("parenthesized pipeline", TokenKind::RightParen))?;
                return Ok(Some(Arg { pos: pipe.pos, kind: ArgKind::Pipe(Box::new(pipe)) }));
            }
            TokenKind::Quoted | TokenKind::RawText => match unquote(&token.text) {
                Some(value) => ArgKind::Text { written: token.text, value },
                None => return self.fail(token.pos, "invalid syntax"),
            },
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(Arg { pos: token.pos, kind }))
    }
}
