//! A running template: its variables, and its position for errors.

use super::super::ast::{Arg, Command, Pipe};
use super::super::value::Value;
use super::super::{ExecError, Source};
use crate::text::quote;

/// The position that errors name: the last node that was visited.
#[derive(Clone, Copy)]
pub(super) enum NodePosition<'t> {
    Nothing,
    Pipe(&'t Pipe),
    Command(&'t Command),
    Arg(&'t Arg),
    Template(usize, &'t str, Option<&'t Pipe>),
}

/// A running template: name, text, variables.
pub(super) struct Frame<'t> {
    pub(super) name: &'t str,
    pub(super) source: &'t Source,
    pub(super) variables: Vec<(String, Value)>,
    pub(super) at: NodePosition<'t>,
}

/// Gives a variable. Go's parser allows one to be named in its own declaration, before it exists.
pub(super) fn variable(frame: &Frame<'_>, name: &str) -> Result<Value, Box<ExecError>> {
    let found = frame.variables.iter().rev().find(|(n, _)| n == name);
    found.map(|(_, value)| value.clone()).ok_or_else(|| fail(frame, format!("undefined variable: {name}")))
}

/// Sets a variable. Returns whether it exists.
pub(super) fn set(frame: &mut Frame<'_>, name: &str, value: Value) -> bool {
    let Some(slot) = frame.variables.iter_mut().rev().find(|(n, _)| n == name) else { return false };
    slot.1 = value;
    true
}

#[allow(clippy::unnecessary_box_returns, reason = "results hold it boxed")]
pub(super) fn fail(frame: &Frame<'_>, message: impl Into<String>) -> Box<ExecError> {
    let message = message.into();
    let (pos, context) = match frame.at {
        NodePosition::Nothing => {
            let shown = format!("template: {}: {message}", frame.source.name);
            return Box::new(ExecError { line: 0, column: 0, message, shown });
        }
        NodePosition::Pipe(pipe) => (pipe.pos, pipe.to_string()),
        NodePosition::Command(command) => (command.pos, command.to_string()),
        NodePosition::Arg(arg) => (arg.pos, arg.to_string()),
        NodePosition::Template(pos, name, pipe) => {
            let data = pipe.map_or_else(String::new, |pipe| format!(" {pipe}"));
            (pos, format!("{{{{template {}{data}}}}}", quote(name)))
        }
    };
    let (line, column, bytes) = frame.source.place(pos);
    let source = &frame.source.name;
    let shown = format!("template: {source}:{line}:{bytes}: executing {} at <{context}>: {message}", quote(frame.name));
    Box::new(ExecError { line, column, message, shown })
}
