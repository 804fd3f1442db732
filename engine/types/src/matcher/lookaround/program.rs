//! Compiles a syntax tree to the program that the search runs.

use regex_syntax::hir::Look;

use super::node::{Letters, Node};
use crate::{Error, ErrorKind, Result};

/// Most steps of a pattern, repeated parts written out.
const LENGTH_MAX: usize = 20_000;

/// One step of a compiled pattern.
#[derive(Debug)]
pub(super) enum Step {
    /// One letter out of a set.
    Letters(Letters),
    /// As many of such letters as there are.
    Run {
        letters: Letters,
        min: usize,
        max: usize,
    },
    /// A place of a kind.
    Look(Look),
    /// Two ways, the first in rank first.
    Split {
        first: usize,
        second: usize,
    },
    Jump(usize),
    /// Notes the place.
    Slot(usize),
    /// Another round of a loop, unless the last one, which began at a place that is noted, took nothing.
    Again {
        slot: usize,
        top: usize,
    },
    /// What a group found.
    Back {
        group: usize,
        folds: bool,
    },
    /// What follows up to [`Step::Accept`] is, or is not, ahead of this place or behind it.
    Around {
        is_ahead: bool,
        is_negated: bool,
        least: usize,
        most: Option<usize>,
        next: usize,
    },
    Accept,
}

/// The steps of a pattern, from the first one on.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// Two for each group, and one for each loop that may take nothing.
    pub(super) slots: usize,
    /// The letter that each match begins with, if it is one.
    pub(super) first: Option<char>,
    /// Whether a match begins where a text does.
    pub(super) is_anchored: bool,
    /// How many parts were gone through: one without steps may be repeated, too.
    parts: usize,
}

impl Program {
    /// Makes the steps.
    ///
    /// # Errors
    /// LimitExceeded: they are too many.
    pub(super) fn new(node: &Node, groups: usize) -> Result<Self> {
        let mut program = Self { steps: Vec::new(), slots: 2 * groups, first: None, is_anchored: false, parts: 0 };
        program.push(Step::Slot(0))?;
        program.add(node)?;
        program.push(Step::Slot(1))?;
        program.push(Step::Accept)?;
        match program.steps.iter().find(|step| !matches!(step, Step::Slot(_))) {
            Some(Step::Letters(letters)) => {
                if let [(from, to)] = &*letters.0
                    && from == to
                {
                    program.first = Some(*from);
                }
            }
            Some(Step::Look(Look::Start)) => program.is_anchored = true,
            _ => {}
        }
        Ok(program)
    }

    fn push(&mut self, step: Step) -> Result<usize> {
        if self.steps.len() >= LENGTH_MAX {
            return Err(long());
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    fn add(&mut self, node: &Node) -> Result<()> {
        self.parts += 1;
        if self.parts > 4 * LENGTH_MAX {
            return Err(long());
        }
        match node {
            Node::Letters(letters) => {
                self.push(Step::Letters(letters.clone()))?;
            }
            Node::Look(look) => {
                self.push(Step::Look(*look))?;
            }
            Node::Back { group, folds } => {
                self.push(Step::Back { group: *group, folds: *folds })?;
            }
            Node::Group(group, node) => {
                self.push(Step::Slot(2 * group))?;
                self.add(node)?;
                self.push(Step::Slot(2 * group + 1))?;
            }
            Node::Around { is_ahead, is_negated, node } => {
                let (least, most) = node.width();
                let (is_ahead, is_negated) = (*is_ahead, *is_negated);
                let around = self.push(Step::Accept)?;
                self.add(node)?;
                let next = self.push(Step::Accept)? + 1;
                self.steps[around] = Step::Around { is_ahead, is_negated, least, most, next };
            }
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.add(node))?,
            Node::Either(nodes) => self.either(nodes)?,
            Node::Repeat { node, min, max, is_lazy } => self.repeat(node, *min, *max, *is_lazy)?,
        }
        Ok(())
    }

    fn either(&mut self, nodes: &[Node]) -> Result<()> {
        let Some((last, others)) = nodes.split_last() else { return Ok(()) };
        let mut ends = Vec::new();
        for node in others {
            let split = self.push(Step::Accept)?;
            self.add(node)?;
            ends.push(self.push(Step::Accept)?);
            self.steps[split] = Step::Split { first: split + 1, second: self.steps.len() };
        }
        self.add(last)?;
        for end in ends {
            self.steps[end] = Step::Jump(self.steps.len());
        }
        Ok(())
    }

    fn repeat(&mut self, node: &Node, min: usize, max: Option<usize>, is_lazy: bool) -> Result<()> {
        if let (Node::Letters(letters), false) = (node, is_lazy) {
            self.push(Step::Run { letters: letters.clone(), min, max: max.unwrap_or(usize::MAX) })?;
            return Ok(());
        }
        (0..min).try_for_each(|_| self.add(node))?;
        let ways = |goes: usize, ends: usize| {
            let (first, second) = if is_lazy { (ends, goes) } else { (goes, ends) };
            Step::Split { first, second }
        };
        let may_be_empty = node.width().0 == 0;
        let mut splits = Vec::new();
        let Some(max) = max else {
            if may_be_empty && min == 0 {
                // The first round alone may take nothing.
                splits.push(self.push(Step::Accept)?);
                self.add(node)?;
            }
            let top = self.push(Step::Accept)?;
            splits.push(top);
            if may_be_empty {
                let slot = self.slots;
                self.slots += 1;
                self.push(Step::Slot(slot))?;
                self.add(node)?;
                self.push(Step::Again { slot, top })?;
            } else {
                self.add(node)?;
                self.push(Step::Jump(top))?;
            }
            for split in splits {
                self.steps[split] = ways(split + 1, self.steps.len());
            }
            return Ok(());
        };
        for _ in min..max {
            splits.push(self.push(Step::Accept)?);
            self.add(node)?;
        }
        for split in splits {
            self.steps[split] = ways(split + 1, self.steps.len());
        }
        Ok(())
    }
}

fn long() -> Error {
    let text = format!("a regular expression that looks around has more than {LENGTH_MAX} steps");
    Error::new(ErrorKind::LimitExceeded, text)
}
