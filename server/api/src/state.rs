//! The handles that handlers share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quiver_ingest::{DeltaState, Limits as DecodeLimits, OtlpOptions};
use quiver_promql::PromqlEngine;
use quiver_query::{Limits, QueryEngine};
use quiver_store::Store;
use quiver_types::{Access, Clock, SeriesSource};

use crate::metrics::ApiMetrics;

/// What the API may do and how much.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Bounds of a query.
    pub query_limits: Limits,
    /// Bounds of a decoded request.
    pub decode_limits: DecodeLimits,
    /// Largest body of a request as it comes over the wire.
    pub body_bytes_max: usize,
    /// Largest body of a form or JSON request.
    pub form_bytes_max: usize,
    /// Largest answer.
    pub answer_bytes_max: usize,
    /// Queries that take longer are logged.
    pub slow_query: Duration,
    /// Origins that browsers may call from; `*` for all.
    pub cors_origins: Vec<String>,
    /// How OTLP becomes series.
    pub otlp: OtlpOptions,
    /// What `Retry-After` says, in seconds.
    pub retry_after_s: u32,
    /// Version of the product.
    pub version: &'static str,
}

/// Shared by all handlers.
pub struct AppState {
    /// The store.
    pub store: Arc<Store>,
    /// Series and labels of the store.
    pub source: Arc<dyn SeriesSource>,
    /// The engine.
    pub engine: Arc<QueryEngine>,
    /// PromQL.
    pub promql: Arc<PromqlEngine>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Sums of OTLP delta series.
    pub delta: Mutex<DeltaState>,
    /// Limits and switches.
    pub settings: ApiSettings,
    /// Counters.
    pub metrics: ApiMetrics,
    /// Set when the server begins to stop: `/health/ready` answers 503 from then on.
    pub stopping: AtomicBool,
    /// Own figures of the process, in the exposition format; given by the binary.
    pub process_metrics: fn(&mut String),
}

impl AppState {
    /// Gives what the caller may see. Full until identities exist; the one place that they will come in by.
    pub fn access(&self) -> Access {
        Access::full()
    }
}

impl fmt::Debug for AppState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppState").field("settings", &self.settings).finish_non_exhaustive()
    }
}
