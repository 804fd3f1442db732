//! Templates: our own implementation of Go's `text/template`, as far as rules and notifications use it.
//!
//! `lexer` and `parser` make a tree (`ast`), `execution` evaluates it over `value`s. Functions are listed in tables:
//! `builtins` those of Go, `prometheus` those of rules, `alertmanager` those of notifications. `methods` are methods of
//! values; `printf` and `time` do what Go's packages of these names do; `html` escapes by the position in a page.
//! Errors read like Go's and give line and column. Depth, steps, output and intermediate values are limited, so a
//! template can only harm itself.

mod alertmanager;
mod ast;
mod builtins;
mod complex;
mod escape;
mod execution;
mod html;
mod humanize;
mod lexer;
mod methods;
mod parser;
mod printf;
mod prometheus;
mod time;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parser::Definition;

pub use alertmanager::{MESSAGE_FUNCTIONS, default_templates};
pub use builtins::BUILTINS;
pub use escape::{html_escape, query_escape};
pub use execution::Budget;
pub(crate) use prometheus::split_host_port;
pub use prometheus::{QueriedSample, RULE_FUNCTIONS};
pub use time::{Time, parse as parse_time};
pub use value::{List, ListKind, Map, MapKind, Safe, Struct, Value};

use time::month_name;

/// A text with its name, as errors speak of it.
#[derive(Debug, Clone)]
struct Source {
    name: Arc<str>,
    text: Arc<str>,
}

impl Source {
    fn new(name: &str, text: &str) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Gives line from 1, column from 1 in characters, and from 0 in bytes.
    fn place(&self, pos: usize) -> (u32, u32, u32) {
        let head = self.text.get(..pos).unwrap_or(&self.text);
        let line_start = head.rfind('\n').map_or(0, |i| i + 1);
        let column = head[line_start..].chars().count() + 1;
        (head.matches('\n').count() as u32 + 1, column as u32, (head.len() - line_start) as u32)
    }
}

/// A text that is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {name}:{line}: {message}")]
pub struct ParseError {
    /// Name of the template.
    pub name: String,
    /// Line from 1.
    pub line: u32,
    /// Column from 1, in characters.
    pub column: u32,
    /// What is wrong at this place, without the place.
    pub message: String,
}

impl ParseError {
    fn new(source: &Source, pos: usize, message: impl Into<String>) -> Self {
        let (line, column, _) = source.place(pos);
        Self { name: source.name.to_string(), line, column, message: message.into() }
    }
}

/// A template that failed while it ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown}")]
pub struct ExecError {
    /// Line from 1; 0: nowhere.
    pub line: u32,
    /// Column from 1, in characters.
    pub column: u32,
    /// The reason alone.
    pub message: String,
    shown: String,
}

/// What becomes of a key that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingKey {
    /// The zero of what the mapping holds: the empty text of a label set.
    #[default]
    Zero,
    /// The template fails, as with Go's `missingkey=error`.
    Error,
}

/// Runs a query; gives its samples, or what is wrong.
pub type RunQuery<'a> = &'a dyn Fn(&str) -> Result<Vec<QueriedSample>, String>;

/// Labels of a route, as `routeLabels` gives them.
#[derive(Debug, Clone, Copy)]
pub enum RouteLabels<'a> {
    /// Templates, which may call each other: as they are written.
    Templates(&'a BTreeMap<String, String>),
    /// Texts: what these templates yielded.
    Texts(&'a BTreeMap<String, String>),
}

/// What functions take from outside.
#[derive(Default)]
pub struct TemplateEnvironment<'a> {
    /// Runs a query at the time of the evaluation.
    pub query: Option<RunQuery<'a>>,
    /// The time, in nanoseconds since 1970.
    pub now_ns: i128,
    /// Where the service is seen from outside.
    pub external_url: &'a str,
    /// Labels of the route.
    pub route_labels: Option<RouteLabels<'a>>,
}

impl fmt::Debug for TemplateEnvironment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemplateEnvironment")
            .field("now_ns", &self.now_ns)
            .field("external_url", &self.external_url)
            .finish_non_exhaustive()
    }
}

