//! Texts with `<name>` in them: patterns of `extract`, templates of `format`.

/// A piece of fixed text and the field behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Fixed text before the field; `&lt;` and the like are resolved.
    pub text: String,
    /// The field; empty for `<>`, `<_>` and at the end.
    pub field: String,
    /// What stands before `:` in `<plain:name>`, `<uc:name>`.
    pub option: String,
    /// Whether there was a `<...>` at all; only the last step may have none.
    pub placeholder: bool,
}

/// Cuts a text into steps.
///
/// # Errors
/// A `<` without `>`.
pub fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        let close = rest[open..].find('>').ok_or_else(|| format!("missing `>` after `{}`", &rest[open..]))? + open;
        let inner = &rest[open + 1..close];
        let (option, name) = inner.split_once(':').unwrap_or(("", inner));
        let name = name.trim();
        steps.push(Step {
            text: unescape(&rest[..open]),
            field: if matches!(name, "_" | "") { String::new() } else { name.to_owned() },
            option: option.trim().to_owned(),
            placeholder: true,
        });
        rest = &rest[close + 1..];
    }
    if !rest.is_empty() {
        steps.push(Step { text: unescape(rest), ..Step::default() });
    }
    Ok(steps)
}

/// Gives the names of the fields, each once, in their order.
pub fn fields(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in steps(text).unwrap_or_default() {
        if !step.field.is_empty() && !names.contains(&step.field) {
            names.push(step.field);
        }
    }
    names
}

fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        let found = steps("a&lt;<plain: x>b<_>").expect("valid");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].text.as_str(), found[0].field.as_str(), found[0].option.as_str()), ("a<", "x", "plain"));
        assert_eq!((found[1].text.as_str(), found[1].field.as_str()), ("b", ""));
        assert!(steps("a<b").is_err());
        assert_eq!(fields("<a><b><a>"), ["a", "b"]);
    }
}
