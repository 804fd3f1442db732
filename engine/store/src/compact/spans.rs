//! Merging parts of spans: minute by minute, since all of them are sorted by minute first. Memory: the rows of a few
//! minutes of all inputs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::Place;
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, MINUTE_NS, RESOURCE_PREFIX};
use quiver_types::{Millis, ReadStats, SpansBatch};

use super::merge::{begin_output, same_rows};
use super::plan::Plan;
use crate::core::{Core, Job};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::part::spans::{OwnColumn, OwnType, SpanIndex, SpanPartWriter, sorted};
use crate::part::{Part, PartMeta};

/// Rows that are merged at once, unless one minute has more.
const SLICE_ROWS: u64 = 64 * 1024;
/// Columns of attributes that an output may have.
const OWN_MAX: usize = 250;

/// Merges the inputs of a plan.
pub(super) async fn merge_spans(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<Vec<PartMeta>> {
    let stats = ReadStats::default();
    let mut indexes = Vec::with_capacity(inputs.len());
    for input in inputs {
        indexes.push(input.span_index(&stats).await?);
    }
    let own = own_columns(inputs, &stats).await?;
    let rows: u64 = inputs.iter().map(|p| p.meta.rows).sum();
    let bytes: u64 = inputs.iter().map(|p| p.meta.bytes).sum::<u64>().max(1);
    let share = core.settings.compaction.part_bytes as f64 / bytes as f64;
    let rows_max = if plan.level >= 2 { ((rows as f64 * share) as u64).max(1) } else { u64::MAX };
    let mut open: Option<(Millis, SpanPartWriter)> = None;
    let mut done = Vec::new();
    let (mut read, mut kept) = (vec![0u64; inputs.len()], 0u64);
    for slice in slices(&indexes, plan.window_ms) {
        let window = plan.window_ms.map_or(0, |w| (slice.start * (MINUTE_NS / 1_000_000)).div_euclid(w) * w);
        let mut batches: Vec<SpansBatch> = Vec::new();
        for (n, (input, index)) in inputs.iter().zip(&indexes).enumerate() {
            let range = index.starts((slice.start * MINUTE_NS, slice.end * MINUTE_NS - 1));
            if range.is_empty() {
                continue;
            }
            let schema = input.span_columns(&stats).await?;
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            for rows in input.span_rows(std::slice::from_ref(&range), &names, true, &stats).await? {
                let batch = rows.to_batch()?;
                read[n] += batch.len() as u64;
                batches.push(batch);
            }
        }
        let rows = sorted(&batches, |_| true);
        kept += rows.len() as u64;
        if open.as_ref().is_some_and(|(of, writer)| *of != window || writer.rows() >= rows_max) {
            close(&mut open, &mut done)?;
        }
        if open.is_none() {
            let spec = begin_output(core, job, plan, inputs, window).await?;
            open = Some((window, SpanPartWriter::create(&core.write_root, spec, own.clone())?));
        }
        if let Some((_, writer)) = &mut open {
            writer.push(&batches, &rows)?;
        }
        failpoint::hit("compact.in-merge");
        if core.stop.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the store closes"));
        }
    }
    close(&mut open, &mut done)?;
    for (input, found) in inputs.iter().zip(read) {
        same_rows(input, "rows", input.meta.rows, found)?;
    }
    let written: u64 = done.iter().map(|p| p.rows).sum();
    if written != kept {
        return Err(Error::internal(format!("a compaction of spans kept {kept} rows and wrote {written}")));
    }
    Ok(done)
}

fn close(open: &mut Option<(Millis, SpanPartWriter)>, done: &mut Vec<PartMeta>) -> Result<()> {
    if let Some((_, writer)) = open.take() {
        done.extend(writer.finish()?);
        failpoint::hit("compact.after-part");
    }
    Ok(())
}

/// Cuts the minutes of the inputs into ranges of about [`SLICE_ROWS`]; none crosses a window.
fn slices(indexes: &[Arc<SpanIndex>], window_ms: Option<Millis>) -> Vec<Range<i64>> {
    let minutes: BTreeSet<i64> = indexes.iter().flat_map(|i| i.minutes.iter().map(|m| m.0)).collect();
    let rows_of = |minute: i64| -> u64 {
        let of = |i: &Arc<SpanIndex>| {
            let range = i.starts((minute * MINUTE_NS, minute * MINUTE_NS));
            range.end - range.start
        };
        indexes.iter().map(of).sum()
    };
    let window = |minute: i64| window_ms.map_or(0, |w| (minute * (MINUTE_NS / 1_000_000)).div_euclid(w));
    let mut out: Vec<Range<i64>> = Vec::new();
    let mut rows = u64::MAX;
    for minute in minutes {
        let here = rows_of(minute);
        match out.last_mut() {
            Some(last) if rows.saturating_add(here) <= SLICE_ROWS && window(last.start) == window(minute) => {
                last.end = minute + 1;
                rows += here;
            }
            _ => {
                out.push(minute..minute + 1);
                rows = here;
            }
        }
    }
    out
}

/// Unites the columns of attributes of the inputs, those of most rows first.
async fn own_columns(inputs: &[Arc<Part>], stats: &ReadStats) -> Result<Vec<OwnColumn>> {
    let mut counts: HashMap<OwnColumn, u64, FixedState> = HashMap::default();
    for input in inputs {
        for field in input.span_columns(stats).await?.fields() {
            let name = field.name();
            let placed = name
                .strip_prefix(ATTRIBUTE_PREFIX)
                .map(|key| (Place::Span, key))
                .or_else(|| name.strip_prefix(RESOURCE_PREFIX).map(|key| (Place::Resource, key)));
            let kind = match field.data_type() {
                DataType::Utf8 => OwnType::Text,
                DataType::Int64 => OwnType::Int,
                DataType::Float64 => OwnType::Double,
                DataType::Boolean => OwnType::Bool,
                _ => continue,
            };
            if let Some((place, key)) = placed {
                *counts.entry(OwnColumn { place, key: key.to_owned(), kind }).or_default() += input.meta.rows;
            }
        }
    }
    let mut all: Vec<(OwnColumn, u64)> = counts.into_iter().collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut seen = BTreeSet::new();
    let mut own: Vec<OwnColumn> = Vec::new();
    for (column, _) in all {
        if own.len() < OWN_MAX && seen.insert((column.place, column.key.to_lowercase())) {
            own.push(column);
        }
    }
    own.sort();
    Ok(own)
}
