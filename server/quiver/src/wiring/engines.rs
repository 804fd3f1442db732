//! Starts the query engine, or PromQL alone over a store of its own.

use std::path::Path;
use std::sync::Arc;

use quiver_promql::{PromqlEngine, PromqlSettings};
use quiver_query::{EngineSettings, QueryEngine};
use quiver_store::Store;
use quiver_types::{Clock, MemoryPressure, Result};

use super::given::store_settings;
use super::tables::StoreTables;
use crate::settings::Settings;
use crate::{memory, process, through};

/// Starts the engine with the threads and directory of the settings, and with this memory.
pub(super) fn start_engine(
    settings: &Settings,
    memory: u64,
    pressure: Arc<MemoryPressure>,
) -> Result<Arc<QueryEngine>> {
    let spill_dir = Path::new(&settings.store.data).join("spill");
    quiver_query::spill_folder(&spill_dir)?;
    let threads = if settings.query.threads == 0 { process::cores() } else { settings.query.threads };
    let through_codec = settings.query.through_codec;
    let settings = EngineSettings {
        memory_bytes: (memory / 4) as usize,
        spill_dir,
        spill_bytes: settings.query.spill_max.0,
        threads,
        concurrent_max: settings.query.concurrent_max,
        pressure,
    };
    let start = || QueryEngine::with_functions(&settings, quiver_olap::session_functions());
    let engine = start()?;
    if through_codec {
        through::send(&engine, start()?)?;
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
    memory::keep(process_bytes, &pressure);
    let store = Store::open(store_settings, clock).await?;
    let engine = start_engine(settings, memory, pressure)?;
    let promql = PromqlEngine::new(store.source(), Arc::new(StoreTables), engine, promql);
    Ok((store, promql))
}
