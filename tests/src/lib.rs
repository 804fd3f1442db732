//! Shared helpers.
//!
//! `promqltest` runs PromQL acceptance scripts against anything that can be cleared, loaded and asked; `memory_source`
//! is a source of series for tests of the language alone, `memory_subject` puts both together.

pub mod memory_source;
pub mod memory_subject;
pub mod promqltest;
