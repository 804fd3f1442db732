//! Columns become text once, here.

pub(crate) mod outcome;
pub(crate) mod prometheus;
