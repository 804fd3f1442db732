//! Walks a tree over data, as Go's `text/template/exec.go` does.

mod args;
mod frame;
mod kept;

use std::fmt;

use args::{check_args, check_count, param, size};
use frame::{At, Frame, fail, set, variable};
use kept::Kept;

use super::ast::{Arg, ArgKind, Branch, Command, List, Number, Pipe, Statement};
use super::html::Page;
use super::value::Value;
use super::{ExecError, Function, Host, MissingKey, Options, Param, Templates, find, methods};
use crate::text::quote;

/// What a template may spend.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Pieces walked and functions called.
    pub steps_max: usize,
    /// Bytes of output.
    pub output_max: usize,
    /// Bytes of texts and lists made on the way.
    pub made_max: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps_max: 100_000, output_max: 64 << 10, made_max: 4 << 20 }
    }
}

/// Deepest nesting of templates, pipelines and statements while running.
const DEPTH_MAX: usize = 250;

/// What a function sees while it is called.
pub(crate) struct Call<'a, 'o> {
    pub(super) exec: &'a mut Exec<'o>,
}

impl fmt::Debug for Call<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl Call<'_, '_> {
    pub(super) fn host(&self) -> &Host<'_> {
        &self.exec.options.host
    }

    /// Counts bytes that a function is about to make.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), String> {
        self.exec.make(bytes)
    }
}

pub(super) struct Exec<'o> {
    pub(super) templates: &'o Templates,
    pub(super) options: &'o Options<'o>,
    /// What the whole template runs over.
    pub(super) data: Value,
    out: String,
    page: Option<Page>,
    steps: usize,
    made: usize,
    depth: usize,
    pub(super) kept: Kept,
}

/// What ends a walk early.
enum Stop {
    Break,
    Continue,
    Error(Box<ExecError>),
}

impl From<Box<ExecError>> for Stop {
    fn from(error: Box<ExecError>) -> Self {
        Self::Error(error)
    }
}

type Walked<T = ()> = Result<T, Stop>;
type Evaluated = Result<Value, Box<ExecError>>;

pub(super) fn run(
    templates: &Templates,
    name: &str,
    data: &Value,
    options: &Options<'_>,
    html: bool,
) -> Result<String, ExecError> {
    let mut exec = Exec {
        templates,
        options,
        data: data.clone(),
        out: String::new(),
        page: html.then(Page::default),
        steps: 0,
        made: 0,
        depth: 0,
        kept: Kept::default(),
    };
    exec.whole(name, data)?;
    Ok(exec.out)
}

impl<'o> Exec<'o> {
    fn whole(&mut self, name: &str, data: &Value) -> Result<(), ExecError> {
        let Some((name, definition)) = self.templates.definitions.get_key_value(name) else {
            let message = format!("no template {}", quote(name));
            return Err(ExecError { line: 0, column: 0, shown: format!("template: {message}"), message });
        };
        let mut frame = Frame {
            name,
            source: &definition.source,
            variables: vec![("$".to_owned(), data.clone())],
            at: At::Nothing,
        };
        match self.list(&mut frame, data, &definition.list) {
            Err(Stop::Error(error)) => Err(*error),
            _ => Ok(()),
        }
    }

    /// Runs another text with the same budget; for functions that run templates.
    pub(super) fn nested(&mut self, templates: &Templates, name: &str, data: &Value) -> Result<String, String> {
        if self.depth >= DEPTH_MAX {
            return Err(format!("exceeded maximum template depth ({DEPTH_MAX})"));
        }
        let mut inner = Exec {
            templates,
            options: self.options,
            data: data.clone(),
            out: String::new(),
            page: self.page.is_some().then(Page::default),
            steps: self.steps,
            made: self.made,
            depth: self.depth + 20,
            kept: std::mem::take(&mut self.kept),
        };
        let outcome = inner.whole(name, data);
        let text = std::mem::take(&mut inner.out);
        (self.steps, self.made) = (inner.steps, inner.made);
        self.kept = std::mem::take(&mut inner.kept);
        outcome.map(|()| text).map_err(|e| e.to_string())
    }

