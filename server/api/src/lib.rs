//! The only crate that knows HTTP, gRPC and JSON envelopes.
//!
//! | Module | What |
//! |---|---|
//! | `router`, `rights` | one line per family of endpoints · the rights that each endpoint needs |
//! | `middleware`, `request`, `guard`, `metrics`, `access_log` | what happens around every request: id and span, refusals, counting, the access log |
//! | `serve`, `bodies`, `answers`, `demand`, `sending` | listeners with limits on connections, heads and pace · memory of request bodies and of responses · what responses hold that others need · streamed responses |
//! | `state`, `live`, `starting` | what all handlers share · settings that may change while the server runs · responses before the store is open |
//! | `params`, `parameters`, `encode`, `error` | reading parameters · refusing unknown ones · encoding results · error kinds → HTTP statuses |
//! | `explained`, `partial`, `segments`, `watch` | `explain` · responses that lack damaged files · segments below queries · metrics and log of ended queries |
//! | `…_api`, `…_ingest`, `alerting`, `postgres` | the families of endpoints, and PostgreSQL's protocol |
//! | `effects`, `discovery`, `jobs`, `usage` | what configuration does to telemetry · resources found in it · long operations · tables about the server itself |
//!
//! Invariant: no handler computes a result; it reads parameters, calls one function of a lower layer, and encodes.

mod access_log;
pub mod admin;
pub mod alerting;
pub mod answers;
pub mod bodies;
mod config_api;
pub mod configuration_backup;
mod demand;
pub mod discovery;
pub mod effects;
mod encode;
pub mod error;
mod explained;
mod families;
pub mod fuzz;
mod grpc_api;
mod guard;
pub mod identity;
mod import_api;
pub mod ingest_api;
pub mod jobs;
pub mod languages;
pub mod live;
mod logs_api;
pub mod logs_ingest;
pub mod metrics;
mod metrics_api;
mod middleware;
pub mod olap_api;
mod opaque_ids;
mod openapi;
mod otlp_grpc;
mod parameters;
mod params;
mod partial;
pub mod peers;
pub mod postgres;
mod rbac_api;
mod refused;
mod request;
pub mod revoked_rights;
mod rights;
pub mod router;
mod segments;
mod sending;
pub mod serve;
mod span_metrics;
mod sql_api;
pub mod starting;
pub mod state;
mod tenancy;
mod token_api;
mod traces_api;
mod traces_compat;
mod traces_grpc;
mod traces_ingest;
mod trees;
mod unrouted;
pub mod usage;
mod watch;

pub use middleware::Proxies;
pub use postgres::{PostgresListener, serve_postgres};
pub use request::RequestIds;
pub use router::{grpc_router, main_router, otlp_router, zipkin_router};
pub use serve::{Listener, ServeSettings, Tls, TlsFiles, serve};
pub use sql_api::forms as sql_forms;
pub use state::{ApiSettings, AppState};
pub use watch::QueryWatch;
