//! Plans selectors: matchers and time become a scan of samples with a rollup over it. Subqueries: the inner expression
//! on its own grid, and a rollup over its matrix.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use quiver_query::scan_table;
use quiver_types::{
    Error, ErrorKind, Millis, MillisRange, Result, SampleRequest, SelectedSeries, SeriesSelector, SeriesTable,
};

use super::join_pruning::Narrow;
use super::scan::{SelectorScan, scan_of};
use super::{Detail, ExprPlan, Planner, RangePlan, Scope, VectorPlan};
use crate::annotation::AnnotationPlace;
use crate::ast::{DurationExpr, PosRange, SubqueryExpr, VectorSelector};
use crate::kernel::{Block, Grid, Window};
use crate::nodes::driver::Param;
use crate::nodes::rollup::{Rollup, RollupFunction, SampleSource};
use crate::range_ends::RangeEnds;
use crate::run_state::TOO_MANY_SAMPLES;
use crate::sample_stats::Merge;
use crate::window::InstantValue;

/// Estimated memory of a selector besides its series: matchers, locations of samples, the scan.
const SELECTOR_BYTES: usize = 16 << 10;
/// How many rows of a subquery's matrix are in transit between its nodes at a time, if rows are large.
const ROWS_UNDER_WAY: usize = 5;

/// Maximum steps of a subquery; each row of its matrix has a place for all of them.
const SUBQUERY_STEPS_MAX: usize = 10_000_000;

/// Samples for a range function: the input of a rollup.
pub(crate) struct Samples {
    /// A scan, or the matrix of a subquery.
    pub(crate) plan: LogicalPlan,
    /// Where they come from.
    pub(crate) source: SampleSource,
    /// Labels of the rows, by row number.
    pub(crate) table: Arc<SeriesTable>,
    /// Rows whose metric name has already been dropped (in subqueries).
    pub(crate) drop_name: Arc<Vec<bool>>,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
    /// Range and offset of the windows; there is one window per step.
    pub(crate) window: Window,
    /// Fixed end of the windows.
    pub(crate) at: Option<Millis>,
    /// The scan, if series may be excluded from it.
    pub(crate) scanned: Option<SelectorScan>,
}

/// The parameters of a range function.
#[derive(Default)]
pub(crate) struct RollupParams {
    /// Their values, or which input has them.
    pub(crate) params: Vec<Param>,
    /// Plans that compute values, which follow the samples as inputs.
    pub(crate) inputs: Vec<LogicalPlan>,
}

impl Planner {
    /// Resolves a selector for steps whose windows lie in `(start, end]`.
    async fn select(
        &self,
        selector: &VectorSelector,
        start: Millis,
        end: Millis,
        scope: Scope,
    ) -> Result<(SelectedSeries, MillisRange)> {
        self.room.take(SELECTOR_BYTES)?;
        let range = MillisRange::new(start.saturating_add(1), end);
        let wanted = SeriesSelector { matchers: selector.matchers.clone(), range, labels: self.wanted_labels(scope) };
        let selected = self.snapshot.select(&self.run.ctx.access, &wanted, &self.run.ctx.stats).await?;
        let window_ms = end.saturating_sub(start).saturating_sub(scope.grid.end() - scope.grid.start).max(0);
        // As if each series had one sample a second.
        self.will_look_at(selected.table.len(), scope.grid.steps, window_ms / 1000 + 1);
        self.give_way_if_long().await;
        self.run.ctx.check("query preparation")?;
        // Memory for flags: which rows lose their names, and which are wanted.
        self.room.take(2 * selected.table.len())?;
        if selected.has_histograms {
            self.run.meet_histograms();
        }
        Ok((selected, range))
    }

    /// Tells whether the query contains the same selector more than once.
    fn reads_repeatedly(&self, selector: &VectorSelector) -> bool {
        self.repeated.contains(&selector.matchers)
    }

    fn scan(
        &self,
        selector: &VectorSelector,
        selected: &SelectedSeries,
        request: SampleRequest,
    ) -> Result<(LogicalPlan, Option<SelectorScan>)> {
        if selected.table.is_empty() {
            return Ok((self.literal("no series", Block::new(1), false)?, None));
        }
        let name = selector.name.as_deref().unwrap_or("samples");
        let table = scan_table(selected.samples_table(request, &self.run.ctx.stats));
        let plan = scan_of(name, &table)?;
        Ok((plan, Some(SelectorScan { name: name.into(), selected: selected.clone(), request, table })))
    }

    /// Plans an instant selector.
    pub(crate) async fn instant_selector(
        &self,
        selector: &VectorSelector,
        pos: PosRange,
        scope: Scope,
    ) -> Result<ExprPlan> {
        let function = if selector.ends.are_smoothed() {
            RollupFunction::Smoothed
        } else {
            RollupFunction::Instant(InstantValue::Value)
        };
        let offset_ms = self.times.offset(selector.offset.as_ref())?;
        self.look_back(selector, pos, scope, function, offset_ms).await.map(ExprPlan::Vector)
    }

