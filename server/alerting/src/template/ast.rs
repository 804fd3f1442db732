//! The syntax tree of a template. Each node has its position and prints itself as in Go, since errors show that.

use std::fmt;

/// Statements in order.
pub(super) type List = Vec<Statement>;

/// A statement of a template.
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

/// `if`, `with` or `range`, with both branches.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) then: List,
    pub(super) otherwise: Option<List>,
}

/// A pipeline, and the variables that it assigns.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    pub(super) pos: usize,
    /// Whether it is `=` and not `:=`.
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

/// An operand of a command.
#[derive(Debug, Clone)]
pub(super) struct Arg {
    pub(super) pos: usize,
    pub(super) kind: ArgKind,
}

/// The kind of an operand.
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
    /// The variable with its dollar sign, then fields.
    Variable(Vec<String>),
    Chain(Box<Arg>, Vec<String>),
    Pipe(Box<Pipe>),
}

/// A numeric constant; without a fraction it is an integer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    /// Too large for an `int`.
    Uint(u64),
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Pipe {
    /// The escaping function of Go's own that its last command calls.
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

/// Whether statements print nothing but spaces; then another definition may replace this one.
pub(super) fn is_empty(list: &List) -> bool {
    list.iter().all(|statement| matches!(statement, Statement::Text(text) if text.trim().is_empty()))
}
