//! Rows of the tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{TableRows, services_text};
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, STORAGE_STATS};
use quiver_types::{Error, Millis, Result};

use super::{Ended, Kept, KeptOf, Key, Sums};

const DAY_MS: i64 = 86_400_000;

/// A column of texts.
pub(crate) fn texts<T: AsRef<str>>(values: impl Iterator<Item = T>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.map(|n| i64::try_from(n).unwrap_or(i64::MAX))))
}

fn millis(values: impl Iterator<Item = Duration>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values.map(|time| time.as_secs_f64() * 1e3)))
}

/// A column of times.
pub(crate) fn times(values: impl Iterator<Item = Millis>) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from_iter_values(values).with_timezone("UTC"))
}

/// Rows of a table, out of its columns in their order.
pub(crate) fn made(table: &'static TableDef, columns: Vec<ArrayRef>) -> Result<TableRows> {
    let rows = RecordBatch::try_new(table.columns(), columns);
    let unfit = |e| Error::internal(format!("rows do not fit `{}`", table.name)).with_source(e);
    Ok(TableRows { table, rows: rows.map_err(unfit)? })
}

/// Rows of `query_log`; it is `now`, which the clock on the wall calls `now_ms`.
pub(super) fn of_queries(all: &[Ended], now: Instant, now_ms: Millis) -> Result<TableRows> {
    let began = |q: &Ended| now_ms - now.saturating_duration_since(q.began).as_millis() as i64;
    let columns = vec![
        times(all.iter().map(began)),
        // Numbers of queries are unique within a process, and no two processes begin one at one moment.
        texts(all.iter().map(|q| format!("{:x}-{:016x}", began(q), q.id))),
        texts(all.iter().map(|q| q.api)),
        texts(all.iter().map(|q| &q.subject)),
        texts(all.iter().map(|q| &q.path)),
        texts(all.iter().map(|q| q.outcome)),
        texts(all.iter().map(|q| &q.text)),
        millis(all.iter().map(|q| q.took)),
        millis(all.iter().map(|q| q.cpu)),
        numbers(all.iter().map(|q| q.scanned_bytes)),
        numbers(all.iter().map(|q| q.scanned_rows)),
        numbers(all.iter().map(|q| q.files_total.saturating_sub(q.files_read))),
        numbers(all.iter().map(|q| q.files_total)),
        numbers(all.iter().map(|q| q.peak_memory as u64)),
        texts(all.iter().map(|q| &q.models)),
        texts(all.iter().map(|q| &q.rollups)),
        texts(all.iter().map(|q| q.kept)),
        texts(all.iter().map(|_| "")),
    ];
    made(&QUERY_LOG, columns)
}

/// Rows of `storage_stats`.
pub(super) fn of_kept(all: &BTreeMap<KeptOf, Kept>, now_ms: Millis) -> Result<TableRows> {
    let columns = vec![
        times(all.iter().map(|_| now_ms)),
        texts(all.keys().map(|(table, ..)| table)),
        texts(all.keys().map(|(.., tier)| tier)),
        times(all.keys().map(|(_, day, _)| i64::from(*day) * DAY_MS)),
        numbers(all.values().map(|kept| kept.bytes)),
        numbers(all.values().map(|kept| kept.rows)),
        numbers(all.values().map(|kept| kept.files)),
        numbers(all.values().map(|kept| kept.small_files)),
        texts(all.iter().map(|_| "")),
    ];
    made(&STORAGE_STATS, columns)
}

/// Rows of `ingest_usage_1m`.
pub(super) fn of_intake(all: &BTreeMap<Key, Sums>) -> Result<TableRows> {
    let columns = vec![
        times(all.keys().map(|key| key.minute)),
        texts(all.keys().map(|key| key.signal)),
        texts(all.keys().map(|key| key.protocol)),
        texts(all.keys().map(|key| key.reason)),
        numbers(all.values().map(|sums| sums.records)),
        numbers(all.values().map(|sums| sums.bytes)),
        numbers(all.values().map(|sums| sums.rejected)),
        numbers(all.values().map(|sums| sums.requests)),
        Arc::new(Float64Array::from_iter_values(all.values().map(Sums::latency_ms))),
        Arc::new(Float64Array::from_iter_values(all.values().map(Sums::lag_ms))),
        texts(all.keys().map(|key| services_text([&key.service]))),
    ];
    made(&INGEST_USAGE, columns)
}
