//! The effects of configuration on telemetry: compiled rules, replaced after each change.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::future::BoxFuture;
use quiver_alertd::Alertd;
use quiver_alertd::origin::ConfigOrigin;
use quiver_config::families::{
    DETECTION_RULES, EXTRACTION_RULES, RELATIONSHIPS, RESOURCES, RUM_DETECTION_RULES, RUM_TRANSACTIONS, SEGMENTS,
    TRANSACTIONS,
};
use quiver_config::graph::Graph;
use quiver_config::{Config, Entity, Family, Problem, Result};
use quiver_ingest::rules::ExtractionRules;
use quiver_types::detection::{DetectionRule, Detector};
use quiver_types::extraction::ExtractionRule;
use quiver_types::query_configuration::{
    ConfigurationList, ConfiguredSource, QueryConfiguration, ReserveFn, Resources,
};
use quiver_types::{Error, ErrorKind};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::alerting::stored_policy::{self, TemplateFiles};
use crate::alerting::stored_rules;

pub(crate) mod query_configuration;
mod resources;
mod rules;
mod table_rows;

/// How long to wait before a failed read is tried again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// A kind of records that data-extraction rules are applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Logs,
    Spans,
    /// Spans and log records of browsers.
    Rum,
    /// Alerts that are posted.
    Alerts,
}

impl Signal {
    /// All signals; each has its own rules.
    pub(crate) const ALL: [Self; 4] = [Self::Logs, Self::Spans, Self::Rum, Self::Alerts];

    /// Its name in rules.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Spans => "spans",
            Self::Rum => "rum",
            Self::Alerts => "alerts",
        }
    }
}

/// A value derived from the configuration, and the state that it was derived from.
type OfState<T> = ((u64, u64), Arc<T>);

/// Compiled forms of the configuration; readers never wait.
pub struct Effects {
    extraction: [ArcSwap<ExtractionRules>; 4],
    detector: ArcSwap<Detector>,
    pages: ArcSwap<Detector>,
    segments: ArcSwap<Vec<Entity>>,
    configured: ArcSwap<QueryConfiguration>,
    /// Evaluates stored rules and routes by the stored policy; and the template files for it. Weak, since rules read
    /// tables, and tables read the configuration from here.
    alertd: OnceLock<(Weak<Alertd>, Box<TemplateFiles>)>,
    /// The revision of the compiled forms; the lock lets one task at a time make them.
    made_of: Mutex<Option<u64>>,
    /// The graph of resources, and the state of the configuration that it was made from.
    graph: Mutex<Option<OfState<Graph>>>,
    /// The same for rows of the resource tables.
    resources: Mutex<Option<OfState<Resources>>>,
    /// The same for rows of the rule table, by revision.
    rules: Mutex<Option<(u64, RecordBatch)>>,
    /// The configuration, once it was read.
    config: OnceLock<Config>,
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").field("made_of", &self.made_of).finish_non_exhaustive()
    }
}

impl Default for Effects {
    fn default() -> Self {
        Self {
            extraction: std::array::from_fn(|_| ArcSwap::from_pointee(ExtractionRules::default())),
            detector: ArcSwap::from_pointee(Detector::default()),
            pages: ArcSwap::from_pointee(Detector::default()),
            segments: ArcSwap::from_pointee(Vec::new()),
            configured: ArcSwap::from_pointee(QueryConfiguration::default()),
            alertd: OnceLock::new(),
            made_of: Mutex::new(None),
            graph: Mutex::new(None),
            resources: Mutex::new(None),
            rules: Mutex::new(None),
            config: OnceLock::new(),
        }
    }
}

#[async_trait]
impl ConfiguredSource for Effects {
    fn configured(&self) -> Arc<QueryConfiguration> {
        self.configured.load_full()
    }

    async fn resources(&self) -> quiver_types::Result<Arc<Resources>> {
        let Some(config) = self.config.get() else { return Ok(Arc::default()) };
        let mut kept = self.resources.lock().await;
        let state = config.state();
        if let Some((of, resources)) = &*kept
            && *of == state
        {
            return Ok(Arc::clone(resources));
        }
        let made = Arc::new(resources::rows(config).await?);
        *kept = Some((state, Arc::clone(&made)));
        Ok(made)
    }