    /// Plans `timestamp` or `start_timestamp` of a selector.
    pub(crate) async fn selector_time(
        &self,
        selector: &VectorSelector,
        pos: PosRange,
        scope: Scope,
        what: InstantValue,
    ) -> Result<ExprPlan> {
        // Prometheus ignores the offset here if there is an `@`.
        let offset_ms = if selector.at.is_some() { 0 } else { self.times.offset(selector.offset.as_ref())? };
        let mut vector = self.look_back(selector, pos, scope, RollupFunction::Instant(what), offset_ms).await?;
        vector.histograms = false;
        vector.drop_names();
        Ok(ExprPlan::Vector(vector))
    }

    /// Plans the newest sample of each series at each step: its value or its time.
    pub(crate) async fn look_back(
        &self,
        selector: &VectorSelector,
        pos: PosRange,
        scope: Scope,
        function: RollupFunction,
        offset_ms: i64,
    ) -> Result<VectorPlan> {
        let at = selector.at.map(|at| self.times.at(at));
        let value_ends =
            if matches!(function, RollupFunction::Smoothed) { RangeEnds::Smoothed } else { RangeEnds::Samples };
        let (_, ahead) = value_ends.reach_ms(self.lookback_ms);
        let (first, last) = ends(at, scope.grid, offset_ms);
        let (selected, range) = self.select(selector, first - self.lookback_ms, last + ahead, scope).await?;
        let window = Window { range_ms: self.lookback_ms, offset_ms, ends: value_ends, lookback_ms: self.lookback_ms };
        let request = SampleRequest {
            range,
            floats: true,
            histograms: selected.has_histograms,
            start_times: matches!(function, RollupFunction::Instant(InstantValue::StartTimestamp)),
            read_repeatedly: self.reads_repeatedly(selector),
        };
        let table = Arc::clone(&selected.table);
        let (plan, scanned) = self.scan(selector, &selected, request)?;
        let samples = Samples {
            plan,
            source: SampleSource::Scan,
            drop_name: Arc::new(vec![false; table.len()]),
            table,
            histograms: selected.has_histograms,
            window,
            at,
            scanned,
        };
        self.rollup(function, samples, RollupParams::default(), pos.into(), scope)
    }

    /// Plans a rollup over samples.
    pub(crate) fn rollup(
        &self,
        function: RollupFunction,
        samples: Samples,
        params: RollupParams,
        place: AnnotationPlace,
        scope: Scope,
    ) -> Result<VectorPlan> {
        let Samples { plan, source, table, drop_name, histograms, window, at, scanned } = samples;
        let RollupParams { params, inputs } = params;
        // A subquery or a parameter may fail even if it returns no series, so it must be evaluated.
        if table.is_empty() && matches!(source, SampleSource::Scan) && inputs.is_empty() {
            let plan = self.literal("no series", Block::new(scope.grid.steps), histograms)?;
            return Ok(VectorPlan::new(plan, table, drop_name, histograms));
        }
        let rollup = Rollup {
            function,
            source,
            grid: scope.grid,
            window,
            at,
            params,
            place,
            table: Arc::clone(&table),
            histograms,
            stats_only: scope.detail == Detail::Stats,
            tally: scope.tally,
        };
        let (rollup, inputs) = (Arc::new(rollup), [vec![plan], inputs].concat());
        let plan = self.shared_node(Arc::<Rollup>::clone(&rollup), inputs.clone())?;
        // Statistics count all samples that the query selects, so no series may be excluded.
        let scanned = scanned.filter(|_| self.run.tallies.is_none());
        let narrow = scanned.and_then(|scanned| Narrow::of_rollup(&rollup, scanned));
        let vector = VectorPlan::new(plan, table, drop_name, histograms).with_rollup(rollup, inputs);
        Ok(VectorPlan { narrow, ..vector })
    }

    /// Plans the samples that a range function works on.
    pub(crate) async fn range_samples(
        &self,
        selector: &VectorSelector,
        range: &DurationExpr,
        scope: Scope,
        start_times: bool,
    ) -> Result<Samples> {
        let offset_ms = self.times.offset(selector.offset.as_ref())?;
        let range_ms = self.times.positive(range)?;
        let at = selector.at.map(|at| self.times.at(at));
        let (first, last) = ends(at, scope.grid, offset_ms);
        let (behind, ahead) = selector.ends.reach_ms(self.lookback_ms);
        let (selected, range) = self.select(selector, first - range_ms - behind, last + ahead, scope).await?;
        let histograms = selected.has_histograms;
        let request = SampleRequest {
            range,
            floats: true,
            histograms,
            start_times,
            read_repeatedly: self.reads_repeatedly(selector),
        };
        let table = Arc::clone(&selected.table);
        let (plan, scanned) = self.scan(selector, &selected, request)?;
        Ok(Samples {
            plan,
            source: SampleSource::Scan,
            drop_name: Arc::new(vec![false; table.len()]),
            table,
            histograms,
            window: Window { range_ms, offset_ms, ends: selector.ends, lookback_ms: self.lookback_ms },
            at,
            scanned,
        })
    }

