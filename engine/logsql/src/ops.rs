//! Operations on batches that several pipes share; what only one pipe does is in its own file.

pub(crate) mod aggregate;
pub(crate) mod cells;
pub(crate) mod context;
pub(crate) mod filter;
mod group;
pub(crate) mod grouping;
pub(crate) mod join;
pub(crate) mod keys;
mod many_keys;
pub(crate) mod pack;
mod packed;
pub(crate) mod project;
pub(crate) mod sort;
pub(crate) mod unpack;

use crate::step::StepReader;

/// How the steps of each are read.
pub(crate) const STEPS: &[&[StepReader]] = &[
    aggregate::STEPS,
    context::STEPS,
    filter::STEPS,
    group::STEPS,
    join::STEPS,
    many_keys::STEPS,
    pack::STEPS,
    project::STEPS,
    sort::STEPS,
    unpack::STEPS,
];

#[cfg(test)]
mod tests;
