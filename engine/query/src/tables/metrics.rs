//! Tables over metrics: `metric_samples`, `metric_series`, `metric_metadata`, `exemplars`.

mod columns;
pub(super) mod filter;
mod labels;
pub(super) mod lists;
pub(super) mod samples;
mod series;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use quiver_types::histogram::histogram_fields;
use quiver_types::{Domain, MillisRange, ReadStats, Result, SampleRequest};

use self::columns::{BEFORE_MS, INCREASE, label_of, series_columns, with_found};
use self::filter::MetricFilter;
use self::labels::LabelCells;
use self::samples::SampleRows;
use self::series::Series;
use super::cells::time;
use super::convert::ConvertExec;
use super::filter_lowering::{lower_all, supported};
use super::named_table::{Ask, NamedTable, Since};
use crate::error::to_datafusion;
use crate::leaf::scan_table;
use crate::table_provider::table_by_plan;

/// The table of samples. Stale markers are left out.
#[derive(Debug)]
pub(super) struct SampleTable;

impl NamedTable for SampleTable {
    fn name(&self) -> &'static str {
        "metric_samples"
    }

    fn domain(&self) -> Domain {
        Domain::Metrics
    }

    fn columns(&self) -> SchemaRef {
        let mut columns = vec![
            time("time", TimeUnit::Millisecond).with_nullable(false),
            Field::new("value", DataType::Float64, true),
            Field::new("histogram", DataType::Struct(histogram_fields()), true),
            time("start_time", TimeUnit::Millisecond),
        ];
        columns.extend(series_columns());
        Arc::new(Schema::new(columns))
    }

    fn finds(&self, column: &str) -> bool {
        column == INCREASE || label_of(column).is_some()
    }

    fn is_unchanged(&self, since: &Since<'_>) -> Option<bool> {
        // An increase also depends on the sample before the range.
        if since.range != MillisRange::ALL && since.columns.iter().any(|name| name == INCREASE) {
            return None;
        }
        let (then, series) = (since.then.samples, &since.sources.series);
        let now = series.version();
        let is_past = then.written <= now.written && then.dropped == now.dropped;
        Some(is_past && series.first_change(then, since.range).is_none())
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let (series, schema) = (Series::of(ask), with_found(&self.columns(), ask.found));
            let stats = Arc::clone(&ask.ctx.stats);
            Ok(Arc::new(SampleProvider { schema, series, stats }) as Arc<dyn TableProvider>)
        })
    }
}

/// The table for one statement.
#[derive(Debug)]
struct SampleProvider {
    schema: SchemaRef,
    series: Series,
    /// The counters of the planning query, since series are resolved during planning.
    stats: Arc<ReadStats>,
}

impl TableProvider for SampleProvider {
    table_by_plan!();

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported(&self.series.lower, filters))
    }
}

impl SampleProvider {
    fn plan<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let filter = MetricFilter::And(lower_all(&self.series.lower, filters));
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let projection = projection.unwrap_or(&all);
            let schema = Arc::new(self.schema.project(projection)?);
            let cells = LabelCells::new(&schema, &self.series.lower.service_labels);
            // The increase of a sample depends on the one before, which may lie before the range.
            let range = filter.range();
            let reach = schema.column_with_name(INCREASE).map_or(0, |_| BEFORE_MS);
            let wide = MillisRange::new(range.min.saturating_sub(reach), range.max);
            let selected = self.series.select(&filter, wide, &cells, &self.stats).await.map_err(to_datafusion)?;
            let request = SampleRequest {
                range: wide,
                floats: true,
                histograms: selected.has_histograms,
                start_times: schema.column_with_name("start_time").is_some(),
                read_repeatedly: false,
            };
            let scan = scan_table(selected.samples_table(request, &self.stats));
            let input = scan.scan(state, None, &[], None).await?;
            let rows = SampleRows::new(schema, cells, &selected, filter.to_string(), range.min);
            Ok(Arc::new(ConvertExec::new("metric_samples", input, Arc::new(rows), limit)) as Arc<dyn ExecutionPlan>)
        })
    }
}
