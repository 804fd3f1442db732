//! From the tree to a `LogicalPlan`: labels are resolved here, numbers are left to the nodes.
//!
//! Each expression becomes a [`ExprPlan`]: a plan that gives a step matrix, and the table of labels that its row
//! numbers refer to. All selectors of a query read one snapshot. What depends on values only for its labels
//! (`count_values`, `info`) runs its input here and goes on with a literal matrix.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use datafusion::logical_expr::LogicalPlan;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use quiver_query::{QueryEngine, from_datafusion, operator_plan};
use quiver_types::matcher::WatchedRegex;
use quiver_types::{Error, ErrorKind, Matcher, Result, SeriesSnapshot, SeriesTable};

use crate::annotation::Annotations;
use crate::ast::{At, DurationExpr, Expr, ExprKind};
use crate::duration::{check_all, evaluate, evaluate_positive};
use crate::kernel::{Block, Grid};
use crate::nodes::batch::{matrix_schema, to_batch, to_block};
use crate::nodes::broadcast::Broadcast;
use crate::nodes::driver::Param;
use crate::nodes::literal::Literal;
use crate::nodes::map::{Map, Stage};
use crate::nodes::rollup::Rollup;
use crate::nodes::rows::to_batches;
use crate::nodes::{Step, StepOperator};
use crate::range_ends::RangeEnds;
use crate::run_state::RunState;
use crate::sample_stats::{Merge, TallyId};

pub(crate) mod aggregate;
pub(crate) mod binary;
pub(crate) mod call;
pub(crate) mod callers_thread;
pub(crate) mod histogram;
pub(crate) mod info;
pub(crate) mod invariant;
pub(crate) mod join_pruning;
pub(crate) mod label_hash;
pub(crate) mod labels;
pub(crate) mod memory;
pub(crate) mod relabel;
pub(crate) mod scan;
pub(crate) mod select;
mod template;

use invariant::{evaluates_once, unparen};
use join_pruning::Narrow;
use memory::Room;

/// What an operator costs in memory and time regardless of its input, both in the plan and while it runs.
const NODE_BYTES: usize = 8 << 10;
const NODE_UNITS: usize = 4096;

/// Most steps of a range query. Rows have a cell for each step, so that one row takes 90 MB at most.
const STEPS_MAX: i128 = 10_000_000;

/// Times of the query as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_field_names, reason = "all are times, and the unit ends the name")]
pub struct QueryTimes {
    /// Time of the first step; for an instant query the only one.
    pub(crate) start_ms: i64,
    /// Requested end; the last step may be before it.
    pub(crate) end_ms: i64,
    /// Step; 0 for an instant query.
    pub(crate) step_ms: i64,
}

impl QueryTimes {
    /// The time of an instant query.
    pub fn instant(time_ms: i64) -> Self {
        Self { start_ms: time_ms, end_ms: time_ms, step_ms: 0 }
    }

    /// The times of a range query: `start`, `start + step` … up to `end`.
    ///
    /// # Errors
    /// Invalid: the end is before the start, or the step not positive. LimitExceeded: too many steps.
    pub fn range(start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Self> {
        if end_ms < start_ms {
            return Err(Error::invalid("end timestamp must not be before start time"));
        }
        if step_ms <= 0 {
            let text = "zero or negative query resolution step widths are not accepted. Try a positive integer";
            return Err(Error::invalid(text));
        }
        let steps = (i128::from(end_ms) - i128::from(start_ms)) / i128::from(step_ms) + 1;
        if steps > STEPS_MAX {
            let text = format!("a range query has {steps} steps, at most {STEPS_MAX} are allowed; use a longer step");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(Self { start_ms, end_ms, step_ms })
    }

    /// Checks all durations of an expression.
    ///
    /// # Errors
    /// Invalid: the first one that is none in a query at these times.
    pub(crate) fn check_durations(&self, expr: &Expr) -> Result<()> {
        check_all(expr, self.step_ms, self.end_ms.saturating_sub(self.start_ms))
    }

    /// Gives a range or a step in milliseconds.
    fn positive(&self, duration: &DurationExpr) -> Result<i64> {
        evaluate_positive(duration, self.step_ms, self.end_ms - self.start_ms)
    }

    /// Gives an offset in milliseconds.
    fn offset(&self, duration: Option<&DurationExpr>) -> Result<i64> {
        duration.map_or(Ok(0), |d| evaluate(d, self.step_ms, self.end_ms - self.start_ms))
    }

    fn at(&self, at: At) -> i64 {
        match at {
            At::Time(t) => t,
            At::Start => self.start_ms,
            At::End => self.end_ms,
        }
    }
}

/// Steps at which an expression is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) grid: Grid,
    /// Whether this is a single evaluation rather than a range that happens to have one step.
    pub(crate) single: bool,
    /// Which parts of histograms are needed.
    pub(crate) detail: Detail,
    /// Where samples are counted.
    pub(crate) tally: TallyId,
    /// Which labels are needed of a selector at this place.
    pub(crate) labels: LabelsId,
}

/// Labels that the operators around a selector use: an index into [`Planner::wanted`]; `None`: all.
pub(crate) type LabelsId = Option<u32>;

/// Which parts of a selector's histograms the surrounding functions need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Detail {
    /// Whole histograms, unless a function further inside needs less.
    #[default]
    All,
    /// Only count and sum.
    Stats,
    /// Whole histograms, whatever functions further inside need.
    Buckets,
}

