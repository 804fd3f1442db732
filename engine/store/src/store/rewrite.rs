//! Applies rules to spans that were stored before.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use quiver_types::tables::spans;
use quiver_types::time::DAY_MS;

use super::Store;
use super::maintenance::STALL;
use crate::compact::rewrite::{Outcome, RewriteCounts, SpanRewriter};
use crate::error::Result;
use crate::part::{Part, Place};

impl Store {
    /// Days (since 1970) with stored spans that start between two times (Unix milliseconds), oldest first. Flushes
    /// first.
    ///
    /// # Errors
    /// As [`Store::flush_all`].
    pub fn days_of_spans(&self, start_ms: i64, end_ms: i64) -> BoxFuture<'_, Result<Vec<i32>>> {
        Box::pin(async move {
            self.flush_sealed().await?;
            let visible = self.core.shared.visible();
            let wanted = |p: &&Arc<Part>| {
                let start = i64::from(p.meta.day) * DAY_MS;
                p.meta.table == spans::TABLE.name && start < end_ms && start + DAY_MS > start_ms
            };
            let days: BTreeSet<i32> = visible.parts.iter().filter(wanted).map(|p| p.meta.day).collect();
            Ok(days.into_iter().collect())
        })
    }

    /// Rewrites the spans of a day, part by part. If interrupted, each part is either rewritten or unchanged, and it
    /// can be repeated. Damaged parts are left as they are.
    ///
    /// # Errors
    /// Unavailable: no disk space, or the object store is down. Cancelled: the store is closing.
    pub fn rewrite_spans<'a>(
        &'a self,
        day: i32,
        rewriter: &'a Arc<dyn SpanRewriter>,
    ) -> BoxFuture<'a, Result<RewriteCounts>> {
        Box::pin(async move {
            let (mut done, mut sum) = (HashSet::new(), RewriteCounts::default());
            loop {
                let damaged = self.core.damaged_ids();
                let next = {
                    let visible = self.core.shared.visible();
                    let of_day = |p: &&Arc<Part>| p.meta.table == spans::TABLE.name && p.meta.day == day;
                    let waits = |p: &&Arc<Part>| !done.contains(&p.meta.id) && !damaged.contains(&p.meta.id);
                    visible.parts.iter().filter(of_day).find(waits).map(|p| p.meta.id)
                };
                let Some(id) = next else { return Ok(sum) };
                // Parts that are still being uploaded are not replaced.
                let is_uploaded = || async {
                    self.core.still_master()?;
                    self.core.still_open()?;
                    let visible = self.core.shared.visible();
                    Ok(visible.parts.iter().find(|p| p.meta.id == id).is_none_or(|p| p.meta.place != Place::Spool))
                };
                self.core.wake.upload.notify_one();
                self.core.progress.wait("the upload to the object store", STALL, is_uploaded).await?;
                if let Outcome::Done(made, rewritten) = self.compactor.rewrite(id, rewriter).await? {
                    sum.add(rewritten);
                    done.insert(id);
                    done.extend(made);
                }
            }
        })
    }
}
