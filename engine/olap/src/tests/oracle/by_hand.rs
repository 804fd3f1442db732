//! Random models, rows and queries, with results computed independently.
//!
//! Nothing here uses the compiler or the engine, so a common mistake of both is unlikely.

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
