//! Pipes that transform one row at a time: one file each, as functions from texts to texts. The planner feeds them
//! fields and stores what they give.

pub mod fields;
pub mod json;

pub use fields::Fields;
