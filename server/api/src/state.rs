//! The state that handlers share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use quiver_alertd::Alertd;
use quiver_auth::Identity;
use quiver_config::Config;
use quiver_ingest::{DeltaState, Limits as DecodeLimits, OtlpOptions};
use quiver_logsql::LogsqlEngine;
use quiver_olap::OlapEngine;
use quiver_promql::PromqlEngine;
use quiver_query::{Limits, Permit, QueryContext, QueryEngine, QueryInfo};
use quiver_sql::SqlEngine;
use quiver_store::Store;
use quiver_traces::TracesEngine;
use quiver_types::{Access, Clock, Domain, Error, ErrorKind, Result, Right, SeriesSource, Services, Triple};
use tokio::sync::Semaphore;

use crate::alerting::rule_bench::RuleBench;
use crate::body_memory::BodyBudget;
use crate::effects::Effects;
use crate::explain_plans::noting;
use crate::identity::Identities;
use crate::identity::anonymous::{ANYONE, NOBODY};
use crate::identity::current_rights::CurrentRights;
use crate::live_settings::{LiveSettings, Reloader};
use crate::logs_ingest::settings::LogsSettings;
use crate::metrics::ApiMetrics;
use crate::metrics::phases::Language;
use crate::middleware::proxy::Proxies;
use crate::olap_api::shared_executions::SharedExecutions;
use crate::request_context::{RequestIds, RequestInfo};
use crate::response_memory::AnswerBudget;
use crate::response_pressure::Room;
use crate::segments::active_segments::narrow;

/// A query that has not begun: its language, which decides what it may read, and what lists, logs and metrics show of it.
#[derive(Debug)]
pub(crate) struct AskedQuery {
    language: Language,
    /// What is shown; a handler adds what it knows.
    pub(crate) info: QueryInfo,
}

/// Fixed settings of the API; those that may change while the server runs are in [`LiveSettings`].
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Bounds of a decoded request.
    pub decode_limits: DecodeLimits,
    /// Largest body of a request as sent.
    pub body_bytes_max: usize,
    /// Largest body of a form or JSON request.
    pub form_bytes_max: usize,
    /// Largest response of a query, of federation or of remote read, in bytes; a larger one fails.
    pub answer_bytes_max: usize,
    /// Whether queries continue without damaged files, and say so.
    pub partial_answers: bool,
    /// How OTLP metrics become series.
    pub otlp: OtlpOptions,
    /// How logs are ingested.
    pub logs: LogsSettings,
    /// Trusted proxies.
    pub proxies: Proxies,
    /// Value of `Retry-After`, in seconds.
    pub retry_after_s: u32,
    /// Version of the product.
    pub version: &'static str,
}

/// Limits on concurrent requests by kind.
#[derive(Debug)]
pub struct Places {
    /// Imports of text; each has a thread and a batch.
    pub(crate) imports: Semaphore,
    /// Remote reads; further ones wait (`metrics-api` section 6).
    pub(crate) reads: Room,
    /// Live tails; each has buffers that nothing else counts.
    pub(crate) tails: Room,
    /// Long traces that are streamed; each needs a thread. Further ones are encoded as a whole.
    pub(crate) writers: Arc<Semaphore>,
    /// Unit tests of rules; each has stores of its own.
    pub(crate) tests: Arc<Semaphore>,
    /// Tests of templates; each keeps what its template makes until that ends.
    pub(crate) templates: Arc<Semaphore>,
    /// Lists of alerts; each has a thread, and an answer that nothing else counts until it is whole.
    pub(crate) alerts: Arc<Semaphore>,
    /// Exports of configuration while they are read; each holds a connection to the database.
    pub(crate) exports: Semaphore,
}

/// Most long traces that are streamed at once; see [`Places`].
const WRITERS: usize = 64;
/// The part (1/n) of the process's memory that live tails may take, and what each of them takes.
const TAILS_PART: u64 = 16;
const TAIL_BYTES: u64 = 32 << 10;

