//! A mapping as typed fields.

use std::collections::{BTreeMap, HashSet};

use quiver_types::time::duration;

use crate::problem::{Code, Problems};
use crate::{Kind, Node, pointer};

/// The fields of a mapping. Whoever has asked for all that it knows calls [`Fields::finish`], which tells of the rest.
#[derive(Debug)]
pub struct Fields<'a> {
    node: &'a Node,
    path: String,
    known: HashSet<&'static str>,
}

impl<'a> Fields<'a> {
    /// Begins to read a mapping; nothing is one without fields.
    pub fn new(node: &'a Node, path: impl Into<String>, problems: &mut Problems) -> Option<Self> {
        let path = path.into();
        match node.kind {
            Kind::Map(_) | Kind::Null => Some(Self { node, path, known: HashSet::new() }),
            _ => {
                problems.push(node.problem(
                    &path,
                    Code::InvalidType,
                    format!("wanted a mapping, got {}", node.kind_name()),
                ));
                None
            }
        }
    }

    /// Gives the mapping itself.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Gives the path of the mapping.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Gives the path of a field.
    pub fn path_of(&self, name: &str) -> String {
        pointer(&self.path, name)
    }

    /// Gives a field, though it be nothing.
    pub fn take(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.insert(name);
        self.node.get(name)
    }

    /// Gives a field that is not nothing.
    pub fn some(&mut self, name: &'static str) -> Option<&'a Node> {
        self.take(name).filter(|n| !n.is_null())
    }

    /// Tells of a problem with a field, or with the mapping where the field is missing.
    pub fn problem(&self, name: &str, code: Code, message: impl Into<String>, problems: &mut Problems) {
        let node = self.node.get(name).unwrap_or(self.node);
        problems.push(node.problem(&self.path_of(name), code, message));
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        problems: &mut Problems,
        read: impl FnOnce(&'a Node) -> Option<T>,
    ) -> Option<T> {
        let node = self.some(name)?;
        let value = read(node);
        if value.is_none() {
            let message = match node.text() {
                Some(text) => format!("`{text}` is not {wanted}"),
                None => format!("wanted {wanted}, got {}", node.kind_name()),
            };
            problems.push(node.problem(&self.path_of(name), Code::InvalidType, message));
        }
        value
    }

    /// Reads a text; any scalar is one.
    pub fn text(&mut self, name: &'static str, problems: &mut Problems) -> Option<String> {
        self.typed(name, "a text", problems, |n| n.text().map(str::to_owned))
    }

    /// Reads a truth value.
    pub fn truth(&mut self, name: &'static str, problems: &mut Problems) -> Option<bool> {
        self.typed(name, "true or false", problems, Node::truth)
    }

    /// Reads a whole number.
    pub fn integer(&mut self, name: &'static str, problems: &mut Problems) -> Option<i64> {
        self.typed(name, "a whole number", problems, Node::whole)
    }

    /// Reads a number.
    pub fn number(&mut self, name: &'static str, problems: &mut Problems) -> Option<f64> {
        self.typed(name, "a number", problems, Node::number)
    }

    /// Reads a duration as Prometheus writes them, in milliseconds.
    pub fn duration_ms(&mut self, name: &'static str, problems: &mut Problems) -> Option<i64> {
        self.milliseconds(name, duration::parse, problems)
    }

    /// Reads a duration of Prometheus that may be negative.
    pub fn offset_ms(&mut self, name: &'static str, problems: &mut Problems) -> Option<i64> {
        self.milliseconds(name, duration::parse_signed, problems)
    }

    fn milliseconds(
        &mut self,
        name: &'static str,
        parse: fn(&str) -> Result<i64, String>,
        problems: &mut Problems,
    ) -> Option<i64> {
        let text = self.text(name, problems)?;
        match parse(&text) {
            Ok(ms) => Some(ms),
            Err(e) => {
                self.problem(name, Code::InvalidDuration, e, problems);
                None
            }
        }
    }

    /// Reads a list; nothing and absence are told apart from an empty one.
    pub fn list(&mut self, name: &'static str, problems: &mut Problems) -> Option<&'a [Node]> {
        self.typed(name, "a list", problems, |n| match &n.kind {
            Kind::List(items) => Some(items.as_slice()),
            _ => None,
        })
    }

    /// Reads a list of texts.
    pub fn texts(&mut self, name: &'static str, problems: &mut Problems) -> Option<Vec<String>> {
        let items = self.list(name, problems)?;
        let path = self.path_of(name);
        Some(texts(items, &path, problems))
    }

    /// Reads a mapping of texts to texts.
    pub fn text_map(&mut self, name: &'static str, problems: &mut Problems) -> Option<BTreeMap<String, String>> {
        let node = self.some(name)?;
        let path = self.path_of(name);
        let Kind::Map(pairs) = &node.kind else {
            problems.push(node.problem(
                &path,
                Code::InvalidType,
                format!("wanted a mapping, got {}", node.kind_name()),
            ));
            return None;
        };
        let mut out = BTreeMap::new();
        for (key, value) in pairs {
            if let Some(text) = value.text() {
                drop(out.insert(key.text.clone(), text.to_owned()));
            } else {
                let message = format!("wanted a text, got {}", value.kind_name());
                problems.push(value.problem(&pointer(&path, &key.text), Code::InvalidType, message));
            }
        }
        Some(out)
    }

    /// Tells of fields that nobody asked for.
    pub fn finish(self, problems: &mut Problems) {
        self.finish_with(|_, _| String::new(), problems);
    }

    /// The same with a hint behind each name, given the names that are known.
    pub fn finish_with(self, hint: impl Fn(&str, &HashSet<&'static str>) -> String, problems: &mut Problems) {
        let Kind::Map(pairs) = &self.node.kind else { return };
        for (key, _) in pairs.iter().filter(|(key, _)| !self.known.contains(key.text.as_str())) {
            let path = pointer(&self.path, &key.text);
            let message = format!("unknown field `{}`{}", key.text, hint(&key.text, &self.known));
            problems.push(crate::problem::Problem { place: key.place, path, code: Code::UnknownField, message });
        }
    }
}

/// Reads a list of texts.
pub fn texts(items: &[Node], path: &str, problems: &mut Problems) -> Vec<String> {
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if let Some(text) = item.text() {
            out.push(text.to_owned());
        } else {
            let message = format!("wanted a text, got {}", item.kind_name());
            problems.push(item.problem(&pointer(path, i), Code::InvalidType, message));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    #[test]
    fn typed_fields_and_unknown_ones() {
        let node = read("a: 1m\nb: [x, 2]\nc: no\nd: {k: 1}\ne: ~\nf: 7\ng: 9\n").expect("valid").remove(0);
        let mut problems = Problems::default();
        let mut fields = Fields::new(&node, "", &mut problems).expect("a mapping");
        assert_eq!(fields.duration_ms("a", &mut problems), Some(60_000));
        assert_eq!(fields.texts("b", &mut problems), Some(vec!["x".to_owned(), "2".to_owned()]));
        assert_eq!(fields.truth("c", &mut problems), Some(false));
        assert_eq!(fields.text_map("d", &mut problems).map(|m| m["k"].clone()), Some("1".to_owned()));
        assert_eq!(fields.integer("e", &mut problems), None);
        assert_eq!(fields.duration_ms("f", &mut problems), None);
        fields.finish(&mut problems);
        let told: Vec<String> = problems.iter().map(|p| format!("{} {p}", p.path)).collect();
        assert_eq!(told, ["/f 6:4: not a valid duration string: \"7\"", "/g 7:1: unknown field `g`"]);
    }
}
