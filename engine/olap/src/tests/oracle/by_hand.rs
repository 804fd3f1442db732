//! Random models, rows and queries, and answers to them by hand.
//!
//! Nothing here knows the compiler or the engine: what both agree on is so for two reasons.

pub(crate) mod answer;
pub(crate) mod evaluate;
mod measures;
mod operators;
pub(crate) mod question;
pub(crate) mod time;
mod tree;
pub(crate) mod value;
mod windows;
pub(crate) mod world;
