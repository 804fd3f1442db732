//! Plans for lists over index look-ups. A look-up has a single partition, so these plans run as written, without
//! optimizer rules.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::functions::expr_fn::{concat, octet_length};
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::functions_nested::expr_fn::array_has;
use datafusion::functions_window::expr_fn::{dense_rank, row_number};
use datafusion::logical_expr::{Expr, ExprFunctionExt as _, LogicalPlan, LogicalPlanBuilder, cast, ident, lit};
use quiver_types::label::METRIC_NAME;
use quiver_types::{Matcher, MillisRange, Result};

use super::lookup::{IndexSource, LookUp};
use super::node::IndexTable;
use crate::error::from_datafusion;

fn scan(source: &IndexSource, look_up: LookUp) -> DataFusionResult<LogicalPlanBuilder> {
    let schema = look_up.schema();
    let table = IndexTable { look_up, source: source.clone(), schema };
    LogicalPlanBuilder::scan(TableReference::bare("series_index"), provider_as_source(Arc::new(table)), None)
}

fn built(plan: DataFusionResult<LogicalPlan>) -> Result<LogicalPlan> {
    plan.map_err(from_datafusion)
}

/// `fetch`: rows at most, where there is a bound.
fn limited(plan: LogicalPlanBuilder, fetch: Option<usize>) -> DataFusionResult<LogicalPlan> {
    match fetch {
        Some(_) => plan.limit(0, fetch)?.build(),
        None => plan.build(),
    }
}

/// Label sets of the series that match one of the selectors, each once, in order of their texts.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn series(
    source: &IndexSource,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    fetch: Option<usize>,
) -> Result<LogicalPlan> {
    built(scan(source, LookUp::Series(selectors, range)).and_then(|rows| {
        let once = rows.aggregate(vec![ident("labels")], Vec::<Expr>::new())?;
        once.sort_with_limit(vec![ident("labels").sort(true, false)], fetch)?.build()
    }))
}

/// Names of labels, in order.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn label_names(
    source: &IndexSource,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    fetch: Option<usize>,
) -> Result<LogicalPlan> {
    built(scan(source, LookUp::Names(selectors, range)).and_then(|rows| limited(rows, fetch)))
}

/// Values of a label, in order.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn label_values(
    source: &IndexSource,
    name: String,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    fetch: Option<usize>,
) -> Result<LogicalPlan> {
    built(scan(source, LookUp::Values(name, selectors, range)).and_then(|rows| limited(rows, fetch)))
}

/// Metadata by metric, of at most `metrics` metrics, at most `per_metric` entries of each; `None`: no limit.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn metadata(
    source: &IndexSource,
    metric: Option<String>,
    metrics: Option<usize>,
    per_metric: Option<usize>,
) -> Result<LogicalPlan> {
    let plan = || {
        let rows = scan(source, LookUp::Metadata(metric))?;
        if metrics.is_none() && per_metric.is_none() {
            return rows.build();
        }
        let metric = || ident("metric").sort(true, false);
        let sorted = rows.sort(vec![metric(), ident("place").sort(true, false)])?;
        let of_all = dense_rank().order_by(vec![metric()]).build()?.alias("nth_metric");
        let of_metric = row_number().partition_by(vec![ident("metric")]).order_by(vec![metric()]);
        let ranked = sorted.window(vec![of_all])?.window(vec![of_metric.build()?.alias("nth_of_metric")])?;
        let bounds = [("nth_metric", metrics), ("nth_of_metric", per_metric)];
        let bounds = bounds.into_iter().filter_map(|(name, most)| Some(ident(name).lt_eq(lit(most? as u64))));
        let kept = bounds.into_iter().try_fold(ranked, LogicalPlanBuilder::filter)?;
        kept.project(["metric", "type", "unit", "help"].map(ident))?.build()
    };
    built(plan())
}

