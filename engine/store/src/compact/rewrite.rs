//! Rewriting parts of spans: the same rows with other attributes, in a part that takes the place of the old one.
//!
//! This is how a change of rules reaches what is stored already: each reader sees a part before or after, and a crash
//! leaves one of both, as with any compaction. It runs on the thread of compactions, so that none takes a part away
//! meanwhile.

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
use super::spans::steps::{Input, Step, steps};
use crate::core::{Core, Job};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::part::spans::{OwnColumn, OwnType, SpanPartWriter, sorted};
use crate::part::{Part, PartId, PartMeta};

/// Columns of attributes that a part may have.
const OWN_MAX: usize = 250;

/// Changes attributes of stored spans. It must give the same for the same span whenever it is asked: what was rewritten
/// may be rewritten again.
pub trait SpanRewriter: Send + Sync + Debug {
    /// Text attributes that it may add: they get columns of their own.
    fn attributes(&self) -> &[&'static str];

    /// Says whether spans of any of these services may change; an empty name: no service.
    fn concerns(&self, services: &[String]) -> bool;

    /// Changes attributes, and nothing else; says how many spans it looked at and how many it changed.
    fn rewrite(&self, batch: &mut SpansBatch) -> Rewritten;
}

/// How many spans were looked at and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewritten {
    /// Spans that were looked at.
    pub scanned: u64,
    /// Those that were changed.
    pub changed: u64,
}

impl Rewritten {
    /// Adds what was counted of another part.
    pub fn add(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.changed += other.changed;
    }
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is not there any more: others took its place.
    Gone,
    /// These have taken its place; none: it stays as it is.
    Done(Vec<PartId>, Rewritten),
}

/// Rewrites a part.
pub(super) async fn rewrite(core: &Arc<Core>, id: PartId, rewriter: &dyn SpanRewriter) -> Result<Outcome> {
    let started = Instant::now();
    let found = core.shared.visible().parts.iter().find(|p| p.meta.id == id).map(Arc::clone);
    let Some(part) = found else { return Ok(Outcome::Gone) };
    let listed = !part.meta.services_all && !part.meta.services.is_empty();
    if listed && !rewriter.concerns(&part.meta.services) {
        return Ok(Outcome::Done(Vec::new(), Rewritten::default()));
    }
    let mut seen = Rewritten::default();
    if !changes(core, &part, rewriter, &mut seen).await? {
        return Ok(Outcome::Done(Vec::new(), seen));
    }
    core.room.for_compaction(part.meta.bytes, core.settings.generation_bytes())?;
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
    // Its rows are others now, at times that the log of writes knows nothing of.
    core.shared.dropping();
    let replaced = super::replace(core, &plan, job, vec![part], vec![output], started).await;
    core.shared.dropping();
    replaced?;
    Ok(Outcome::Done(made, rewritten))
}

/// The rows of a part, some minutes at a time.
async fn slices(part: &Part, stats: &ReadStats) -> Result<Vec<std::ops::Range<u64>>> {
    let inputs = [Input { index: part.span_index(stats).await?, groups: Vec::new() }];
    let of_step = |(_, step)| match step {
        Step::Rows(mut ranges) => ranges.pop(),
        Step::Copy(_, group) => Some(group.rows),
    };
    Ok(steps(&inputs, None).into_iter().filter_map(of_step).filter(|r| !r.is_empty()).collect())
}

/// Says whether any span changes; looks no further than the first slice with one.
async fn changes(core: &Core, part: &Part, rewriter: &dyn SpanRewriter, seen: &mut Rewritten) -> Result<bool> {
    let stats = ReadStats::default();
    for range in slices(part, &stats).await? {
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
) -> Result<(PartMeta, Rewritten)> {
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
    let mut writer = SpanPartWriter::create(&core.write_root, spec, own, true)?;
    let (mut rewritten, mut rows) = (Rewritten::default(), 0u64);
    for range in slices(part, &stats).await? {
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
