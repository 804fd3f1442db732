//! Range queries that are partly answered by cached results: looks those up, evaluates the rest, and joins both.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use quiver_query::{QueryContext, QueryMemory, give_way};
use quiver_types::{Error, Result, SeriesSnapshot, Version};

use super::evaluation::{EvaluationResult, QueryTimings, too_many_rows};
use super::job::Job;
use super::{PromqlEngine, QueryOptions, grid};
use crate::annotation::Annotations;
use crate::ast::{Expr, ValueType};
use crate::cache::{Dependence, Entry, Key, Piece, ResultCache, dependence, stitch};
use crate::kernel::Grid;
use crate::plan::QueryTimes;
use crate::plan::memory::Room;
use crate::print::print;
use crate::result::{QueryValue, StepResult};
use crate::type_check::type_of;

impl PromqlEngine {
    /// How the result of a query is cached; `None` if it cannot be.
    pub(super) fn cacheable(
        &self,
        expr: &Expr,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
    ) -> Option<Cacheable> {
        if !self.results.is_on()
            || options.no_cache
            || options.stats
            || times.step_ms == 0
            || type_of(expr) != ValueType::Vector
        {
            return None;
        }
        let lookback_ms = options.lookback_ms.unwrap_or(self.settings.lookback_ms);
        let rests_on = dependence(expr, times.step_ms, lookback_ms)?;
        let key = Key {
            expr: print(expr),
            step_ms: times.step_ms,
            phase_ms: times.start_ms.rem_euclid(times.step_ms),
            lookback_ms,
            access: ctx.access.clone(),
        };
        Some(Cacheable { key, rests_on })
    }

    pub(super) fn range_job(
        &self,
        expr: Expr,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
        Cacheable { key, rests_on }: Cacheable,
    ) -> RangeJob {
        let snapshot = self.source.snapshot();
        let grid = grid(times);
        let kept = self.results.get(&key);
        let usable = kept.as_ref().map_or(0..0, |entry| usable(entry, grid, &rests_on, &*snapshot));
        let gaps: Vec<Range<usize>> = if usable.is_empty() {
            std::iter::once(0..grid.steps).collect()
        } else {
            [0..usable.start, usable.end..grid.steps].into_iter().filter(|gap| !gap.is_empty()).collect()
        };
        let job = |gap: &Range<usize>| {
            let (start_ms, end_ms) = (grid.at(gap.start), grid.at(gap.end - 1));
            let times =
                QueryTimes { start_ms, end_ms: if gap.end == grid.steps { times.end_ms } else { end_ms }, ..times };
            self.job(expr.clone(), times, options, ctx, Arc::clone(&snapshot))
        };
        let jobs = gaps.iter().map(|gap| (gap.start, job(gap))).collect();
        self.results.count(usable.len(), grid.steps - usable.len());
        let kept = kept.filter(|_| !usable.is_empty()).map(|entry| (entry.result, usable));
        let room = Room::new(&self.query, ctx);
        RangeJob { grid, kept, jobs, key, version: snapshot.version(), results: Arc::clone(&self.results), room }
    }
}

/// A query whose result can be cached.
pub(super) struct Cacheable {
    pub(super) key: Key,
    /// The times that its steps depend on.
    pub(super) rests_on: Dependence,
}

/// Values of a cached result that are put into an answer on the caller's thread.
const QUICK_VALUES: usize = 100_000;

/// The steps of a grid that a cached result can still answer.
pub(super) fn usable(entry: &Entry, grid: Grid, rests_on: &Dependence, now: &dyn SeriesSnapshot) -> Range<usize> {
    let kept = entry.result.grid;
    let first = kept.start.max(grid.start);
    let last = kept.end().min(grid.end());
    // A result from after this query's snapshot contains data that this query must not see.
    if first > last || entry.version.written > now.version().written {
        return 0..0;
    }
    // Both grids have the same phase, so their steps coincide.
    let from = ((first - grid.start) / grid.step_ms) as usize;
    let overlap = Grid { start: first, step_ms: grid.step_ms, steps: ((last - first) / grid.step_ms) as usize + 1 };
    let steps = rests_on.unchanged(overlap, |range| now.first_change(entry.version, range));
    from..from + steps
}

/// A range query that may be partly answered by a cached result.
pub(super) struct RangeJob {
    grid: Grid,
    /// A cached result, and the steps of the grid that it answers.
    kept: Option<(Arc<StepResult>, Range<usize>)>,
    /// What has to be evaluated: the first step within the grid, and the job.
    jobs: Vec<(usize, Job)>,
    key: Key,
    version: Version,
    results: Arc<ResultCache>,
    room: Room,
}

impl RangeJob {
    pub(super) async fn evaluate(self) -> Result<EvaluationResult> {
        let (mut annotations, mut timings) = (Annotations::default(), QueryTimings::default());
        let mut memory = QueryMemory::default();
        let (mut pieces, mut keep, mut rows_max) = (Vec::new(), true, None);
        for (at, job) in self.jobs {
            let run = Arc::clone(&job.planner.run);
            rows_max = Some(run.ctx.limits.rows_max);
            let evaluated = job.evaluate().await?;
            memory.0.extend(Arc::into_inner(evaluated.memory).unwrap_or_default().0);
            let Some(QueryValue::Matrix(result)) = Arc::into_inner(evaluated.value) else {
                return Err(Error::internal("a range query of a vector gave no matrix"));
            };
            keep &= evaluated.annotations.is_empty() && !run.met_histograms();
            annotations.merge(evaluated.annotations);
            timings.add(&evaluated.timings);
            let steps = 0..result.grid.steps;
            pieces.push(Piece { result: Arc::new(result), steps, at });
        }
        let kept_values = self.kept.as_ref().map_or(0, |(kept, _)| kept.len().saturating_mul(self.grid.steps));
        if kept_values > QUICK_VALUES {
            give_way().await;
        }
        let began = Instant::now();
        let result = match (&self.kept, &mut pieces[..]) {
            (None, [_]) => pieces.remove(0).result,
            (Some((kept, steps)), []) if kept.grid == self.grid && steps.len() == self.grid.steps => Arc::clone(kept),
            (kept, _) => {
                if let Some((result, steps)) = kept {
                    let from = ((self.grid.at(steps.start) - result.grid.start) / self.grid.step_ms) as usize;
                    let from = from..from + steps.len();
                    pieces.push(Piece { result: Arc::clone(result), steps: from, at: steps.start });
                }
                let result = stitch(&self.room, &pieces, self.grid)?;
                if rows_max.is_some_and(|max| result.len() as u64 > max) {
                    return Err(too_many_rows(result.len(), rows_max.unwrap_or_default()));
                }
                Arc::new(result)
            }
        };
        // A shorter query must not replace the cached result of a longer one.
        let shorter = self
            .kept
            .as_ref()
            .is_some_and(|(kept, steps)| steps.len() == self.grid.steps && kept.grid.steps > self.grid.steps);
        if keep && !shorter {
            self.results.put(self.key, Entry { result: Arc::clone(&result), version: self.version });
        }
        timings.arrange += began.elapsed();
        memory.0.push(self.room.into_memory());
        let value = Arc::new(QueryValue::Matrix(Arc::unwrap_or_clone(result)));
        Ok(EvaluationResult { value, annotations, timings, samples: None, memory: Arc::new(memory) })
    }
}
