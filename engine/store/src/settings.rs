//! Settings of the store. The binary fills them from file, environment and flags; the defaults stand here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quiver_types::MemoryPressure;

use crate::timer::Timer;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// How far ahead a log row may be, while there is a retention.
const LOGS_FUTURE_MS: i64 = 2 * 86_400_000;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WalLevel {
    /// After `fdatasync` of the WAL: nothing is lost by a power cut.
    #[default]
    Sync,
    /// After `write` to the WAL, synced each second: nothing is lost by a kill of the process.
    Os,
}

/// All settings of the store.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// Data directory: `LOCK`, `quiver.db`, `wal/`, `store/`, `parts/`.
    pub data_dir: PathBuf,
    /// Whether the store is opened to be looked at: what it holds stays as it is, and nothing is written.
    pub look_only: bool,
    /// URL of the object store (`file:///…`, `s3://bucket/prefix`); none = `store/` in the data directory.
    pub store_url: Option<String>,
    /// How long data is kept; none = for ever.
    pub retention: Option<Duration>,
    /// Retention of single tables, where it differs; none = for ever.
    pub table_retention: BTreeMap<String, Option<Duration>>,
    /// How old a sample may be when it arrives; none = as old as the retention allows.
    pub accept_past: Option<Duration>,
    /// How far in the future a sample may be when it arrives; lifted when the retention is none.
    pub accept_future: Duration,
    /// When a write is acknowledged.
    pub wal_level: WalLevel,
    /// Memory for the whole process; the store takes its shares from it.
    pub memory_limit_bytes: u64,
    /// A generation is sealed at this size; none = the smaller of 72 MiB and a 16th of the memory limit.
    pub generation_bytes: Option<u64>,
    /// A generation is sealed at this age.
    pub generation_age: Duration,
    /// Whether columns of logs are kept decoded for queries that use them again.
    pub decoded_cache: bool,
    /// Size of a WAL segment.
    pub wal_segment_bytes: u64,
    /// Bytes of parts that may wait for a remote store that is down; past it writes are answered 503.
    pub spool_limit_bytes: u64,
    /// Bytes that must be free on the data directory's disk, else writes are answered 503.
    pub disk_reserve_bytes: u64,
    /// Labels that name the service of a series, the first non-empty one counts.
    pub service_labels: Vec<String>,
    /// New series that one service may bring within an hour; 0 = no limit.
    pub service_new_series_per_hour: u64,
    /// When compaction runs, and how large parts become by it.
    pub compaction: CompactionSettings,
    /// How often retention looks for days that are due.
    pub retention_interval: Duration,
    /// How long a clock that jumped must hold before retention goes by it.
    pub clock_confirm: Duration,
    /// How long files stay that retention dropped.
    pub drop_grace: Duration,
    /// Most bytes of live parts; above it the oldest days are dropped. None = no limit.
    pub size_max: Option<u64>,
    /// Concurrent requests to the object store.
    pub store_requests_max: usize,
    /// How long one object store operation is repeated before it counts as failed.
    pub store_retry_budget: Duration,
    /// Whether the memory of the process is short: then writes wait.
    pub pressure: Arc<MemoryPressure>,
    /// How background work waits between two tries.
    pub timer: Timer,
}

/// Settings of the compaction.
#[derive(Debug, Clone)]
pub struct CompactionSettings {
    /// Whether it runs by itself. `POST /admin/compact` works without.
    pub enabled: bool,
    /// How often it looks for work.
    pub interval: Duration,
    /// Target size of a level 2 part.
    pub part_bytes: u64,
    /// Level 0 parts of a closed window that make level 1 worth it; where they lie over several windows, twice as many as
    /// these at least, less one.
    pub level0_parts_min: usize,
    /// Most inputs of one compaction.
    pub inputs_max: usize,
    /// How long after the end of a window or day it counts as closed.
    pub close_delay: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("quiver-data"),
            look_only: false,
            store_url: None,
            retention: Some(Duration::from_hours(720)),
            table_retention: BTreeMap::new(),
            accept_past: None,
            accept_future: Duration::from_mins(10),
            wal_level: WalLevel::Sync,
            memory_limit_bytes: 2 * GIB,
            generation_bytes: None,
            generation_age: Duration::from_mins(10),
            decoded_cache: true,
            wal_segment_bytes: 64 * MIB,
            spool_limit_bytes: 20 * GIB,
            disk_reserve_bytes: 64 * MIB,
            service_labels: ["service_name", "service", "job"].map(String::from).to_vec(),
            service_new_series_per_hour: 1_000_000,
            compaction: CompactionSettings::default(),
            retention_interval: Duration::from_mins(1),
            clock_confirm: Duration::from_hours(6),
            drop_grace: Duration::from_hours(6),
            size_max: None,
            store_requests_max: 16,
            store_retry_budget: Duration::from_secs(30),
            pressure: Arc::default(),
            timer: Timer::default(),
        }
    }
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: Duration::from_secs(30),
            part_bytes: 256 * MIB,
            level0_parts_min: 2,
            inputs_max: 64,
            close_delay: Duration::from_mins(15),
        }
    }
}

