//! Reports of spans in random order count as their first reports alone.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::*;
use crate::spans::{ContextFields, RollupKind, SHARED, SpanFields, SpansBuilder, Value};

const MINUTE: i64 = 60_000_000_000;

/// What all reports of a span say.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Of {
    id: u64,
    parent: u64,
    service: &'static str,
    kind: u8,
    shared: bool,
    peer: &'static str,
}

/// A report: when it was received, its start, its duration, whether it failed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Report(Of, i64, i64, i64, bool);

impl Report {
    fn rank(&self) -> (i64, i64, u16, bool) {
        (self.1, self.2, crate::spans::bucket(self.3), self.4)
    }
}

fn of(id: u64, parent: u64, service: &'static str, kind: u8, peer: &'static str) -> Of {
    Of { id, parent, service, kind, shared: false, peer }
}

fn batch(reports: &[Report]) -> RecordBatch {
    let mut b = SpansBuilder::default();
    for &Report(of, received, start, duration, error) in reports {
        let context = b.context(&ContextFields { service: of.service, ..Default::default() });
        if !of.peer.is_empty() {
            b.attributes(&mut vec![("peer.service", Value::Text(of.peer))]);
        }
        b.span(&SpanFields {
            trace_id: 7u128.to_be_bytes(),
            span_id: of.id.to_be_bytes(),
            parent: of.parent.to_be_bytes(),
            context,
            name: "op",
            kind: of.kind,
            start,
            end: start + duration,
            status: if error { 2 } else { 0 },
            marks: if of.shared { SHARED } else { 0 },
            received,
            ..Default::default()
        });
    }
    b.finish().flat()
}

/// Sort of a row, minute, service, peer, sort, id; spans, errors, durations.
type Calls = BTreeMap<(u8, i64, String, String, u8, u64), (u64, u64, Vec<(u16, u64)>)>;

fn calls(mut builder: RollupBuilder, reports: &[Report], one_by_one: bool) -> Calls {
    if one_by_one {
        for one in reports {
            builder.push(&batch(&[*one])).unwrap();
        }
    } else {
        builder.push(&batch(reports)).unwrap();
    }
    let rows = builder.rows(|kind| matches!(kind, RollupKind::EdgeMinute | RollupKind::Open));
    let about = |row: &crate::spans::RollupRow| {
        let id = row.ids.map_or(0, |(_, id, _)| u64::from_be_bytes(id));
        (row.kind as u8, row.minute, row.service.clone(), row.peer.clone(), row.sort, id)
    };
    let mut all = Calls::new();
    for row in &rows {
        let durations = row.counts.durations.iter().filter(|(_, count)| *count > 0).collect();
        all.insert(about(row), (row.counts.spans, row.counts.errors, durations));
    }
    all
}

#[test]
fn the_first_reports_count_in_any_order() {
    let spans = [
        of(1, 0, "front", 2, ""),
        of(2, 1, "front", 3, "back"),
        of(3, 2, "back", 2, ""),
        of(4, 3, "back", 3, "db"),
        of(5, 99, "lone", 2, ""),
        of(6, 1, "front", 3, "mail"),
        Of { shared: true, ..of(6, 1, "mail", 2, "") },
        of(7, 6, "mail", 1, ""),
        // Halves whose second one is not marked as such.
        of(8, 1, "front", 3, "pay"),
        of(8, 1, "pay", 2, ""),
        of(9, 8, "pay", 1, ""),
        of(10, 0, "cron", 3, "mail"),
        of(10, 0, "mail", 2, ""),
    ];
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..2_000 {
        let mut reports: Vec<Report> = Vec::new();
        for span in spans {
            // Some spans are missing, some are told of up to three times.
            for _ in 0..random(4) {
                let start = random(4) as i64 * MINUTE + random(1_000) as i64;
                reports.push(Report(span, random(3) as i64, start, 1 << random(20), random(4) == 0));
            }
        }
        let mut first: Vec<Report> = Vec::new();
        for report in &reports {
            match first.iter_mut().find(|known| known.0 == report.0) {
                Some(known) if report.rank() < known.rank() => *known = *report,
                Some(_) => {}
                None => first.push(*report),
            }
        }
        let expected = calls(RollupBuilder::default(), &first, false);
        for at in (1..reports.len()).rev() {
            reports.swap(at, random(at as u64 + 1) as usize);
        }
        assert_eq!(calls(RollupBuilder::default(), &reports, true), expected, "{round}: {reports:?}");
        // As they stand in a part.
        reports.sort_by_key(|report| (report.2, report.0.id));
        assert_eq!(calls(RollupBuilder::in_order(), &reports, false), expected, "{round}: {reports:?}");
    }
}

#[test]
fn reports_far_apart_are_two_calls() {
    let near = |minutes: i64| Report(of(1, 0, "front", 2, ""), 5 - minutes, minutes * MINUTE, 100, false);
    let count = |reports: &[Report], builder| calls(builder, reports, false).values().map(|of| of.0).sum::<u64>();
    for (minutes, expected) in [(1, 1), (10, 1), (11, 2)] {
        let both = [near(0), near(minutes)];
        assert_eq!(count(&both, RollupBuilder::default()), expected, "{minutes} minutes");
        assert_eq!(count(&both, RollupBuilder::in_order()), expected, "{minutes} minutes");
        assert_eq!(count(&[both[1], both[0]], RollupBuilder::default()), expected, "{minutes} minutes");
    }
    // The call that came to count later is known as long as any.
    let third = Report(of(1, 0, "front", 2, ""), 9, 18 * MINUTE, 100, false);
    assert_eq!(count(&[near(0), near(9), third], RollupBuilder::in_order()), 1);
}
