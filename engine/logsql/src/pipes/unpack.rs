//! What `unpack_json`, `unpack_logfmt` and `unpack_syslog` have in common: a field is taken apart into others.

use std::fmt::Display;
use std::fmt::Write as _;

use quiver_types::Result;
use quiver_types::logs::{MSG, TIME};

use super::pipe::At;
use super::row_pipe::{lowered, mentioned, of_condition};
use super::syntax::{condition_text, names, overwrite, overwrite_text, unless};
use crate::ast::{FieldPattern, Filter, Overwrite};
use crate::ops::unpack::{Format, UnpackStep};
use crate::parser::Parser;
use crate::partial_plan::PartialPlan;
use crate::print::{patterns, word};
use crate::required_fields::Needs;
use crate::rows::ColumnStorage;

/// Source and results.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpack {
    /// The source field.
    pub from: String,
    /// Which keys; all when empty.
    pub fields: Vec<FieldPattern>,
    /// Before the name of each result.
    pub result_prefix: String,
    /// Keys of JSON whose values stay as they are written, objects too.
    pub preserve_keys: Vec<String>,
    /// Whether a result takes the place of a value that the row has already.
    pub overwrite: Overwrite,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

/// What may be said of the results.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum UnpackFormat {
    Syslog,
    Logfmt,
    Json,
}

impl Unpack {
    /// `[if (f)] [[from] f]`.
    pub(super) fn parse_source(parser: &mut Parser<'_>) -> Result<Self> {
        const NEXT: &[&str] =
            &["fields", "preserve_keys", "result_prefix", "keep_original_fields", "skip_empty_results", "offset"];
        let condition = parser.condition()?;
        let from = if parser.skip("from") || !parser.at_pipe_end() && !parser.is_any(NEXT) {
            parser.field()?
        } else {
            MSG.to_owned()
        };
        Ok(Self {
            from,
            fields: Vec::new(),
            result_prefix: String::new(),
            preserve_keys: Vec::new(),
            overwrite: Overwrite::Always,
            condition,
        })
    }

    /// `[fields (..)] [preserve_keys (..)] [result_prefix p] [keep_original_fields | skip_empty_results]`, in any order.
    pub(super) fn parse_results(&mut self, parser: &mut Parser<'_>, of: UnpackFormat) -> Result<()> {
        while !parser.at_pipe_end() {
            if of > UnpackFormat::Syslog && parser.skip("fields") {
                let fields = parser.in_parens(Parser::field_pattern)?;
                self.fields = if fields.iter().any(FieldPattern::is_all) { Vec::new() } else { fields };
            } else if of == UnpackFormat::Json && parser.skip("preserve_keys") {
                self.preserve_keys = parser.fields_in_parens()?;
            } else if parser.skip("result_prefix") {
                self.result_prefix = parser.argument("a prefix")?;
                // The prefix may be written as the names that it makes.
                if parser.is_adjacent("*") {
                    parser.advance();
                }
            } else if parser.is_any(&["keep_original_fields", "skip_empty_results"]) {
                self.overwrite = overwrite(parser);
            } else {
                return Err(parser.unexpected("`|` or the end of the pipe"));
            }
        }
        Ok(())
    }

    pub(super) fn text(&self, name: &str, offset: &str) -> String {
        let mut text = format!("{name}{}", condition_text(self.condition.as_ref()));
        text.push_str(&unless(&self.from, MSG, "from"));
        text.push_str(offset);
        if !self.fields.is_empty() {
            let _ = write!(text, " fields ({})", patterns(&self.fields));
        }
        if !self.preserve_keys.is_empty() {
            let _ = write!(text, " preserve_keys ({})", names(&self.preserve_keys));
        }
        if !self.result_prefix.is_empty() {
            let _ = write!(text, " result_prefix {}", word(&self.result_prefix));
        }
        text.push_str(overwrite_text(self.overwrite));
        text
    }

    /// The fields that it makes in any case.
    pub(super) fn targets(&self) -> impl Iterator<Item = String> {
        self.fields.iter().filter_map(FieldPattern::name).map(|name| format!("{}{name}", self.result_prefix))
    }

    pub(super) fn keeps_rows(&self) -> bool {
        !self.targets().any(|name| name == TIME)
    }

    pub(super) fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        let wanted = if self.fields.is_empty() {
            after.has_any(&self.result_prefix)
        } else {
            self.fields.iter().any(|field| match field {
                FieldPattern::Name(name) => after.has(&format!("{}{name}", self.result_prefix)),
                FieldPattern::Prefix(prefix) => after.has_any(&format!("{}{prefix}", self.result_prefix)),
            })
        };
        if wanted {
            needs.add(&self.from);
            of_condition(self.condition.as_ref(), &mut needs);
        }
        needs
    }

    pub(super) fn mentions(&self) -> Vec<String> {
        mentioned(self.targets().chain([self.from.clone()]), self.condition.as_ref())
    }

    pub(super) fn plan(
        &self,
        pipe: &impl Display,
        format: Format,
        rows: PartialPlan,
        at: At<'_>,
    ) -> Result<PartialPlan> {
        // What is needed behind by name has a column, also where the rows had no map so far.
        let made = at.needs.names.iter().filter(|name| name.starts_with(self.result_prefix.as_str()));
        let mut output = rows.shape.with_texts(made.map(String::as_str));
        output.columns.iter_mut().for_each(|column| column.kind = ColumnStorage::Text);
        output.rest |= at.needs.open();
        if !output.rest {
            // Nobody asks for the others, and what is taken apart is long.
            output.columns.retain(|column| at.needs.has(&column.name));
        }
        let step = UnpackStep {
            format,
            from: self.from.clone(),
            fields: self.fields.clone(),
            result_prefix: self.result_prefix.clone(),
            preserve_keys: self.preserve_keys.clone(),
            overwrite: self.overwrite,
            condition: lowered(self.condition.as_ref(), at)?,
            text: pipe.to_string(),
            input: rows.shape.clone(),
            output: output.clone(),
        };
        rows.then(step, output)
    }
}
