//! `eq_field(g)`, `le_field(g)`, `lt_field(g)`: two fields of a row.

use std::cmp::Ordering;

use quiver_types::logs::{MatcherForm, RowMatcher};

use super::matcher_form::form;
use crate::kernels::values::numeric;

/// How two fields are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOp {
    /// Equality of texts.
    Eq,
    /// `<=`: as numbers when both are, else by bytes.
    Le,
    /// `<`: as numbers when both are, else by bytes.
    Lt,
}

/// Compares the first of the values asked for with the second.
#[derive(Debug, Clone)]
pub struct FieldCompare {
    op: FieldOp,
    left: String,
    right: String,
}

impl FieldCompare {
    /// Makes the filter; the names are for its text only.
    pub fn new(op: FieldOp, left: impl Into<String>, right: impl Into<String>) -> Self {
        Self { op, left: left.into(), right: right.into() }
    }
}

impl RowMatcher for FieldCompare {
    fn matches(&self, values: &[&str]) -> bool {
        let [left, right] = *values else { return false };
        if self.op == FieldOp::Eq || left == right {
            return left == right && self.op != FieldOp::Lt;
        }
        let order = match (numeric(left), numeric(right)) {
            (Some(x), Some(y)) => x.partial_cmp(&y).unwrap_or(Ordering::Greater),
            _ => left.cmp(right),
        };
        match self.op {
            FieldOp::Lt => order == Ordering::Less,
            _ => order != Ordering::Greater,
        }
    }

    fn describe(&self) -> String {
        let name = match self.op {
            FieldOp::Eq => "eq_field",
            FieldOp::Le => "le_field",
            FieldOp::Lt => "lt_field",
        };
        format!("{:?}:{name}({:?})", self.left, self.right)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("field_compare").numbers([self.op as u64]).texts([&self.left, &self.right]))
    }
}
