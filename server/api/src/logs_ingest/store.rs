//! Batches on their way into the store, and what is counted of them.

use std::sync::Arc;

use futures::future::try_join_all;
use quiver_ingest::logs::{Dropped, Report};
use quiver_store::Refusal;
use quiver_types::{LogsBatch, Result};

use super::metrics::Endpoint;
use crate::state::AppState;

/// Writes batches, all at once so that one sync serves them; adds what the store refused to the report.
///
/// # Errors
/// Those of the store; some of the batches may be stored then.
pub(super) async fn write(state: &Arc<AppState>, batches: Vec<LogsBatch>, report: &mut Report) -> Result<()> {
    for (why, count) in write_counted(state, batches).await? {
        report.rows = report.rows.saturating_sub(count);
        report.drop_rows(why, count);
    }
    Ok(())
}

/// Writes batches; gives what the store refused.
///
/// # Errors
/// As [`write`].
pub(super) async fn write_counted(state: &Arc<AppState>, batches: Vec<LogsBatch>) -> Result<Vec<(Dropped, u64)>> {
    let writes = batches.into_iter().filter(|b| !b.is_empty()).map(|batch| state.store.write_logs(batch));
    let outcomes = try_join_all(writes).await?;
    let refused = outcomes.into_iter().flat_map(|outcome| outcome.refused);
    Ok(refused
        .map(|(why, count)| (if why == Refusal::TooFarInFuture { Dropped::TooNew } else { Dropped::TooOld }, count))
        .collect())
}

/// Counts a request that ended.
pub(super) fn count(state: &AppState, endpoint: Endpoint, bytes: u64, report: &Report) {
    state.metrics.logs.count(endpoint, bytes, report);
}
