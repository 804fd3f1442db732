//! State that a rendering keeps across nested templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_types::matcher;
use regex::Regex;

use super::Exec;

/// Most compiled regular expressions in the cache; each takes up to some megabytes.
const PATTERNS_MAX: usize = 8;
/// The cost of compiling one, which takes far longer than a call: base steps, and bytes of its text per additional
/// step.
const COMPILE_STEPS: (usize, usize) = (50, 8);

#[derive(Debug, Default)]
pub(in crate::template) struct Kept {
    /// Labels of the route that were rendered.
    pub(in crate::template) rendered: BTreeMap<String, String>,
    /// Those that are being rendered.
    pub(in crate::template) rendering: Vec<String>,
    /// Regular expressions by their text, least recently used first.
    patterns: Vec<(String, Arc<Regex>)>,
}

impl Exec<'_> {
    /// A compiled regular expression in Go's syntax, from the cache if possible.
    pub(in crate::template) fn regex(&mut self, text: &str) -> Result<Arc<Regex>, String> {
        let kept = self.kept.patterns.iter().position(|(known, _)| known == text);
        let (text, pattern) = if let Some(at) = kept {
            self.kept.patterns.remove(at)
        } else {
            self.steps = self.steps.saturating_add(COMPILE_STEPS.0 + text.len() / COMPILE_STEPS.1);
            if self.steps > self.options.budget.steps_max {
                return Err(format!("exceeded {} steps", self.options.budget.steps_max));
            }
            (text.to_owned(), Arc::new(compiled(text)?))
        };
        if self.kept.patterns.len() == PATTERNS_MAX {
            self.kept.patterns.remove(0);
        }
        self.kept.patterns.push((text, Arc::clone(&pattern)));
        Ok(pattern)
    }
}

/// Compiles a regular expression in Go's syntax, with limits.
fn compiled(pattern: &str) -> Result<Regex, String> {
    matcher::affordable(pattern).map_err(|e| e.to_string())?;
    let text = matcher::translate(pattern).map_err(|e| format!("error parsing regexp: {e}"))?;
    matcher::affordable(&text).map_err(|e| e.to_string())?;
    matcher::builder(&text).build().map_err(|e| format!("error parsing regexp: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_go() {
        assert!(
            compiled(r"\Qa.b\E").is_ok_and(|r| r.is_match("a.b") && !r.is_match("axb")) && compiled("a**").is_err()
        );
    }
}
