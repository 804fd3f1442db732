//! Crash tests: the real binary on real files, killed at every step, stopped under load, queried while data is being
//! moved, and held to its memory limit. Expected results come from the writers' own records (`quiver_tests::history`).
//!
//! Runs are seeded: `QUIVER_SEED=n` repeats one. `QUIVER_SOAK=1` runs them in full length.

#![allow(clippy::format_collect, reason = "bodies of tests are small")]

mod amplified;
mod arena;
mod backup;
mod bit_rot;
mod bodies;
mod cancel;
mod cancel_reads;
mod cardinality;
mod configuration;
mod connections;
mod descriptors;
mod drain;
mod fairness;
mod full_disk;
mod idempotency;
mod io_errors;
mod kill_loop;
mod kill_plan;
mod logs;
mod memory;
mod power_cut;
mod readers;
mod replay;
mod retention;
mod snapshot;
mod spans;
mod torn_tail;
mod wal_file;
