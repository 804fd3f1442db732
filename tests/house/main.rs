//! House rules that no compiler checks: layers, circles of files, dependencies, the shape of files, what a public text
//! must not hold, and generated documents in step with the code.

#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "names here are lower-case")]

mod circles;
mod dependencies;
mod documents;
mod files;
mod layers;
mod map;
mod models;
mod names;
mod operators;
mod paths;
mod plans;
mod sources;
