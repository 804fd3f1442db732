//! Compaction of parts that do not overlap in time: row groups are copied unchanged, and rows, roll-up and filters are
//! those of all spans together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use quiver_types::spans::{Place, RollupKind, RollupRow, RollupRows, Span, SpanFilter, read_spans};
use quiver_types::{Access, ReadStats, SpansBatch};

use super::rollup::{DAY, MINUTE_NS, open, open_within, traces_of};
use super::{attribute, read};
use crate::Store;
use crate::compact::rewrite::{RewriteCounts, SpanRewriter};
use crate::compact::spans::pieces::pieces;
use crate::compact::spans::rollups::rows_bytes;
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

/// Breaks if a minute is merged as a whole, however many spans it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_is_merged_piece_by_piece() {
    const MOST: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let whole = traces_of(0, 2_000, (0, 1));
    // Some spans come twice, in different parts.
    for n in 0..3 {
        store.write_spans(rows(&whole, |i| i % 3 == n || i % 7 == n)).await.unwrap();
        store.flush_all().await.unwrap();
    }
    let (parts, stats) = (store.visible().table("spans").to_vec(), ReadStats::default());
    assert_eq!(parts.len(), 3);
    let all: Vec<Range<u64>> = parts.iter().map(|part| 0..part.meta.rows).collect();
    assert_eq!(pieces(&parts, all.clone(), u64::MAX, &stats).await.unwrap(), std::slice::from_ref(&all));
    let cut = pieces(&parts, all.clone(), MOST, &stats).await.unwrap();
    assert!(cut.len() > 8, "{} pieces", cut.len());
    for (n, range) in all.iter().enumerate() {
        let end = cut.iter().fold(0, |at, piece| {
            assert_eq!(piece[n].start, at, "each row is in one piece");
            piece[n].end
        });
        assert_eq!(end, range.end);
    }
    for piece in &cut {
        let mut bytes = 0;
        for (part, rows) in parts.iter().zip(piece) {
            bytes += part.span_bytes(rows, &stats).await.unwrap();
        }
        assert!(bytes <= MOST, "a piece of {bytes} bytes");
    }
    // What is read at once for a roll-up is estimated by the same sizes.
    let mut whole_bytes = 0;
    for (part, rows) in parts.iter().zip(&all) {
        whole_bytes += part.span_bytes(rows, &stats).await.unwrap();
    }
    let half_of = |rows: &Range<u64>| -> Vec<Range<u64>> { (0..rows.end / 2).map(|row| row..row + 1).collect() };
    let halves: Vec<Vec<Range<u64>>> = all.iter().map(half_of).collect();
    let half = rows_bytes(&parts, &halves, &stats).await.unwrap();
    assert_eq!(rows_bytes(&parts, &[Vec::new(), Vec::new(), Vec::new()], &stats).await.unwrap(), 0);
    assert!(half.abs_diff(whole_bytes / 2) < whole_bytes / 50, "{half} of {whole_bytes} bytes");
    drop(parts);
    store.close(Duration::from_secs(10)).await;
    drop(store);

    let store = open_within(&dir, 8 << 20).await;
    store.compact_all().await.unwrap();
    let parts = store.visible().table("spans").to_vec();
    assert_eq!(parts.len(), 1);
    let groups = parts[0].span_groups(&stats).await.unwrap();
    assert!(groups.len() > 1, "row groups end by their bytes, too");
    let mut expected: Vec<Span> = Vec::new();
    read_spans(&whole.flat(), &mut expected).unwrap();
    expected.sort_by_key(|s| (s.trace_id, s.span_id));
    let found = read(&store.span_source(), &Access::full(), SpanFilter::All).await;
    assert!(found == expected, "{} of {} spans", found.len(), expected.len());
    store.close(Duration::from_secs(10)).await;
}

/// Changes nothing, and notes how much memory ingest is counted with meanwhile.
#[derive(Debug, Default)]
struct Watching {
    store: OnceLock<Weak<Store>>,
    highest: AtomicU64,
}

impl SpanRewriter for Watching {
    fn attributes(&self) -> &[&'static str] {
        &[]
    }

    fn concerns(&self, _: &[String]) -> bool {
        true
    }

    fn rewrite(&self, _: &mut SpansBatch) -> RewriteCounts {
        let store = self.store.get().and_then(Weak::upgrade).expect("the store is open");
        self.highest.fetch_max(store.ingest_memory_bytes(), Relaxed);
        RewriteCounts::default()
    }
}

/// Breaks if writes do not wait for what is taken by work on stored parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_on_parts_counts_with_ingest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.write_spans(traces_of(0, 10, (0, 1))).await.unwrap();
    store.flush_all().await.unwrap();
    let watching = Arc::new(Watching::default());
    watching.store.set(Arc::downgrade(&store)).unwrap();
    let rewriter: Arc<dyn SpanRewriter> = Arc::clone(&watching) as Arc<dyn SpanRewriter>;
    store.rewrite_spans((DAY / 1440) as i32, &rewriter).await.unwrap();
    let (highest, taken) = (watching.highest.load(Relaxed), 256 << 20);
    assert!(highest >= taken, "{highest} bytes while a part is worked on");
    assert!(store.ingest_memory_bytes() < taken, "{} bytes afterwards", store.ingest_memory_bytes());
    store.close(Duration::from_secs(10)).await;
}
