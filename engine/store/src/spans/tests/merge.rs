//! Compaction of parts whose times follow each other: row groups are taken over as they are, and rows, roll-up and
//! filters are those of all spans together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use quiver_types::spans::{Place, RollupKind, RollupRow, RollupRows, Span, SpanFilter, read_spans};
use quiver_types::{Access, ReadStats, SpansBatch};

use super::rollup::{DAY, MINUTE_NS, open, traces_of};
use super::{attribute, read};
use crate::memtable::spans::starts;
use crate::part::spans::{GROUP_ROWS, roll_up};

/// Keeps some rows.
fn rows(batch: &SpansBatch, keep: impl Fn(usize) -> bool) -> SpansBatch {
    let mask: BooleanArray = (0..batch.len()).map(|i| Some(keep(i))).collect();
    let spans = filter_record_batch(&batch.spans, &mask).unwrap();
    SpansBatch { spans, contexts: batch.contexts.clone() }
}

type About = (RollupKind, i64, String, String, u8, Option<[u8; 8]>);

/// Numbers, and those of a histogram.
type Counted = (u64, u64, Vec<(u16, u64)>);

/// Counts by what they are about.
fn counts(rows: &[RollupRow]) -> BTreeMap<About, Counted> {
    let about =
        |r: &RollupRow| (r.kind, r.minute, r.service.clone(), r.peer.clone(), r.sort, r.ids.map(|(_, id, _)| id));
    rows.iter().map(|r| (about(r), (r.counts.spans, r.counts.errors, r.counts.durations.iter().collect()))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_taken_over_and_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let whole =
        [traces_of(0, 10_000, (0, 30)), traces_of(10_000, 20_000, (30, 30)), traces_of(30_000, 3_000, (60, 30))];
    // Of the last minute of each: half of a trace comes with the next part, and some spans come twice.
    let late = |n: usize, i: usize| {
        let minute = starts(&whole[n])[i].div_euclid(MINUTE_NS) - DAY;
        n < 2 && minute == n as i64 * 30 + 29 && i % 8 >= 3
    };
    let twice = |n: usize, i: usize| late(n, i) && i % 8 == 3;
    for n in 0..3 {
        store.write_spans(rows(&whole[n], |i| !late(n, i) || twice(n, i))).await.unwrap();
        if n > 0 {
            store.write_spans(rows(&whole[n - 1], |i| late(n - 1, i))).await.unwrap();
        }
        store.flush_all().await.unwrap();
    }
    assert_eq!(store.visible().table("spans").len(), 3);
    store.compact_all().await.unwrap();
    let parts = store.visible().table("spans").to_vec();
    assert_eq!(parts.len(), 1);
    let stats = ReadStats::default();
    let groups = parts[0].span_groups(&stats).await.unwrap();
    let count = |g: &crate::part::spans::SpanGroup| (g.rows.end - g.rows.start) as usize;
    let sizes: Vec<usize> = groups.iter().map(count).collect();
    assert!(sizes.iter().rev().skip(1).any(|&rows| rows < GROUP_ROWS), "row groups were taken over: {sizes:?}");

    let mut expected: Vec<Span> = Vec::new();
    for batch in &whole {
        read_spans(&batch.flat(), &mut expected).unwrap();
    }
    expected.sort_by_key(|s| (s.trace_id, s.span_id));
    let source = store.span_source();
    let found = read(&source, &Access::full(), SpanFilter::All).await;
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "spans differ");

    let mut rolled = Vec::new();
    for batch in parts[0].whole_rollup(&stats).await.unwrap() {
        let rows = RollupRows::of(&batch).unwrap();
        rolled.extend((0..batch.num_rows()).filter_map(|i| rows.row(i)));
    }
    let (rolled, wanted) = (counts(&rolled), counts(&roll_up(&whole).unwrap()));
    assert_eq!(rolled.len(), wanted.len());
    for (about, of) in &wanted {
        assert_eq!(rolled.get(about), Some(of), "{about:?}");
    }

    // Each trace is found by its id, each value by its filter.
    for span in expected.iter().step_by(expected.len() / 40) {
        let of_trace = read(&source, &Access::full(), SpanFilter::Traces(Arc::new(vec![span.trace_id]))).await;
        assert_eq!(of_trace.len(), 8, "{:?}", span.trace_id);
        let url = span.attributes.text("url.path").unwrap();
        for place in [None, Some(Place::Span)] {
            let same = read(&source, &Access::full(), attribute(place, "url.path", url)).await;
            assert!(same.contains(span) && same.iter().all(|s| s.attributes.text("url.path") == Some(url)), "{url}");
        }
    }
    assert!(read(&source, &Access::full(), attribute(None, "url.path", "/none")).await.is_empty());
    store.close(Duration::from_secs(10)).await;
}