impl Scope {
    /// The scope of a whole expression: nothing around it needs less of it, and no function counts its samples.
    pub(crate) fn whole(grid: Grid, single: bool) -> Self {
        Self { grid, single, detail: Detail::All, tally: 0, labels: None }
    }

    /// The scope of an operand that is evaluated only once.
    pub(crate) fn single_step(self) -> Self {
        Self { grid: Grid { steps: 1, ..self.grid }, single: true, ..self }
    }

    /// The scope of an operand of which all labels are needed.
    pub(crate) fn with_labels(self) -> Self {
        Self { labels: None, ..self }
    }

    /// The scope of an operand of which whole histograms are needed.
    pub(crate) fn with_buckets(self) -> Self {
        Self { detail: Detail::Buckets, ..self }
    }

    /// The scope of the arguments of a function.
    fn within(self, function: &str) -> Self {
        let detail = match function {
            "histogram_count" | "histogram_sum" | "histogram_avg" if self.detail == Detail::All => Detail::Stats,
            "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => Detail::Buckets,
            _ => self.detail,
        };
        Self { detail, ..self }
    }
}

/// An instant vector.
#[derive(Debug, Clone)]
pub(crate) struct VectorPlan {
    plan: LogicalPlan,
    /// Elementwise stages that are not yet part of `plan`; consecutive ones become a single node.
    stages: Vec<Stage>,
    stage_inputs: Vec<LogicalPlan>,
    /// Labels of the rows.
    pub(crate) table: Arc<SeriesTable>,
    /// Rows whose metric name is dropped at the end of the query.
    pub(crate) drop_name: Arc<Vec<bool>>,
    /// Whether histograms may occur.
    pub(crate) histograms: bool,
    /// Whether the order of the rows matters for the result (`sort`, `topk` and the like).
    pub(crate) ordered: bool,
    /// Set if `plan` is just a rollup: that rollup with its inputs, for operators that can fuse with it.
    rollup: Option<(Arc<Rollup>, Vec<LogicalPlan>)>,
    /// How to avoid reading rows that turn out not to be needed.
    narrow: Option<Narrow>,
}

/// A number per step.
#[derive(Debug, Clone)]
pub(crate) enum ScalarPlan {
    /// A constant.
    Const(f64),
    /// A matrix of one row.
    Steps(LogicalPlan),
}

/// A range vector as the answer of an instant query.
#[derive(Debug)]
pub(crate) enum RangePlan {
    /// Samples of a selector within `(start, end]`.
    Scan {
        /// Scan of the samples of its series.
        plan: LogicalPlan,
        /// Labels of the series, in the order of the rows.
        table: Arc<SeriesTable>,
        /// Window: start (exclusive) and end.
        bounds: (i64, i64),
        /// Whether the selector is `anchored` or `smoothed`.
        ends: RangeEnds,
    },
    /// The matrix of a subquery.
    Grid {
        /// The inner vector.
        vector: VectorPlan,
        /// Times at which the inner vector is evaluated.
        grid: Grid,
    },
}

/// A planned expression.
#[derive(Debug)]
pub(crate) enum ExprPlan {
    Scalar(ScalarPlan),
    Vector(VectorPlan),
    Range(RangePlan),
    String(String),
}

impl ExprPlan {
    /// Gives the instant vector that it must be.
    fn into_vector(self) -> Result<VectorPlan> {
        match self {
            Self::Vector(vector) => Ok(vector),
            _ => Err(unexpected("instant vector")),
        }
    }
}

