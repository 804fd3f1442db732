//! The state of an aggregation as plain columns, for transfer from where rows are folded to where states are merged.

use crate::aggregate::histograms::HistogramPart;
use crate::ast::AggregateOp;

/// Rows of a state: one for each group, or for `quantile` the input rows unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parts {
    /// Group of each row.
    pub groups: Vec<u32>,
    /// Matrices of rows × steps, in the order of [`Parts::columns`].
    pub numbers: Vec<Vec<f64>>,
    /// Flags of the rows per step, in the order of [`Parts::columns`].
    pub flags: Vec<Vec<bool>>,
    /// Histograms of the rows, ascending by slot.
    pub hists: Vec<HistogramPart>,
}

impl Parts {
    /// Names of an operator's matrices: numbers, then flags.
    pub fn columns(op: AggregateOp) -> (&'static [&'static str], &'static [&'static str]) {
        match op {
            AggregateOp::Sum => (&["sum", "lost"], &["seen"]),
            AggregateOp::Avg => (&["sum", "lost", "count"], &["seen", "incremental"]),
            AggregateOp::Count => (&["count"], &["seen"]),
            AggregateOp::Min | AggregateOp::Max => (&["extreme"], &["seen"]),
            AggregateOp::Stddev | AggregateOp::Stdvar => (&["count", "mean", "squares"], &["seen"]),
            AggregateOp::Quantile => (&["value"], &["seen"]),
            _ => (&[], &["seen"]),
        }
    }
}