    async fn rules(&self) -> quiver_types::Result<Option<RecordBatch>> {
        let Some(config) = self.config.get() else { return Ok(None) };
        let mut kept = self.rules.lock().await;
        let revision = config.revision();
        if let Some((of, rules)) = &*kept
            && *of == revision
        {
            return Ok(Some(rules.clone()));
        }
        let made = rules::rows(config).await?;
        *kept = Some((revision, made.clone()));
        Ok(Some(made))
    }

    async fn listed(
        &self,
        of: ConfigurationList,
        own: Option<&str>,
        hold: &ReserveFn<'_>,
    ) -> quiver_types::Result<Vec<RecordBatch>> {
        match (of, self.config.get()) {
            (ConfigurationList::Silences, _) => {
                let alertd = self.alertd.get().and_then(|(alertd, _)| alertd.upgrade());
                alertd.map_or(Ok(Vec::new()), |alertd| table_rows::silences(&alertd, hold))
            }
            (ConfigurationList::Receivers, Some(config)) => table_rows::receivers(config, hold).await,
            (ConfigurationList::Audit, Some(config)) => table_rows::audit(config, own, hold).await,
            (ConfigurationList::Receivers | ConfigurationList::Audit, None) => Ok(Vec::new()),
        }
    }
}

/// The error of a configuration table that cannot be read.
fn unavailable(problem: Problem) -> Error {
    Error::new(ErrorKind::Unavailable, "the configuration cannot be read")
        .with_source(std::io::Error::other(problem.detail))
}

fn is_enabled(body: &Map<String, Value>) -> bool {
    body.get("enabled") == Some(&Value::Bool(true))
}

impl Effects {
    /// Compiles the configuration again if it changed since the last time.
    ///
    /// # Errors
    /// When the database is unreachable: the last compiled forms stay in force.
    pub fn refresh<'a>(&'a self, config: &'a Config) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.config.get_or_init(|| config.clone());
            let mut made_of = self.made_of.lock().await;
            let revision = config.revision();
            if *made_of == Some(revision) {
                return Ok(());
            }
            for (signal, rules) in Signal::ALL.into_iter().zip(&self.extraction) {
                rules.store(Arc::new(extraction_rules(config, signal, &rules.load()).await?));
            }
            for (family, detector) in [(&DETECTION_RULES, &self.detector), (&RUM_DETECTION_RULES, &self.pages)] {
                detector.store(Arc::new(detector_of(config, family).await?.after(&detector.load())));
            }
            self.segments.store(Arc::new(config.all(&SEGMENTS).await?));
            self.configured.store(Arc::new(query_configuration::read(config).await?));
            if let Some((alertd, files)) = self.alertd.get()
                && let Some(alertd) = alertd.upgrade()
            {
                alertd.rules.set(ConfigOrigin::Stored, stored_rules::sources(config).await?);
                let (router, policy) = (Arc::clone(&alertd.router), stored_policy::policy(config, files).await?);
                let set = spawn_blocking(move || router.set_policy(ConfigOrigin::Stored, Some(policy)));
                if let Err(error) = set.await {
                    tracing::error!(%error, "the stored policy did not come into effect");
                }
                stored_policy::note_revision(config, &alertd, alertd.router.now() / 1_000_000).await?;
            }
            *made_of = Some(revision);
            Ok(())
        })
    }

    /// Passes the stored rules and the stored policy to the component that runs them, now and after each change.
    ///
    /// # Errors
    /// When the database is unreachable.
    pub fn bind<'a>(
        &'a self,
        alertd: &'a Arc<Alertd>,
        files: Box<TemplateFiles>,
        config: &'a Config,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // Only the first call counts: a server has one.
            let _ = self.alertd.set((Arc::downgrade(alertd), files));
            *self.made_of.lock().await = None;
            self.refresh(config).await
        })
    }

    /// Follows changes until the server stops.
    pub fn follow(self: Arc<Self>, config: Config, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut changes = config.watch();
            loop {
                let failed = self.refresh(&config).await.is_err();
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(AGAIN), if failed => {}
                }
            }
        })
    }

    /// Rules that extract fields from incoming records.
    pub(crate) fn extraction(&self, signal: Signal) -> Arc<ExtractionRules> {
        self.extraction[signal as usize].load_full()
    }

    /// Rules that detect business transactions in spans.
    pub(crate) fn detector(&self) -> Arc<Detector> {
        self.detector.load_full()
    }

    /// Rules that detect transactions of pages (RUM).
    pub(crate) fn pages(&self) -> Arc<Detector> {
        self.pages.load_full()
    }

    /// The detection rules of a family.
    pub(crate) fn detector_for(&self, family: &Family) -> Arc<Detector> {
        if family.name == RUM_DETECTION_RULES.name { self.pages() } else { self.detector() }
    }

    /// All segments, regardless of the caller's rights.
    pub(crate) fn segments(&self) -> Arc<Vec<Entity>> {
        self.segments.load_full()
    }

    /// The graph of resources and their relationships.
    ///
    /// # Errors
    /// When the database is unreachable.
    pub(crate) async fn graph(&self, config: &Config) -> Result<Arc<Graph>> {
        let mut kept = self.graph.lock().await;
        let state = config.state();
        if let Some((of, graph)) = &*kept
            && *of == state
        {
            return Ok(Arc::clone(graph));
        }
        let mut graph = Graph::of(config);
        config.for_each(&RESOURCES, |resource| graph.add(&resource)).await?;
        config.for_each(&RELATIONSHIPS, |relationship| graph.connect(&relationship)).await?;
        let graph = Arc::new(graph);
        *kept = Some((state, Arc::clone(&graph)));
        Ok(graph)
    }
}