/// Plans one query.
pub(crate) struct Planner {
    pub(crate) snapshot: Arc<dyn SeriesSnapshot>,
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) run: Arc<RunState>,
    pub(crate) room: Room,
    pub(crate) times: QueryTimes,
    pub(crate) lookback_ms: i64,
    pub(crate) subquery_step_ms: i64,
    /// Number of vector-to-vector operators planned so far, which is limited.
    pub(crate) joins: AtomicUsize,
    /// About how many values the nodes planned so far look at; see [`Self::give_way_if_long`].
    pub(crate) looked_at: AtomicU64,
    /// Matchers that more than one selector of the query has.
    pub(crate) repeated: HashSet<Vec<Matcher>>,
    /// Lists of labels that aggregations use; see [`LabelsId`].
    pub(crate) wanted: Mutex<Vec<Arc<[String]>>>,
    /// Compiled patterns of `label_replace` by their text, each compiled once per query.
    pub(crate) patterns: Mutex<HashMap<String, WatchedRegex>>,
}

impl Planner {
    /// The scope of an operand that is evaluated once for all steps of `scope`, with a tally of its own.
    pub(crate) fn single_step(&self, scope: Scope) -> Scope {
        let single = scope.single_step();
        Scope { tally: self.tally(scope.tally, single.grid, Merge::Once), ..single }
    }

    /// Gives the tally of an inner evaluation, if samples are counted at all.
    pub(crate) fn tally(&self, parent: TallyId, grid: Grid, merge: Merge) -> TallyId {
        self.run.tallies.as_ref().map_or(0, |t| t.child(parent, grid, merge))
    }

    /// Plans a query, or an operand in it. If it does not depend on the step, it is evaluated once and repeated.
    pub(crate) fn operand<'a>(&'a self, expr: &'a Expr, scope: Scope) -> BoxFuture<'a, Result<ExprPlan>> {
        async move {
            if scope.single || !evaluates_once(expr) {
                return self.expr(expr, scope).await;
            }
            let planned = self.expr(expr, self.single_step(scope)).await?;
            self.broadcast(planned, scope)
        }
        .boxed()
    }

    /// Repeats a value that was evaluated once over all steps of a scope.
    pub(crate) fn broadcast(&self, planned: ExprPlan, scope: Scope) -> Result<ExprPlan> {
        let steps = scope.grid.steps;
        Ok(match planned {
            ExprPlan::Vector(v) if steps > 1 => {
                let histograms = v.histograms;
                let (table, drop_name, ordered) = (Arc::clone(&v.table), Arc::clone(&v.drop_name), v.ordered);
                let plan = self.node(Broadcast { steps, histograms }, vec![self.finish(v, scope.single_step())?])?;
                ExprPlan::Vector(VectorPlan { ordered, ..VectorPlan::new(plan, table, drop_name, histograms) })
            }
            ExprPlan::Scalar(ScalarPlan::Steps(plan)) if steps > 1 => {
                let plan = self.node(Broadcast { steps, histograms: false }, vec![plan])?;
                ExprPlan::Scalar(ScalarPlan::Steps(plan))
            }
            other => other,
        })
    }

    /// Plans an expression at the steps of the scope. The restriction to some labels is passed on only to selectors
    /// and to functions of one vector; all other operands are planned with all labels.
    pub(crate) fn expr<'a>(&'a self, expr: &'a Expr, scope: Scope) -> BoxFuture<'a, Result<ExprPlan>> {
        async move {
            let scope = match &expr.kind {
                ExprKind::Paren(_) | ExprKind::Call { .. } | ExprKind::VectorSelector(_) => scope,
                _ => scope.with_labels(),
            };
            self.will_look_at(1, scope.grid.steps, 1);
            let planned = match &expr.kind {
                ExprKind::Number { value, .. } => Ok(ExprPlan::Scalar(ScalarPlan::Const(*value))),
                ExprKind::String(text) => Ok(ExprPlan::String(text.shown().to_owned())),
                ExprKind::Paren(inner) => self.expr(inner, scope).await,
                ExprKind::Unary { negate, expr } => self.unary(*negate, expr, scope).await,
                ExprKind::Binary(_) => self.binary(expr, scope).await,
                ExprKind::Aggregate(aggregate) => self.aggregate(aggregate, expr.pos, scope).await,
                ExprKind::Call { function, args } => self.call(function, args, expr.pos, scope).await,
                ExprKind::VectorSelector(selector) => self.instant_selector(selector, expr.pos, scope).await,
                ExprKind::MatrixSelector { selector, range } => self.raw_selector(selector, range, scope).await,
                ExprKind::Subquery(subquery) => self.raw_subquery(subquery, scope).await,
            };
            if let Ok(ExprPlan::Vector(vector)) = &planned {
                self.will_work_on_labels(vector.table.len());
            }
            // What is planned around it works on the labels at once.
            self.give_way_if_long().await;
            planned
        }
        .boxed()
    }

