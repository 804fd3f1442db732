//! Wide spans are decoded within the memory limit of a query.

use quiver_types::scan::{ScanShape, ScanTask, batch_bytes};

use super::*;
use crate::scan::testing::{Uncounted, Within};

/// Spans with an attribute of two kilobytes each.
fn wide(count: u64) -> SpansBatch {
    let mut b = SpansBuilder::default();
    let context = b.context(&ContextFields { service: "a", scope_name: "lib", ..Default::default() });
    for n in 0..count {
        let text = format!("{n:0>2000}");
        b.attributes(&mut vec![("text", Value::Text(&text))]);
        b.span(&SpanFields {
            trace_id: u128::from(n + 1).to_be_bytes(),
            span_id: (n + 1).to_be_bytes(),
            parent: [0; 8],
            context,
            name: "GET /",
            kind: 2,
            start: T0 + n as i64,
            end: T0 + n as i64 + 1000,
            status: 0,
            status_message: "",
            trace_state: "",
            flags: 0,
            dropped: [0, 0, 0],
            received: T0,
            marks: 0,
        });
    }
    b.finish()
}

/// Breaks if spans are decoded by their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_spans_are_decoded_few_at_once() {
    const COUNT: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(settings(&dir, 2 << 30), Arc::new(Fixed)).await.unwrap();
    store.write_spans(wide(COUNT)).await.unwrap();
    store.flush_all().await.unwrap();
    let request = SpanRequest { filter: SpanFilter::All, columns: all_columns() };
    let stats = Arc::new(ReadStats::default());
    let table = spans_table(&store.span_source().snapshot(), &Access::full(), &request, &stats).unwrap();
    let scan = table.scan(&ScanShape { partitions: 1, ..ScanShape::default() }).unwrap();
    let memory = Arc::new(Within::new(usize::MAX));
    let of_query = Arc::clone(&memory);
    let mut batches = scan.open(0, ScanTask { memory, counters: Arc::new(Uncounted), stats, shared: None }).unwrap();
    let (mut rows, mut expected) = (0, 0);
    while let Some(batch) = batches.next().await.unwrap() {
        assert!(batch.num_rows() < 10_000, "{} rows of two kilobytes at once", batch.num_rows());
        assert!(batch_bytes(&batch) <= of_query.taken(), "a batch counts while it is there");
        (rows, expected) = (rows + batch.num_rows() as u64, expected.max(2000 * batch.num_rows()));
    }
    assert_eq!((rows, of_query.taken()), (COUNT, 0), "it is given back");
    assert!(of_query.highest() >= expected, "memory is asked for");
    store.close(Duration::from_secs(10)).await;
}