impl Places {
    /// Makes the limits, with those of imports and remote reads, for a process of so many bytes of memory.
    pub fn new(imports: usize, reads: usize, memory_bytes: u64) -> Self {
        let places = |n: usize| Arc::new(Semaphore::new(n.max(1)));
        Self {
            imports: Semaphore::new(imports.max(1)),
            reads: Room::new(reads),
            tails: Room::new((memory_bytes / TAILS_PART / TAIL_BYTES) as usize),
            writers: places(WRITERS),
            tests: places(1),
            templates: places(2),
            alerts: places(2),
            exports: Semaphore::new(2),
        }
    }
}

/// What holds telemetry and what answers questions about it.
#[derive(Debug)]
pub struct Engines {
    /// The store of metrics, logs and traces.
    pub store: Arc<Store>,
    /// The store's index of series and labels.
    pub series: Arc<dyn SeriesSource>,
    /// Runs queries of all languages, within their limits.
    pub query: Arc<QueryEngine>,
    /// Queries of metrics.
    pub promql: Arc<PromqlEngine>,
    /// Queries of logs.
    pub logsql: Arc<LogsqlEngine>,
    /// Look-ups and searches of traces.
    pub traces: Arc<TracesEngine>,
    /// SQL over all of them.
    pub sql: Arc<SqlEngine>,
    /// Analytics over models.
    pub olap: Arc<OlapEngine>,
}

/// How much requests may hold and do at once.
#[derive(Debug)]
pub struct Capacity {
    /// Memory budget of request bodies.
    pub bodies: BodyBudget,
    /// Memory budget of responses that are encoded as a whole.
    pub answers: AnswerBudget,
    /// Limits on concurrent requests.
    pub places: Places,
}

/// What is known of the running process.
#[derive(Debug)]
pub struct Process {
    /// When it began, in Unix milliseconds.
    pub started_ms: i64,
    /// Set when the server begins to stop: `/health/ready` answers 503 from then on.
    pub stopping: AtomicBool,
    /// Makes ids of requests that bring none.
    pub request_ids: RequestIds,
    /// Writes metrics of the process in the exposition format; implemented by the binary.
    pub write_metrics: fn(&mut String),
}

/// The state that all handlers share.
pub struct AppState {
    /// The store and the languages over it.
    pub engines: Engines,
    /// Budgets and limits of requests.
    pub capacity: Capacity,
    /// The running process.
    pub process: Process,
    /// Executions of analytics that equal requests share.
    pub olap_waiting: SharedExecutions,
    /// Wall clock; tests pass one that they can set.
    pub clock: Arc<dyn Clock>,
    /// Sums of OTLP delta series.
    pub delta: Mutex<DeltaState>,
    /// Settings of the API that are fixed at the start.
    pub settings: ApiSettings,
    /// Settings that may change at any moment.
    pub live: Arc<ArcSwap<LiveSettings>>,
    /// Reloads the settings.
    pub reloader: Reloader,
    /// Counters and histograms that `/metrics` shows.
    pub metrics: Arc<ApiMetrics>,
    /// Configuration of all families.
    pub config: Config,
    /// Effects of configuration on telemetry.
    pub effects: Arc<Effects>,
    /// Accounts and rights; `None` if access control is off and they cannot be opened.
    pub identities: Option<Arc<Identities>>,
    /// Rules, alerts, notifications.
    pub alertd: Arc<Alertd>,
    /// Runs unit tests of rules.
    pub rule_bench: Arc<dyn RuleBench>,
}

impl AppState {
    /// Says whether callers must authenticate.
    pub(crate) fn is_enforced(&self) -> bool {
        self.identities.as_ref().is_some_and(|identities| identities.enforced)
    }

