//! Numbers over time as they are read: those of a query, and arithmetic between them.

use super::ast::{Metric, Query};
use super::expressions::{Compare, End, Sign};

/// What numbers are made of.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// The series of one query with a function of metrics.
    Query(Box<Query>),
    /// Arithmetic between series of both sides.
    Worked(Box<Node>, Sign, Box<Node>),
    /// Arithmetic between series and a constant, which may stand on the left.
    Fixed {
        of: Box<Node>,
        sign: Sign,
        fixed: f64,
        /// Whether the constant is the left operand.
        is_left: bool,
    },
    /// The numbers of series that compare so with a constant.
    Kept(Box<Node>, Compare, f64),
    /// The greatest or the least numbers of each step, this many.
    Picked(Box<Node>, End, usize),
}

impl Node {
    /// Says whether the numbers of `compare` are among its own.
    pub(super) fn has_comparison(&self) -> bool {
        let mut queries = Vec::new();
        self.queries(&mut queries);
        queries.iter().any(|query| query.metric.as_ref().is_some_and(Metric::is_comparison))
    }

    /// Has the spans of its queries count as many times as each stands for.
    pub(super) fn extrapolate(&mut self) {
        match self {
            Self::Query(query) => query.extrapolate(),
            Self::Worked(left, _, right) => {
                left.extrapolate();
                right.extrapolate();
            }
            Self::Fixed { of, .. } | Self::Kept(of, ..) | Self::Picked(of, ..) => of.extrapolate(),
        }
    }

    /// Adds its queries, in their order.
    pub(super) fn queries<'n>(&'n self, out: &mut Vec<&'n Query>) {
        match self {
            Self::Query(query) => out.push(query),
            Self::Worked(left, _, right) => {
                left.queries(out);
                right.queries(out);
            }
            Self::Fixed { of, .. } | Self::Kept(of, ..) | Self::Picked(of, ..) => of.queries(out),
        }
    }
}