    /// Plans a subquery for a range function.
    pub(crate) async fn subquery_samples(&self, subquery: &SubqueryExpr, scope: Scope) -> Result<Samples> {
        let (vector, grid, window, at) = self.subquery(subquery, scope, false).await?;
        let inner = Scope { grid, single: grid.steps == 1, detail: Detail::Buckets, tally: scope.tally, labels: None };
        let (table, drop_name) = (Arc::clone(&vector.table), Arc::clone(&vector.drop_name));
        let histograms = vector.histograms;
        let plan = self.finish(vector, inner)?;
        Ok(Samples { plan, source: SampleSource::Grid(grid), table, drop_name, histograms, window, at, scanned: None })
    }

    async fn subquery(
        &self,
        subquery: &SubqueryExpr,
        scope: Scope,
        whole: bool,
    ) -> Result<(VectorPlan, Grid, Window, Option<Millis>)> {
        let offset_ms = self.times.offset(subquery.offset.as_ref())?;
        let range_ms = self.times.positive(&subquery.range)?;
        let step_ms = subquery.step.as_ref().map_or(Ok(0), |d| self.times.positive(d))?;
        let step_ms = if step_ms == 0 { self.subquery_step_ms } else { step_ms };
        let at = subquery.at.map(|at| self.times.at(at));
        let (first, last) = ends(at, scope.grid, offset_ms);
        // Steps of a subquery are multiples of its step, independent of the query's steps.
        let start = ((first - range_ms).div_euclid(step_ms) + 1) * step_ms;
        let window = Window { range_ms, offset_ms, ends: RangeEnds::Samples, lookback_ms: self.lookback_ms };
        if start > last {
            let grid = Grid { start, step_ms, steps: 1 };
            let plan = self.literal("no steps", Block::new(1), false)?;
            return Ok((VectorPlan::of_floats(plan, Arc::default(), Arc::default()), grid, window, at));
        }
        let steps = ((last - start) / step_ms) as usize + 1;
        if steps > SUBQUERY_STEPS_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, TOO_MANY_SAMPLES));
        }
        self.reserve_matrix(ROWS_UNDER_WAY, steps)?;
        let grid = Grid { start, step_ms, steps };
        let merge = if whole { Merge::Whole } else { Merge::Argument { offset_ms, range_ms } };
        let tally = self.tally(scope.tally, grid, merge);
        let inner = Scope { grid, single: start == last, detail: Detail::Buckets, tally, labels: None };
        let vector = match self.operand(&subquery.expr, inner).await? {
            ExprPlan::Vector(vector) => vector,
            ExprPlan::Scalar(scalar) => {
                let plan = self.scalar_plan(scalar, inner)?;
                VectorPlan::of_floats(plan, Arc::new(SeriesTable::unlabelled()), Arc::new(vec![false]))
            }
            _ => return Err(super::unexpected("instant vector")),
        };
        self.will_look_at(vector.table.len(), scope.grid.steps, range_ms / step_ms + 1);
        Ok((vector, grid, window, at))
    }

    /// Plans a range selector that is the whole query.
    pub(crate) async fn raw_selector(
        &self,
        selector: &VectorSelector,
        range: &DurationExpr,
        scope: Scope,
    ) -> Result<ExprPlan> {
        let samples = self.range_samples(selector, range, scope, false).await?;
        let end = samples.at.unwrap_or(scope.grid.start) - samples.window.offset_ms;
        Ok(ExprPlan::Range(RangePlan::Scan {
            plan: samples.plan,
            table: samples.table,
            bounds: (end - samples.window.range_ms, end),
            ends: selector.ends,
        }))
    }

    /// Plans a subquery that is the whole query.
    pub(crate) async fn raw_subquery(&self, subquery: &SubqueryExpr, scope: Scope) -> Result<ExprPlan> {
        let (vector, grid, ..) = self.subquery(subquery, scope, true).await?;
        Ok(ExprPlan::Range(RangePlan::Grid { vector, grid }))
    }
}

/// The ends of the first and the last window.
fn ends(at: Option<Millis>, grid: Grid, offset_ms: i64) -> (Millis, Millis) {
    let (first, last) = at.map_or((grid.start, grid.end()), |t| (t, t));
    (first - offset_ms, last - offset_ms)
}
