//! Nothing but features: the union of what the workspace asks of third-party crates.
//!
//! As a dev-dependency of every crate that links DataFusion it makes `cargo test -p one-crate` choose the same
//! features as `cargo test --workspace`, so that DataFusion is built once for tests and not once per crate.
