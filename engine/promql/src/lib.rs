//! PromQL: text → tree → label phase → DataFusion `LogicalPlan`.
//!
//! `lexer` and `parser` give the tree of `ast` with byte spans, `check` types it, `print` writes it back;
//! `functions` is the registry of all functions, `kernel` the shapes that their kernels work on, `histogram` the
//! arithmetic of native histograms; `plan` resolves labels and builds the plan, `nodes` are its operators.
//!
//! Invariant: knows no store. Series come through `quiver_types::source`, samples through
//! `quiver_query::SampleTables`.

pub mod annotation;
pub mod ast;
pub mod kernel;