/// Exemplars of the series that match one of the selectors: series by series, each in order of time.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn exemplars(source: &IndexSource, selectors: Vec<Vec<Matcher>>, range: MillisRange) -> Result<LogicalPlan> {
    let columns = ["series", "series_labels", "time", "value", "labels"].map(ident);
    built(scan(source, LookUp::Exemplars(selectors, range)).and_then(|rows| rows.project(columns)?.build()))
}

/// Exemplars that name a trace, whose id is given as hex digits.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn exemplars_of_trace(
    source: &IndexSource,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    trace: &str,
    fetch: usize,
) -> Result<LogicalPlan> {
    let columns = ["series", "series_labels", "time", "value", "labels"].map(ident);
    built(scan(source, LookUp::Exemplars(selectors, range)).and_then(|rows| {
        let named = rows.filter(array_has(ident("traces"), lit(trace.to_ascii_lowercase())))?;
        named.limit(0, Some(fetch))?.project(columns)?.build()
    }))
}

/// How many series have each value of each label: `label`, `value`, `series`; a row without a label counts all of them.
///
/// # Errors
/// Internal: only by a fault of ours.
pub fn cardinality(source: &IndexSource) -> Result<LogicalPlan> {
    built(scan(source, LookUp::Cardinality).and_then(LogicalPlanBuilder::build))
}

/// What [`cardinality`] gave, of which several lists are made.
#[derive(Debug)]
pub struct CardinalityResult {
    table: Arc<MemTable>,
}

impl CardinalityResult {
    /// Takes the rows.
    ///
    /// # Errors
    /// Internal: they are no rows of [`cardinality`].
    pub fn new(rows: Vec<RecordBatch>) -> Result<Self> {
        let table = MemTable::try_new(LookUp::Cardinality.schema(), vec![rows]).map_err(from_datafusion)?;
        Ok(Self { table: Arc::new(table) })
    }

    fn rows(&self) -> DataFusionResult<LogicalPlanBuilder> {
        LogicalPlanBuilder::scan(TableReference::bare("values"), provider_as_source(Arc::clone(&self.table) as _), None)
    }

    fn values(&self) -> DataFusionResult<LogicalPlanBuilder> {
        self.rows()?.filter(ident("label").is_not_null())
    }

    /// Plan of a row with the numbers of series and of different pairs of label and value: `series`, `pairs`.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn totals(&self) -> Result<LogicalPlan> {
        built(self.rows().and_then(|rows| {
            let all = sum(ident("series")).filter(ident("label").is_null()).build()?.alias("series");
            rows.aggregate(Vec::<Expr>::new(), vec![all, count(ident("label")).alias("pairs")])?.build()
        }))
    }

    /// Plan of the metrics with most series: `name`, `count`.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn metrics(&self, limit: usize) -> Result<LogicalPlan> {
        built(self.values().and_then(|rows| {
            let named = rows.filter(ident("label").eq(lit(METRIC_NAME)))?;
            top(named.project(vec![ident("value").alias("name"), count_of(ident("series"))])?, limit)
        }))
    }

    /// Plan of the labels with most values.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn labels(&self, limit: usize) -> Result<LogicalPlan> {
        built(self.values().and_then(|rows| {
            let by_label = rows.aggregate(vec![ident("label")], vec![count(ident("value")).alias("n")])?;
            top(by_label.project(vec![ident("label").alias("name"), count_of(ident("n"))])?, limit)
        }))
    }

    /// Plan of the labels whose values take most bytes, each as often as series have it.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn bytes(&self, limit: usize) -> Result<LogicalPlan> {
        built(self.values().and_then(|rows| {
            let bytes = octet_length(ident("value"));
            let bytes = cast(bytes, arrow::datatypes::DataType::UInt64) * ident("series");
            let each = rows.project(vec![ident("label"), bytes.alias("bytes")])?;
            let by_label = each.aggregate(vec![ident("label")], vec![sum(ident("bytes")).alias("n")])?;
            top(by_label.project(vec![ident("label").alias("name"), count_of(ident("n"))])?, limit)
        }))
    }

    /// Plan of the pairs of label and value with most series.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn pairs(&self, limit: usize) -> Result<LogicalPlan> {
        built(self.values().and_then(|rows| {
            let name = concat(vec![ident("label"), lit("="), ident("value")]).alias("name");
            top(rows.project(vec![name, count_of(ident("series"))])?, limit)
        }))
    }
}