    /// The caller of the current request. Outside of requests it has no rights, unless access control is off.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        if !self.is_enforced() {
            return Arc::clone(&ANYONE);
        }
        RequestInfo::current().map_or_else(|| Arc::clone(&NOBODY), |request| request.identity)
    }

    /// What a caller who was authenticated a while ago may now see of a domain.
    ///
    /// # Errors
    /// Unauthenticated, Forbidden: nothing any longer.
    pub(crate) fn access_by_now(&self, identity: &Identity, domain: Domain) -> Result<Access> {
        let Some(identities) = self.identities.as_ref().filter(|i| i.enforced) else { return Ok(Access::full()) };
        let gone = |e| Error::new(ErrorKind::Unauthenticated, "the account, key or session has ended").with_source(e);
        let access = identities.auth.renewed(identity).map_err(gone)?.access(domain);
        if access.sees_some() {
            return Ok(access);
        }
        Err(Error::new(ErrorKind::Forbidden, "the right to view this was taken away"))
    }

    /// The rights of the caller; `None`: access control is off.
    pub(crate) fn current_rights(&self) -> Option<CurrentRights> {
        let identities = self.identities.as_ref().filter(|i| i.enforced)?;
        Some(CurrentRights::new(Arc::clone(identities), self.identity()))
    }

    /// The name of the caller, for things that belong to callers. Empty while access control is off.
    pub(crate) fn caller(&self) -> String {
        self.identity().subject.text()
    }

    /// The number of the last change of configuration; only for callers who may view all of it, since it counts all
    /// changes.
    pub(crate) fn shown_revision(&self) -> Option<u64> {
        let all = Triple::new(Right::View, None, Services::all());
        self.identity().rights.covers(&all).then(|| self.config.revision())
    }

    /// Gives what the caller may see of a domain.
    pub(crate) fn access(&self, domain: Domain) -> Access {
        narrow(self.identity().access(domain), domain)
    }

    /// Gives the services that the caller may write of a domain.
    pub(crate) fn ingest_access(&self, domain: Domain) -> Access {
        self.identity().rights.access(Right::Ingest, domain)
    }

    /// Gives the bounds of a query.
    pub fn limits(&self) -> Limits {
        self.live.load().query_limits.clone()
    }

    /// Describes a query and its request, for the list of running queries.
    pub(crate) fn asked(&self, language: Language, text: &str) -> AskedQuery {
        let request = RequestInfo::current();
        let info = QueryInfo {
            language: language.word(),
            request_id: request.as_ref().map(|r| r.id().to_owned()).unwrap_or_default(),
            path: request.as_ref().map(|r| r.path().to_owned()).unwrap_or_default(),
            caller: self.caller(),
            peer: request.as_ref().and_then(|r| r.peer),
            permit: self.current_rights().map(|held| Arc::new(held) as Arc<dyn Permit>),
            ..QueryInfo::default()
        };
        match request {
            // A query without a text is described by path and parameters of its request.
            Some(request) if text.is_empty() => AskedQuery { language, info: info.with_text(&request.target()) },
            _ => AskedQuery { language, info: info.with_text(text) },
        }
    }

    /// Begins a query: the only way to the engine (contract P10). It gets its rights and limits here, and is listed as
    /// running.
    pub(crate) fn begin(&self, asked: AskedQuery, limits: Limits) -> QueryContext {
        let AskedQuery { language, info } = asked;
        let ctx = noting(QueryContext::asked(self.access(language.domain()), limits, info));
        // SQL and analytics read tables of several domains, so counters are hidden if any of them hides rows.
        if matches!(language, Language::Sql | Language::Olap) && self.is_some_hidden() {
            ctx.stats.hide();
        }
        self.engines.query.begin(&ctx);
        RequestInfo::note_held(Arc::new(self.engines.query.answered(&ctx)));
        ctx
    }

    /// Says whether there is a domain of which the caller may see some rows but not all.
    pub(crate) fn is_some_hidden(&self) -> bool {
        let identity = self.identity();
        Domain::ALL.iter().any(|(domain, ..)| {
            let access = identity.access(*domain);
            !access.is_full() && access.sees_some()
        })
    }

    /// Begins a query that is fully described by its request.
    pub(crate) fn context(&self, language: Language) -> QueryContext {
        self.begin(self.asked(language, ""), self.limits())
    }
}

impl fmt::Debug for AppState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppState").field("settings", &self.settings).finish_non_exhaustive()
    }
}
