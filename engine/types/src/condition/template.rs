//! Templates for names: text with `{field}` and `{capture}`.

use super::{Captures, FieldName, Fields};

/// Maximum length of a template, and of a name, in characters.
const CHARS_MAX: usize = 200;

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Part(String, FieldName),
}

/// A template for names (`config-api` 3.1): an empty value is replaced by `-`, and the result has at most 200
/// characters.
#[derive(Debug, Clone)]
pub struct NameTemplate(Vec<Piece>);

impl NameTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > CHARS_MAX {
            return Err(format!("must have at most {CHARS_MAX} characters"));
        }
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            if rest[at..].starts_with('}') {
                return Err("`}` closes nothing".to_owned());
            }
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            let (name, behind) = rest[at + 1..].split_once('}').ok_or("`{` is not closed")?;
            if name.trim().is_empty() || name.contains('{') {
                return Err("`{}` must name a field or a part of a pattern".to_owned());
            }
            pieces.push(Piece::Part(name.to_owned(), FieldName::parse(name)));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// A template that always gives this text; it is not parsed.
    pub fn of_text(text: &str) -> Self {
        Self(vec![Piece::Text(text.to_owned())])
    }

    /// The fields and captures it refers to.
    pub fn fields(&self) -> impl Iterator<Item = &FieldName> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Part(_, field) => Some(field),
            Piece::Text(_) => None,
        })
    }

    /// Tells whether it refers to one of these captures.
    pub fn names_any(&self, captured: &[&str]) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Part(key, _) if captured.contains(&key.as_str())))
    }

    /// Builds a name; captures take precedence over fields of the same name.
    pub fn render(&self, row: &dyn Fields, captures: &Captures) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Part(key, field) => {
                    let captured = captures.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
                    let found = if captured.is_none() { row.get(field) } else { None };
                    name.push_str(captured.or(found.as_deref()).filter(|v| !v.is_empty()).unwrap_or("-"));
                }
            }
        }
        if name.len() <= CHARS_MAX {
            return name;
        }
        match name.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => name[..end].to_owned(),
            None => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Row;
    use super::*;

    #[test]
    fn names() {
        let row = Row(&[("http.request.method", "GET"), ("http.route", "/cart")]);
        let captures = vec![("id".to_owned(), "7".to_owned())];
        let check = |template: &str, expected: &str| {
            assert_eq!(NameTemplate::parse(template).unwrap().render(&row, &captures), expected, "{template}");
        };
        check("{http.request.method} {http.route}", "GET /cart");
        check("item {id}", "item 7");
        check("{missing} x", "- x");
        check("plain", "plain");
        for wrong in ["{", "}", "{}", "{a{b}}"] {
            assert!(NameTemplate::parse(wrong).is_err(), "{wrong}");
        }
        assert!(NameTemplate::parse(&"x".repeat(201)).is_err());
        let long = vec![("id".to_owned(), "é".repeat(300))];
        assert_eq!(NameTemplate::parse("{id}").unwrap().render(&row, &long).chars().count(), 200);
    }

    #[test]
    fn parts_and_what_is_missing() {
        let row = Row(&[("a", "1"), ("empty", ""), ("id", "field")]);
        let captures = vec![("id".to_owned(), "captured".to_owned()), ("none".to_owned(), String::new())];
        for (template, expected) in [
            ("", ""),
            ("{a}{a}", "11"),
            ("{id}", "captured"),
            // A part that captured nothing is not looked up as a field.
            ("<{none}>", "<->"),
            ("{empty}/{x}", "-/-"),
            ("é{a}日", "é1日"),
            ("a > b", "a > b"),
        ] {
            assert_eq!(NameTemplate::parse(template).unwrap().render(&row, &captures), expected, "{template}");
        }
        assert_eq!(NameTemplate::of_text("{a} }").render(&row, &captures), "{a} }", "it is no template");
        let template = NameTemplate::parse("{a} {resource.b} {id}").unwrap();
        assert_eq!(template.fields().map(ToString::to_string).collect::<Vec<_>>(), ["a", "resource.b", "id"]);
        assert!(template.names_any(&["x", "id"]) && !template.names_any(&["b"]) && !template.names_any(&[]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (template, why) in [
            ("{a", "`{` is not closed"),
            ("a}", "`}` closes nothing"),
            ("{a}}", "`}` closes nothing"),
            ("{ }", "`{}` must name a field or a part of a pattern"),
            ("{a{b}", "`{}` must name a field or a part of a pattern"),
        ] {
            assert_eq!(NameTemplate::parse(template).err().as_deref(), Some(why), "{template}");
        }
        assert!(NameTemplate::parse(&"é".repeat(200)).is_ok() && NameTemplate::parse(&"é".repeat(201)).is_err());
    }
}
