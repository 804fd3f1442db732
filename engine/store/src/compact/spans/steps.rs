//! Plans the steps of a compaction of spans, in order: row groups that overlap nothing else are copied in encoded form;
//! all other rows are read, sorted and rewritten, a few minutes at a time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use quiver_types::Millis;
use quiver_types::tables::spans::{MINUTE_NS, minute_of};

use crate::part::spans::{GROUP_ROWS, SpanGroup, SpanIndex};

/// Rows that are merged at once, unless a single minute has more.
const SLICE_ROWS: u64 = 64 * 1024;
/// Smaller row groups are rewritten rather than copied.
const COPIED_ROWS_MIN: u64 = GROUP_ROWS as u64 / 2;

/// An input of the merge, with the row groups of it that can be copied.
#[derive(Debug)]
pub(in crate::compact) struct Input {
    pub(in crate::compact) index: Arc<SpanIndex>,
    /// Row groups that can be copied.
    pub(in crate::compact) groups: Vec<SpanGroup>,
}

/// One step of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::compact) enum Step {
    /// Rows of each input that are to be merged.
    Rows(Vec<Range<u64>>),
    /// A row group of an input that is to be copied.
    Copy(usize, SpanGroup),
}

/// The steps of the merge, each with the time window it belongs to.
pub(in crate::compact) fn steps(inputs: &[Input], window_ms: Option<Millis>) -> Vec<(Millis, Step)> {
    let window = |minute: i64| window_ms.map_or(0, |w| (minute * (MINUTE_NS / 1_000_000)).div_euclid(w) * w);
    let minutes = |group: &SpanGroup| (minute_of(group.starts.0), minute_of(group.starts.1));
    let alone = |n: usize, group: &SpanGroup| {
        let others = inputs.iter().enumerate().filter(|(m, _)| *m != n);
        let (first, last) = minutes(group);
        group.rows.end - group.rows.start >= COPIED_ROWS_MIN
            && window(first) == window(last)
            && others.into_iter().all(|(_, other)| other.index.starts(group.starts).is_empty())
    };
    let mut copies: Vec<(usize, &SpanGroup)> = Vec::new();
    for (n, input) in inputs.iter().enumerate() {
        copies.extend(input.groups.iter().filter(|group| alone(n, group)).map(|group| (n, group)));
    }
    copies.sort_by_key(|(_, group)| (minutes(group).0, group.rows.start));
    let mut out = Vec::new();
    let mut done = vec![0u64; inputs.len()];
    for (n, group) in copies {
        let first = minutes(group).0;
        let until = |(m, input): (usize, &Input)| {
            if m == n { group.rows.start } else { input.index.starts((first * MINUTE_NS, first * MINUTE_NS)).start }
        };
        let until: Vec<u64> = inputs.iter().enumerate().map(until).collect();
        rows_between(inputs, &done, &until, window, &mut out);
        out.push((window(first), Step::Copy(n, group.clone())));
        done = until;
        done[n] = group.rows.end;
    }
    let until: Vec<u64> = inputs.iter().map(|input| input.index.total).collect();
    rows_between(inputs, &done, &until, window, &mut out);
    out
}

/// Splits rows, at minute boundaries, into steps of about [`SLICE_ROWS`] that do not cross a window.
fn rows_between(
    inputs: &[Input],
    from: &[u64],
    until: &[u64],
    window: impl Fn(i64) -> Millis,
    out: &mut Vec<(Millis, Step)>,
) {
    let ranges: Vec<Range<u64>> = from.iter().zip(until).map(|(from, until)| *from..*until).collect();
    let of_input = |(input, range): (&Input, &Range<u64>)| -> Vec<i64> {
        if range.is_empty() { Vec::new() } else { input.index.minutes_in(range).map(|m| m.0).collect() }
    };
    let minutes: BTreeSet<i64> = inputs.iter().zip(&ranges).flat_map(of_input).collect();
    let mut open: Option<(Millis, Vec<Range<u64>>, u64)> = None;
    for minute in minutes {
        let of_minute = |(input, range): (&Input, &Range<u64>)| {
            let rows = input.index.starts((minute * MINUTE_NS, minute * MINUTE_NS));
            let start = rows.start.max(range.start).min(range.end);
            start..rows.end.min(range.end).max(start)
        };
        let here: Vec<Range<u64>> = inputs.iter().zip(&ranges).map(of_minute).collect();
        let rows: u64 = here.iter().map(|r| r.end - r.start).sum();
        match &mut open {
            Some((of, slice, total)) if *of == window(minute) && *total + rows <= SLICE_ROWS => {
                for (range, here) in slice.iter_mut().zip(here).filter(|(_, here)| !here.is_empty()) {
                    *range = if range.is_empty() { here } else { range.start..here.end };
                }
                *total += rows;
            }
            _ => {
                out.extend(open.take().map(|(window, slice, _)| (window, Step::Rows(slice))));
                open = Some((window(minute), here, rows));
            }
        }
    }
    out.extend(open.map(|(window, slice, _)| (window, Step::Rows(slice))));
}
