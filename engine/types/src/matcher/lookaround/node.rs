//! Syntax trees of patterns.

use std::sync::Arc;

use regex_syntax::hir::Look;

/// Letters of which one is looked for: ranges that are in order. A part that is repeated has them once.
#[derive(Debug, Clone)]
pub(super) struct Letters(pub(super) Arc<[(char, char)]>);

impl Letters {
    pub(super) fn has(&self, letter: char) -> bool {
        match &*self.0 {
            [(from, to)] => (*from..=*to).contains(&letter),
            ranges => {
                let at = ranges.partition_point(|(_, to)| *to < letter);
                ranges.get(at).is_some_and(|(from, _)| *from <= letter)
            }
        }
    }
}

/// A part of a pattern.
#[derive(Debug)]
pub(super) enum Node {
    Letters(Letters),
    Look(Look),
    /// By its number, from 1.
    Group(usize, Box<Node>),
    Back {
        group: usize,
        folds: bool,
    },
    Around {
        is_ahead: bool,
        is_negated: bool,
        node: Box<Node>,
    },
    Concat(Vec<Node>),
    Either(Vec<Node>),
    Repeat {
        node: Box<Node>,
        min: usize,
        max: Option<usize>,
        is_lazy: bool,
    },
}

impl Node {
    /// How many letters it takes at least, and at most.
    pub(super) fn width(&self) -> (usize, Option<usize>) {
        match self {
            Self::Letters(_) => (1, Some(1)),
            Self::Look(_) | Self::Around { .. } => (0, Some(0)),
            Self::Back { .. } => (0, None),
            Self::Group(_, node) => node.width(),
            Self::Concat(nodes) => nodes.iter().map(Self::width).fold((0, Some(0)), |(least, most), (min, max)| {
                (least.saturating_add(min), most.zip(max).map(|(most, max)| most.saturating_add(max)))
            }),
            Self::Either(nodes) => {
                let widths = nodes.iter().map(Self::width);
                let joined = widths.reduce(|(least, most), (min, max)| {
                    (least.min(min), most.zip(max).map(|(most, max)| most.max(max)))
                });
                joined.unwrap_or((0, Some(0)))
            }
            Self::Repeat { node, min, max, .. } => {
                let (least, most) = node.width();
                (least.saturating_mul(*min), most.zip(*max).map(|(most, max)| most.saturating_mul(max)))
            }
        }
    }
}
