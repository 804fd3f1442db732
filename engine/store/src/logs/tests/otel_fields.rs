//! OpenTelemetry's own fields of a log record are returned unchanged, wherever the row is stored.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{TimestampNanosecondType, UInt8Type};
use quiver_types::Access;
use quiver_types::logs::{LogColumn, LogFilter, LogRequest, MSG, OBSERVED_TIME, SEVERITY_NUMBER, TIME};

use super::model::{Model, row};
use super::{SECOND, T0, everything, open, read, settings};
use crate::store::Store;

/// Severity and time of observation by time.
type Marks = BTreeMap<i64, (Option<u8>, Option<i64>)>;

async fn stored(store: &Store) -> Marks {
    let columns = [TIME, SEVERITY_NUMBER, OBSERVED_TIME].map(LogColumn::text).to_vec();
    let request = LogRequest { columns, rest: false, ..everything(LogFilter::All) };
    let mut out = Marks::new();
    for batch in read(store, &Access::full(), &request).await {
        let times = batch.column(0).as_primitive::<TimestampNanosecondType>();
        let severity = batch.column(1).as_primitive::<UInt8Type>();
        let observed = batch.column(2).as_primitive::<TimestampNanosecondType>();
        for row in 0..batch.num_rows() {
            let marks = (
                severity.is_valid(row).then(|| severity.value(row)),
                observed.is_valid(row).then(|| observed.value(row)),
            );
            out.insert(times.value(row), marks);
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn severities_and_times_of_observation_are_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = open(settings(dir.path())).await;
    let mut expected = Marks::new();
    // Writes with neither, one, the other, both; each becomes a part, the last two stay live.
    for write in 0..6i64 {
        let mut model = Model::default();
        for i in 0..40 {
            let time = T0 + (write * 40 + i) * SECOND;
            let mut r = row(time, &[("app", if i % 2 == 0 { "a" } else { "b" })], "s");
            r.field(MSG, "row");
            r.severity = if write & 1 == 1 && i % 3 == 0 { 9 } else { 0 };
            r.observed = if write & 2 == 2 && i % 4 != 0 { time + i } else { 0 };
            expected.insert(time, ((r.severity > 0).then_some(r.severity), (r.observed > 0).then_some(r.observed)));
            model.rows.push(r);
        }
        for batch in model.batches(7) {
            store.write_logs(batch).await.expect("written");
        }
        if write < 4 {
            store.flush_all().await.expect("flushed");
        }
    }
    assert_eq!(stored(&store).await, expected, "parts and live rows");
    store.close(Duration::from_secs(10)).await;
    drop(store);
    store = open(settings(dir.path())).await;
    assert_eq!(stored(&store).await, expected, "after a restart");
    store.flush_all().await.expect("flushed");
    store.compact_all().await.expect("compacted");
    assert_eq!(store.visible().table("logs").len(), 1);
    assert_eq!(stored(&store).await, expected, "merged");
    store.close(Duration::from_secs(10)).await;
}
