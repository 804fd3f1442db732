//! What the merges of all tables share: outputs with registered keys, and the check that inputs delivered all their
//! rows.

use std::sync::Arc;

use quiver_types::Millis;

use super::plan::Plan;
use crate::core::{Core, Job};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::flush::keys;
use crate::part::{Part, PartCompression, PartId, PartOrigin, PartSpec};
use crate::threads;

/// Registers the keys of another output as pending.
pub(super) async fn begin_output(
    core: &Core,
    job: &Job,
    plan: &Plan,
    inputs: &[Arc<Part>],
    window: Millis,
) -> Result<PartSpec> {
    let id = PartId::now_v7();
    failpoint::hit("compact.before-pending");
    let (catalog, job_id, keys) = (core.catalog.clone(), job.id, keys(&plan.table, plan.day, id));
    threads::at_once(async move { catalog.add_pending(job_id, &keys).await }).await?;
    failpoint::hit("compact.after-pending");
    let replaced = inputs.iter().map(|p| p.meta.id).collect();
    Ok(PartSpec {
        table: plan.table.clone(),
        day: plan.day,
        level: plan.level,
        id,
        origin: PartOrigin::Compacted { compaction_id: job.id, replaced },
        place: core.output.place,
        window,
        compression: PartCompression::Compacted,
    })
}

/// Checks that an input delivered as many rows as the catalog says it has.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::error::ErrorKind::Internal) if it did not.
pub(super) fn same_rows(part: &Part, what: &str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::internal(format!("part `{}` has {expected} {what} in the catalog and gave {found}", part.meta.id)))
}
