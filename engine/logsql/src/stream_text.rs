//! The text of a stream's labels: `{a="b",c="d"}`, keys sorted, values quoted as in PromQL.

use crate::lexer::{quote, unquote};

/// Reads the labels; a text that is none has none.
pub fn parse(text: &str) -> Vec<(String, String)> {
    read(text).unwrap_or_default()
}

/// Reads the labels, if the text is one of labels. Names are not quoted: all before `="` is one, whatever signs and
/// blanks are within it.
pub(crate) fn read(text: &str) -> Option<Vec<(String, String)>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let at = rest.find("=\"")?;
        let (value, len) = unquote(&rest[at + 1..]).ok()?;
        labels.push((rest[..at].trim().to_owned(), value.into_owned()));
        rest = rest[at + 1 + len..].trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',')?;
        }
    }
    Some(labels)
}

/// Writes labels; empty ones are left out.
pub(crate) fn print(mut labels: Vec<(&str, &str)>) -> String {
    labels.retain(|(_, value)| !value.is_empty());
    labels.sort_unstable();
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
    format!("{{{}}}", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let text = print(vec![("b.c", "x\"y,}"), ("a", "1"), ("z", "")]);
        assert_eq!(text, "{a=\"1\",b.c=\"x\\\"y,}\"}");
        assert_eq!(parse(&text), [("a".to_owned(), "1".to_owned()), ("b.c".to_owned(), "x\"y,}".to_owned())]);
        assert_eq!(parse("{}"), []);
    }

    /// Breaks if names are read as words of a query are: `#` began a comment there, and blanks counted for nothing.
    #[test]
    fn names_may_have_blanks_and_signs() {
        for name in ["a b", "a#b", "a!=b", "a:b-c/d", "it's", "`", "é", "日本", "a,b", "{a}", "k8s.pod.labels[app]"]
        {
            for value in ["1", "", " ", "#", "a=\"b\",c", "}", "{", "\\", "a\nb", "é\u{200b}", "'", "`"] {
                let text = format!("{{z.first=\"0\",{name}={},zz=\"2\"}}", quote(value));
                let expected = [("z.first", "0"), (name, value), ("zz", "2")];
                let found = parse(&text);
                let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn texts_that_are_no_labels_have_none() {
        let one = vec![("a".to_owned(), "1".to_owned())];
        for text in ["{a=\"1\"}", " { a=\"1\" } ", "{a=\"1\",}"] {
            assert_eq!(parse(text), one, "{text}");
        }
        for text in ["", "{", "}", "{}", "a", "{a}", "{a=1}", "{a=\"1}", "a=\"1\"", "{a=\"1\"b=\"2\"}", "{a=\"\\q\"}"] {
            assert_eq!(parse(text), [], "{text}");
        }
    }
}
