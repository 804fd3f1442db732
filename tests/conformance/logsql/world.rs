//! The product in process, with rows in three states: unflushed, flushed, compacted.

use std::sync::Arc;
use std::time::Duration;

use quiver_api::AppState;
use quiver_types::LogsBatch;

use crate::store::empty_store;

/// What happened to rows after they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Live,
    Flushed,
    Compacted,
}

/// All states.
pub(crate) const STATES: [State; 3] = [State::Live, State::Flushed, State::Compacted];

/// A store and what stands above it.
pub(crate) struct World {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) app: Arc<AppState>,
    /// What happened to its rows.
    pub(crate) state: State,
    _dir: tempfile::TempDir,
}

impl World {
    /// Opens an empty store that keeps rows of any age, and writes rows.
    pub(crate) fn with(batches: Vec<LogsBatch>, state: State) -> Result<Self, String> {
        let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
        let (app, dir) = empty_store(&runtime)?;
        let flush = state != State::Live;
        runtime.block_on(async {
            for batch in batches {
                let outcome = app.engines.store.write_logs(batch).await.map_err(|e| e.to_string())?;
                if !outcome.refused.is_empty() {
                    return Err(format!("refused: {:?}", outcome.refused));
                }
                if flush {
                    app.engines.store.flush_all().await.map_err(|e| e.to_string())?;
                }
            }
            if state == State::Compacted {
                app.engines.store.compact_all().await.map_err(|e| e.to_string())?;
            }
            Ok(())
        })?;
        Ok(Self { runtime, app, state, _dir: dir })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.app.engines.store.close(Duration::ZERO));
    }
}