    async fn unary(&self, negate: bool, expr: &Expr, scope: Scope) -> Result<ExprPlan> {
        let operand = self.expr(expr, scope).await?;
        if !negate {
            return Ok(operand);
        }
        Ok(match operand {
            ExprPlan::Scalar(ScalarPlan::Const(v)) => ExprPlan::Scalar(ScalarPlan::Const(-v)),
            ExprPlan::Scalar(ScalarPlan::Steps(plan)) => {
                ExprPlan::Scalar(ScalarPlan::Steps(self.scalar_map(plan, vec![Stage::Negate], vec![], scope)?))
            }
            ExprPlan::Vector(mut v) => {
                v.push(Stage::Negate);
                v.drop_names();
                ExprPlan::Vector(v)
            }
            other => other,
        })
    }

    /// Wraps an operator as a plan.
    pub(crate) fn node(&self, operator: impl StepOperator, inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
        self.shared_node(Arc::new(operator), inputs)
    }

    /// Wraps a shared operator as a plan.
    pub(crate) fn shared_node(&self, operator: Arc<dyn StepOperator>, inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
        self.room.take(NODE_BYTES)?;
        self.room.did(NODE_UNITS)?;
        operator_plan(Step(operator), inputs)
    }

    /// Applies elementwise stages to a scalar.
    pub(crate) fn scalar_map(
        &self,
        plan: LogicalPlan,
        stages: Vec<Stage>,
        more: Vec<LogicalPlan>,
        scope: Scope,
    ) -> Result<LogicalPlan> {
        let steps = scope.grid.steps;
        let map = Map { stages, grid: scope.grid, histograms: false, table: Arc::new(SeriesTable::unlabelled()) };
        debug_assert_eq!(map.grid.steps, steps);
        self.node(map, [vec![plan], more].concat())
    }

    /// Gives the plan of a vector, including its pending elementwise stages.
    pub(crate) fn finish(&self, vector: VectorPlan, scope: Scope) -> Result<LogicalPlan> {
        if vector.stages.is_empty() {
            return Ok(vector.plan);
        }
        let VectorPlan { plan, stages, stage_inputs, table, histograms, .. } = vector;
        let map = Map { stages, grid: scope.grid, histograms, table };
        self.node(map, [vec![plan], stage_inputs].concat())
    }

    /// Reserves memory for a matrix that is about to be made during planning.
    pub(crate) fn reserve_matrix(&self, rows: usize, steps: usize) -> Result<()> {
        // A value, a flag whether it is present, and its validity bit in a batch.
        self.room.take(rows.saturating_mul(steps).saturating_mul(size_of::<f64>() + 2))
    }

    /// Gives a literal matrix.
    pub(crate) fn literal(&self, shown: impl Into<String>, block: Block, histograms: bool) -> Result<LogicalPlan> {
        let schema = matrix_schema(block.steps, histograms);
        let batches = to_batches(block, &schema).map_err(from_datafusion)?;
        self.node(Literal { shown: shown.into(), schema, batches }, vec![])
    }

    /// Gives a row that has the same value at all steps, or one value per step.
    pub(crate) fn row(&self, shown: impl Into<String>, values: Vec<f64>) -> Result<LogicalPlan> {
        let steps = values.len();
        self.reserve_matrix(1, steps)?;
        let block = Block { rows: vec![0], steps, values, present: vec![true; steps], hists: vec![] };
        let schema = matrix_schema(steps, false);
        let batches = vec![to_batch(block, &schema).map_err(from_datafusion)?];
        self.node(Literal { shown: shown.into(), schema, batches }, vec![])
    }

    pub(crate) fn scalar_plan(&self, scalar: ScalarPlan, scope: Scope) -> Result<LogicalPlan> {
        match scalar {
            ScalarPlan::Const(v) => {
                self.reserve_matrix(1, scope.grid.steps)?;
                self.row(v.to_string(), vec![v; scope.grid.steps])
            }
            ScalarPlan::Steps(plan) => Ok(plan),
        }
    }

    /// Plans an argument that is a scalar.
    pub(crate) async fn scalar(&self, expr: &Expr, scope: Scope) -> Result<ScalarPlan> {
        match self.operand(unparen(expr), scope).await? {
            ExprPlan::Scalar(scalar) => Ok(scalar),
            _ => Err(unexpected("scalar")),
        }
    }

