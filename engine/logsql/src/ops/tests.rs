//! Steps over rows: what goes in, and what VictoriaLogs documents to come out.

mod edge_cases;
mod filters_and_sorts;
mod naive_model;
mod rows;
mod sparse_keys;
mod stats;
mod values;
