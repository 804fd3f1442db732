//! Runs statements: output, conditions and loops.

use super::super::ast::{Branch, List, Pipe, Statement};
use super::super::value::Value;
use super::frame::{Frame, NodePosition, fail, set};
use super::{Exec, ExecError, Stop, WalkResult};
use crate::text::quote;

/// What `.` stands for within a branch.
#[derive(Clone, Copy)]
enum Dot {
    Stays,
    BecomesValue,
}

impl<'o> Exec<'o> {
    /// Runs statements one after the other.
    pub(super) fn list(&mut self, frame: &mut Frame<'o>, dot: &Value, list: &'o List) -> WalkResult {
        for statement in list {
            self.step(frame)?;
            self.deeper(frame, |exec, frame| exec.statement(frame, dot, statement))?;
        }
        Ok(())
    }

    fn statement(&mut self, frame: &mut Frame<'o>, dot: &Value, statement: &'o Statement) -> WalkResult {
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
                    frame.at = NodePosition::Pipe(pipe);
                    self.print(frame, &value, pipe.escaper())?;
                }
            }
            Statement::If(branch) => self.either(frame, dot, branch, Dot::Stays)?,
            Statement::With(branch) => self.either(frame, dot, branch, Dot::BecomesValue)?,
            Statement::Range(branch) => self.range(frame, dot, branch)?,
            Statement::Template { pos, name, pipe } => self.template(frame, dot, *pos, name, pipe.as_ref())?,
            Statement::Break => return Err(Stop::Break),
            Statement::Continue => return Err(Stop::Continue),
        }
        Ok(())
    }

    /// Prints a value; `escaper` is the last of Go's escaping functions that it went through.
    fn print(&mut self, frame: &Frame<'_>, value: &Value, escaper: Option<&str>) -> Result<(), Box<ExecError>> {
        // A value that holds another one many times is larger when printed than in memory, so its size is checked first.
        if value.weight() > self.options.budget.made_max {
            return Err(fail(frame, format!("output exceeds {} bytes", self.options.budget.output_max)));
        }
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

    fn either(&mut self, frame: &mut Frame<'o>, dot: &Value, branch: &'o Branch, within: Dot) -> WalkResult {
        let mark = frame.variables.len();
        let value = self.pipe(frame, dot, &branch.pipe)?;
        let walked = if value.truth() {
            let dot = match within {
                Dot::Stays => dot,
                Dot::BecomesValue => &value,
            };
            self.list(frame, dot, &branch.then)
        } else {
            branch.otherwise.as_ref().map_or(Ok(()), |list| self.list(frame, dot, list))
        };
        frame.variables.truncate(mark);
        walked
    }

    fn range(&mut self, frame: &mut Frame<'o>, dot: &Value, branch: &'o Branch) -> WalkResult {
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

    /// Runs the body for each item. Returns whether there was one.
    fn items(
        &mut self,
        frame: &mut Frame<'o>,
        branch: &'o Branch,
        items: impl Iterator<Item = (Value, Value)>,
    ) -> WalkResult<bool> {
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
                // The pipeline has declared them.
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
    ) -> WalkResult {
        frame.at = NodePosition::Template(pos, name, pipe);
        let Some(definition) = self.templates.definitions.get(name) else {
            return Err(fail(frame, format!("template {} not defined", quote(name))).into());
        };
        let data = match pipe {
            Some(pipe) => self.pipe(frame, dot, pipe)?,
            None => Value::Nil,
        };
        let mut inner =
            Frame { name, source: &definition.source, variables: vec![("$".to_owned(), data.clone())], at: frame.at };
        inner.at = NodePosition::Nothing;
        self.list(&mut inner, &data, &definition.list)
    }
}