impl StoreSettings {
    /// Gives the size at which a generation is sealed.
    pub fn generation_bytes(&self) -> u64 {
        self.generation_bytes.unwrap_or((72 * MIB).min(self.memory_limit_bytes / 16)).max(64 * 1024)
    }

    /// Gives the memory of ingest: generations, series registry, queued batches, flushes under way.
    pub fn ingest_memory_bytes(&self) -> u64 {
        self.memory_limit_bytes / 2
    }

    /// Gives the memory of a compaction, or of rewriting a part: the rows that are held while they are merged, and the row
    /// groups that are written. While it runs it counts with that of ingest.
    pub fn compaction_memory_bytes(&self) -> u64 {
        (256 * MIB).min(self.memory_limit_bytes / 8).max(MIB)
    }

    /// Gives the memory of caches (footers, indexes, series tables, hot ranges, decoded data).
    pub fn cache_memory_bytes(&self) -> u64 {
        self.memory_limit_bytes / 8
    }

    /// Gives how long rows of a table are kept, by its own setting or that of all; `None`: for ever.
    pub fn retention_of(&self, table: &str) -> Option<Duration> {
        self.table_retention.get(table).copied().unwrap_or(self.retention)
    }

    /// Gives the first and the last time of samples that are accepted. Retention "none" lifts both.
    pub fn accepted_times(&self, now: i64) -> (i64, i64) {
        let write = self.write();
        let earliest = write.accept_past_ms.map_or(i64::MIN, |past| now.saturating_sub(past));
        (earliest, write.accept_future_ms.map_or(i64::MAX, |future| now.saturating_add(future)))
    }

    /// Gives what the write path needs.
    pub fn write(&self) -> WriteSettings {
        let (retention, logs) = (self.retention_of("metrics"), self.retention_of("logs"));
        let millis = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        WriteSettings {
            level: self.wal_level,
            segment_bytes: self.wal_segment_bytes,
            generation_bytes: self.generation_bytes(),
            generation_age: self.generation_age,
            memory_bytes: self.ingest_memory_bytes(),
            disk_reserve_bytes: self.disk_reserve_bytes,
            accept_past_ms: retention.map(|r| millis(self.accept_past.map_or(r, |a| a.min(r)))),
            accept_future_ms: retention.map(|_| millis(self.accept_future)),
            logs_past_ms: logs.map(|r| millis(self.accept_past.map_or(r, |a| a.min(r)))),
            logs_future_ms: logs.map(|_| LOGS_FUTURE_MS),
            days_max: 400,
            generation_days_max: 8_000,
            service_labels: self.service_labels.clone(),
            service_new_series_per_hour: self.service_new_series_per_hour,
            requests_bytes: (64 * MIB).min(self.memory_limit_bytes / 32),
            pressure: Arc::clone(&self.pressure),
        }
    }
}

/// What the write path (WAL, registry, generations) needs to know.
#[derive(Debug, Clone)]
pub struct WriteSettings {
    /// When a write is acknowledged.
    pub level: WalLevel,
    /// Size of a WAL segment.
    pub segment_bytes: u64,
    /// A generation is sealed at this size.
    pub generation_bytes: u64,
    /// A generation is sealed at this age.
    pub generation_age: Duration,
    /// Budget of generations, registry, queue and flushes together; above it writes wait briefly, then get 503.
    pub memory_bytes: u64,
    /// Free bytes on the WAL's disk below which writes get 503.
    pub disk_reserve_bytes: u64,
    /// How old a sample may be; none = no limit.
    pub accept_past_ms: Option<i64>,
    /// How far ahead a sample may be; none = no limit.
    pub accept_future_ms: Option<i64>,
    /// How old a log row may be; none = no limit.
    pub logs_past_ms: Option<i64>,
    /// How far ahead a log row may be; none = no limit.
    pub logs_future_ms: Option<i64>,
    /// Most UTC days that a request may touch.
    pub days_max: usize,
    /// Most UTC days that a generation may touch: it is sealed before.
    pub generation_days_max: usize,
    /// Labels that name the service of a series, the first non-empty one counts.
    pub service_labels: Vec<String>,
    /// New series that one service may bring within an hour; 0 = no limit.
    pub service_new_series_per_hour: u64,
    /// Memory of the requests that named themselves and were answered.
    pub requests_bytes: u64,
    /// Whether the memory of the process is short: then writes wait.
    pub pressure: Arc<MemoryPressure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_limits_follow_the_retention() {
        let mut s = StoreSettings::default();
        assert_eq!(s.write().accept_past_ms, Some(30 * 86_400_000));
        s.accept_past = Some(Duration::from_mins(1));
        assert_eq!(s.write().accept_past_ms, Some(60_000));
        assert_eq!(s.accepted_times(1_000_000), (940_000, 1_600_000));
        s.retention = None;
        assert_eq!((s.write().accept_past_ms, s.write().accept_future_ms), (None, None));
        assert_eq!(s.accepted_times(1), (i64::MIN, i64::MAX));
        assert_eq!((s.generation_bytes(), s.compaction_memory_bytes()), (72 * MIB, 256 * MIB));
        s.memory_limit_bytes = 320 * MIB;
        assert_eq!((s.generation_bytes(), s.compaction_memory_bytes()), (20 * MIB, 40 * MIB));
    }
}
