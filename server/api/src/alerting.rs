//! Alerting over HTTP. `alerts` receives alerts and speaks Alertmanager's API, `rules` shows rules as Prometheus does.
//! `policy`, `rule_test` and `unit_tests` (on a `rule_bench`) try out what a request sends. `stored_rules` and
//! `stored_policy` turn stored entities into what runs, `stored_checks` validates them; `history` reads past events, `lists`
//! makes long answers.

use std::sync::Arc;

use axum::Router;

use crate::state::AppState;

pub(crate) mod alerts;
pub(crate) mod history;
mod kept_secrets;
mod lists;
pub(crate) mod policy;
pub mod rule_bench;
mod rule_test;
pub(crate) mod rules;
pub mod stored_checks;
pub mod stored_policy;
pub(crate) mod stored_rules;
pub mod unit_tests;

/// All but the lists that stand below the API of metrics (`rules`).
pub(crate) fn routes() -> Router<Arc<AppState>> {
    alerts::routes().merge(policy::routes()).merge(rule_test::routes()).merge(unit_tests::routes())
}
