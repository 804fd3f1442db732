//! The only crate that knows HTTP, gRPC and JSON envelopes.
//!
//! | Module | What |
//! |---|---|
//! | `router`, `rights` | one line per family of endpoints · the rights that each endpoint needs |
//! | `middleware`, `request_context`, `guard`, `metrics`, `access_log` | what happens around every request: id and span, refusals, counting, the access log |
//! | `serve`, `body_memory`, `response_memory`, `response_pressure`, `streamed_responses` | listeners with limits on connections, heads and pace · memory of request bodies and of responses · what responses hold that others need · streamed responses |
//! | `state`, `live_settings`, `startup` | what all handlers share · settings that may change while the server runs · responses before the store is open |
//! | `params`, `prometheus_params`, `unknown_parameters`, `encode`, `error`, `query_problem` | reading parameters · refusing unknown ones · encoding results · error kinds → HTTP statuses, and → problems of the configuration API |
//! | `explain_plans`, `partial_responses`, `segments`, `query_reports` | `explain` · responses that lack damaged files · segments below queries · metrics and log of ended queries |
//! | `…_api`, `…_ingest`, `alerting`, `postgres` | the families of endpoints, and PostgreSQL's protocol |
//! | `effects`, `discovery`, `jobs`, `usage` | what configuration does to telemetry · resources found in it · long operations · tables about the server itself |
//!
//! Invariant: no handler computes a result; it reads parameters, calls one function of a lower layer, and encodes.

mod access_log;
pub mod admin;
pub mod alerting;
pub mod body_memory;
mod config_api;
pub mod configuration_backup;
pub mod discovery;
pub mod effects;
mod encode;
pub mod error;
mod explain_plans;
pub mod expression_checks;
mod fallback;
mod forbidden_records;
pub mod fuzz;
mod grpc_api;
mod grpc_call;
mod guard;
mod handlers;
pub mod identity;
mod import_api;
pub mod ingest_api;
pub mod jobs;
pub mod live_settings;
mod logs_api;
pub mod logs_ingest;
pub mod metrics;
mod metrics_api;
mod middleware;
pub mod olap_api;
mod opaque_ids;
mod openapi;
mod otlp_form;
mod otlp_grpc;
mod params;
mod parsed_bodies;
mod partial_responses;
pub mod peer_servers;
pub mod postgres;
mod prometheus_params;
mod query_problem;
mod query_reports;
mod rbac_api;
mod request_context;
mod request_families;
pub mod response_memory;
mod response_pressure;
pub mod revoked_rights;
mod rights;
pub mod router;
mod segments;
pub mod serve;
mod span_metrics;
mod sql_api;
pub mod startup;
pub mod state;
mod streamed_responses;
mod tenancy;
mod token_api;
mod traces_api;
mod traces_compat;
mod traces_grpc;
mod traces_ingest;
mod traces_params;
mod unknown_parameters;
pub mod usage;

pub use middleware::Proxies;
pub use postgres::{PostgresListener, serve_postgres};
pub use query_reports::QueryWatch;
pub use request_context::RequestIds;
pub use router::{grpc_router, main_router, otlp_router, zipkin_router};
pub use serve::{Listener, ServeSettings, Tls, TlsFiles, serve};
pub use sql_api::forms as sql_forms;
pub use state::{ApiSettings, AppState};