    /// Plans an argument that is an instant vector.
    pub(crate) async fn vector(&self, expr: &Expr, scope: Scope) -> Result<VectorPlan> {
        match self.operand(unparen(expr), scope).await? {
            ExprPlan::Vector(vector) => Ok(vector),
            _ => Err(unexpected("instant vector")),
        }
    }

    /// Adds a scalar to the parameters of a node whose first inputs are `inputs`.
    pub(crate) fn param(scalar: ScalarPlan, inputs: &mut Vec<LogicalPlan>, first: usize) -> Param {
        match scalar {
            ScalarPlan::Const(v) => Param::Const(v),
            ScalarPlan::Steps(plan) => {
                inputs.push(plan);
                Param::Input(first + inputs.len() - 1)
            }
        }
    }

    /// Runs a plan during planning and gives its blocks.
    pub(crate) async fn evaluate(&self, plan: &LogicalPlan) -> Result<Vec<Block>> {
        self.give_way_if_long().await;
        let mut batches = self.engine.execute(plan, &self.run.ctx, self.run.rules()).await?;
        let memory = self.engine.reservation("answer", &self.run.ctx);
        let mut blocks = Vec::new();
        while let Some(batch) = batches.next().await {
            let block = to_block(batch.map_err(from_datafusion)?).map_err(from_datafusion)?;
            memory.try_grow(block.memory_bytes()).map_err(from_datafusion)?;
            blocks.push(block);
        }
        self.run.keep(memory);
        Ok(blocks)
    }

    /// Evaluates a scalar during planning: one value, or one per step.
    pub(crate) async fn evaluate_scalar(&self, scalar: &ScalarPlan) -> Result<Vec<f64>> {
        match scalar {
            ScalarPlan::Const(v) => Ok(vec![*v]),
            ScalarPlan::Steps(plan) => {
                let blocks = self.evaluate(plan).await?;
                blocks.into_iter().find(|b| !b.rows.is_empty()).map(|b| b.values).ok_or_else(|| unexpected("scalar"))
            }
        }
    }

    /// Adds annotations that arise during planning.
    pub(crate) fn annotate(&self, f: impl FnOnce(&mut Annotations)) {
        let mut annotations = Annotations::default();
        f(&mut annotations);
        self.run.annotate(annotations);
    }
}

/// For cases that the type check has excluded.
fn unexpected(wanted: &str) -> Error {
    Error::internal(format!("an argument that is no {wanted}"))
}

/// An error of evaluation.
pub(crate) fn failed(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Execution, text)
}

impl VectorPlan {
    /// Wraps a plan.
    pub(crate) fn new(plan: LogicalPlan, table: Arc<SeriesTable>, drop_name: Arc<Vec<bool>>, histograms: bool) -> Self {
        Self {
            plan,
            stages: vec![],
            stage_inputs: vec![],
            table,
            drop_name,
            histograms,
            ordered: false,
            rollup: None,
            narrow: None,
        }
    }

    /// Wraps a plan without histograms.
    pub(crate) fn of_floats(plan: LogicalPlan, table: Arc<SeriesTable>, drop_name: Arc<Vec<bool>>) -> Self {
        Self::new(plan, table, drop_name, false)
    }

    /// Gives the rollup and its inputs, if the plan is just that.
    pub(crate) fn fused_rollup(&self) -> Option<(Arc<Rollup>, Vec<LogicalPlan>)> {
        if self.stages.is_empty() { self.rollup.clone() } else { None }
    }

    /// Remembers that the plan is just a rollup.
    pub(crate) fn with_rollup(mut self, rollup: Arc<Rollup>, inputs: Vec<LogicalPlan>) -> Self {
        self.rollup = Some((rollup, inputs));
        self
    }

    /// Adds an elementwise stage that has no scalar inputs.
    pub(crate) fn push(&mut self, stage: Stage) {
        self.stages.push(stage);
    }

    /// Adds an elementwise stage with scalar arguments.
    pub(crate) fn push_with(&mut self, scalars: Vec<ScalarPlan>, stage: impl FnOnce(Vec<Param>) -> Stage) {
        let params = scalars.into_iter().map(|s| Planner::param(s, &mut self.stage_inputs, 1)).collect();
        self.stages.push(stage(params));
    }

    /// Marks the metric names of all rows to be dropped.
    pub(crate) fn drop_names(&mut self) {
        if self.drop_name.contains(&false) {
            self.drop_name = Arc::new(vec![true; self.table.len()]);
        }
    }
}