/// Suspends rules that took too long: they are skipped from now on, on this server at once.
pub(crate) fn suspend(config: &Config, ids: Vec<String>) {
    for id in ids {
        tracing::warn!(rule = id, "a data-extraction rule is over its budget and suspended");
        let config = config.clone();
        tokio::spawn(async move {
            if let Err(problem) = config.suspend_rule(&id).await {
                tracing::error!(cause = problem.cause, "a slow rule cannot be noted; this node leaves it out");
            }
        });
    }
}

/// Enabled detection rules, older ones first, and the key transactions whose names are never folded.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn detector_of(config: &Config, family: &'static Family) -> Result<Detector> {
    let (owner, keys) = if family.name == RUM_DETECTION_RULES.name {
        ("application", &RUM_TRANSACTIONS)
    } else {
        ("service", &TRANSACTIONS)
    };
    let mut rules = Vec::new();
    // Ids increase with time.
    for entity in config.all(family).await?.iter().filter(|e| is_enabled(&e.body)) {
        match DetectionRule::of_json(&entity.id, &entity.body, owner) {
            Ok(rule) => rules.push(rule),
            Err(errors) => tracing::error!(id = entity.id, ?errors, "a rule that was stored does not compile"),
        }
    }
    let keys = config.all(keys).await?;
    let keys = keys.iter().filter(|e| is_enabled(&e.body));
    let keys = keys.map(|e| (e.text(owner).to_owned(), e.text("transactionName").to_owned()));
    Ok(Detector::new(rules, keys.collect()))
}

/// Enabled rules of a signal: higher priorities first, then by position.
async fn extraction_rules(config: &Config, signal: Signal, earlier: &ExtractionRules) -> Result<ExtractionRules> {
    let mut all = config.all(&EXTRACTION_RULES).await?;
    let is = |e: &Entity, key: &str, word: &str| e.body.get(key).and_then(Value::as_str) == Some(word);
    all.retain(|e| is_enabled(&e.body) && is(e, "signal", signal.word()) && !is(e, "health", "suspended"));
    let number = |e: &Entity, key: &str| e.body.get(key).and_then(Value::as_i64).unwrap_or_default();
    all.sort_by_key(|e| (-number(e, "priority"), number(e, "position")));
    let mut rules = Vec::with_capacity(all.len());
    for entity in all {
        match ExtractionRule::of_json(&entity.id, &entity.body) {
            Ok(rule) => rules.push((rule, entity.version)),
            Err(errors) => tracing::error!(id = entity.id, ?errors, "a rule that was stored does not compile"),
        }
    }
    Ok(ExtractionRules::new(rules, earlier))
}
