//! Steps over rows: what goes in, and what VictoriaLogs documents to come out.

mod chosen;
mod edges;
mod many_keys;
mod naive;
mod rows;
mod stats;
mod values;
