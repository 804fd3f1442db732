//! What the benches share: one deterministic data set, its bodies on the wire, a store filled with it, and a look at
//! the CPU clock. `cargo bench -p quiver-benches` runs them; figures stand in `docs/benchmarks.md`.
//!
//! The data set is that of the issue: 10,000 counters of one metric, a sample every 15 s, 1,000 samples each: 10 M. The
//! allocator is the product's.

pub mod cpu;
pub mod data;
pub mod log_rows;
pub mod logs;
pub mod proto;
pub mod spans;
pub mod world;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
