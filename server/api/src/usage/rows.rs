//! Makes the rows of the usage tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{TableRows, services_text};
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, STORAGE_STATS};
use quiver_types::{Error, Millis, Result};

use super::intake::{Key, Sums};
use super::{FinishedQuery, KeptOf, StoredVolume};

const DAY_MS: i64 = 86_400_000;

/// A column of strings.
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

/// Makes rows from the columns of a table, in order.
pub(crate) fn made(table: &'static TableDef, columns: Vec<ArrayRef>) -> Result<TableRows> {
    let rows = RecordBatch::try_new(table.columns(), columns);
    let unfit = |e| Error::internal(format!("rows do not fit `{}`", table.name)).with_source(e);
    Ok(TableRows { table, rows: rows.map_err(unfit)? })
}

/// Rows of `query_log`. `now` and `now_ms` are the same moment on both clocks.
pub(super) fn of_queries(all: &[FinishedQuery], now: Instant, now_ms: Millis) -> Result<TableRows> {
    let began = |q: &FinishedQuery| now_ms - now.saturating_duration_since(q.began).as_millis() as i64;
    let columns = vec![
        times(all.iter().map(began)),
        // Query numbers are unique within a process, and two processes never start at the same moment.
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
pub(super) fn of_kept(all: &BTreeMap<KeptOf, StoredVolume>, now_ms: Millis) -> Result<TableRows> {
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

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Float64Type, Int64Type, TimestampMillisecondType};

    use super::*;

    fn number_of(rows: &TableRows, column: &str) -> i64 {
        rows.rows[column].as_primitive::<Int64Type>().value(0)
    }

    fn float_of(rows: &TableRows, column: &str) -> f64 {
        rows.rows[column].as_primitive::<Float64Type>().value(0)
    }

    fn time_of(rows: &TableRows, column: &str) -> i64 {
        rows.rows[column].as_primitive::<TimestampMillisecondType>().value(0)
    }

    fn text_of<'a>(rows: &'a TableRows, column: &str) -> &'a str {
        rows.rows[column].as_string::<i32>().value(0)
    }

    #[test]
    fn a_query_has_its_times_by_the_clock_on_the_wall() {
        let began = Instant::now();
        let query = FinishedQuery {
            id: 0xab,
            began,
            took: Duration::from_micros(2500),
            cpu: Duration::from_millis(1),
            api: "sql",
            subject: "user:me".to_owned(),
            path: "/sql".to_owned(),
            outcome: "ok",
            text: "select 1".to_owned(),
            scanned_bytes: u64::MAX,
            scanned_rows: 7,
            files_read: 5,
            files_total: 8,
            peak_memory: 9,
            models: String::new(),
            rollups: String::new(),
            kept: "",
        };
        let rows = of_queries(&[query], began + Duration::from_millis(1500), 61_500).unwrap();
        assert_eq!((rows.table.name, rows.rows.num_rows()), ("query_log", 1));
        assert_eq!(time_of(&rows, "time"), 60_000);
        assert_eq!(text_of(&rows, "query_id"), "ea60-00000000000000ab");
        assert_eq!((text_of(&rows, "api"), text_of(&rows, "outcome")), ("sql", "ok"));
        assert_eq!((float_of(&rows, "duration_ms"), float_of(&rows, "cpu_ms")), (2.5, 1.0));
        // Values beyond the range of a column are clamped.
        assert_eq!((number_of(&rows, "scanned_bytes"), number_of(&rows, "scanned_rows")), (i64::MAX, 7));
        assert_eq!((number_of(&rows, "pruned_files"), number_of(&rows, "total_files")), (3, 8));
        assert_eq!(of_queries(&[], began, 0).unwrap().rows.num_rows(), 0);
    }

    #[test]
    fn what_is_kept_stands_under_its_day() {
        let kept = StoredVolume { bytes: 10, rows: 2, files: 3, small_files: 1 };
        let all = BTreeMap::from([(("logs".to_owned(), 2, "disk"), kept)]);
        let rows = of_kept(&all, 5).unwrap();
        assert_eq!((text_of(&rows, "table_name"), text_of(&rows, "tier")), ("logs", "disk"));
        assert_eq!((time_of(&rows, "time"), time_of(&rows, "partition_day")), (5, 2 * DAY_MS));
        let numbers = ["bytes", "rows", "files", "small_files"].map(|column| number_of(&rows, column));
        assert_eq!(numbers, [10, 2, 3, 1]);
    }

    #[test]
    fn what_came_in_is_told_by_service() {
        let mut sums = Sums::default();
        sums.records = 4;
        sums.requests = 2;
        let key = |service: &str| Key {
            minute: 60_000,
            signal: "logs",
            protocol: "otlp",
            service: service.to_owned(),
            reason: "",
        };
        let rows = of_intake(&BTreeMap::from([(key("a\nb"), sums)])).unwrap();
        assert_eq!(time_of(&rows, "time"), 60_000);
        assert_eq!((text_of(&rows, "signal"), text_of(&rows, "protocol")), ("logs", "otlp"));
        assert_eq!((number_of(&rows, "records"), number_of(&rows, "requests")), (4, 2));
        // The services of a row are on one line each; a line break in a name is escaped.
        assert_eq!(rows.rows.column(10).as_string::<i32>().value(0), "a\\nb");
        assert!(float_of(&rows, "lag_ms").is_nan(), "no times are known");
    }
}
