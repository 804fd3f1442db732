//! The handles that handlers share.

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
use quiver_query::{Asked, Limits, Permit, QueryContext, QueryEngine};
use quiver_sql::SqlEngine;
use quiver_store::Store;
use quiver_traces::TracesEngine;
use quiver_types::{Access, Clock, Domain, Error, ErrorKind, Result, Right, SeriesSource, Services, Triple};
use tokio::sync::Semaphore;

use crate::alerting::rule_bench::RuleBench;
use crate::answers::AnswerBudget;
use crate::around::proxy::Proxies;
use crate::bodies::BodyBudget;
use crate::effects::Effects;
use crate::explained::noting;
use crate::identity::Identities;
use crate::identity::held::Held;
use crate::identity::unnamed::{ANYONE, NOBODY};
use crate::live::{LiveSettings, Reloader};
use crate::logs_ingest::settings::LogsSettings;
use crate::metrics::ApiMetrics;
use crate::metrics::phases::Language;
use crate::olap_api::waiting::Waiting;
use crate::request::{RequestIds, RequestInfo};
use crate::segments::in_force::narrow;

/// What the API may do and how much; what may change while it runs is in [`LiveSettings`].
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Bounds of a decoded request.
    pub decode_limits: DecodeLimits,
    /// Largest body of a request as it comes over the wire.
    pub body_bytes_max: usize,
    /// Largest body of a form or JSON request.
    pub form_bytes_max: usize,
    /// Largest answer of a query, of federation or of remote read, in bytes; a larger one fails.
    pub answer_bytes_max: usize,
    /// Whether queries go on without files that are damaged, and say so.
    pub partial_answers: bool,
    /// How OTLP becomes series.
    pub otlp: OtlpOptions,
    /// How logs are taken in.
    pub logs: LogsSettings,
    /// Proxies that are believed.
    pub proxies: Proxies,
    /// What `Retry-After` says, in seconds.
    pub retry_after_s: u32,
    /// Version of the product.
    pub version: &'static str,
}

/// How many requests of a kind may be under way at once.
#[derive(Debug)]
pub struct Places {
    /// Imports of text; each has a thread and a batch.
    pub(crate) imports: Semaphore,
    /// Remote reads; more wait (`metrics-api` section 6).
    pub(crate) reads: Arc<Semaphore>,
    /// Long traces that are written while they are read; each has a thread. More are written at once.
    pub(crate) writers: Arc<Semaphore>,
    /// Unit tests of rules; each has stores of its own.
    pub(crate) tests: Arc<Semaphore>,
    /// Lists of alerts; each has a thread, and an answer that nothing else counts until it is whole.
    pub(crate) alerts: Arc<Semaphore>,
}

/// Places for long traces that are written; see [`Places`].
const WRITERS: usize = 64;

impl Places {
    /// Makes places for so many imports and remote reads.
    pub fn new(imports: usize, reads: usize) -> Self {
        let places = |n: usize| Arc::new(Semaphore::new(n.max(1)));
        Self {
            imports: Semaphore::new(imports.max(1)),
            reads: places(reads),
            writers: places(WRITERS),
            tests: places(1),
            alerts: places(2),
        }
    }
}

/// Shared by all handlers.
pub struct AppState {
    /// The store of metrics, logs and traces.
    pub store: Arc<Store>,
    /// Series and labels of the store.
    pub source: Arc<dyn SeriesSource>,
    /// Runs queries of all languages, within their limits.
    pub engine: Arc<QueryEngine>,
    /// Look-ups and searches of traces.
    pub traces: Arc<TracesEngine>,
    /// Queries of metrics.
    pub promql: Arc<PromqlEngine>,
    /// Queries of logs.
    pub logsql: Arc<LogsqlEngine>,
    /// SQL over all of them.
    pub sql: Arc<SqlEngine>,
    /// Analytics over models.
    pub olap: Arc<OlapEngine>,
    /// Its executions that requests share.
    pub olap_waiting: Waiting,
    /// Wall clock; tests have one that they set.
    pub clock: Arc<dyn Clock>,
    /// When the process began, in Unix milliseconds.
    pub started_ms: i64,
    /// Sums of OTLP delta series.
    pub delta: Mutex<DeltaState>,
    /// Limits and switches.
    pub settings: ApiSettings,
    /// Those that may change at any moment.
    pub live: Arc<ArcSwap<LiveSettings>>,
    /// Reads settings anew.
    pub reloader: Reloader,
    /// Makes ids of requests that bring none.
    pub request_ids: RequestIds,
    /// Memory of bodies that are being read.
    pub bodies: BodyBudget,
    /// Memory of answers that are made as a whole.
    pub answers: AnswerBudget,
    /// Places for requests that are bounded in number.
    pub places: Places,
    /// Counters and histograms that `/metrics` shows.
    pub metrics: Arc<ApiMetrics>,
    /// Configuration of all families.
    pub config: Config,
    /// What configuration does to telemetry.
    pub effects: Arc<Effects>,
    /// Accounts and rights; none where access control is off and they cannot be opened.
    pub identities: Option<Arc<Identities>>,
    /// Rules, alerts, notifications.
    pub alertd: Arc<Alertd>,
    /// Runs unit tests of rules.
    pub rule_bench: Arc<dyn RuleBench>,
    /// Set when the server begins to stop: `/health/ready` answers 503 from then on.
    pub stopping: AtomicBool,
    /// Own figures of the process, in the exposition format; given by the binary.
    pub process_metrics: fn(&mut String),
}

