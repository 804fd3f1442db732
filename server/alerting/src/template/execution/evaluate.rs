//! Evaluates pipelines: operands, fields, methods and functions.

use super::super::ast::{Arg, ArgKind, Command, Number, Pipe};
use super::super::value::Value;
use super::super::{MissingKey, Param, find, methods};
use super::args::{Signature, size};
use super::frame::{Frame, NodePosition, fail, set, variable};
use super::{Call, EvalResult, Exec};
use crate::text::quote;

/// What a field or function is called with: arguments, and the value that was piped into it.
#[derive(Default)]
struct CallArgs<'o> {
    args: &'o [Arg],
    last: Option<Value>,
}

/// A field or method that is looked for, and the value and operand that it is looked for in.
struct FieldAccess<'a, 'o> {
    node: &'o Arg,
    value: &'a Value,
    name: &'a str,
}

impl<'o> Exec<'o> {
    /// Evaluates a pipeline, and sets the variables that it declares.
    pub(super) fn pipe(&mut self, frame: &mut Frame<'o>, dot: &Value, pipe: &'o Pipe) -> EvalResult {
        self.deeper(frame, |exec, frame| {
            frame.at = NodePosition::Pipe(pipe);
            let mut value = None;
            for command in &pipe.commands {
                exec.step(frame)?;
                value = Some(exec.command(frame, dot, command, value)?);
            }
            let value = value.unwrap_or(Value::Nil);
            for name in &pipe.variables {
                if pipe.assigns {
                    exec.search(frame)?;
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

    fn command(&mut self, frame: &mut Frame<'o>, dot: &Value, command: &'o Command, last: Option<Value>) -> EvalResult {
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
                frame.at = NodePosition::Arg(first);
                self.function(frame, dot, NodePosition::Command(command), name, CallArgs { args, last })
            }
            ArgKind::Field(_) | ArgKind::Chain(..) => self.fields(frame, dot, first, CallArgs { args, last }),
            ArgKind::Variable(names) if names.len() > 1 => self.fields(frame, dot, first, CallArgs { args, last }),
            ArgKind::Pipe(pipe) => {
                plain(frame)?;
                self.pipe(frame, dot, pipe)
            }
            ArgKind::Nil => {
                frame.at = NodePosition::Arg(first);
                Err(fail(frame, "nil is not a command"))
            }
            _ => {
                frame.at = NodePosition::Arg(first);
                plain(frame)?;
                self.arg(frame, dot, first)
            }
        }
    }

    /// Evaluates an operand.
    fn arg(&mut self, frame: &mut Frame<'o>, dot: &Value, arg: &'o Arg) -> EvalResult {
        frame.at = NodePosition::Arg(arg);
        match &arg.kind {
            ArgKind::Dot => Ok(dot.clone()),
            ArgKind::Nil => Ok(Value::Nil),
            ArgKind::Bool(value) => Ok(Value::Bool(*value)),
            ArgKind::Number { value: Number::Int(value), .. } => Ok(Value::Int(*value)),
            ArgKind::Number { value: Number::Float(value), .. } => Ok(Value::Float(*value)),
            ArgKind::Number { value: Number::Complex(real, part), .. } => Ok(Value::Complex(*real, *part)),
            ArgKind::Number { text, .. } => Err(fail(frame, format!("{text} overflows int"))),
            ArgKind::Text { value, .. } => Ok(Value::text(value)),
            ArgKind::Identifier(name) => self.function(frame, dot, NodePosition::Arg(arg), name, CallArgs::default()),
            ArgKind::Variable(names) if names.len() == 1 => {
                self.search(frame)?;
                variable(frame, &names[0])
            }
            ArgKind::Field(_) | ArgKind::Variable(_) | ArgKind::Chain(..) => {
                self.fields(frame, dot, arg, CallArgs::default())
            }
            ArgKind::Pipe(pipe) => self.pipe(frame, dot, pipe),
        }
    }

    /// Follows a chain of fields; the last one may be a method, which takes the arguments.
    fn fields(&mut self, frame: &mut Frame<'o>, dot: &Value, node: &'o Arg, given: CallArgs<'o>) -> EvalResult {
        frame.at = NodePosition::Arg(node);
        let (mut value, names) = match &node.kind {
            ArgKind::Field(names) => (dot.clone(), names.as_slice()),
            ArgKind::Variable(names) => {
                self.search(frame)?;
                (variable(frame, &names[0])?, &names[1..])
            }
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
            let access = FieldAccess { node, value: &value, name };
            let inner = self.field(frame, dot, access, CallArgs::default())?;
            if inner == Value::Nil && value != Value::Nil {
                return Err(fail(frame, format!("nil pointer evaluating interface {{}}.{next}")));
            }
            value = inner;
        }
        self.field(frame, dot, FieldAccess { node, value: &value, name: end }, given)
    }

    fn field(
        &mut self,
        frame: &mut Frame<'o>,
        dot: &Value,
        FieldAccess { node, value, name }: FieldAccess<'_, 'o>,
        CallArgs { args, last }: CallArgs<'o>,
    ) -> EvalResult {
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
            Signature::from(method).check(frame, &values, args.len())?;
            let called = Call { exec: self }.method(value, method, &values);
            return called.map_err(|e| {
                frame.at = NodePosition::Arg(node);
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
        node: NodePosition<'o>,
        name: &str,
        CallArgs { args, last }: CallArgs<'o>,
    ) -> EvalResult {
        let Some(function) = find(self.templates.functions, name) else {
            return Err(fail(frame, format!("{} is not a defined function", quote(name))));
        };
        self.step(frame)?;
        if matches!(name, "and" | "or") {
            return self.short_circuit(frame, dot, name == "or", CallArgs { args, last });
        }
        let given = args.len();
        let count = given + usize::from(last.is_some());
        let signature = Signature::from(function);
        signature.check_count(frame, count, given)?;
        let mut values = Vec::with_capacity(count);
        for (i, arg) in args.iter().enumerate() {
            values.push(self.typed(frame, dot, signature.param(i), arg)?);
        }
        values.extend(last);
        signature.check(frame, &values, given)?;
        let called = self.read(&values).and_then(|()| (function.call)(&mut Call { exec: self }, &values));
        let made = called.and_then(|value| {
            self.make(size(&value))?;
            Ok(value)
        });
        made.map_err(|e| {
            frame.at = node;
            fail(frame, format!("error calling {name}: {e}"))
        })
    }

    /// Evaluates an argument; constants must suit the type of the parameter.
    fn typed(&mut self, frame: &mut Frame<'o>, dot: &Value, param: Option<Param>, arg: &'o Arg) -> EvalResult {
        let constant =
            matches!(arg.kind, ArgKind::Bool(_) | ArgKind::Number { .. } | ArgKind::Text { .. } | ArgKind::Nil);
        let suits = match (param, &arg.kind) {
            (Some(Param::Any) | None, _) => true,
            (Some(Param::Text), kind) => matches!(kind, ArgKind::Text { .. }),
            _ => false,
        };
        if constant && !suits {
            frame.at = NodePosition::Arg(arg);
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
        CallArgs { args, last }: CallArgs<'o>,
    ) -> EvalResult {
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
