//! Builds every component, bottom to top, and connects the store with the query languages.

mod component_settings;
pub(crate) mod engines;
mod tables;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use quiver_api::alerting::stored_policy;
use quiver_api::body_memory::BodyBudget;
use quiver_api::effects::Effects;
use quiver_api::live_settings::Reloader;
use quiver_api::metrics::ApiMetrics;
use quiver_api::olap_api::shared_executions::SharedExecutions;
use quiver_api::response_memory::AnswerBudget;
use quiver_api::state::{Capacity, Places, Process};
use quiver_api::{AppState, QueryWatch, RequestIds};
use quiver_ingest::DeltaState;
use quiver_query::Limits;
use quiver_sql::SqlEngine;
use quiver_store::{CompactionSettings, StoreSettings};
use quiver_types::query_configuration::{ConfiguredSource, NothingConfigured};
use quiver_types::{Clock, Result};
use tokio::runtime::Handle;

use crate::rules::{MemoryPart, ServerBench};
use crate::settings::Settings;
use crate::{alerting, identity, process_info, warm_up};
use component_settings::{api_settings, span};

pub use component_settings::{admin_token, live_settings, secret_in, store_settings};

/// Least memory in bytes for unit tests of rules that the server runs, however little memory the server itself has.
const BENCH_MEMORY_MIN: u64 = 128 << 20;

/// Opens the store and builds everything above it; accounts only if access control is on.
///
/// # Errors
/// Those of the store (locked directory, newer formats, other installation, …), of the engine and of accounts.
pub fn build(settings: &Settings, clock: Arc<dyn Clock>) -> BoxFuture<'_, Result<Arc<AppState>>> {
    Box::pin(assemble(settings, clock, accounts_at(settings), None))
}

/// The address that tokens name as their issuer; `None` if access control is off.
fn accounts_at(settings: &Settings) -> Option<&str> {
    Some(settings.http.listen.as_str()).filter(|_| settings.rbac.mode == "on")
}

/// Like [`build`], for a running server: token service and administration exist even if access control is off. Tokens and
/// links in messages name the address that was actually bound, which differs from the configured one for port 0.
///
/// # Errors
/// As [`build`].
pub fn build_server(
    settings: &Settings,
    http: SocketAddr,
    clock: Arc<dyn Clock>,
) -> BoxFuture<'_, Result<Arc<AppState>>> {
    Box::pin(async move { assemble(settings, clock, Some(&http.to_string()), Some(http)).await })
}

/// What SQL queries over the data directory of a stopped server need.
#[derive(Debug)]
pub struct OfflineSql {
    /// Plans and runs the queries.
    pub sql: Arc<SqlEngine>,
    /// Limits of one query.
    pub limits: Limits,
}

/// Opens the store of a stopped server read-only.
///
/// # Errors
/// Those of the store (a server has it, newer formats, …) and of the engine.
pub async fn at_rest(settings: &Settings, clock: Arc<dyn Clock>) -> Result<OfflineSql> {
    let store_settings = store_settings(settings);
    let compaction = CompactionSettings { enabled: false, ..store_settings.compaction.clone() };
    let store_settings = StoreSettings { look_only: true, compaction, ..store_settings };
    let limits = live_settings(settings, store_settings.memory_limit_bytes / 4)?.query_limits;
    // Configuration is kept in a separate database, which only its server opens.
    let configured = Arc::new(NothingConfigured);
    let engines = engines::open(settings, store_settings, 0, configured, &clock).await?;
    Ok(OfflineSql { sql: engines.sql, limits })
}

/// `listen` is the address in the issuer of tokens, `None`: no accounts; `address` is the one in links.
async fn assemble(
    settings: &Settings,
    clock: Arc<dyn Clock>,
    listen: Option<&str>,
    address: Option<SocketAddr>,
) -> Result<Arc<AppState>> {
    let store_settings = store_settings(settings);
    let (memory, pressure) = (store_settings.memory_limit_bytes, Arc::clone(&store_settings.pressure));
    let live = Arc::new(ArcSwap::from_pointee(live_settings(settings, memory / 4)?));
    let results_bytes = settings.query.result_cache.0.min(memory / 16) as usize;
    let (effects, metrics) = (Arc::<Effects>::default(), Arc::<ApiMetrics>::default());
    let configured = Arc::clone(&effects) as Arc<dyn ConfiguredSource>;
    let engines = engines::open(settings, store_settings, results_bytes, configured, &clock).await?;
    if address.is_some() {
        // Before the observer is set, so that these warm-up queries are not counted as anyone's.
        Box::pin(warm_up::run(&engines.promql, &engines.logsql, &engines.traces)).await;
    }
    engines.query.running().observe(Arc::new(QueryWatch { metrics: Arc::clone(&metrics), live: Arc::clone(&live) }));
    let identities = match listen {
        Some(listen) => Some(identity::open(settings, listen, Arc::clone(&clock)).await?),
        None => None,
    };
    let config = match &identities {
        Some(identities) => identities.config.clone(),
        None => identity::open_config(settings, &clock).await?,
    };
    let rule_engines = alerting::StoreEngines {
        promql: Arc::clone(&engines.promql),
        logsql: Arc::clone(&engines.logsql),
        olap: Arc::clone(&engines.olap),
        engine: Arc::clone(&engines.query),
        store: Arc::clone(&engines.store),
        live: Arc::clone(&live),
        clock: Arc::clone(&clock),
        results_max: settings.alerting.results_max,
        service_labels: settings.ingest.service_labels.clone().into(),
        identities: identities.clone().filter(|identities| identities.enforced),
    };
    let files = alerting::template_reader(settings);
    let stored = stored_policy::policy(&config, &files).await.map_err(identity::fault)?;
    let alertd = alerting::open(settings, address, (rule_engines, stored), Arc::clone(&clock)).await?;
    effects.bind(&alertd, files, &config).await.map_err(identity::fault)?;
    let delta_idle_ms = span(settings.otlp.delta_idle).as_millis() as i64;
    Ok(Arc::new(AppState {
        engines,
        capacity: Capacity {
            bodies: BodyBudget::new((memory / 16) as usize, settings.http.body_max.0 as usize).under(&pressure),
            answers: AnswerBudget::new(memory / 8),
            places: Places::new(settings.ingest.imports_max, settings.query.remote_reads_max, memory),
        },
        process: Process {
            started_ms: clock.now_ms(),
            stopping: false.into(),
            request_ids: RequestIds::default(),
            write_metrics: process_info::write_metrics,
        },
        olap_waiting: SharedExecutions::default(),
        clock,
        delta: Mutex::new(DeltaState::new(component_settings::delta_bytes(settings), delta_idle_ms)),
        settings: api_settings(settings),
        live,
        reloader: Reloader::default(),
        metrics,
        config,
        effects,
        identities,
        alertd,
        rule_bench: Arc::new(ServerBench {
            runtime: Handle::current(),
            memory: MemoryPart { own: (memory / 8).max(BENCH_MEMORY_MIN), process: memory },
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LoadedSettings;

    #[test]
    fn accounts_are_where_access_control_is() {
        let settings = |name: &str, value: &str| {
            let given = [(format!("QUIVER_{name}"), value.to_owned())];
            LoadedSettings::load(None, given.into_iter(), &[]).unwrap().settings
        };
        assert_eq!(accounts_at(&settings("HTTP__LISTEN", "127.0.0.1:5")), Some("127.0.0.1:5"));
        assert_eq!(accounts_at(&settings("RBAC__MODE", "off")), None);
    }
}
