//! `>x` and the like where x is no number: by bytes.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;

/// How texts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextOp {
    /// `>`: greater by bytes
    Gt,
    /// `>=`: greater by bytes, or equal
    Ge,
    /// `<`: less by bytes
    Lt,
    /// `<=`: less by bytes, or equal
    Le,
}

/// A comparison of texts. A missing field is the empty text and as such less than any other.
#[derive(Debug, Clone)]
pub struct TextCompare {
    op: TextOp,
    text: String,
}

impl TextCompare {
    /// Makes the filter.
    pub fn new(op: TextOp, text: impl Into<String>) -> Self {
        Self { op, text: text.into() }
    }
}

impl ValueMatcher for TextCompare {
    fn matches(&self, value: &str) -> bool {
        match self.op {
            TextOp::Gt => value > self.text.as_str(),
            TextOp::Ge => value >= self.text.as_str(),
            TextOp::Lt => value < self.text.as_str(),
            TextOp::Le => value <= self.text.as_str(),
        }
    }

    fn describe(&self) -> String {
        let op = match self.op {
            TextOp::Gt => ">",
            TextOp::Ge => ">=",
            TextOp::Lt => "<",
            TextOp::Le => "<=",
        };
        format!("{op}{:?}", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("text_compare").numbers([self.op as u64]).texts([&self.text]))
    }
}
