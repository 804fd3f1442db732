//! Writes usage to the tables, and measures what the store holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use quiver_store::Store;
use quiver_store::part::Place;
use quiver_types::Result;
use quiver_types::tables::history::TableRows;
use tokio_util::sync::CancellationToken;

use super::intake::{Key, Sums};
use super::{FinishedQuery, KeptOf, StoredVolume, rows};
use crate::state::AppState;

/// How often the contents of the store are measured.
const COUNTED_EVERY: Duration = Duration::from_hours(1);

fn kept(store: &Store) -> BTreeMap<KeptOf, StoredVolume> {
    let mut all: BTreeMap<KeptOf, StoredVolume> = BTreeMap::new();
    for part in store.visible().parts.iter() {
        let meta = &part.meta;
        let tier = match meta.place {
            Place::Spool => "local",
            Place::Store => "object store",
        };
        let files = meta.files.len() as u64;
        let of = all.entry((meta.table.clone(), meta.day, tier)).or_default();
        of.bytes += meta.bytes;
        of.rows += meta.rows;
        of.files += files;
        of.small_files += if meta.level == 0 { files } else { 0 };
    }
    all
}

/// Writes rows periodically until the server stops.
pub fn follow(app: Arc<AppState>, every: Duration, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if every.is_zero() {
            return;
        }
        let usage = &app.metrics.usage;
        usage.is_on.store(true, Relaxed);
        let mut counted: Option<Instant> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let counts = counted.is_none_or(|at| at.elapsed() >= COUNTED_EVERY);
            let kept = if counts { kept(&app.engines.store) } else { BTreeMap::new() };
            if !kept.is_empty() {
                counted = Some(Instant::now());
            }
            write_waiting(&app, &kept).await;
        }
    })
}

/// Writes the rest after the last request has ended.
pub fn finish(app: &AppState) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        if app.metrics.usage.is_on() {
            write_waiting(app, &BTreeMap::new()).await;
        }
    })
}

async fn write_waiting(app: &AppState, kept: &BTreeMap<KeptOf, StoredVolume>) {
    let usage = &app.metrics.usage;
    let (queries, sums) = (usage.take(), usage.intake.take());
    if let Err(error) = write(app, &queries, kept, &sums).await {
        usage.lost.fetch_add(queries.len() as u64, Relaxed);
        tracing::warn!(%error, "what the server was asked could not be written down");
    }
}

async fn write(
    app: &AppState,
    queries: &[FinishedQuery],
    kept: &BTreeMap<KeptOf, StoredVolume>,
    sums: &BTreeMap<Key, Sums>,
) -> Result<()> {
    let now_ms = app.clock.now_ms();
    let mut tables: Vec<TableRows> = Vec::new();
    if !queries.is_empty() {
        tables.push(rows::of_queries(queries, Instant::now(), now_ms)?);
    }
    if !kept.is_empty() {
        tables.push(rows::of_kept(kept, now_ms)?);
    }
    if !sums.is_empty() {
        tables.push(rows::of_intake(sums)?);
    }
    if tables.is_empty() { Ok(()) } else { app.engines.store.write_rows(tables).await }
}
