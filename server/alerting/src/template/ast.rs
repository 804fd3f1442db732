//! A template as a tree. Each piece knows where it stands and prints itself as Go's does, which errors show.

use std::fmt;

/// What a template does, one after the other.
pub(super) type List = Vec<Statement>;

/// One piece of a template.
#[derive(Debug, Clone)]
pub(super) enum Statement {
    Text(String),
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { pos: usize, name: String, pipe: Option<Pipe> },
    Break,
    Continue,
}

/// `if`, `with` or `range` with both ways.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) then: List,
    pub(super) otherwise: Option<List>,
}

/// A pipeline, with the variables that take its value.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    pub(super) pos: usize,
    /// `=` instead of `:=`.
    pub(super) assigns: bool,
    pub(super) variables: Vec<String>,
    pub(super) commands: Vec<Command>,
}

/// A command: a function or value, with arguments.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) pos: usize,
    pub(super) args: Vec<Arg>,
}

/// A word of a command.
#[derive(Debug, Clone)]
pub(super) struct Arg {
    pub(super) pos: usize,
    pub(super) kind: ArgKind,
}

/// What a word is.
#[derive(Debug, Clone)]
pub(super) enum ArgKind {
    Identifier(String),
    Dot,
    Nil,
    Bool(bool),
    Number {
        text: String,
        value: Number,
    },
    Text {
        written: String,
        value: String,
    },
    Field(Vec<String>),
    /// The name with its dollar, then fields.
    Variable(Vec<String>),
    Chain(Box<Arg>, Vec<String>),
    Pipe(Box<Pipe>),
}

/// A number as it is written; without a fraction it is whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    /// Beyond what an int holds.
    Uint(u64),
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Pipe {
    /// Gives the escaper of Go's own that its last command calls.
    pub(super) fn escaper(&self) -> Option<&str> {
        let last = self.commands.last().and_then(|command| command.args.first())?;
        match &last.kind {
            ArgKind::Identifier(name) if matches!(name.as_str(), "html" | "urlquery") => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            write!(f, "{} {} ", self.variables.join(", "), if self.assigns { "=" } else { ":=" })?;
        }
        for (i, command) in self.commands.iter().enumerate() {
            if i > 0 {
                f.write_str(" | ")?;
            }
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, arg) in self.args.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            match &arg.kind {
                ArgKind::Pipe(pipe) => write!(f, "({pipe})")?,
                _ => arg.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ArgKind::Identifier(name) => f.write_str(name),
            ArgKind::Dot => f.write_str("."),
            ArgKind::Nil => f.write_str("nil"),
            ArgKind::Bool(value) => value.fmt(f),
            ArgKind::Number { text, .. } => f.write_str(text),
            ArgKind::Text { written, .. } => f.write_str(written),
            ArgKind::Field(names) => names.iter().try_for_each(|name| write!(f, ".{name}")),
            ArgKind::Variable(names) => f.write_str(&names.join(".")),
            ArgKind::Chain(inner, names) => {
                match &inner.kind {
                    ArgKind::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => inner.fmt(f)?,
                }
                names.iter().try_for_each(|name| write!(f, ".{name}"))
            }
            ArgKind::Pipe(pipe) => pipe.fmt(f),
        }
    }
}

/// Says whether a list shows nothing but spaces, so that another definition may take its place.
pub(super) fn is_empty(list: &List) -> bool {
    list.iter().all(|statement| matches!(statement, Statement::Text(text) if text.trim().is_empty()))
}
