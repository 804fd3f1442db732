//! The handles that handlers share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quiver_ingest::{DeltaState, Limits as DecodeLimits, OtlpOptions};
use quiver_logsql::LogsqlEngine;
use quiver_promql::PromqlEngine;
use quiver_query::{Limits, QueryEngine};
use quiver_store::Store;
use quiver_traces::TracesEngine;
use quiver_types::{Access, Clock, SeriesSource};
use tokio::sync::Semaphore;

use crate::answers::AnswerBudget;
use crate::bodies::BodyBudget;
use crate::logs_ingest::LogsSettings;
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
    /// Whether queries go on without files that are damaged, and say so.
    pub partial_answers: bool,
    /// Queries that take longer are logged.
    pub slow_query: Duration,
    /// Origins that browsers may call from; `*` for all.
    pub cors_origins: Vec<String>,
    /// How OTLP becomes series.
    pub otlp: OtlpOptions,
    /// How logs are taken in.
    pub logs: LogsSettings,
    /// What `Retry-After` says, in seconds.
    pub retry_after_s: u32,
    /// Version of the product.
    pub version: &'static str,
    /// All settings of the process: section, key, value.
    pub listed: Vec<(&'static str, &'static str, serde_json::Value)>,
}

/// Imports of text at once; each has a thread and a batch.
const IMPORTS_MAX: usize = 16;
/// Remote reads at once; more wait (`metrics-api` section 6).
const READS_MAX: usize = 10;

/// How many requests of a kind may be under way at once.
#[derive(Debug)]
pub struct Places {
    /// Imports of text.
    pub(crate) imports: Semaphore,
    /// Remote reads.
    pub(crate) reads: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self { imports: Semaphore::new(IMPORTS_MAX), reads: Arc::new(Semaphore::new(READS_MAX)) }
    }
}

/// Shared by all handlers.
pub struct AppState {
    /// The store.
    pub store: Arc<Store>,
    /// Series and labels of the store.
    pub source: Arc<dyn SeriesSource>,
    /// The engine.
    pub engine: Arc<QueryEngine>,
    /// Traces.
    pub traces: Arc<TracesEngine>,
    /// PromQL.
    pub promql: Arc<PromqlEngine>,
    /// LogsQL.
    pub logsql: Arc<LogsqlEngine>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// When the process began, in Unix milliseconds.
    pub started_ms: i64,
    /// Sums of OTLP delta series.
    pub delta: Mutex<DeltaState>,
    /// Limits and switches.
    pub settings: ApiSettings,
    /// Memory of bodies that are being read.
    pub bodies: BodyBudget,
    /// Memory of answers that are made as a whole.
    pub answers: AnswerBudget,
    /// Places for requests that are bounded in number.
    pub places: Places,
    /// Counters.
    pub metrics: ApiMetrics,
    /// Set when the server begins to stop: `/health/ready` answers 503 from then on.
    pub stopping: AtomicBool,
    /// Own figures of the process, in the exposition format; given by the binary.
    pub process_metrics: fn(&mut String),
}

impl AppState {
    /// Names who calls, for what belongs to callers. Empty until identities exist, like [`Self::access`].
    pub fn caller(&self) -> &'static str {
        ""
    }

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
