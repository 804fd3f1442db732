//! The store's own counters, for `/metrics`: one static list, one line per metric, names `quiver_<area>_<what>_<unit>`.
//!
//! Updated per batch, job or request, never per row. Times are kept in nanoseconds and shown in seconds.

#![allow(clippy::doc_markdown, reason = "the docs of metrics are their help on `/metrics`")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a metric is, for the `# TYPE` line and its scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Grows; nanoseconds inside, seconds outside.
    SecondsCounter,
    /// Goes up and down; nanoseconds inside, seconds outside.
    SecondsGauge,
}

impl MetricKind {
    /// Gives the word for the `# TYPE` line.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Counter | Self::SecondsCounter => "counter",
            Self::Gauge | Self::SecondsGauge => "gauge",
        }
    }
}

/// One number of the store.
#[derive(Debug, Default)]
pub struct Metric(AtomicU64);

impl Metric {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`, in the unit that the metric has inside.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Takes away (gauges); stops at 0.
    pub fn sub(&self, n: u64) {
        // Two updates may cross, so that a plain subtraction could wrap around.
        let mut old = self.0.load(Relaxed);
        while let Err(now) = self.0.compare_exchange_weak(old, old.saturating_sub(n), Relaxed, Relaxed) {
            old = now;
        }
    }

    /// Sets a gauge, in the unit that the metric has inside.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Adds a span of time.
    pub fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// Sets a span of time.
    pub fn set_time(&self, time: Duration) {
        self.set(time.as_nanos() as u64);
    }

    /// Reads the number as kept.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Bytes of the WAL that the start has replayed so far, and that there are to replay; 0: not known yet.
pub fn replay_progress() -> (u64, u64) {
    (METRICS.wal_replayed_bytes.get(), METRICS.wal_replay.get())
}

/// One line of `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricLine {
    /// Full name, as `quiver_<area>_<what>_<unit>`.
    pub name: &'static str,
    /// What it counts, for the `# HELP` line.
    pub help: &'static str,
    /// What it is, for the `# TYPE` line.
    pub kind: MetricKind,
    /// Value in base units (seconds, bytes).
    pub value: f64,
}

macro_rules! metrics {
    ($($kind:ident $field:ident $name:literal $help:literal;)*) => {
        /// All counters of the store; there is one, [`METRICS`].
        #[derive(Debug)]
        pub struct StoreMetrics {
            $(#[doc = $help] pub $field: Metric,)*
        }

        /// The process' counters.
        pub static METRICS: StoreMetrics = StoreMetrics { $($field: Metric::new(),)* };

        impl StoreMetrics {
            /// Gives all metrics in declaration order.
            pub fn list(&self) -> Vec<MetricLine> {
                vec![$(line($name, $help, MetricKind::$kind, self.$field.get()),)*]
            }
        }
    };
}

fn line(name: &'static str, help: &'static str, kind: MetricKind, raw: u64) -> MetricLine {
    let value = match kind {
        MetricKind::Counter | MetricKind::Gauge => raw as f64,
        MetricKind::SecondsCounter | MetricKind::SecondsGauge => raw as f64 / 1e9,
    };
    MetricLine { name, help, kind, value }
}

// One block per area; add lines to your own.
metrics! {
    // Object store.
    Counter object_requests "quiver_object_requests_total" "Requests to the object store, retries included.";
    Counter object_errors "quiver_object_errors_total" "Requests to the object store that failed.";
    Counter object_retries "quiver_object_retries_total" "Requests to the object store that were repeated.";
    Counter object_read_bytes "quiver_object_read_bytes_total" "Bytes read from the object store.";
    Counter object_written_bytes "quiver_object_written_bytes_total" "Bytes written to the object store.";
    SecondsCounter object_time "quiver_object_request_seconds_total" "Time spent in requests to the object store.";

    Gauge store_lost "quiver_store_lost" "1 once another server has taken the store and this one stops.";

    // Catalog.
    Counter catalog_commits "quiver_catalog_commits_total" "Transactions of the catalog.";
    Counter catalog_conflicts "quiver_catalog_conflicts_total" "Commits refused because their inputs were gone.";
    SecondsCounter catalog_commit_time "quiver_catalog_commit_seconds_total" "Time spent in transactions of the catalog.";
    Gauge catalog_parts "quiver_catalog_parts" "Live parts.";
    Gauge catalog_part_bytes "quiver_catalog_part_bytes" "Bytes of live parts.";
    Gauge outbox_depth "quiver_outbox_queue_length" "Commit objects not yet in the object store.";
    Counter outbox_written "quiver_outbox_written_total" "Commit objects written to the object store.";

    // Flush.
    Gauge flush_queue "quiver_flush_queue_length" "Sealed generations that wait for their flush.";
    Counter flush_runs "quiver_flush_runs_total" "Generations flushed.";
    Counter flush_failures "quiver_flush_failures_total" "Flushes that failed and were tried again.";
    Gauge flush_held "quiver_flush_held_generations" "Generations that cannot be flushed and were set aside, to be tried again.";
    Counter flush_parts "quiver_flush_parts_total" "Parts written by flushes.";
    Counter flush_bytes "quiver_flush_written_bytes_total" "Bytes of parts written by flushes.";
    SecondsCounter flush_time "quiver_flush_seconds_total" "Time spent in flushes.";
    SecondsGauge flush_last_success "quiver_flush_last_success_seconds" "Unix time of the last flush that succeeded.";

    // Upload of the spool.
    Gauge upload_queue "quiver_upload_queue_length" "Parts in the spool that wait for their upload.";
    Gauge upload_damaged "quiver_upload_damaged_parts" "Parts in the spool that are damaged and are not uploaded.";
    Gauge spool_bytes "quiver_spool_bytes" "Bytes of parts in the spool.";
    Counter spool_refused "quiver_spool_refused_total" "Writes refused because the spool is full.";
    Counter upload_runs "quiver_upload_runs_total" "Parts uploaded.";
    Counter upload_failures "quiver_upload_failures_total" "Uploads that failed and were tried again.";
    Counter upload_bytes "quiver_upload_written_bytes_total" "Bytes of parts uploaded.";
    SecondsGauge upload_last_success "quiver_upload_last_success_seconds" "Unix time of the last upload that succeeded.";

    // Compaction.
    Counter compaction_runs "quiver_compaction_runs_total" "Compactions committed.";
    Counter compaction_failures "quiver_compaction_failures_total" "Compactions that failed or lost their inputs.";
    Counter compaction_no_room "quiver_compaction_no_room_total" "Compactions not begun, or given up, for want of free disk.";
    Counter compaction_parts_read "quiver_compaction_parts_read_total" "Parts that compactions replaced.";
    Counter compaction_read_bytes "quiver_compaction_read_bytes_total" "Bytes of parts that compactions replaced.";
    Counter compaction_written_bytes "quiver_compaction_written_bytes_total" "Bytes of parts that compactions wrote.";
    SecondsCounter compaction_time "quiver_compaction_seconds_total" "Time spent in compactions.";
    SecondsGauge compaction_last_success "quiver_compaction_last_success_seconds" "Unix time of the last compaction run without error.";
    Gauge compaction_queue "quiver_compaction_queue_length" "Compactions that were due when last looked.";

    // Retention and cleaner.
    Counter retention_parts "quiver_retention_parts_total" "Parts dropped because their day is past the retention.";
    Counter retention_bytes "quiver_retention_dropped_bytes_total" "Bytes of these parts.";
    SecondsGauge retention_last_success "quiver_retention_last_success_seconds" "Unix time of the last retention run that succeeded.";
    SecondsGauge retention_clock_lead "quiver_retention_clock_lead_seconds" "How far the clock is from the time that retention goes by; above a day nothing is dropped by the clock.";
    Counter size_parts "quiver_size_dropped_parts_total" "Parts dropped because the store was larger than store.size_max.";
    Counter size_bytes "quiver_size_dropped_bytes_total" "Bytes of these parts.";
    Gauge cleaner_queue "quiver_cleaner_queue_length" "Removed parts whose objects are not deleted yet; those that retention dropped wait for store.drop_grace.";
    Counter cleaner_objects "quiver_cleaner_objects_total" "Objects deleted.";
    Counter cleaner_bytes "quiver_cleaner_deleted_bytes_total" "Bytes of parts deleted.";
    Counter cleaner_failures "quiver_cleaner_failures_total" "Deletions that failed and will be tried again.";
    SecondsGauge cleaner_last_success "quiver_cleaner_last_success_seconds" "Unix time of the last cleaner run without error.";

    Counter query_files_left_out "quiver_query_files_left_out_total" "Damaged files that queries went on without, each counted once a query.";
    // Backup.
    Counter backup_bytes "quiver_backup_copied_bytes_total" "Bytes of parts copied into backups.";
    SecondsGauge backup_last_success "quiver_backup_last_success_seconds" "Unix time of the last backup that succeeded.";

    // Write path, WAL, generations.
    Counter ingest_samples "quiver_ingest_samples_total" "Float samples written.";
    Counter ingest_histograms "quiver_ingest_histograms_total" "Native histograms written.";
    Counter ingest_exemplars "quiver_ingest_exemplars_total" "Exemplars written.";
    Counter ingest_spans "quiver_ingest_spans_written_total" "Spans written.";
    Counter ingest_log_rows "quiver_ingest_log_rows_total" "Log rows written.";
    Counter refused_old_rows "quiver_ingest_too_old_log_rows_total" "Log rows dropped because they are too old.";
    Counter refused_future_rows "quiver_ingest_future_log_rows_total" "Log rows dropped because they are too far in the future.";
    Counter ingest_duplicates "quiver_ingest_duplicate_samples_total" "Samples equal to the one before in their series.";
    Counter ingest_conflicts "quiver_ingest_conflicting_samples_total" "Samples with another value at the time of the one before.";
    Counter refused_old "quiver_ingest_too_old_samples_total" "Samples refused because they are too old.";
    Counter refused_future "quiver_ingest_future_samples_total" "Samples refused because they are too far in the future.";
    Counter refused_exemplars "quiver_ingest_refused_exemplars_total" "Exemplars refused because of their time.";
    Counter refused_series "quiver_series_refused_total" "Series refused because the registry is full.";
    Counter refused_metadata "quiver_metadata_refused_total" "Metadata of metrics left out because there is more in a day than `memory.limit` has room for.";
    Counter barred_series "quiver_series_barred_total" "New series refused because their service brings too many.";
    Counter ingest_waits "quiver_ingest_memory_waits_total" "Writes that waited for memory.";
    Counter ingest_repeated_requests "quiver_ingest_repeated_requests_total" "Requests with an `Idempotency-Key` that were answered before.";
    Counter ingest_forgotten_requests "quiver_ingest_forgotten_requests_total" "Answered requests forgotten before their time, for want of room.";
    Counter ingest_refused "quiver_ingest_unavailable_total" "Writes refused for want of memory or disk.";
    Gauge ingest_queue "quiver_ingest_queue_length" "Writes that wait for the WAL.";
    Gauge ingest_queue_bytes "quiver_ingest_queue_bytes" "Bytes of these writes.";
    Counter wal_commits "quiver_wal_commits_total" "Groups of writes committed.";
    Counter wal_writes "quiver_wal_writes_total" "Writes committed.";
    Counter wal_written_bytes "quiver_wal_written_bytes_total" "Bytes appended to the WAL.";
    SecondsCounter wal_commit_time "quiver_wal_commit_seconds_total" "Time spent in writing and syncing the WAL.";
    Counter wal_failures "quiver_wal_failures_total" "Segments given up because a write or sync failed.";
    Counter wal_segments "quiver_wal_segments_total" "Segments begun.";
    Gauge wal_replay "quiver_wal_replay_bytes" "Bytes of the WAL that this start had to replay.";
    Counter wal_replayed_bytes "quiver_wal_replayed_bytes_total" "Bytes replayed at start.";
    Counter wal_corrupt_records "quiver_wal_corrupt_records_total" "Damaged records found in replay.";
    Counter wal_quarantined_rows "quiver_wal_quarantined_rows_total" "Good rows left out because their write or series is damaged.";
    Counter wal_torn_tails "quiver_wal_torn_tails_total" "Torn ends of the WAL cut in replay.";
    Counter generations_sealed "quiver_generations_sealed_total" "Generations sealed.";
    Gauge generation_bytes "quiver_generation_bytes" "Memory of all generations that are alive.";
    Gauge flush_memory "quiver_flush_memory_bytes" "Memory that flushes and compactions under way are counted with.";
    Gauge registry_series "quiver_registry_series" "Series in the registry.";
    Gauge registry_pairs "quiver_registry_pairs" "Distinct label pairs in the registry.";
    Gauge registry_bytes "quiver_registry_bytes" "Memory of the registry.";

    // Parts and caches.

    // Scan.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        let list = METRICS.list();
        for (i, m) in list.iter().enumerate() {
            assert!(m.name.starts_with("quiver_"), "{}", m.name);
            let counter = m.kind.type_name() == "counter";
            assert_eq!(m.name.ends_with("_total"), counter, "{}", m.name);
            assert!(list[i + 1..].iter().all(|o| o.name != m.name), "{} stands twice", m.name);
        }
    }

    #[test]
    fn gauges_stop_at_zero() {
        let m = Metric::new();
        m.add(2);
        m.sub(3);
        assert_eq!(m.get(), 0);
    }
}
