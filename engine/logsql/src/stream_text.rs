//! The text of a stream's labels: `{a="b",c="d"}`, keys sorted, values quoted as in PromQL.

use crate::lexer::quote;
use crate::lexer::tokens;

/// Reads the labels; a text that is none has none.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let Ok(tokens) = tokens(text) else { return Vec::new() };
    let mut labels = Vec::new();
    let mut name = String::new();
    let mut value_next = false;
    for token in &tokens {
        if !token.quoted && matches!(token.raw, "{" | "}" | ",") {
            name.clear();
            value_next = false;
        } else if !token.quoted && token.raw == "=" {
            value_next = true;
        } else if value_next {
            labels.push((std::mem::take(&mut name), token.text.clone().into_owned()));
            value_next = false;
        } else {
            name.push_str(&token.text);
        }
    }
    labels
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
}
