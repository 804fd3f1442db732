//! Reads a mapping of a file field by field, and names of members in it.

use quiver_types::suggestions::did_you_mean;
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Node, NodeKind};
use serde_json::{Map, Value};

use crate::model::problem_location::near_field;
use crate::model::{Common, MemberId, Template, is_name};

/// Converts YAML to JSON, for values that are passed on unchanged.
pub(super) fn json(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Null => Value::Null,
        NodeKind::List(items) => items.iter().map(json).collect(),
        NodeKind::Map(pairs) => {
            Value::Object(pairs.iter().map(|(k, v)| (k.text.clone(), json(v))).collect::<Map<_, _>>())
        }
        NodeKind::Scalar { text, .. } => {
            let truth = matches!(text.as_str(), "true" | "false").then(|| node.truth()).flatten();
            let whole = node.integer().and_then(|i| i64::try_from(i).ok());
            let number = || node.number().filter(|n| n.is_finite());
            truth
                .map(Value::from)
                .or(whole.map(Value::from))
                .or_else(|| number().map(Value::from))
                .unwrap_or_else(|| text.as_str().into())
        }
    }
}

/// A mapping that is being read.
pub(super) struct Reader<'a, 'p> {
    pub(super) fields: Fields<'a>,
    pub(super) problems: &'p mut Problems,
}

impl<'a, 'p> Reader<'a, 'p> {
    pub(super) fn new(node: &'a Node, path: &str, problems: &'p mut Problems) -> Option<Self> {
        let fields = Fields::new(node, path, problems)?;
        Some(Self { fields, problems })
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        self.fields.text(name, self.problems)
    }

    pub(super) fn truth(&mut self, name: &'static str) -> Option<bool> {
        self.fields.truth(name, self.problems)
    }

    pub(super) fn list(&mut self, name: &'static str) -> &'a [Node] {
        self.fields.list(name, self.problems).unwrap_or_default()
    }

    pub(super) fn texts(&mut self, name: &'static str) -> Vec<String> {
        self.fields.texts(name, self.problems).unwrap_or_default()
    }

    /// Reports a wrong value.
    pub(super) fn bad(&mut self, name: &str, message: impl Into<String>) {
        self.fields.problem(name, Code::InvalidValue, message, self.problems);
    }

    pub(super) fn sql(&mut self, name: &'static str) -> Option<Template> {
        let place = self.fields.node().get(name)?.place;
        self.text(name).map(|text| Template::parse(&text, place))
    }

    /// A value out of a list of words.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let hint = did_you_mean(&text, words.iter().map(|(word, _)| *word));
            self.bad(name, format!("unknown {name} `{text}`{hint}"));
        }
        found
    }

    /// The properties that all members and models have.
    pub(super) fn common(&mut self) -> Option<Common> {
        let place = self.fields.node().place;
        let name = self.text("name");
        match &name {
            None => self.fields.problem("name", Code::Required, "a name must be given", self.problems),
            Some(n) if !is_name(n) || n.starts_with(|c: char| c.is_ascii_digit()) => {
                self.bad("name", format!("`{n}` is no identifier"));
            }
            Some(_) => {}
        }
        let shown = self.truth("shown");
        Some(Common {
            name: name?,
            title: self.text("title"),
            description: self.text("description"),
            public: self.truth("public").or(shown),
            meta: self.fields.some("meta").map(json),
            format: self.fields.some("format").map(json),
            currency: self.text("currency"),
            place,
        })
    }

    pub(super) fn members(&mut self, name: &'static str, own: &str) -> Vec<MemberId> {
        self.texts(name).iter().map(|text| member(text, own)).collect()
    }

    pub(super) fn finish(self) {
        self.fields.finish_with(near_field, self.problems);
    }
}

/// A member by name, with or without its model's name or braces.
pub(super) fn member(text: &str, own: &str) -> MemberId {
    let plain = text.trim().replace(['$', '{', '}'], "");
    match plain.split_once('.') {
        Some(("CUBE", name)) => MemberId::new(own, name),
        Some((model, name)) => MemberId::new(model, name),
        None => MemberId::new(own, plain),
    }
}
