//! The one engine: every language hands it a DataFusion `LogicalPlan`, it plans, limits, runs, cancels and explains.
//!
//! `engine` holds the session, the memory pool and the CPU runtime; `context` is what a query brings along (access,
//! deadline, limits, counters); `running` lists the queries that are under way and ends them; `samples` and `spans` are the doors through which languages scan; `explain` makes
//! plans visible, `explaining` notes those of a request; `rows` gives what a query finds batch by batch; `lists` is the session of lists, `index` the leaf of look-ups, `leaf` that of scans of the store; `grouping` groups by codes of texts; `relational` is the session of SQL and analytics, `tables` what they may name.
//!
//! Invariant: knows no query language and no store.

mod arithmetic;
mod beside;
mod context;
mod distinct_counts;
pub mod durations;
mod engine;
mod error;
mod explain;
mod explaining;
pub mod failpoint;
mod forms;
pub mod functions;
mod gate;
mod grouping;
mod in_turn;
pub mod index;
mod inner_order;
mod joined_ids;
mod kept;
mod leaf;
mod lengths;
mod list_pieces;
mod lists;
mod literals;
mod logs;
mod marks;
pub mod moments;
mod names;
mod operator;
mod overflow;
mod pace;
mod patterns;
mod plain;
mod pool;
mod printed;
mod rehearsal;
mod relational;
pub mod rows;
mod running;
mod samples;
mod slices;
mod spans;
mod spill;
mod subscripts;
pub mod tables;
#[cfg(test)]
mod testing;
mod through;
mod truths;
mod underway;
mod unkeyed;
mod unpinned;
mod untyped;
mod watched;
mod windows;
mod written;

pub use context::{Collected, Limits, QueryContext, QueryMemory};
pub use engine::{EngineSettings, QueryEngine, QueryUse, THREAD_KEEP_ALIVE};
pub use error::{BY_ZERO, from_datafusion, own_error, to_datafusion};
pub use explaining::Explaining;
pub use forms::PlanForms;
pub use functions::Around;
pub use in_turn::in_turn;
pub use kept::Keeper;
pub use leaf::{LeafForms, ScanExec, scan_table};
pub use logs::LogTables;
pub use names::Names;
pub use operator::{Operator, coalesced, gathered, operator_plan, write_operator};
pub use pace::Pace;
pub use rehearsal::PlanRun;
pub use running::{Asked, Observer, Permit, Phase, Query, Running, Served, TEXT_BYTES_MAX, WITHDRAWN};
pub use samples::{SampleRequest, SampleTables};
pub use spans::SpanTables;
pub use spill::spill_folder;
pub use through::ThroughCodec;
pub use underway::{Held, Underway};
pub use unpinned::unpinned;
pub use written::{Forms, Written};
