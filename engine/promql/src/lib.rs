//! PromQL: text → tree → label phase → DataFusion `LogicalPlan`.
//!
//! `lexer` and `parser` give the tree of `ast` with byte spans, `type_check` types it, `print` writes it back;
//! `functions` is the registry of all functions, `kernel` the shapes that their kernels work on, `histogram` the
//! arithmetic of native histograms; `plan` resolves labels and builds the plan, `nodes` are its operators.
//!
//! Invariant: knows no store. Series and their samples come through `quiver_types::source`.

pub mod aggregate;
pub mod annotation;
pub mod ast;
pub mod ast_json;
pub mod binary;
mod duration;
pub mod error;
pub mod functions;
pub mod histogram;
pub mod kernel;
pub mod nodes;
pub mod parser;
pub mod print;
pub mod quantile;
pub mod query;
pub mod range_ends;
pub mod result;
pub mod sample_stats;
pub mod selectors;
mod single_flight;
pub mod stored_samples;
pub mod type_check;
pub mod window;

mod cache;
mod cancellable_sort;
mod kahan;
mod lexer;
mod plan;
mod run_state;

pub use cache::{ResultCache, ResultCacheStats};
pub use error::PromqlError;
pub use nodes::encoding::PlanForms;
pub use plan::QueryTimes;
pub use query::{PromqlEngine, PromqlSettings, QueryOptions, QueryOutcome, QueryTimings};
pub use result::{QueryValue, SampleResult, SampleSeries, StepResult, StepRow};
pub use sample_stats::SampleStats;
pub use stored_samples::{NewestSamples, NewestValue, OrderedChunks, RawReader, RawSeries};
