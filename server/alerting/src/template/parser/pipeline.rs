//! Parses pipelines: declarations of variables, commands, and operands.

use super::super::ast::{Arg, ArgKind, Command, Pipe};
use super::super::complex::complex;
use super::super::lexer::Kind;
use super::number::number;
use super::{Parsed, Parser};
use crate::text::{quote, unquote};

/// Most variables in scope, since each use of one searches all of them.
const VARIABLES_MAX: usize = 256;

impl Parser<'_> {
    /// Parses a pipeline including its end.
    pub(super) fn pipeline(&mut self, context: &str, end: Kind) -> Parsed<Pipe> {
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
                    return self.declare(variable.text, variable.pos, pipe);
                }
                Kind::Comma => {
                    self.next();
                    self.declare(variable.text, variable.pos, pipe)?;
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

    fn declare(&mut self, name: String, pos: usize, pipe: &mut Pipe) -> Parsed<()> {
        if !self.variables.contains(&name) {
            if self.variables.len() >= VARIABLES_MAX {
                return self.fail(pos, format!("more than {VARIABLES_MAX} variables"));
            }
            self.variables.push(name.clone());
        }
        pipe.variables.push(name);
        Ok(())
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
