//! Whether patterns and templates can work at all, said when the query is read.

use crate::template::steps;

/// Checks the pattern of `extract`.
pub(crate) fn extract_pattern(pattern: &str) -> Result<(), String> {
    let steps = steps(pattern)?;
    if steps.iter().all(|step| step.field.is_empty()) {
        return Err(format!("`{pattern}` names no field such as `<name>`"));
    }
    if let Some(step) = steps.iter().skip(1).find(|step| step.placeholder && step.text.is_empty()) {
        return Err(format!("`{pattern}` has no text between `<{}>` and what stands before it", step.field));
    }
    no_group(pattern, steps.iter().map(|step| step.field.as_str()))
}

/// Checks the template of `format`.
pub(crate) fn format_template(template: &str) -> Result<(), String> {
    let steps = steps(template)?;
    no_group(template, steps.iter().map(|step| step.field.as_str()))
}

fn no_group<'a>(text: &str, mut names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    match names.find(|name| name.ends_with('*')) {
        Some(name) => Err(format!("`<{name}>` in `{text}` stands for several fields, one field expected")),
        None => Ok(()),
    }
}
