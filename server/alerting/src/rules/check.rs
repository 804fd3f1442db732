//! Validates rules.

use std::collections::BTreeMap;

use quiver_yaml::problem::{Code, Place, Problem, Problems};
use quiver_yaml::{Fields, NodeKind, ScalarLayout, pointer};

use super::model::{Language, Rule, RuleFile, RuleKind};
use super::variables::defined;
use crate::template::{RULE_FUNCTIONS, Templates};

/// Parsers of expressions, provided by the crates of the languages.
pub trait Expressions {
    /// Parses an expression.
    ///
    /// # Errors
    /// Line and column within the expression, and the reason.
    fn parse(&self, language: Language, expr: &str) -> Result<ParsedExpr, (Place, String)>;
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedExpr {
    /// The expression as formatted by its language.
    pub canonical: String,
}

/// Longest expression, in bytes.
const EXPR_BYTES_MAX: usize = 64 << 10;

/// Whether a text is a label name: any non-empty UTF-8 text except `__name__`.
fn is_label_name(name: &str) -> bool {
    !name.is_empty() && name != quiver_types::label::METRIC_NAME
}

/// Checks label names.
pub(super) fn check_labels(
    fields: &Fields<'_>,
    field: &str,
    labels: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    for name in labels.keys().filter(|name| !is_label_name(name)) {
        let place = fields.node().get(field).map_or(fields.node().place, |n| n.place);
        let path = pointer(&fields.path_of(field), name);
        problems.push(Problem {
            place,
            path,
            code: Code::InvalidValue,
            message: format!("invalid label name: {name}"),
        });
    }
}

/// Checks a rule, except for whether it has a name.
pub(super) fn check_rule(
    fields: &Fields<'_>,
    prefix: &str,
    rule: &Rule,
    labels: &BTreeMap<String, String>,
    expressions: &dyn Expressions,
    problems: &mut Problems,
) {
    if rule.expr.is_empty() {
        fields.problem("expr", Code::Required, format!("{prefix}field 'expr' must be set in rule"), problems);
    } else if rule.expr.len() > EXPR_BYTES_MAX {
        let message = format!("{prefix}the expression is longer than {EXPR_BYTES_MAX} bytes");
        fields.problem("expr", Code::OutOfRange, message, problems);
    } else if let Err((within, reason)) = expressions.parse(rule.language, &rule.expr) {
        let message = format!("{prefix}could not parse expression: {reason}");
        let place = place_within(fields, "expr", within).unwrap_or(rule.expr_place);
        problems.push(Problem { place, path: fields.path_of("expr"), code: Code::InvalidExpr, message });
    }
    check_labels(fields, "labels", labels, problems);
    if rule.annotations.contains_key("") {
        fields.problem("annotations", Code::InvalidValue, format!("{prefix}invalid annotation name: "), problems);
    }
    if rule.kind == RuleKind::Record {
        check_recording(fields, prefix, rule, problems);
    } else {
        templates(fields, prefix, "labels", "label", (rule.name.as_str(), labels), problems);
        templates(fields, prefix, "annotations", "annotation", (rule.name.as_str(), &rule.annotations), problems);
    }
}

fn check_recording(fields: &Fields<'_>, prefix: &str, rule: &Rule, problems: &mut Problems) {
    let given = [
        ("annotations", !rule.annotations.is_empty()),
        ("for", rule.for_ms != 0),
        ("keep_firing_for", rule.keep_firing_for_ms != 0),
    ];
    for (name, _) in given.iter().filter(|(_, given)| *given) {
        let message = format!("{prefix}invalid field '{name}' in recording rule");
        fields.problem(name, Code::InvalidValue, message, problems);
    }
    if rule.name.contains(['{', '}']) {
        let reason = "braces present in the recording rule name; should it be in expr?";
        fields.problem("record", Code::InvalidValue, format!("{prefix}{reason}: {}", rule.name), problems);
    }
}

/// The place in the file for a place within a scalar; that of the scalar itself if its text is not in the file
/// literally.
fn place_within(fields: &Fields<'_>, name: &str, within: Place) -> Option<Place> {
    let node = fields.node().get(name)?;
    let NodeKind::Scalar { text, layout, .. } = &node.kind else { return Some(node.place) };
    let Place { line, column } = node.place;
    if within.line == 0 {
        return Some(node.place);
    }
    Some(match layout {
        ScalarLayout::Bare => Place { line, column: (column + within.column).saturating_sub(1) },
        ScalarLayout::Quoted => Place { line, column: column + within.column },
        ScalarLayout::Block => {
            let text = text.trim_end_matches('\n');
            let empty = text.chars().take_while(|c| *c == '\n').count() as u32;
            let last = text.matches('\n').count() as u32 + 1;
            // A place after the last line is reported at its end.
            let (at, offset) = match within.line {
                at if at <= last => (at, within.column.saturating_sub(1)),
                _ => (last, text.lines().last().map_or(0, |line| line.chars().count() as u32)),
            };
            Place { line: (line + at).saturating_sub(1 + empty), column: column + offset }
        }
        ScalarLayout::Other => node.place,
    })
}

fn templates(
    fields: &Fields<'_>,
    prefix: &str,
    field: &'static str,
    word: &str,
    (alert, texts): (&str, &BTreeMap<String, String>),
    problems: &mut Problems,
) {
    for (name, text) in texts {
        let mut templates = Templates::new(RULE_FUNCTIONS);
        if let Err(e) = templates.add(&format!("__alert_{alert}"), &defined(text)) {
            let node = fields.node().get(field).and_then(|n| n.get(name)).unwrap_or(fields.node());
            let message = format!("{prefix}{word} \"{name}\": {e}");
            problems.push(node.problem(&pointer(&fields.path_of(field), name), Code::InvalidTemplate, message));
        }
    }
}

/// Finds recording rules with equal name and labels in a file: the later one overwrites the samples of the earlier
/// one.
pub fn duplicates(file: &RuleFile) -> Vec<(&str, &BTreeMap<String, String>)> {
    let mut seen = std::collections::HashSet::new();
    let rules = file.groups.iter().flat_map(|g| &g.rules);
    let twice = rules.filter(|rule| !seen.insert((rule.kind == RuleKind::Record, &rule.name, &rule.labels)));
    twice.map(|rule| (rule.name.as_str(), &rule.labels)).collect()
}
