//! Merges parts of spans minute by minute, as all of them are sorted by minute first. Row groups that do not overlap
//! rows of other parts are copied in encoded form. Memory: the rows of a few minutes of all inputs, or of part of a minute if
//! they are large, and one row group.

pub(crate) mod pieces;
pub(crate) mod rollups;
pub(super) mod steps;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Place, RollupRow};
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, RESOURCE_PREFIX};
use quiver_types::{Millis, ReadStats, SpansBatch};

use super::output::{begin_output, same_rows};
use super::plan::Plan;
use crate::core::{Core, Job};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::part::spans::{OwnColumn, OwnType, SpanPartWriter, can_hold, sorted};
use crate::part::{Part, PartMeta};
use pieces::{group_bytes, piece_bytes, pieces};
use steps::{Input, Step, steps};

/// Maximum number of attribute columns of an output.
const OWN_MAX: usize = 250;

/// Merges the inputs of a plan.
pub(super) async fn merge_spans(core: &Core, job: &Job, plan: &Plan, parts: &[Arc<Part>]) -> Result<Vec<PartMeta>> {
    let stats = ReadStats::default();
    // If a span has several reports, the one in the earliest part is the first.
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.meta.id);
    let parts = &parts[..];
    let own = own_columns(parts, &stats).await?;
    let memory_bytes = core.settings.compaction_memory_bytes();
    let piece_bytes = piece_bytes(memory_bytes);
    let mut inputs = Vec::with_capacity(parts.len());
    for part in parts {
        let fits = can_hold(&own, &*part.span_columns(&stats).await?);
        let mut groups = if fits { part.span_groups(&stats).await? } else { Vec::new() };
        // A copy is in memory as a whole.
        groups.retain(|group| group.bytes <= 2 * piece_bytes);
        inputs.push(Input { index: part.span_index(&stats).await?, groups });
    }
    let mut rollup = rollups::merged(parts, &inputs, memory_bytes / 2, &stats).await?;
    if rollup.is_none() {
        // The roll-up must be built from the rows, so all of them are read and none are copied.
        for input in &mut inputs {
            input.groups.clear();
        }
    }
    let rows: u64 = parts.iter().map(|p| p.meta.rows).sum();
    let bytes: u64 = parts.iter().map(|p| p.meta.bytes).sum::<u64>().max(1);
    let rows_max = plan.rows_max(core.settings.compaction.part_bytes, rows, bytes);
    let mut open: Option<(Millis, SpanPartWriter)> = None;
    let mut done = Vec::new();
    let (mut read, mut kept) = (vec![0u64; parts.len()], 0u64);
    for (window, step) in steps(&inputs, plan.window_ms) {
        if open.as_ref().is_some_and(|(of, writer)| *of != window || writer.rows() >= rows_max) {
            close(&mut open, &mut done, &mut rollup, false)?;
        }
        let writer = match &mut open {
            Some((_, writer)) => writer,
            none => {
                let spec = begin_output(core, job, plan, parts, window).await?;
                let writer = SpanPartWriter::create(&core.output.root, spec, own.clone(), rollup.is_none())?;
                &mut none.insert((window, writer.with_group_bytes(group_bytes(piece_bytes)))).1
            }
        };
        match step {
            Step::Copy(n, group) => {
                writer.copy(&parts[n], &inputs[n].index, &group).await?;
                read[n] += group.rows.end - group.rows.start;
                kept += group.rows.end - group.rows.start;
            }
            Step::Rows(ranges) => {
                for ranges in pieces(parts, ranges, piece_bytes, &stats).await? {
                    kept += merge_rows(parts, &ranges, writer, &mut read, &stats).await?;
                    core.may_compact()?;
                }
            }
        }
        failpoint::hit("compact.in-merge");
        core.may_compact()?;
    }
    close(&mut open, &mut done, &mut rollup, true)?;
    for (part, found) in parts.iter().zip(read) {
        same_rows(part, "rows", part.meta.rows, found)?;
    }
    let written: u64 = done.iter().map(|p| p.rows).sum();
    if written != kept {
        return Err(Error::internal(format!("a compaction of spans kept {kept} rows and wrote {written}")));
    }
    Ok(done)
}

/// Merges rows of each input into an output. Adds what was read of each; returns how many rows were kept.
async fn merge_rows(
    parts: &[Arc<Part>],
    ranges: &[Range<u64>],
    writer: &mut SpanPartWriter,
    read: &mut [u64],
    stats: &ReadStats,
) -> Result<u64> {
    let mut batches: Vec<SpansBatch> = Vec::new();
    for (n, (part, range)) in parts.iter().zip(ranges).enumerate().filter(|(_, (_, r))| !r.is_empty()) {
        let found = part.span_batches(std::slice::from_ref(range), stats).await?;
        read[n] += found.iter().map(|batch| batch.len() as u64).sum::<u64>();
        batches.extend(found);
    }
    let sorted = sorted(&batches, |_| true)?;
    writer.push(&sorted.batches, &sorted.rows)?;
    Ok(sorted.rows.len() as u64)
}

/// Finishes an output. If the roll-up was merged beforehand, the output gets the entries that belong to its rows; the
/// last one gets the rest.
fn close(
    open: &mut Option<(Millis, SpanPartWriter)>,
    done: &mut Vec<PartMeta>,
    rollup: &mut Option<Vec<RollupRow>>,
    last: bool,
) -> Result<()> {
    if let Some((_, writer)) = open.take() {
        let part = match rollup {
            Some(rows) => {
                let until = if last { i64::MAX } else { writer.last_minute() };
                writer.finish_with(&rollups::take_until(rows, until))?
            }
            None => writer.finish()?,
        };
        done.extend(part);
        failpoint::hit("compact.after-part");
    }
    Ok(())
}

/// The union of the inputs' attribute columns; if there are too many, those with the most rows.
pub(super) async fn own_columns(inputs: &[Arc<Part>], stats: &ReadStats) -> Result<Vec<OwnColumn>> {
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
