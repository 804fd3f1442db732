//! Alerting: what Prometheus' rule engine, vmalert and Alertmanager do, over our own engines.
//!
//! Texts are read by `quiver_yaml`, which also says what is wrong with them. `template` is Go's `text/template`.
//! `rules` are rule files and their evaluation, `unit_tests` promtool's tests of them. `config` is a whole Alertmanager
//! configuration: `receivers`, `routes`, `inhibit`, `intervals`; `options` are what its globals and integrations are told,
//! `matchers` and `silences` go with it. `dispatch` groups alerts and says whom to tell what, and when.
//!
//! Invariants: no I/O, no clock, no query language, no store. What asks and writes comes in through traits, time as an
//! argument. Every text that is read is bounded.

pub mod config;
pub mod dispatch;
pub mod inhibit;
pub mod intervals;
pub mod labels;
pub mod matchers;
pub mod options;
pub mod receivers;
pub mod routes;
pub mod rules;
pub mod silences;
pub mod template;
pub mod unit_tests;

pub use quiver_types::go as text;
