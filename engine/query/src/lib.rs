//! The one engine: every language hands it a DataFusion `LogicalPlan`; it plans, limits, runs, cancels and explains it.
//!
//! | Module | What |
//! |---|---|
//! | `engine`, `short_work`, `pool`, `spill` | sessions and the CPU runtime · short work on the caller's thread · memory pools · spill files |
//! | `rules` | which rules a plan goes through, and what its nodes share while it runs |
//! | `context`, `running`, `usage` | what a query brings along (access, deadline, limits, counters) · the list of running queries · totals of all queries |
//! | `leaf`, `samples`, `logs`, `spans`, `index` | the one leaf node of scans · the traits through which languages scan · index look-ups |
//! | `operator`, `written`, `forms` | plan nodes of the languages · serialized plans |
//! | `lists` | the session for lists (labels, values, services, …) |
//! | `relational`, `functions`, `tables` | the session of SQL and analytics · its functions · the tables that statements may name |
//! | `explain`, `explaining` | plans as JSON · collecting the plans of a request that is explained |
//! | `rows`, `reader` | the rows of a result, batch by batch · how long they wait for their reader |
//! | `durations`, `moments`, `quoted`, `regular` | intervals and times as people write them · quoted names and strings · PostgreSQL's regular expressions |
//!
//! Invariant: knows no query language and no store.

mod context;
mod current_query;
pub mod durations;
mod engine;
mod error;
mod explain;
mod explaining;
pub mod failpoint;
mod forms;
pub mod functions;
mod gate;
mod in_flight;
pub mod index;
mod kept;
mod leaf;
mod lists;
mod logs;
mod merged_stream;
pub mod moments;
mod names;
mod node_defaults;
mod numbered;
mod operator;
mod pace;
mod pool;
mod provider;
pub mod quoted;
mod reader;
pub mod regular;
mod rehearsal;
mod relational;
pub mod rows;
mod rules;
mod running;
mod samples;
mod sequential_union;
mod short_work;
mod spans;
mod spill;
pub mod tables;
#[cfg(test)]
mod testing;
mod unpinned;
mod usage;
mod written;

pub use context::{Collected, Limits, QueryContext, QueryMemory};
pub use engine::{EngineSettings, QueryEngine, THREAD_KEEP_ALIVE, ThroughCodec};
pub use error::{BY_ZERO, from_datafusion, no_moment, own_error, to_datafusion};
pub use explaining::{Explain, Explaining};
pub use forms::PlanForms;
pub use functions::around::{Around, aggregate_within, over_aggregate};
pub use in_flight::{Held, Underway};
pub use leaf::{LeafForms, ScanExec, scan_table};
pub use logs::LogTables;
pub use names::Names;
pub use operator::{Operator, coalesced, gathered, operator_plan, write_operator};
pub use pace::Pace;
pub use pool::Keeper;
pub use reader::Answered;
pub use rehearsal::PlanRun;
pub use rules::{Rules, SharedState};
pub use running::{Asked, Observer, Permit, Phase, Query, Running, Served, TEXT_BYTES_MAX, WITHDRAWN};
pub use samples::SampleTables;
pub use sequential_union::in_turn;
pub use short_work::give_way;
pub use spans::SpanTables;
pub use spill::spill_folder;
pub use unpinned::unpinned;
pub use usage::QueryUse;
pub use written::{Forms, Written};
