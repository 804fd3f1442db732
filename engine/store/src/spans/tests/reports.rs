//! Different reports of the same span, in every state: calls are those of the first report, compared with a naive
//! computation.

use std::collections::BTreeMap;
use std::time::Duration;

use quiver_types::SpansBatch;
use quiver_types::spans::{
    ContextFields, Counts, OPEN_SHARED, RollupKind, RollupRequest, RollupRow, SpanFields, SpansBuilder, bucket,
};

use super::rollup::{DAY, MINUTE_NS, open, read};

/// A report of one of the two sides of a call: trace, side, received, start, duration, whether it failed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Report {
    trace: u64,
    side: usize,
    received: i64,
    start: i64,
    duration: i64,
    error: bool,
}

/// Id, parent, service and kind of the sides.
const SIDES: [(u64, u64, &str, u8); 3] = [(1, 0, "front", 2), (2, 1, "front", 3), (3, 2, "back", 2)];

fn batch(reports: &[Report]) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for report in reports {
        let (id, parent, service, kind) = SIDES[report.side];
        let context = b.context(&ContextFields { service, ..Default::default() });
        b.span(&SpanFields {
            trace_id: u128::from(report.trace).to_be_bytes(),
            span_id: id.to_be_bytes(),
            parent: parent.to_be_bytes(),
            context,
            name: "op",
            kind,
            start: report.start,
            end: report.start + report.duration,
            status: if report.error { 2 } else { 0 },
            received: report.received,
            ..Default::default()
        });
    }
    b.finish()
}

/// By the service that is called: calls, errors, durations.
type Called = BTreeMap<String, (u64, u64, BTreeMap<u16, u64>)>;

/// Gives what is called, also by callers that are found only when the trace is looked up.
fn called(rows: &[RollupRow]) -> Called {
    let mut all = Called::new();
    let mut add = |service: &str, counts: &Counts| {
        let of = all.entry(service.to_owned()).or_default();
        of.0 += counts.spans;
        of.1 += counts.errors;
        for (bucket, count) in counts.durations.iter().filter(|(_, count)| *count > 0) {
            *of.2.entry(bucket).or_default() += count;
        }
    };
    for row in rows {
        match row.kind {
            RollupKind::EdgeMinute | RollupKind::EdgeHour => add(&row.peer, &row.counts),
            RollupKind::Open if row.sort & !OPEN_SHARED == 2 => add(&row.service, &row.counts),
            _ => {}
        }
    }
    all
}

/// The same, of the reports.
fn expected(reports: &[Report]) -> Called {
    let rank = |r: &Report| (r.received, r.start, bucket(r.duration), r.error);
    let mut first: BTreeMap<(u64, usize), Report> = BTreeMap::new();
    for report in reports {
        let known = first.entry((report.trace, report.side)).or_insert(*report);
        if rank(report) < rank(known) {
            *known = *report;
        }
    }
    let mut all = Called::new();
    for report in first.values().filter(|report| SIDES[report.side].3 == 2) {
        let of = all.entry(SIDES[report.side].2.to_owned()).or_default();
        of.0 += 1;
        of.1 += u64::from(report.error);
        *of.2.entry(bucket(report.duration)).or_default() += 1;
    }
    all
}

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Writes rounds of reports, most of them of spans that were told of before, within some minutes from a first one on.
async fn every_state(seed: u64, first: i64, minutes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let source = store.span_source();
    let request = RollupRequest::Graph(DAY - 1440, DAY + 1439);
    let (mut seed, mut all) = (seed, Vec::<Report>::new());
    for round in 0..8 {
        let mut written: Vec<Report> = Vec::new();
        // At first one of each.
        for n in 0..if round == 0 { 72 } else { 24 } {
            let which = if round == 0 { n } else { random(&mut seed, 72) };
            written.push(Report {
                trace: 1 + which / 3,
                side: (which % 3) as usize,
                received: DAY * MINUTE_NS + round * 1_000 + random(&mut seed, 3) as i64,
                start: (DAY + first + random(&mut seed, minutes) as i64) * MINUTE_NS + random(&mut seed, 1_000) as i64,
                duration: 1 << random(&mut seed, 30),
                error: random(&mut seed, 4) == 0,
            });
        }
        store.write_spans(batch(&written)).await.unwrap();
        all.extend(written);
        let found = called(&read(&source, request.clone()).await.0);
        assert_eq!(found, expected(&all), "round {round}, some of it flushed");
        if random(&mut seed, 2) == 0 {
            store.flush_all().await.unwrap();
            let found = called(&read(&source, request.clone()).await.0);
            assert_eq!(found, expected(&all), "round {round}, flushed");
        }
        if round == 4 {
            store.compact_all().await.unwrap();
            let found = called(&read(&source, request.clone()).await.0);
            assert_eq!(found, expected(&all), "round {round}, compacted");
        }
    }
    store.flush_all().await.unwrap();
    store.compact_all().await.unwrap();
    assert_eq!(called(&read(&source, request).await.0), expected(&all), "compacted");
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_reports_count_in_every_state() {
    for seed in 1..6 {
        every_state(seed, 3, 8).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_reports_count_across_midnight() {
    for seed in 1..6 {
        every_state(seed, -4, 8).await;
    }
}
