//! What the benches share: one deterministic data set, its bodies on the wire, a store filled with it, and a look at
//! the CPU clock. `cargo bench -p quiver-benches` runs them; `docs/benchmarks.md` has the figures.
//!
//! The data set is 10,000 counters of one metric with 1,000 samples each, 15 s apart: 10 million. The allocator is the
//! product's.

pub mod cpu;
pub mod data;
pub mod log_rows;
pub mod logs;
pub mod proto;
pub mod spans;
pub mod world;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