/// What a parameter of a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// A value of any type.
    Any,
    /// A text (`string` in Go).
    Text,
    /// A time (`time.Time` in Go).
    Time,
    /// The result of a query.
    Query,
    /// A sample of it.
    Sample,
    /// A list of texts.
    Texts,
    /// A list of anything.
    List,
}

impl Param {
    fn type_name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Text => "string",
            Self::Time => "time.Time",
            Self::Query => "template.queryResult",
            Self::Sample => "*template.sample",
            Self::Texts => "[]string",
            Self::List => "[]interface {}",
        }
    }
}

/// A function of templates.
#[derive(Debug)]
pub struct Function {
    /// What templates call it by.
    pub name: &'static str,
    /// What it takes; with `variadic` the last may be there any number of times.
    pub params: &'static [Param],
    /// Whether the last parameter repeats.
    pub variadic: bool,
    /// What it does.
    pub(crate) call: fn(&mut execution::Call<'_, '_>, &[Value]) -> Result<Value, String>,
}

/// The functions that a template may call beside those of Go.
pub type Functions = &'static [Function];

fn find(functions: Functions, name: &str) -> Option<&'static Function> {
    functions.iter().chain(BUILTINS).find(|f| f.name == name)
}

/// Templates that know each other by name.
#[derive(Debug, Clone)]
pub struct Templates {
    functions: Functions,
    definitions: BTreeMap<String, Arc<Definition>>,
}

impl Templates {
    /// Makes an empty set.
    pub fn new(functions: Functions) -> Self {
        Self { functions, definitions: BTreeMap::new() }
    }

    /// Adds a text with its definitions; later ones take the place of earlier ones, unless they are empty.
    ///
    /// # Errors
    /// It does not parse; then nothing is added.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), ParseError> {
        let functions = self.functions;
        let parsed = parser::parse(name, text, &|name| find(functions, name).is_some())?;
        for (name, definition) in parsed {
            if ast::is_empty(&definition.list) && self.definitions.contains_key(&name) {
                continue;
            }
            self.definitions.insert(name, Arc::new(definition));
        }
        Ok(())
    }

    /// Gives the names of what is defined.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.keys().map(String::as_str)
    }

    /// Runs a template over data.
    ///
    /// # Errors
    /// What failed, and where.
    pub fn run(&self, name: &str, data: &Value, options: &Options<'_>) -> Result<String, ExecError> {
        execution::run(self, name, data, options, None)
    }

    /// Runs a template over data, escaping what it prints by where it stands in a page of HTML.
    ///
    /// # Errors
    /// What failed, and where.
    pub fn run_html(&self, name: &str, data: &Value, options: &Options<'_>) -> Result<String, ExecError> {
        execution::run(self, name, data, options, Some(html::Page::default()))
    }
}

/// Alerts of a message that the budget of any template is for.
const ALERTS_FREE: usize = 4;
/// Most alerts that a message gets a larger budget for.
const ALERTS_COUNTED: usize = 4000;

impl Budget {
    /// What a template of a message may spend: more with each alert that it is about, since those that everybody uses write
    /// a part for each, and a large group must be told, too.
    pub fn of_message(alerts: usize) -> Self {
        let more = alerts.saturating_sub(ALERTS_FREE).min(ALERTS_COUNTED);
        let one = Self::default();
        Self {
            steps_max: one.steps_max + more * 2000,
            output_max: one.output_max + more * (16 << 10),
            made_max: one.made_max + more * (32 << 10),
        }
    }
}

/// How a template runs.
#[derive(Debug, Default)]
pub struct Options<'a> {
    /// What becomes of a key that is not there.
    pub missing_key: MissingKey,
    /// How much it may do and write before it fails.
    pub budget: Budget,
    /// What its functions take from outside.
    pub host: TemplateEnvironment<'a>,
}

/// Parses and runs a text.
///
/// # Errors
/// The text of the error, as Prometheus shows it: that it does not parse, or what failed.
pub fn expand(
    name: &str,
    text: &str,
    data: &Value,
    functions: Functions,
    options: &Options<'_>,
) -> Result<String, String> {
    let mut templates = Templates::new(functions);
    templates.add(name, text).map_err(|e| format!("error parsing template {name}: {e}"))?;
    templates.run(name, data, options).map_err(|e| format!("error executing template {name}: {e}"))
}

#[cfg(test)]
mod tests;
