//! Checks glob patterns of template and rule files, in the syntax of Go's `filepath.Match`.

use std::iter::Peekable;
use std::str::Chars;

use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Node, pointer};

/// Reports patterns that can match nothing because they are incomplete: `[`, `[a`, `[a-]`, `\`.
pub(super) fn check(items: &[Node], problems: &mut Problems) {
    for (i, item) in items.iter().enumerate() {
        if let Some(text) = item.text().filter(|text| !is_pattern(text)) {
            let message = format!("syntax error in pattern `{text}`");
            problems.push(item.problem(&pointer("/templates", i), Code::InvalidValue, message));
        }
    }
}

/// Whether a glob pattern is complete; an incomplete one matches nothing.
pub fn is_pattern(text: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let whole = match c {
            '\\' => chars.next().is_some(),
            '[' => ends_class(&mut chars),
            _ => true,
        };
        if !whole {
            return false;
        }
    }
    true
}

/// Consumes what follows `[`, including the `]`: at least one character or range.
fn ends_class(chars: &mut Peekable<Chars<'_>>) -> bool {
    chars.next_if_eq(&'^');
    let mut is_empty = true;
    loop {
        if !is_empty && chars.next_if_eq(&']').is_some() {
            return true;
        }
        if !bound(chars) || (chars.next_if_eq(&'-').is_some() && !bound(chars)) {
            return false;
        }
        is_empty = false;
    }
}

/// Consumes one end of a range, which must not be missing.
fn bound(chars: &mut Peekable<Chars<'_>>) -> bool {
    let is_one = match chars.next() {
        None | Some('-' | ']') => false,
        Some('\\') => chars.next().is_some(),
        Some(_) => true,
    };
    is_one && chars.peek().is_some()
}

#[cfg(test)]
mod tests {
    use super::is_pattern;

    #[test]
    fn patterns_as_go_reads_them() {
        for good in ["", "a", "*.tmpl", "[a]", "[^a-z]*", "[b-a]", "\\a", "[\\]]", "]", "a-b", "[[]", "x[*]y"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["[", "a[", "*/[", "\\", "x\\", "[]a]", "[a-]", "[^]", "[-b]", "[a", "[a-", "[\\", "[a-b-c]"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }
}
