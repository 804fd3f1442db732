//! A mapping as typed fields.

use std::collections::{BTreeMap, HashSet};

use quiver_types::time::duration;

use crate::problem::{Code, Problems};
use crate::{Node, NodeKind, pointer};

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
            NodeKind::Map(_) | NodeKind::Null => Some(Self { node, path, known: HashSet::new() }),
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
            NodeKind::List(items) => Some(items.as_slice()),
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
        let NodeKind::Map(pairs) = &node.kind else {
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
        let NodeKind::Map(pairs) = &self.node.kind else { return };
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

    fn root(text: &str) -> Node {
        read(text).expect(text).remove(0)
    }

    fn told(problems: &Problems) -> Vec<String> {
        problems.iter().map(|p| format!("{} {p}", p.path)).collect()
    }

    #[test]
    fn what_is_of_another_type_is_named() {
        let node = root("t: [1]\nb: maybe\ni: 1x\nn: {a: 1}\nd: [5m]\nl: text\nm: text\no: 5\n");
        let mut problems = Problems::default();
        let mut fields = Fields::new(&node, "/rules/0", &mut problems).expect("a mapping");
        assert_eq!(fields.text("t", &mut problems), None);
        assert_eq!(fields.truth("b", &mut problems), None);
        assert_eq!(fields.integer("i", &mut problems), None);
        assert_eq!(fields.number("n", &mut problems), None);
        assert_eq!(fields.duration_ms("d", &mut problems), None);
        assert_eq!(fields.list("l", &mut problems), None);
        assert_eq!(fields.text_map("m", &mut problems), None);
        assert_eq!(fields.offset_ms("o", &mut problems), None);
        fields.finish(&mut problems);
        let expected = [
            "/rules/0/t 1:4: wanted a text, got a list",
            "/rules/0/b 2:4: `maybe` is not true or false",
            "/rules/0/i 3:4: `1x` is not a whole number",
            "/rules/0/n 4:4: wanted a number, got a mapping",
            "/rules/0/d 5:4: wanted a text, got a list",
            "/rules/0/l 6:4: `text` is not a list",
            "/rules/0/m 7:4: wanted a mapping, got a scalar",
            "/rules/0/o 8:4: not a valid duration string: \"5\"",
        ];
        assert_eq!(told(&problems), expected);
        assert_eq!(problems.iter().filter(|p| p.code == Code::InvalidDuration).count(), 1);
    }

    #[test]
    fn values_that_fit() {
        let node = root("t: 5\nn: -1.5\ni: 1.9\no: -30m\ne: []\nz: ~\ns: {a: 1, b: ~}\n");
        let mut problems = Problems::default();
        let mut fields = Fields::new(&node, "", &mut problems).expect("a mapping");
        assert_eq!(fields.text("t", &mut problems).as_deref(), Some("5"));
        assert_eq!(fields.number("n", &mut problems), Some(-1.5));
        assert_eq!(fields.integer("i", &mut problems), Some(1));
        assert_eq!(fields.offset_ms("o", &mut problems), Some(-1_800_000));
        assert_eq!(fields.list("e", &mut problems).map(<[Node]>::len), Some(0));
        assert_eq!(fields.list("z", &mut problems), None, "nothing is no empty list");
        assert!(fields.take("z").is_some() && fields.some("z").is_none() && fields.take("absent").is_none());
        let map = fields.text_map("s", &mut problems).expect("a mapping");
        assert_eq!((map.len(), map["a"].as_str(), map["b"].as_str()), (2, "1", ""));
        fields.finish(&mut problems);
        assert!(problems.is_empty(), "{problems}");
    }

    #[test]
    fn items_and_entries_that_are_no_texts() {
        let node = root("l: [a, [b], ~, {c: 1}]\nm: {x/y: [1], ok: 2}\n");
        let mut problems = Problems::default();
        let mut fields = Fields::new(&node, "", &mut problems).expect("a mapping");
        assert_eq!(fields.texts("l", &mut problems), Some(vec!["a".to_owned(), String::new()]));
        assert_eq!(fields.text_map("m", &mut problems).map(|m| m.len()), Some(1));
        let expected = [
            "/l/1 1:8: wanted a text, got a list",
            "/l/3 1:16: wanted a text, got a mapping",
            "/m/x~1y 2:10: wanted a text, got a list",
        ];
        assert_eq!(told(&problems), expected);
    }

    #[test]
    fn mappings_and_what_is_none() {
        let mut problems = Problems::default();
        assert!(Fields::new(&root("[1]"), "/a", &mut problems).is_none());
        assert!(Fields::new(&root("x"), "/b", &mut problems).is_none());
        let nothing = root("~");
        let mut fields = Fields::new(&nothing, "/c", &mut problems).expect("one without fields");
        assert!(fields.take("x").is_none());
        // Of what is missing the place is that of the mapping.
        fields.problem("x", Code::Required, "is required", &mut problems);
        fields.finish(&mut problems);
        let expected =
            ["/a 1:1: wanted a mapping, got a list", "/b 1:1: wanted a mapping, got a scalar", "/c/x 1:1: is required"];
        assert_eq!(told(&problems), expected);
    }

    #[test]
    fn hints_know_the_fields_that_were_asked_for() {
        let node = root("name: a\nnmae: b\n");
        let mut problems = Problems::default();
        let mut fields = Fields::new(&node, "", &mut problems).expect("a mapping");
        assert!(fields.take("name").is_some());
        let hint = |wrong: &str, known: &HashSet<&'static str>| {
            format!("; {wrong} is none of {}", known.iter().copied().collect::<Vec<_>>().join(", "))
        };
        fields.finish_with(hint, &mut problems);
        assert_eq!(told(&problems), ["/nmae 2:1: unknown field `nmae`; nmae is none of name"]);
    }
}
