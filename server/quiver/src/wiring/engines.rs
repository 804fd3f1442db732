//! The store, the query engine above it, and the languages above that; or PromQL alone over a store of its own.

use std::path::Path;
use std::sync::Arc;

use quiver_api::state::Engines;
use quiver_logsql::LogsqlEngine;
use quiver_olap::ModelTables;
use quiver_promql::{PromqlEngine, PromqlSettings};
use quiver_query::tables::{TableSources, Tables};
use quiver_query::{EngineSettings, QueryEngine};
use quiver_sql::SqlEngine;
use quiver_store::{Store, StoreSettings};
use quiver_traces::TracesEngine;
use quiver_types::query_configuration::ConfiguredSource;
use quiver_types::{Clock, MemoryPressure, Result};

use super::component_settings::{promql_settings, store_settings};
use super::tables::{StoreLogs, StoreSpans};
use crate::settings::Settings;
use crate::sql_languages::SqlLanguages;
use crate::{analytics, codec_loop, memory, process_info};

/// Opens the store and starts the engines. `results_bytes` is the size of PromQL's cache of results; `configured`
/// gives the configuration that SQL may read.
///
/// # Errors
/// Those of the store, of the engine, and of models and tables of analytics.
pub(super) async fn open(
    settings: &Settings,
    store_settings: StoreSettings,
    results_bytes: usize,
    configured: Arc<dyn ConfiguredSource>,
    clock: &Arc<dyn Clock>,
) -> Result<Engines> {
    let (memory, pressure) = (store_settings.memory_limit_bytes, Arc::clone(&store_settings.pressure));
    memory::watch(memory, &pressure);
    let store = Box::pin(Store::open(store_settings, Arc::clone(clock))).await?;
    let query = start_engine(settings, memory, pressure)?;
    let promql_settings = promql_settings(settings, results_bytes);
    let promql = PromqlEngine::new(store.source(), Arc::clone(&query), promql_settings);
    let logsql = LogsqlEngine::new(quiver_store::logs_source(&store), Arc::new(StoreLogs), Arc::clone(&query));
    let (promql, logsql) = (Arc::new(promql), Arc::new(logsql));
    let traces = TracesEngine::new(
        store.span_source(),
        Arc::new(StoreSpans),
        Arc::clone(&query),
        settings.traces.export_spans_max,
    );
    let tables = product_tables(settings, &store, &query, configured, clock);
    let analytics = analytics::open(settings, Arc::clone(&query), tables)?;
    let sql = SqlEngine::new(
        Arc::clone(&query),
        analytics.tables as Arc<dyn Tables>,
        Arc::new(ModelTables::new(Arc::clone(&analytics.engine), Arc::clone(clock))),
        Arc::new(SqlLanguages { promql: Arc::clone(&promql), logsql: Arc::clone(&logsql) }),
    );
    Ok(Engines {
        series: store.source(),
        store,
        query,
        promql,
        logsql,
        traces,
        sql: Arc::new(sql),
        olap: analytics.engine,
    })
}

/// The sources of the tables that SQL statements and analytics models may name.
fn product_tables(
    settings: &Settings,
    store: &Arc<Store>,
    engine: &Arc<QueryEngine>,
    configured: Arc<dyn ConfiguredSource>,
    clock: &Arc<dyn Clock>,
) -> Arc<TableSources> {
    Arc::new(TableSources {
        engine: Arc::clone(engine),
        series: store.source(),
        logs: quiver_store::logs_source(store),
        log_tables: Arc::new(StoreLogs),
        spans: store.span_source(),
        span_tables: Arc::new(StoreSpans),
        rows: store.row_source(),
        service_labels: settings.ingest.service_labels.clone().into(),
        configured,
        clock: Arc::clone(clock),
    })
}

/// Starts the engine with the threads and directory of the settings, and with this memory.
fn start_engine(settings: &Settings, memory: u64, pressure: Arc<MemoryPressure>) -> Result<Arc<QueryEngine>> {
    let spill_dir = Path::new(&settings.store.data).join("spill");
    quiver_query::spill_folder(&spill_dir)?;
    let threads = if settings.query.threads == 0 { process_info::cores() } else { settings.query.threads };
    let through_codec = settings.query.through_codec;
    let settings = EngineSettings {
        memory_bytes: (memory / 4) as usize,
        spill_dir,
        spill_bytes: settings.query.spill_max.0,
        threads,
        concurrent_max: settings.query.concurrent_max,
        waiting_max: settings.query.waiting_max,
        pressure,
    };
    let start = || QueryEngine::with_functions(&settings, quiver_olap::session_functions());
    let engine = start()?;
    if through_codec {
        codec_loop::send(&engine, start()?)?;
    }
    Ok(engine)
}

/// Opens a store with only PromQL above it, within a process that does other things as well. `process_bytes` limits
/// the memory of the whole process, and so decides when memory is short; the limit in `settings` does not.
///
/// # Errors
/// Those of the store and of the engine.
pub(crate) async fn promql_alone(
    settings: &Settings,
    process_bytes: u64,
    promql: PromqlSettings,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<Store>, PromqlEngine)> {
    let store_settings = store_settings(settings);
    let (memory, pressure) = (store_settings.memory_limit_bytes, Arc::clone(&store_settings.pressure));
    memory::watch(process_bytes, &pressure);
    let store = Store::open(store_settings, clock).await?;
    let engine = start_engine(settings, memory, pressure)?;
    let promql = PromqlEngine::new(store.source(), engine, promql);
    Ok((store, promql))
}
