//! Rewrites parts of spans: the same rows with other attributes, in a part that replaces the old one.
//!
//! This applies changed rules to spans that are already stored. Readers see a part either before or after, and a crash
//! leaves either of the two, as with any compaction. It runs on the compaction thread, so that no compaction replaces a
//! part meanwhile.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use quiver_types::spans::Place as AttributePlace;
use quiver_types::tables::spans;
use quiver_types::{ReadStats, SpansBatch};

use super::merge::confirm;
use super::output::{begin_output, same_rows};
use super::plan::Plan;
use super::spans::own_columns;
use super::spans::pieces::{group_bytes, piece_bytes, pieces};
use super::spans::steps::{Input, Step, steps};
use crate::core::{Core, Job};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::part::spans::{OwnColumn, OwnType, SpanPartWriter, sorted};
use crate::part::{Part, PartId, PartMeta};

/// Maximum number of attribute columns of a part.
const OWN_MAX: usize = 250;

/// Changes attributes of stored spans. It must be deterministic: the same span gives the same result every time,
/// because what was rewritten may be rewritten again.
pub trait SpanRewriter: Send + Sync + Debug {
    /// Text attributes that it may add; they get columns of their own.
    fn attributes(&self) -> &[&'static str];

    /// Tells whether spans of any of these services may change; an empty name stands for spans without a service.
    fn concerns(&self, services: &[String]) -> bool;

    /// Changes attributes and nothing else. Returns how many spans were examined and changed.
    fn rewrite(&self, batch: &mut SpansBatch) -> RewriteCounts;
}

/// How many spans were looked at and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RewriteCounts {
    /// Spans that were examined.
    pub scanned: u64,
    /// Spans that were changed.
    pub changed: u64,
}

impl RewriteCounts {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.changed += other.changed;
    }
}

/// The result of rewriting a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The part no longer exists: other parts have replaced it.
    Gone,
    /// The parts that replaced it; empty if nothing changed.
    Done(Vec<PartId>, RewriteCounts),
}

/// Rewrites a part.
pub(super) async fn rewrite(core: &Arc<Core>, id: PartId, rewriter: &dyn SpanRewriter) -> Result<Outcome> {
    let started = Instant::now();
    let found = core.shared.visible().parts.iter().find(|p| p.meta.id == id).map(Arc::clone);
    let Some(part) = found else { return Ok(Outcome::Gone) };
    let listed = !part.meta.services_all && !part.meta.services.is_empty();
    if listed && !rewriter.concerns(&part.meta.services) {
        return Ok(Outcome::Done(Vec::new(), RewriteCounts::default()));
    }
    let mut seen = RewriteCounts::default();
    if !changes(core, &part, rewriter, &mut seen).await? {
        return Ok(Outcome::Done(Vec::new(), seen));
    }
    core.may_commit().await?;
    core.disk_space.for_compaction(part.meta.bytes, core.settings.generation_bytes())?;
    let plan = Plan {
        table: spans::TABLE.name.to_owned(),
        day: part.meta.day,
        level: part.meta.level,
        window_ms: None,
        inputs: vec![id],
    };
    let job = core.begin_job();
    let (output, rewritten) = write(core, &job, &plan, &part, rewriter).await?;
    confirm(core, &output).await?;
    let made = vec![output.id];
    // The rows of the part change, and the log of writes does not know their times, so its cached results must be
    // invalidated.
    core.shared.dropping();
    let replacement = super::Replacement { job, inputs: vec![part], added: vec![output], started };
    let replaced = super::replace(core, &plan, replacement).await;
    core.shared.dropping();
    replaced?;
    Ok(Outcome::Done(made, rewritten))
}

/// Splits the rows of a part into ranges of a few minutes each, or less if they are large.
async fn slices(core: &Core, part: &Arc<Part>, stats: &ReadStats) -> Result<Vec<std::ops::Range<u64>>> {
    let inputs = [Input { index: part.span_index(stats).await?, groups: Vec::new() }];
    let of_step = |(_, step)| match step {
        Step::Rows(mut ranges) => ranges.pop(),
        Step::Copy(_, group) => Some(group.rows),
    };
    let mut out = Vec::new();
    for rows in steps(&inputs, None).into_iter().filter_map(of_step).filter(|r| !r.is_empty()) {
        let most = piece_bytes(core.settings.compaction_memory_bytes());
        out.extend(pieces(std::slice::from_ref(part), vec![rows], most, stats).await?.into_iter().flatten());
    }
    Ok(out)
}

/// Tells whether any span changes. Stops after the first slice with a change.
async fn changes(core: &Core, part: &Arc<Part>, rewriter: &dyn SpanRewriter, seen: &mut RewriteCounts) -> Result<bool> {
    let stats = ReadStats::default();
    for range in slices(core, part, &stats).await? {
        for mut batch in part.span_batches(std::slice::from_ref(&range), &stats).await? {
            seen.add(rewriter.rewrite(&mut batch));
        }
        if seen.changed > 0 {
            return Ok(true);
        }
        core.may_compact()?;
    }
    Ok(false)
}

async fn write(
    core: &Core,
    job: &Job,
    plan: &Plan,
    part: &Arc<Part>,
    rewriter: &dyn SpanRewriter,
) -> Result<(PartMeta, RewriteCounts)> {
    let stats = ReadStats::default();
    let inputs = std::slice::from_ref(part);
    let mut own = own_columns(inputs, &stats).await?;
    for key in rewriter.attributes() {
        let is_there = own.iter().any(|c| c.place == AttributePlace::Span && c.key.eq_ignore_ascii_case(key));
        if !is_there && own.len() < OWN_MAX {
            own.push(OwnColumn { place: AttributePlace::Span, key: (*key).to_owned(), kind: OwnType::Text });
        }
    }
    own.sort();
    let spec = begin_output(core, job, plan, inputs, 0).await?;
    let group_bytes = group_bytes(piece_bytes(core.settings.compaction_memory_bytes()));
    let mut writer = SpanPartWriter::create(&core.output.root, spec, own, true)?.with_group_bytes(group_bytes);
    let (mut rewritten, mut rows) = (RewriteCounts::default(), 0u64);
    for range in slices(core, part, &stats).await? {
        let mut batches = part.span_batches(std::slice::from_ref(&range), &stats).await?;
        for batch in &mut batches {
            rewritten.add(rewriter.rewrite(batch));
        }
        let sorted = sorted(&batches, |_| true)?;
        rows += sorted.rows.len() as u64;
        writer.push(&sorted.batches, &sorted.rows)?;
        failpoint::hit("compact.in-merge");
        core.may_compact()?;
    }
    same_rows(part, "rows", part.meta.rows, rows)?;
    let output = writer.finish()?.ok_or_else(|| Error::internal("a part of spans was rewritten to nothing"))?;
    failpoint::hit("compact.after-part");
    if output.rows != rows {
        return Err(Error::internal(format!("rewriting gave {rows} rows and wrote {}", output.rows)));
    }
    Ok((output, rewritten))
}
