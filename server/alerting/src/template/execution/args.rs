//! Checks arguments of functions and methods: number and types.

use super::super::methods::Method;
use super::super::value::{ListKind, Value};
use super::super::{ExecError, Function, Param};
use super::frame::{Frame, fail};
use super::{Call, Exec};

/// How many items of a list a method may process per step; of a mapping, whose names it copies, one.
const ITEMS_OF_STEP: usize = 8;
/// How many bytes of text a function or method may read per step.
const TEXT_OF_STEP: usize = 256;
/// How many bytes of the layout of a time are followed per step: each place is compared with all elements.
const LAYOUT_OF_STEP: usize = 16;
/// How many bytes of a regular expression a search may follow at once per step.
const PATTERN_OF_STEP: usize = 64;

impl Exec<'_> {
    /// Accounts for the time that a function needs for its arguments.
    pub(super) fn read(&mut self, args: &[Value]) -> Result<(), String> {
        let bytes: usize = args.iter().filter_map(Value::as_text).map(|text| text.len()).sum();
        self.work(bytes / TEXT_OF_STEP)
    }

    /// Accounts for work within a function.
    pub(super) fn work(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        let most = self.options.budget.steps_max;
        if self.steps > most { Err(format!("exceeded {most} steps")) } else { Ok(()) }
    }
}

impl Call<'_, '_> {
    /// Calls a method. Most methods process all items of a list or mapping, so long ones cost more steps; what methods of a
    /// mapping create counts as memory.
    pub(super) fn method(&mut self, value: &Value, method: &Method, args: &[Value]) -> Result<Value, String> {
        let steps = match value {
            Value::List(list) => list.items.len() / ITEMS_OF_STEP,
            Value::Map(map) => map.entries.len() + value.weight() / TEXT_OF_STEP,
            _ => 0,
        };
        self.exec.work(steps)?;
        self.exec.read(args)?;
        let out = (method.call)(self, value, args)?;
        if matches!(value, Value::Map(_)) {
            self.make(size(&out))?;
        }
        Ok(out)
    }

    /// Accounts for the search for a regular expression in a text.
    pub(in super::super) fn search(&mut self, pattern: &str, whole: &str) -> Result<(), String> {
        self.exec.work((whole.len() / TEXT_OF_STEP).saturating_mul(pattern.len() / PATTERN_OF_STEP))
    }

    /// Charges the steps for following the layout of a time.
    pub(in super::super) fn follow(&mut self, layout: &str) -> Result<(), String> {
        self.exec.work(layout.len() / LAYOUT_OF_STEP)
    }

    /// Checks that a text of all these values may still be made, before it is there: a value that is given a thousand
    /// times is kept once.
    pub(in super::super) fn fits(&self, values: &[Value]) -> Result<(), String> {
        let bytes = values.iter().fold(self.exec.made, |sum, value| sum.saturating_add(value.weight()));
        if bytes > self.exec.options.budget.made_max { Err("the template makes too much".to_owned()) } else { Ok(()) }
    }

    /// Checks a value that a function composed of others. A value that contains another one twice doubles its size
    /// when printed, so the limit is a few times the template's data plus what the template may make.
    pub(in super::super) fn held(&self, value: Value) -> Result<Value, String> {
        let most = self.exec.data.weight().saturating_mul(8).saturating_add(self.exec.options.budget.made_max);
        if value.weight() > most { Err("the template makes too much".to_owned()) } else { Ok(value) }
    }
}

/// What a function or method takes.
#[derive(Clone, Copy)]
pub(super) struct Signature<'a> {
    name: &'a str,
    params: &'a [Param],
    variadic: bool,
}

impl<'a> From<&'a Function> for Signature<'a> {
    fn from(function: &'a Function) -> Self {
        Self { name: function.name, params: function.params, variadic: function.variadic }
    }
}

impl<'a> From<&'a Method> for Signature<'a> {
    fn from(method: &'a Method) -> Self {
        Self { name: method.name, params: method.params, variadic: false }
    }
}

impl Signature<'_> {
    /// The parameter of an argument.
    pub(super) fn param(&self, idx: usize) -> Option<Param> {
        match self.params.get(idx) {
            Some(param) => Some(*param),
            None if self.variadic => self.params.last().copied(),
            None => None,
        }
    }

    /// Checks the number of arguments; `given` are written, and one more may come through a pipe.
    pub(super) fn check_count(&self, frame: &Frame<'_>, count: usize, given: usize) -> Result<(), Box<ExecError>> {
        let name = self.name;
        let fixed = self.params.len() - usize::from(self.variadic);
        if self.variadic && count < fixed {
            return Err(fail(frame, format!("wrong number of args for {name}: want at least {fixed} got {given}")));
        }
        if !self.variadic && count != fixed {
            return Err(fail(frame, format!("wrong number of args for {name}: want {fixed} got {count}")));
        }
        Ok(())
    }

    /// Checks number and types of arguments.
    pub(super) fn check(&self, frame: &Frame<'_>, values: &[Value], given: usize) -> Result<(), Box<ExecError>> {
        self.check_count(frame, values.len(), given)?;
        for (i, value) in values.iter().enumerate() {
            let Some(param) = self.param(i) else { continue };
            if !takes(param, value) {
                let message = if *value == Value::Nil {
                    format!("invalid value; expected {}", param.type_name())
                } else {
                    format!("wrong type for value; expected {}; got {}", param.type_name(), value.type_name())
                };
                return Err(fail(frame, message));
            }
        }
        Ok(())
    }
}

fn takes(param: Param, value: &Value) -> bool {
    match (param, value) {
        (Param::Any, _) | (Param::Text, Value::Text(_)) | (Param::Time, Value::Time(_)) => true,
        (Param::Query, Value::List(list)) => list.kind == ListKind::Query,
        (Param::Sample, Value::Struct(fields)) => fields.type_name == "*template.sample",
        (Param::Texts, Value::List(list)) => matches!(list.kind, ListKind::Texts | ListKind::Strings),
        (Param::List, Value::List(list)) => list.kind == ListKind::Any,
        // Parameters that may be nil in Go accept nothing as their empty value.
        (Param::Query | Param::Texts | Param::List, other) => matches!(other, Value::Nil),
        _ => false,
    }
}

pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) | Value::Safe(_, text) => text.len(),
        // Each has a name and a value of its own.
        Value::List(list) if list.kind == ListKind::Pairs => list.items.len() * 3 * size_of::<Value>(),
        Value::List(list) => list.items.len() * size_of::<Value>(),
        Value::Map(map) => map.entries.len() * 2 * size_of::<Value>(),
        _ => 0,
    }
}
