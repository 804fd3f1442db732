//! Fuzz targets as seeded loops on stable Rust: bodies of remote write, OTLP, text import, remote read, logs and spans;
//! texts and evaluation of PromQL and LogsQL; texts of alerting.
//!
//! Each loop runs for `QUIVER_FUZZ_SECONDS` (20; 200 with `QUIVER_SOAK=1`). A failure prints the seed of its case and the
//! input; `QUIVER_SEED=<seed>` begins with that case. The allocator is the product's and counts per thread, so that each
//! input is held to a memory limit.

mod alerting;
mod any_value;
mod drive;
mod evaluate;
mod expression;
mod hostile;
mod hostile_logs;
mod hostile_queries;
mod hostile_spans;
mod import;
mod logs;
mod logsql;
mod logsql_query;
mod logsql_rows;
mod logsql_values;
#[path = "../conformance/logsql/memory.rs"]
mod memory;
mod otlp;
mod promql;
mod protobuf;
mod query_bombs;
mod remote_read;
mod remote_write;
mod results;
mod spans;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
