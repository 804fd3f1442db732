//! Alerting over HTTP. `alerts` takes alerts in and speaks Alertmanager's API, `rules` shows rules as Prometheus does; `policy`,
//! `rule_test` and `unit_tests` (on a `rule_bench`) try out what is sent along. `stored_rules` and `stored_policy` make of
//! entities what runs, `stored_checks` says whether they can; `history` reads what happened.

use std::sync::Arc;

use axum::Router;

use crate::state::AppState;

pub(crate) mod alerts;
pub(crate) mod history;
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
