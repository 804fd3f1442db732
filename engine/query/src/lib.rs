//! The one engine: every language hands it a DataFusion `LogicalPlan`; it plans, limits, runs, cancels and explains it.
//!
//! | Module | What |
//! |---|---|
//! | `engine`, `short_work`, `admission`, `repeated_work`, `pool`, `spill` | sessions and the CPU runtime · short work on the caller's thread · which queries may begin · which are repeated · memory pools · spill files |
//! | `planning_rules` | which rules a plan goes through, and what its nodes share while it runs |
//! | `context`, `running_queries`, `query_counters` | what a query brings along (access, deadline, limits, counters) · the list of running queries · totals of all queries |
//! | `leaf`, `logs`, `spans`, `index` | the one leaf node of scans · the traits through which languages scan · index look-ups |
//! | `operator`, `encoding`, `node_encoding` | plan nodes of the languages · serialized plans |
//! | `list_session` | the session for lists (labels, values, services, …) |
//! | `relational`, `functions`, `tables` | the session of SQL and analytics · its functions · the tables that statements may name |
//! | `explain`, `plan_recorder` | plans as JSON · collecting the plans of a request that is explained |
//! | `rows`, `slow_readers` | the rows of a result, batch by batch · how long they wait for their reader |
//! | `durations`, `time_literals`, `zone_names`, `quoting`, `postgres_regex` | intervals, times and zones as people write them · quoted names and strings · PostgreSQL's regular expressions |
//!
//! Invariant: knows no query language and no store.

mod admission;
mod cache_memory;
mod cancellation_checks;
mod context;
mod current_query;
mod double_run;
pub mod durations;
mod encoding;
mod engine;
mod error;
mod explain;
pub mod failpoint;
pub mod functions;
mod held_rows;
pub mod index;
mod interner;
mod leaf;
mod list_session;
mod logs;
mod lookup_limits;
mod memory_uses;
mod merged_stream;
mod name_resolution;
mod node_defaults;
mod node_encoding;
mod operator;
mod plan_recorder;
pub mod plan_walk;
mod planning_rules;
mod pool;
pub mod postgres_regex;
mod query_counters;
pub mod quoting;
mod relational;
mod repeated_work;
pub mod rows;
mod running_queries;
mod sequential_union;
mod short_work;
mod slow_readers;
mod spans;
mod spill;
mod table_provider;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod time_literals;
mod underway_memory;
mod view_compaction;
pub mod zone_names;

pub use cancellation_checks::Pace;
pub use context::{Limits, QueryContext, QueryMemory, QueryReservation};
pub use current_query::statement_time;
pub use double_run::PlanRun;
pub use encoding::{Forms, NodeCodec};
pub use engine::{EngineSettings, QueryEngine, THREAD_KEEP_ALIVE, ThroughCodec};
pub use error::{BY_ZERO, from_datafusion, is_crowded_out, no_moment, own_error, to_datafusion};
pub use functions::wrappers::{FunctionWrapper, aggregate_within, over_aggregate};
pub use leaf::{LeafForms, ScanExec, scan_table};
pub use logs::LogTables;
pub use name_resolution::Names;
pub use node_encoding::PlanForms;
pub use operator::{Operator, coalesced, gathered, operator_plan, write_operator};
pub use plan_recorder::{Explain, PlanRecorder};
pub use planning_rules::{Rules, SharedState};
pub use pool::Keeper;
pub use query_counters::QueryUse;
pub use relational::exchanged_rows::{cut_by_bytes, exchanged};
pub use relational::held_inputs::held_side;
pub use relational::join_payloads::joined_by_views;
pub use relational::long_constants::below_aggregates;
pub use relational::plan_limits::{OUTPUTS_MAX, WINDOWS_MAX};
pub use relational::visible_rows::{of_visible_rows, visible_rows};
pub use repeated_work::AnswerStarted;
pub use running_queries::{
    AnswerSource, Observer, Permit, Phase, Query, QueryInfo, QueryRegistry, TEXT_BYTES_MAX, WITHDRAWN,
};
pub use sequential_union::in_turn;
pub use short_work::give_way;
pub use slow_readers::AnswerDelivery;
pub use spans::SpanTables;
pub use spill::spill_folder;
pub use underway_memory::{Held, Underway};
pub use view_compaction::unpinned;