fn count_of(column: Expr) -> Expr {
    cast(column, arrow::datatypes::DataType::UInt64).alias("count")
}

/// The largest, those of one size by name.
fn top(rows: LogicalPlanBuilder, limit: usize) -> DataFusionResult<LogicalPlan> {
    let order = vec![ident("count").sort(false, false), ident("name").sort(true, false)];
    rows.sort_with_limit(order, Some(limit))?.build()
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray, UInt64Array};
    use arrow::datatypes::UInt64Type;
    use futures::TryStreamExt as _;
    use quiver_types::Access;

    use super::*;
    use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules};

    async fn run(plan: LogicalPlan) -> RecordBatch {
        let settings = EngineSettings { threads: 2, ..EngineSettings::small(1 << 20) };
        let engine = QueryEngine::new(&settings).unwrap();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let (own, inner) = (Arc::clone(&engine), ctx.clone());
        let work = async move {
            let rows = own.execute(&plan, &inner, Rules::Direct).await?;
            let schema = rows.schema();
            let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(from_datafusion)?;
            Ok(arrow::compute::concat_batches(&schema, &batches).unwrap())
        };
        engine.run(&ctx, work).await.unwrap()
    }

    /// What the index counts of the series `{a, job=x}`, `{a, job=long}`, `{b, job=x}`, `{c}`.
    fn counted() -> CardinalityResult {
        let rows = [(None, None, 4), (Some("__name__"), Some("a"), 2), (Some("__name__"), Some("b"), 1)];
        let more = [(Some("__name__"), Some("c"), 1), (Some("job"), Some("x"), 2), (Some("job"), Some("long"), 1)];
        let rows: Vec<_> = rows.into_iter().chain(more).collect();
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| row.0).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| row.1).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| Some(row.2)).collect::<UInt64Array>()),
        ];
        let batch = RecordBatch::try_new(LookUp::Cardinality.schema(), columns).unwrap();
        // Rows come in more than one batch.
        CardinalityResult::new(vec![batch.slice(0, 2), batch.slice(2, 4)]).unwrap()
    }

    async fn check(plan: Result<LogicalPlan>, expected: &[(&str, u64)]) {
        let rows = run(plan.unwrap()).await;
        let names = rows.column(0).as_string::<i32>().iter().flatten();
        let counts = rows.column(1).as_primitive::<UInt64Type>().values();
        assert_eq!(names.zip(counts.iter().copied()).collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn the_largest_come_first_and_by_name() {
        let counted = counted();
        check(counted.metrics(2), &[("a", 2), ("b", 1)]).await;
        check(counted.labels(2), &[("__name__", 3), ("job", 2)]).await;
        check(counted.bytes(2), &[("job", 6), ("__name__", 4)]).await;
        check(counted.pairs(2), &[("__name__=a", 2), ("job=x", 2)]).await;
        check(
            counted.pairs(9),
            &[("__name__=a", 2), ("job=x", 2), ("__name__=b", 1), ("__name__=c", 1), ("job=long", 1)],
        )
        .await;
        let totals = run(counted.totals().unwrap()).await;
        let total = |column: usize| arrow::compute::cast(totals.column(column), &arrow::datatypes::DataType::UInt64);
        let totals = [0, 1].map(|column| total(column).unwrap().as_primitive::<UInt64Type>().value(0));
        assert_eq!(totals, [4, 5]);
    }
}