impl AppState {
    /// Whether callers must say who they are.
    pub(crate) fn is_enforced(&self) -> bool {
        self.identities.as_ref().is_some_and(|identities| identities.enforced)
    }

    /// Who sent the request that the task serves. Outside of requests nobody, unless access control is off.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        if !self.is_enforced() {
            return Arc::clone(&ANYONE);
        }
        RequestInfo::current().map_or_else(|| Arc::clone(&NOBODY), |request| request.identity)
    }

    /// What somebody may see of a domain by now, who was let in a while ago.
    ///
    /// # Errors
    /// Unauthenticated, Forbidden: nothing any more.
    pub(crate) fn access_by_now(&self, identity: &Identity, domain: Domain) -> Result<Access> {
        let Some(identities) = self.identities.as_ref().filter(|i| i.enforced) else { return Ok(Access::full()) };
        let gone = |e| Error::new(ErrorKind::Unauthenticated, "the account, key or session has ended").with_source(e);
        let access = identities.auth.renewed(identity).map_err(gone)?.access(domain);
        if access.is_full() || !access.patterns().is_empty() {
            return Ok(access);
        }
        Err(Error::new(ErrorKind::Forbidden, "the right to view this was taken away"))
    }

    /// What the caller holds; none: nobody is asked who he is.
    pub(crate) fn held(&self) -> Option<Held> {
        let identities = self.identities.as_ref().filter(|i| i.enforced)?;
        Some(Held::new(Arc::clone(identities), self.identity()))
    }

    /// Names who calls, for what belongs to callers. Empty while access control is off.
    pub(crate) fn caller(&self) -> String {
        self.identity().subject.text()
    }

    /// The number of the last change of configuration, for who may view all of it: it counts everybody's changes.
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

    /// Says what a query is, and which request brought it.
    pub(crate) fn asked(&self, language: Language, text: &str) -> Asked {
        let request = RequestInfo::current();
        let asked = Asked {
            language: language.word(),
            request_id: request.as_ref().map(|r| r.id().to_owned()).unwrap_or_default(),
            path: request.as_ref().map(|r| r.path().to_owned()).unwrap_or_default(),
            caller: self.caller(),
            peer: request.as_ref().and_then(|r| r.peer),
            permit: self.held().map(|held| Arc::new(held) as Arc<dyn Permit>),
            ..Asked::default()
        };
        match request {
            // Where a query has no text, its path and parameters say what it is.
            Some(request) if text.is_empty() => asked.with_text(&request.target()),
            _ => asked.with_text(text),
        }
    }

    /// Begins a query: the one door to the engine, through which it gets its rights and its bounds, and is listed.
    pub(crate) fn begin(&self, asked: Asked, limits: Limits) -> QueryContext {
        let language = asked.language;
        let access = self.access(Language::domain_of(language));
        let ctx = noting(QueryContext::asked(access, limits, asked));
        // Statements and queries of analytics read what the domain of their tables shows.
        if [Language::Sql, Language::Olap].iter().any(|of_many| of_many.word() == language) && self.is_some_hidden() {
            ctx.stats.hide();
        }
        self.engine.begin(&ctx);
        ctx
    }

    /// Whether there is a domain of which the caller may see rows, but not all.
    pub(crate) fn is_some_hidden(&self) -> bool {
        let identity = self.identity();
        Domain::ALL.iter().any(|(domain, ..)| {
            let access = identity.access(*domain);
            !access.is_full() && !access.patterns().is_empty()
        })
    }

    /// Begins a query whose request says all about it.
    pub(crate) fn context(&self, language: Language) -> QueryContext {
        self.begin(self.asked(language, ""), self.limits())
    }
}

impl fmt::Debug for AppState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppState").field("settings", &self.settings).finish_non_exhaustive()
    }
}
