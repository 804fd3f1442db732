//! End-to-end tests: the real binary over HTTP, one module per family.

mod admin;
mod bad_input;
mod bombs;
mod connections;
mod explain;
mod federate;
mod grafana;
mod import;
mod logs_hostile;
mod logs_in;
mod logs_language;
mod logs_once;
mod logs_query;
mod logs_refused;
mod logs_tail;
mod promql_hostile;
mod readiness;
mod remote_read;
mod resent;
mod small_endpoints;
mod statistics;
mod surface;
mod trace_ids;
mod traceql;
mod traces;
mod write_read;
