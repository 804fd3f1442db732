//! Operations on batches that several pipes share; what only one pipe does is in its own file.

pub(crate) mod aggregate;
pub(crate) mod computed_fields;
pub(crate) mod filter;
mod group;
pub(crate) mod grouping;
pub(crate) mod join;
pub(crate) mod keys;
pub(crate) mod pack;
mod packed_columns;
pub(crate) mod project;
pub(crate) mod sort;
mod sparse_keys;
pub(crate) mod stream_context;
pub(crate) mod unpack;

use crate::step::StepReader;

/// How the steps of each are read.
pub(crate) const STEPS: &[&[StepReader]] = &[
    aggregate::STEPS,
    stream_context::STEPS,
    filter::STEPS,
    group::STEPS,
    join::STEPS,
    sparse_keys::STEPS,
    pack::STEPS,
    project::STEPS,
    sort::STEPS,
    unpack::STEPS,
];

#[cfg(test)]
mod tests;
