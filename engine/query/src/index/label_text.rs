//! Label sets as JSON text. Answers contain this form, and lists are sorted by it.

use quiver_types::text::push_json_text;

/// Gives a label set as a JSON object.
pub fn labels_json<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::with_capacity(128);
    push_labels(&mut out, labels);
    out
}

/// Appends a label set as a JSON object.
pub(super) fn push_labels<'a>(out: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push('{');
    for (i, (name, value)) in labels.enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_json_text(name, out);
        out.push(':');
        push_json_text(value, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_json() {
        assert_eq!(labels_json([("a", "x\"y\n"), ("b", "\u{1}\\")].into_iter()), r#"{"a":"x\"y\n","b":"\u0001\\"}"#);
        assert_eq!(labels_json(std::iter::empty()), "{}");
    }
}
