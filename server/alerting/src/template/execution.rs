//! Runs a parsed template over data, as Go's `text/template/exec.go` does: `walk` runs statements, `evaluate`
//! pipelines. Their resource limits are enforced here.

mod args;
mod evaluate;
mod frame;
mod render_state;
mod walk;

use std::fmt;

use frame::{Frame, NodePosition, fail};
use render_state::Kept;

use super::html::Page;
use super::value::Value;
use super::{ExecError, Options, TemplateEnvironment, Templates};
use crate::text::quote;

/// Resource limits of a template.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Most nodes visited and functions called.
    pub steps_max: usize,
    /// Most bytes of output.
    pub output_max: usize,
    /// Most bytes of intermediate strings and lists.
    pub made_max: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps_max: 100_000, output_max: 64 << 10, made_max: 4 << 20 }
    }
}

/// Deepest nesting of templates, pipelines and statements.
const DEPTH_MAX: usize = 250;
/// Variables searched per step.
const VARIABLES_A_STEP: usize = 100;

/// The context of a function call.
pub(crate) struct Call<'a, 'o> {
    pub(super) exec: &'a mut Exec<'o>,
}

impl fmt::Debug for Call<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl Call<'_, '_> {
    pub(super) fn host(&self) -> &TemplateEnvironment<'_> {
        &self.exec.options.host
    }

    /// Accounts for bytes that a function is about to make.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), String> {
        self.exec.make(bytes)
    }
}

pub(super) struct Exec<'o> {
    pub(super) templates: &'o Templates,
    pub(super) options: &'o Options<'o>,
    /// The data of the whole template.
    pub(super) data: Value,
    out: String,
    page: Option<Page>,
    steps: usize,
    made: usize,
    depth: usize,
    pub(super) kept: Kept,
}

/// Why execution stops early.
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

type WalkResult<T = ()> = Result<T, Stop>;
type EvalResult = Result<Value, Box<ExecError>>;

/// Runs a template. With a page, what it prints is escaped by where it stands in it.
pub(super) fn run(
    templates: &Templates,
    name: &str,
    data: &Value,
    options: &Options<'_>,
    page: Option<Page>,
) -> Result<String, ExecError> {
    let mut exec = Exec {
        templates,
        options,
        data: data.clone(),
        out: String::new(),
        page,
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
            at: NodePosition::Nothing,
        };
        match self.list(&mut frame, data, &definition.list) {
            Err(Stop::Error(error)) => Err(*error),
            _ => Ok(()),
        }
    }

    /// Runs another template within the same budget; for functions that run templates.
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

    /// Accounts for bytes of intermediate strings and lists.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), String> {
        self.made = self.made.saturating_add(bytes);
        if self.made > self.options.budget.made_max {
            return Err("the template makes too much".to_owned());
        }
        Ok(())
    }

    fn step(&mut self, frame: &Frame<'_>) -> Result<(), Box<ExecError>> {
        self.spend(frame, 1)
    }

    /// Accounts for the search for a variable, which goes through all that were declared later.
    fn search(&mut self, frame: &Frame<'_>) -> Result<(), Box<ExecError>> {
        self.spend(frame, frame.variables.len() / VARIABLES_A_STEP)
    }

    fn spend(&mut self, frame: &Frame<'_>, steps: usize) -> Result<(), Box<ExecError>> {
        self.steps = self.steps.saturating_add(steps);
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
}