    /// Counts bytes of texts and lists that are made on the way.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), String> {
        self.made = self.made.saturating_add(bytes);
        if self.made > self.options.budget.made_max {
            return Err("the template makes too much".to_owned());
        }
        Ok(())
    }

    fn step(&mut self, frame: &Frame<'_>) -> Result<(), Box<ExecError>> {
        self.steps += 1;
        if self.steps > self.options.budget.steps_max {
            return Err(fail(frame, format!("exceeded {} steps", self.options.budget.steps_max)));
        }
        Ok(())
    }

    fn deeper<T, E: From<Box<ExecError>>>(
        &mut self,
        frame: &mut Frame<'o>,
        walk: impl FnOnce(&mut Self, &mut Frame<'o>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.depth >= DEPTH_MAX {
            return Err(fail(frame, format!("exceeded maximum template depth ({DEPTH_MAX})")).into());
        }
        self.depth += 1;
        let out = walk(self, frame);
        self.depth -= 1;
        out
    }

    fn write(&mut self, frame: &Frame<'_>, text: &str) -> Result<(), Box<ExecError>> {
        if self.out.len() + text.len() > self.options.budget.output_max {
            return Err(fail(frame, format!("output exceeds {} bytes", self.options.budget.output_max)));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, frame: &mut Frame<'o>, dot: &Value, list: &'o List) -> Walked {
        for statement in list {
            self.step(frame)?;
            self.deeper(frame, |exec, frame| exec.statement(frame, dot, statement))?;
        }
        Ok(())
    }

    fn statement(&mut self, frame: &mut Frame<'o>, dot: &Value, statement: &'o Statement) -> Walked {
        match statement {
            Statement::Text(text) => match &mut self.page {
                Some(page) => {
                    let text = page.text(text);
                    self.write(frame, &text)?;
                }
                None => self.write(frame, text)?,
            },
            Statement::Action(pipe) => {
                let value = self.pipe(frame, dot, pipe)?;
                if pipe.variables.is_empty() {
                    frame.at = At::Pipe(pipe);
                    self.print(frame, &value, pipe.escaper())?;
                }
            }
            Statement::If(branch) => self.either(frame, dot, branch, false)?,
            Statement::With(branch) => self.either(frame, dot, branch, true)?,
            Statement::Range(branch) => self.range(frame, dot, branch)?,
            Statement::Template { pos, name, pipe } => self.template(frame, dot, *pos, name, pipe.as_ref())?,
            Statement::Break => return Err(Stop::Break),
            Statement::Continue => return Err(Stop::Continue),
        }
        Ok(())
    }

    /// Writes a value; `escaper`: the one of Go's own that it went through last.
    fn print(&mut self, frame: &Frame<'_>, value: &Value, escaper: Option<&str>) -> Result<(), Box<ExecError>> {
        let text = match (value, &mut self.page) {
            (Value::Nil, None) => "<no value>".to_owned(),
            (value, None) => value.printed(),
            (value, Some(page)) => match escaper {
                Some(escaper) => page.escaped(escaper, value),
                None => page.value(value),
            },
        };
        self.write(frame, &text)
    }

    fn either(&mut self, frame: &mut Frame<'o>, dot: &Value, branch: &'o Branch, with: bool) -> Walked {
        let mark = frame.variables.len();
        let value = self.pipe(frame, dot, &branch.pipe)?;
        let walked = if value.truth() {
            self.list(frame, if with { &value } else { dot }, &branch.then)
        } else {
            branch.otherwise.as_ref().map_or(Ok(()), |list| self.list(frame, dot, list))
        };
        frame.variables.truncate(mark);
        walked
    }

    fn range(&mut self, frame: &mut Frame<'o>, dot: &Value, branch: &'o Branch) -> Walked {
        let mark = frame.variables.len();
        let value = self.pipe(frame, dot, &branch.pipe)?;
        let walked = match &value {
            Value::List(list) => {
                let items = list.items.iter().enumerate().map(|(i, item)| (Value::Int(i as i64), item.clone()));
                self.items(frame, branch, items)
            }
            Value::Map(map) => {
                let items = map.entries.iter().map(|(name, value)| (Value::text(name), value.clone()));
                self.items(frame, branch, items)
            }
            Value::Int(_) | Value::Uint(_) | Value::Duration(_) => {
                if branch.pipe.variables.len() > 1 {
                    let message = format!("can't use {} to iterate over more than one variable", value.printed());
                    return Err(fail(frame, message).into());
                }
                let (count, unsigned) = match value {
                    Value::Uint(count) => (i64::try_from(count).unwrap_or(i64::MAX), true),
                    Value::Int(count) | Value::Duration(count) => (count, false),
                    _ => (0, false),
                };
                let number = |i: i64| if unsigned { Value::Uint(i as u64) } else { Value::Int(i) };
                self.items(frame, branch, (0..count.max(0)).map(|i| (Value::Nil, number(i))))
            }
            Value::Nil => Ok(false),
            other => {
                let message = format!("range can't iterate over {}", other.printed());
                return Err(fail(frame, message).into());
            }
        };
        let walked = match walked {
            Ok(false) => branch.otherwise.as_ref().map_or(Ok(()), |list| self.list(frame, dot, list)),
            Ok(true) => Ok(()),
            Err(stop) => Err(stop),
        };
        frame.variables.truncate(mark);
        walked
    }

    /// Walks the body for each item; says whether there was one.
    fn items(
        &mut self,
        frame: &mut Frame<'o>,
        branch: &'o Branch,
        items: impl Iterator<Item = (Value, Value)>,
    ) -> Walked<bool> {
        let names = &branch.pipe.variables;
        let mark = frame.variables.len();
        let mut any = false;
        for (key, item) in items {
            any = true;
            self.step(frame)?;
            let pair = match names.len() {
                0 => vec![],
                1 => vec![(&names[0], item.clone())],
                _ => vec![(&names[0], key), (&names[1], item.clone())],
            };
            for (name, value) in pair {
                // The pipeline has declared them already.
                set(frame, name, value);
            }
            let walked = self.list(frame, &item, &branch.then);
            frame.variables.truncate(mark);
            match walked {
                Err(Stop::Break) => break,
                Ok(()) | Err(Stop::Continue) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(any)
    }

    fn template(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        pos: usize,
        name: &'o str,
        pipe: Option<&'o Pipe>,
    ) -> Walked {
        frame.at = At::Template(pos, name, pipe);
        let Some(definition) = self.templates.definitions.get(name) else {
            return Err(fail(frame, format!("template {} not defined", quote(name))).into());
        };
        let data = match pipe {
            Some(pipe) => self.pipe(frame, dot, pipe)?,
            None => Value::Nil,
        };
        let mut inner =
            Frame { name, source: &definition.source, variables: vec![("$".to_owned(), data.clone())], at: frame.at };
        inner.at = At::Nothing;
        self.list(&mut inner, &data, &definition.list)
    }

    fn pipe(&mut self, frame: &mut Frame<'o>, dot: &Value, pipe: &'o Pipe) -> Evaluated {
        self.deeper(frame, |exec, frame| {
            frame.at = At::Pipe(pipe);
            let mut value = None;
            for command in &pipe.commands {
                exec.step(frame)?;
                value = Some(exec.command(frame, dot, command, value)?);
            }
            let value = value.unwrap_or(Value::Nil);
            for name in &pipe.variables {
                if pipe.assigns {
                    if !set(frame, name, value.clone()) {
                        return Err(fail(frame, format!("undefined variable: {name}")));
                    }
                } else {
                    frame.variables.push((name.clone(), value.clone()));
                }
            }
            Ok(value)
        })
    }

    fn command(&mut self, frame: &mut Frame<'o>, dot: &Value, command: &'o Command, last: Option<Value>) -> Evaluated {
        let first = &command.args[0];
        let args = &command.args[1..];
        let plain = |frame: &Frame<'_>| {
            if args.is_empty() && last.is_none() {
                Ok(())
            } else {
                Err(fail(frame, format!("can't give argument to non-function {first}")))
            }
        };
        match &first.kind {
            ArgKind::Identifier(name) => {
                frame.at = At::Arg(first);
                self.function(frame, dot, At::Command(command), name, args, last)
            }
            ArgKind::Field(_) | ArgKind::Chain(..) => self.fields(frame, dot, first, args, last),
            ArgKind::Variable(names) if names.len() > 1 => self.fields(frame, dot, first, args, last),
            ArgKind::Pipe(pipe) => {
                plain(frame)?;
                self.pipe(frame, dot, pipe)
            }
            ArgKind::Nil => {
                frame.at = At::Arg(first);
                Err(fail(frame, "nil is not a command"))
            }
            _ => {
                frame.at = At::Arg(first);
                plain(frame)?;
                self.arg(frame, dot, first)
            }
        }
    }

    /// Evaluates a word by itself.
    fn arg(&mut self, frame: &mut Frame<'o>, dot: &Value, arg: &'o Arg) -> Evaluated {
        frame.at = At::Arg(arg);
        match &arg.kind {
            ArgKind::Dot => Ok(dot.clone()),
            ArgKind::Nil => Ok(Value::Nil),
            ArgKind::Bool(value) => Ok(Value::Bool(*value)),
            ArgKind::Number { value: Number::Int(value), .. } => Ok(Value::Int(*value)),
            ArgKind::Number { value: Number::Float(value), .. } => Ok(Value::Float(*value)),
            ArgKind::Number { value: Number::Complex(real, part), .. } => Ok(Value::Complex(*real, *part)),
            ArgKind::Number { text, .. } => Err(fail(frame, format!("{text} overflows int"))),
            ArgKind::Text { value, .. } => Ok(Value::text(value)),
            ArgKind::Identifier(name) => self.function(frame, dot, At::Arg(arg), name, &[], None),
            ArgKind::Variable(names) if names.len() == 1 => variable(frame, &names[0]),
            ArgKind::Field(_) | ArgKind::Variable(_) | ArgKind::Chain(..) => self.fields(frame, dot, arg, &[], None),
            ArgKind::Pipe(pipe) => self.pipe(frame, dot, pipe),
        }
    }

    /// Follows fields; the last one may be a method, which takes the arguments.
    fn fields(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        node: &'o Arg,
        args: &'o [Arg],
        last: Option<Value>,
    ) -> Evaluated {
        frame.at = At::Arg(node);
        let (mut value, names) = match &node.kind {
            ArgKind::Field(names) => (dot.clone(), names.as_slice()),
            ArgKind::Variable(names) => (variable(frame, &names[0])?, &names[1..]),
            ArgKind::Chain(inner, names) => {
                if matches!(inner.kind, ArgKind::Nil) {
                    return Err(fail(frame, format!("indirection through explicit nil in {node}")));
                }
                (self.deeper(frame, |exec, frame| exec.arg(frame, dot, inner))?, names.as_slice())
            }
            _ => return Ok(Value::Nil),
        };
        let Some((end, path)) = names.split_last() else { return Ok(value) };
        for (name, next) in path.iter().zip(&names[1..]) {
            let inner = self.field(frame, dot, node, &value, name, &[], None)?;
            if inner == Value::Nil && value != Value::Nil {
                return Err(fail(frame, format!("nil pointer evaluating interface {{}}.{next}")));
            }
            value = inner;
        }
        self.field(frame, dot, node, &value, end, args, last)
    }

    #[allow(clippy::too_many_arguments, reason = "as in Go's: who asks, of what, for what, with which arguments")]
    fn field(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        node: &'o Arg,
        value: &Value,
        name: &str,
        args: &'o [Arg],
        last: Option<Value>,
    ) -> Evaluated {
        let strict = self.options.missing_key == MissingKey::Error;
        if *value == Value::Nil {
            if strict {
                return Err(fail(frame, format!("nil data; no entry for key {}", quote(name))));
            }
            return Ok(Value::Nil);
        }
        if let Some(method) = methods::find(value, name) {
            let mut values = vec![];
            for arg in args {
                values.push(self.arg(frame, dot, arg)?);
            }
            values.extend(last);
            check_args(frame, method.name, method.params, false, &mut values, args.len())?;
            let called = Call { exec: self }.method(value, method, &values);
            return called.map_err(|e| {
                frame.at = At::Arg(node);
                fail(frame, format!("error calling {name}: {e}"))
            });
        }
        let has_args = !args.is_empty() || last.is_some();
        match value {
            Value::Struct(fields) => {
                if let Some((_, _, field)) = fields.fields.iter().find(|(field, ..)| *field == name) {
                    if has_args {
                        let message = format!("{name} has arguments but cannot be invoked as function");
                        return Err(fail(frame, message));
                    }
                    return Ok(field.clone());
                }
            }
            Value::Map(map) => {
                if has_args {
                    return Err(fail(frame, format!("{name} is not a method but has arguments")));
                }
                return match map.entries.get(name) {
                    Some(entry) => Ok(entry.clone()),
                    None if strict => Err(fail(frame, format!("map has no entry for key {}", quote(name)))),
                    None => Ok(map.kind.zero()),
                };
            }
            _ => {}
        }
        Err(fail(frame, format!("can't evaluate field {name} in type {}", value.type_name())))
    }

    fn function(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        node: At<'o>,
        name: &str,
        args: &'o [Arg],
        last: Option<Value>,
    ) -> Evaluated {
        let Some(function) = find(self.templates.functions, name) else {
            return Err(fail(frame, format!("{} is not a defined function", quote(name))));
        };
        self.step(frame)?;
        if matches!(name, "and" | "or") {
            return self.short_circuit(frame, dot, name == "or", args, last);
        }
        let given = args.len();
        let count = given + usize::from(last.is_some());
        check_count(frame, name, (function.params, function.variadic), count, given)?;
        let mut values = Vec::with_capacity(count);
        for (i, arg) in args.iter().enumerate() {
            values.push(self.typed(frame, dot, function, i, arg)?);
        }
        values.extend(last);
        check_args(frame, name, function.params, function.variadic, &mut values, given)?;
        let called = (function.call)(&mut Call { exec: self }, &values);
        let made = called.and_then(|value| {
            self.make(size(&value))?;
            Ok(value)
        });
        made.map_err(|e| {
            frame.at = node;
            fail(frame, format!("error calling {name}: {e}"))
        })
    }

    /// Evaluates an argument; constants must suit the parameter.
    fn typed(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        function: &Function,
        idx: usize,
        arg: &'o Arg,
    ) -> Evaluated {
        let param = param(function.params, function.variadic, idx);
        let constant =
            matches!(arg.kind, ArgKind::Bool(_) | ArgKind::Number { .. } | ArgKind::Text { .. } | ArgKind::Nil);
        let suits = match (param, &arg.kind) {
            (Some(Param::Any) | None, _) => true,
            (Some(Param::Text), kind) => matches!(kind, ArgKind::Text { .. }),
            _ => false,
        };
        if constant && !suits {
            frame.at = At::Arg(arg);
            let wanted = param.map_or("", Param::type_name);
            let message = match &arg.kind {
                ArgKind::Nil => format!("cannot assign nil to {wanted}"),
                _ if param == Some(Param::Text) => format!("expected string; found {arg}"),
                _ => format!("can't handle {arg} for arg of type {wanted}"),
            };
            return Err(fail(frame, message));
        }
        self.deeper(frame, |exec, frame| exec.arg(frame, dot, arg))
    }

    fn short_circuit(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        wanted: bool,
        args: &'o [Arg],
        last: Option<Value>,
    ) -> Evaluated {
        if args.is_empty() && last.is_none() {
            let name = if wanted { "or" } else { "and" };
            return Err(fail(frame, format!("wrong number of args for {name}: want at least 1 got 0")));
        }
        let mut value = Value::Nil;
        for arg in args {
            value = self.deeper(frame, |exec, frame| exec.arg(frame, dot, arg))?;
            if value.truth() == wanted {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}
