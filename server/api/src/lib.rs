//! The only crate that knows HTTP, gRPC and JSON envelopes.
//!
//! `router` lists the families, `state` holds the handles that they share, `error` maps error kinds to statuses once,
//! `params` reads parameters, `encode` writes answers. `serve` runs listeners with limits on connections, heads and the pace of bodies.
//!
//! Invariant: no handler computes an answer; it reads parameters, calls one function of a lower layer, encodes.

pub mod admin;
pub mod answers;
pub mod bodies;
mod encode;
pub mod error;
mod exemplars_api;
mod federate_api;
pub mod fuzz;
mod grpc_api;
mod import_api;
pub mod ingest_api;
mod labels_api;
mod logs_api;
pub mod logs_ingest;
pub mod metrics;
mod metrics_api;
mod otlp_grpc;
mod params;
mod partial;
mod read_api;
pub mod router;
pub mod serve;
mod server_api;
mod span_metrics;
pub mod state;
mod status_api;
mod tenancy;
mod traces_api;
mod traces_compat;
mod traces_grpc;
mod traces_ingest;
mod tsdb_api;

pub use router::{grpc_router, main_router, otlp_router, zipkin_router};
pub use serve::{Listener, ServeSettings, serve};
pub use state::{ApiSettings, AppState};
