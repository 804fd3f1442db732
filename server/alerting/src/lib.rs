//! Alerting as pure functions: what Prometheus' rule engine, vmalert and Alertmanager do, over our own engines.
//!
//! | Module | What |
//! |---|---|
//! | `rules`, `unit_tests` | rule files and their evaluation · promtool's unit tests of them |
//! | `config`, `receivers`, `routes`, `inhibition`, `intervals`, `options` | an Alertmanager configuration and its sections |
//! | `dispatch`, `silences`, `matchers`, `matcher_fields`, `labels` | groups alerts, and decides whom to notify of what and when |
//! | `template` | Go's `text/template` |
//!
//! YAML is read by `quiver_yaml`, which also reports what is wrong with it.
//!
//! Invariants: no I/O, no clock, no query language, no store. Whatever queries or writes is passed in through traits,
//! time as an argument. The size of every text that is read is limited.

pub mod config;
pub mod dispatch;
pub mod inhibition;
pub mod intervals;
pub mod labels;
pub mod matcher_fields;
pub mod matchers;
pub mod options;
pub mod receivers;
pub mod routes;
pub mod rules;
pub mod silences;
pub mod template;
pub mod unit_tests;

pub use quiver_types::go_format as text;
