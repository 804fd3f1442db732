//! Reads matchers from the fields of routes and inhibition rules, in every form that Alertmanager accepts.

use quiver_types::matcher::Patterns;
use quiver_types::{MatchOp, Matcher};
use quiver_yaml::problem::{Code, Problem, Problems};
use quiver_yaml::{Fields, Node, NodeKind, pointer};

use crate::matchers;

/// What is shared by all parts of a configuration while it is read.
#[derive(Debug)]
pub struct ReadContext {
    /// The patterns of its matchers, which stay compiled for as long as it is in force.
    patterns: Patterns,
    /// What should be said about it.
    pub warnings: Vec<String>,
}

/// Most that the patterns of a configuration take, compiled, in bytes.
const PATTERNS_BYTES_MAX: usize = 32 << 20;

impl Default for ReadContext {
    fn default() -> Self {
        Self { patterns: Patterns::within("a configuration", PATTERNS_BYTES_MAX), warnings: Vec::new() }
    }
}

/// Reads a mapping of label names to values or patterns.
pub(crate) fn read_match(
    fields: &mut Fields<'_>,
    name: &'static str,
    op: MatchOp,
    reading: &mut ReadContext,
    problems: &mut Problems,
) -> Vec<Matcher> {
    let mut out = Vec::new();
    let Some(node) = fields.some(name) else { return out };
    let path = fields.path_of(name);
    let NodeKind::Map(pairs) = &node.kind else {
        problems.push(node.problem(&path, Code::InvalidType, format!("wanted a mapping, got {}", node.kind_name())));
        return out;
    };
    for (key, value) in pairs {
        let path = pointer(&path, &key.text);
        if key.text.is_empty() {
            problems.push(value.problem(&path, Code::InvalidMatcher, "invalid label name \"\""));
            continue;
        }
        if op == MatchOp::Regex && value.is_null() {
            let message = format!("invalid regexp value for \"{}\"", key.text);
            problems.push(Problem { place: key.place, path, code: Code::InvalidRegex, message });
            continue;
        }
        let Some(text) = value.text() else {
            let message = format!("wanted a text, got {}", value.kind_name());
            problems.push(value.problem(&path, Code::InvalidType, message));
            continue;
        };
        // As it stands in Alertmanager's group keys.
        let text = if op == MatchOp::Regex { format!("^(?:{text})$") } else { text.to_owned() };
        match matchers::matcher_among(&key.text, op, text, &mut reading.patterns) {
            Ok(matcher) => out.push(matcher),
            Err(e) => problems.push(value.problem(&path, Code::InvalidRegex, e.message)),
        }
    }
    out
}

/// Reads a list of texts with matchers.
pub(crate) fn read_matchers(
    fields: &mut Fields<'_>,
    name: &'static str,
    reading: &mut ReadContext,
    problems: &mut Problems,
) -> Vec<Matcher> {
    let mut out = Vec::new();
    let items = fields.list(name, problems).unwrap_or_default();
    let path = fields.path_of(name);
    for (i, item) in items.iter().enumerate() {
        let path = pointer(&path, i);
        if let NodeKind::Map(_) = item.kind {
            out.extend(read_object(item, &path, reading, problems));
            continue;
        }
        let Some(text) = item.text() else {
            let message = format!("wanted a text, got {}", item.kind_name());
            problems.push(item.problem(&path, Code::InvalidType, message));
            continue;
        };
        match matchers::read_among(text, &mut reading.patterns) {
            Ok(read) => {
                out.extend(read.matchers);
                reading.warnings.extend(read.warning);
            }
            Err(e) => problems.push(item.problem(&path, Code::InvalidMatcher, e.message)),
        }
    }
    out
}

/// Reads `{name, value, isRegex, isEqual}`.
fn read_object(node: &Node, path: &str, reading: &mut ReadContext, problems: &mut Problems) -> Option<Matcher> {
    let mut fields = Fields::new(node, path, problems)?;
    let name = fields.text("name", problems).unwrap_or_default();
    let value = fields.text("value", problems).unwrap_or_default();
    let is_regex = fields.truth("isRegex", problems).unwrap_or(false);
    let is_equal = fields.truth("isEqual", problems).unwrap_or(true);
    fields.finish(problems);
    let op = match (is_regex, is_equal) {
        (false, true) => MatchOp::Equal,
        (false, false) => MatchOp::NotEqual,
        (true, true) => MatchOp::Regex,
        (true, false) => MatchOp::NotRegex,
    };
    if name.is_empty() {
        problems.push(node.problem(path, Code::InvalidMatcher, "a matcher needs a name"));
        return None;
    }
    matchers::matcher_among(name, op, value, &mut reading.patterns)
        .map_err(|e| problems.push(node.problem(path, Code::InvalidMatcher, e.message)))
        .ok()
}

#[cfg(test)]
mod tests {
    use quiver_yaml as yaml;

    use super::*;

    /// They stay compiled for as long as the configuration is in force.
    #[test]
    fn patterns_of_a_configuration_are_bounded() {
        let texts: Vec<String> = (0..1000).map(|i| format!("'a=~\"\\w{{15}}{i:04}\"'")).collect();
        let node = yaml::read(&format!("matchers: [{}]", texts.join(", "))).expect("valid").remove(0);
        let (mut reading, mut problems) = (ReadContext::default(), Problems::default());
        let mut fields = Fields::new(&node, "", &mut problems).expect("a mapping");
        let found = read_matchers(&mut fields, "matchers", &mut reading, &mut problems);
        let told: Vec<String> = problems.iter().map(|p| p.message.clone()).collect();
        assert!(!told.is_empty(), "a thousand are too many");
        assert!(!found.is_empty() && found.len() < texts.len(), "{} are taken", found.len());
        let expected = format!("the regular expressions of a configuration take more than {PATTERNS_BYTES_MAX} bytes");
        assert!(told.iter().all(|told| told.contains(&expected)), "{told:?}");
    }
}
