//! End-to-end tests: the real binary over HTTP, one module per family.

mod admin;
mod bad_input;
mod explain;
mod small_endpoints;
mod write_read;
