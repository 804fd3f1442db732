//! Tables that are read from the index: `metric_series`, `metric_metadata`, `exemplars`. All their rows are in the
//! query's memory before the first is emitted; the limits on series bound them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch, StringViewBuilder, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, UInt32Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use quiver_types::series::SeriesTableBuilder;
use quiver_types::source::SeriesExemplars;
use quiver_types::{Domain, Error, Pins, ReadStats, Result, RunShared, SampleRequest, SelectedSeries, SeriesSnapshot};

use super::columns::{label_of, series_columns, with_found};
use super::filter::{MetricFilter, MetricLower};
use super::labels::LabelCells;
use super::series::Series;
use crate::encoding::context::{At, pinned};
use crate::error::from_datafusion;
use crate::leaf::scan_table;
use crate::table_provider::table_by_plan;
use crate::tables::cells::{text, text_map, time};
use crate::tables::convert::{BATCH_ROWS, batch};
use crate::tables::encoding::{List, WrittenList, WrittenRows};
use crate::tables::filter_lowering::{lower_all, supported};
use crate::tables::materialized::{ReadAtOnce, at_once};
use crate::tables::named_table::{Ask, NamedTable};

/// The table of series: one row each, with the times of its first and last sample.
#[derive(Debug)]
pub(in crate::tables) struct SeriesListTable;

/// The table of the type, unit and help of metrics.
#[derive(Debug)]
pub(in crate::tables) struct MetadataTable;

#[derive(Debug)]
pub(in crate::tables) struct ExemplarTable;

impl NamedTable for SeriesListTable {
    fn name(&self) -> &'static str {
        "metric_series"
    }

    fn domain(&self) -> Domain {
        Domain::Metrics
    }

    fn columns(&self) -> SchemaRef {
        let mut columns = series_columns();
        columns.extend(["first_time", "last_time"].map(|name| time(name, TimeUnit::Millisecond)));
        Arc::new(Schema::new(columns))
    }

    fn finds(&self, column: &str) -> bool {
        label_of(column).is_some()
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            Ok(Arc::new(ListProvider::new(List::Series, with_found(&self.columns(), ask.found), ask))
                as Arc<dyn TableProvider>)
        })
    }
}

impl NamedTable for MetadataTable {
    fn name(&self) -> &'static str {
        "metric_metadata"
    }

    fn domain(&self) -> Domain {
        Domain::Metrics
    }

    fn columns(&self) -> SchemaRef {
        Arc::new(Schema::new(["name", "type", "unit", "help"].map(text).to_vec()))
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            Ok(Arc::new(ListProvider::new(List::Metadata, self.columns(), ask)) as Arc<dyn TableProvider>)
        })
    }
}

impl NamedTable for ExemplarTable {
    fn name(&self) -> &'static str {
        "exemplars"
    }

    fn domain(&self) -> Domain {
        Domain::Metrics
    }

    fn columns(&self) -> SchemaRef {
        let mut columns = series_columns();
        columns.extend([
            time("time", TimeUnit::Millisecond),
            Field::new("value", DataType::Float64, true),
            text("trace_id"),
            text("span_id"),
            text_map("exemplar_labels"),
        ]);
        Arc::new(Schema::new(columns))
    }

    fn finds(&self, column: &str) -> bool {
        label_of(column).is_some()
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            Ok(Arc::new(ListProvider::new(List::Exemplars, with_found(&self.columns(), ask.found), ask))
                as Arc<dyn TableProvider>)
        })
    }
}

/// The table for one statement.
#[derive(Debug)]
struct ListProvider {
    list: List,
    schema: SchemaRef,
    series: Arc<Series>,
}

impl ListProvider {
    fn new(list: List, schema: SchemaRef, ask: &Ask<'_>) -> Self {
        Self { list, schema, series: Arc::new(Series::of(ask)) }
    }
}

impl TableProvider for ListProvider {
    table_by_plan!();

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        match self.list {
            List::Metadata => Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]),
            _ => Ok(supported(&self.series.lower, filters)),
        }
    }
}

impl ListProvider {
    fn plan<'a>(
        &'a self,
        _: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let schema = Arc::new(self.schema.project(projection.unwrap_or(&all))?);
            let filter = MetricFilter::And(lower_all(&self.series.lower, filters));
            Ok(at_once(Listing { list: self.list, schema, filter, series: Arc::clone(&self.series) }, limit))
        })
    }
}

/// What a scan reads.
#[derive(Debug)]
pub(in crate::tables) struct Listing {
    list: List,
    schema: SchemaRef,
    filter: MetricFilter,
    series: Arc<Series>,
}

impl ReadAtOnce for Listing {
    fn table(&self) -> &'static str {
        match self.list {
            List::Series => SeriesListTable.name(),
            List::Metadata => MetadataTable.name(),
            List::Exemplars => ExemplarTable.name(),
        }
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn read<'a>(&'a self, task: &'a Arc<TaskContext>, stats: &'a ReadStats) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
        Box::pin(async move {
            match self.list {
                List::Series => self.series_rows(task, stats).await,
                List::Metadata => self.metadata_rows(stats).await,
                List::Exemplars => self.exemplar_rows(stats).await,
            }
        })
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<WrittenRows> {
        Ok(WrittenRows::Metrics(WrittenList {
            list: self.list,
            schema: at.write_schema(&self.schema)?,
            filter: self.filter.clone(),
            snapshot: Pins::of_process().pin(&self.series.snapshot),
            access: self.series.access.clone(),
            service_labels: Arc::clone(&self.series.lower.service_labels),
        }))
    }
}

/// The times of the first and the last sample of a series.
type FirstAndLast = (i64, i64);

impl Listing {
    /// Reads the form that [`ReadAtOnce::written`] returns.
    pub(in crate::tables) fn read_from(rows: WrittenList, at: &At<'_>) -> DataFusionResult<Self> {
        let (snapshot, access) = (pinned::<dyn SeriesSnapshot>(rows.snapshot)?, rows.access);
        let lower = MetricLower { service_labels: rows.service_labels };
        Ok(Self {
            list: rows.list,
            schema: at.forms.read_schema(&rows.schema)?,
            filter: rows.filter,
            series: Arc::new(Series { snapshot, access, lower }),
        })
    }
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    let mut out = StringViewBuilder::new();
    values.for_each(|text| out.append_option(Some(text).filter(|text| !text.is_empty())));
    Arc::new(out.finish())
}

fn times(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<TimestampMillisecondArray>().with_timezone("UTC"))
}

/// Charges the memory of rows until the query ends.
fn hold(rows: &RecordBatch, stats: &ReadStats) -> Result<()> {
    stats.take(rows.get_array_memory_size())?;
    stats.check()
}

impl Listing {
    async fn metadata_rows(&self, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let (series, schema) = (&self.series, &self.schema);
        let all = series.snapshot.metadata(&series.access, None, stats).await?;
        let columns = schema.fields().iter().map(|field| match field.name().as_str() {
            "name" => texts(all.iter().map(|m| m.metric.as_str())),
            "type" => texts(all.iter().map(|m| m.metric_type.as_str())),
            "unit" => texts(all.iter().map(|m| m.unit.as_str())),
            _ => texts(all.iter().map(|m| m.help.as_str())),
        });
        let rows = batch(schema, columns.collect(), all.len())?;
        hold(&rows, stats)?;
        Ok(vec![rows])
    }

    async fn series_rows(&self, task: &Arc<TaskContext>, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let (schema, filter) = (&self.schema, &self.filter);
        let cells = LabelCells::new(schema, &self.series.lower.service_labels);
        // With some of the labels, series may look the same; each still is a row.
        let selected = self.series.select(filter, filter.range(), &cells, stats).await?;
        let bounds = ["first_time", "last_time"].iter().any(|name| schema.column_with_name(name).is_some());
        let (rows, bounds) = if bounds {
            self.bounds(&selected, task, stats).await?
        } else {
            let keep = selected.keep.as_deref();
            let kept = |row: &u32| keep.is_none_or(|keep| keep[*row as usize]);
            ((0..selected.table.len() as u32).filter(kept).collect(), Vec::new())
        };
        let mut out = Vec::new();
        for (n, rows) in rows.chunks(BATCH_ROWS).enumerate() {
            let labels = cells.columns(&selected.table, rows)?;
            let bounds = bounds.get(n * BATCH_ROWS..).unwrap_or_default();
            let of = |pick: fn(&(i64, i64)) -> i64| times(bounds[..rows.len()].iter().map(|b| Some(pick(b))));
            let columns = labels.into_iter().zip(schema.fields()).map(|(labels, field)| match labels {
                Some(labels) => labels,
                None if field.name() == "first_time" => of(|b| b.0),
                None => of(|b| b.1),
            });
            let rows = batch(schema, columns.collect(), rows.len())?;
            hold(&rows, stats)?;
            out.push(rows);
        }
        Ok(out)
    }

    /// The first and the last time of each series that has samples.
    async fn bounds(
        &self,
        selected: &SelectedSeries,
        task: &Arc<TaskContext>,
        stats: &ReadStats,
    ) -> Result<(Vec<u32>, Vec<FirstAndLast>)> {
        let request = SampleRequest {
            range: self.filter.range(),
            floats: true,
            histograms: selected.has_histograms,
            start_times: false,
            read_repeatedly: false,
        };
        let table = scan_table(selected.samples_table(request, stats));
        // The nodes of a run are identified by their addresses. This inner plan ends before the run does, so it gets
        // a state of its own.
        let config = task.session_config().clone().with_extension(Arc::new(RunShared::default()));
        let session = SessionStateBuilder::new().with_config(config.clone()).with_runtime_env(task.runtime_env());
        let session = Box::new(session.build());
        let plan = table.scan(&*session, None, &[], None).await.map_err(from_datafusion)?;
        let own = TaskContext::default().with_session_config(config).with_runtime(task.runtime_env());
        let mut stored = execute_stream(plan, Arc::new(own)).map_err(from_datafusion)?;
        let (mut rows, mut bounds) = (Vec::new(), Vec::new());
        while let Some(stored) = stored.try_next().await.map_err(from_datafusion)? {
            let other = || Error::internal("a scan of samples has other columns");
            let series = stored.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(other)?;
            for row in 0..stored.num_rows() {
                let lists = ["ts", "h_ts"].iter().filter_map(|name| stored.column_by_name(name));
                let lists = lists.map(|list| {
                    list.as_list_view_opt::<i32>()
                        .map_or_else(|| list.as_list::<i32>().value(row), |view| view.value(row))
                });
                let both = lists.filter_map(|times| {
                    let times = times.as_primitive_opt::<Int64Type>()?.values().clone();
                    Some((*times.first()?, *times.last()?))
                });
                if let Some(both) = both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
                    rows.push(series.value(row));
                    bounds.push(both);
                }
            }
            stats.take(stored.num_rows() * 20)?;
            stats.check()?;
        }
        Ok((rows, bounds))
    }

    async fn exemplar_rows(&self, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let (schema, filter) = (&self.schema, &self.filter);
        let (series, service_labels) = (&self.series, &self.series.lower.service_labels);
        let selectors = [filter.matchers()];
        let found = series.snapshot.exemplars(&series.access, &selectors, filter.range(), stats).await?;
        let mut table = SeriesTableBuilder::default();
        for one in &found {
            table.push(one.labels.iter());
        }
        let table = table.finish();
        let cells = LabelCells::new(schema, service_labels);
        let flat: Vec<(u32, usize)> = found
            .iter()
            .enumerate()
            .filter(|(row, _)| !filter.needs_rows() || filter.takes(&table, *row, service_labels))
            .flat_map(|(row, one)| (0..one.exemplars.len()).map(move |at| (row as u32, at)))
            .collect();
        stats.take(flat.len() * size_of::<(u32, usize)>())?;
        let mut out = Vec::new();
        for rows in flat.chunks(BATCH_ROWS) {
            let of_series: Vec<u32> = rows.iter().map(|(row, _)| *row).collect();
            let labels = cells.columns(&table, &of_series)?;
            let columns = labels.into_iter().zip(schema.fields()).map(|(labels, field)| match labels {
                Some(labels) => Ok(labels),
                None => exemplar_column(field.name(), &found, rows),
            });
            let rows = batch(schema, columns.collect::<Result<_>>()?, rows.len())?;
            hold(&rows, stats)?;
            out.push(rows);
        }
        Ok(out)
    }
}

fn exemplar_column(name: &str, found: &[SeriesExemplars], rows: &[(u32, usize)]) -> Result<ArrayRef> {
    let each = || rows.iter().map(|(row, at)| &found[*row as usize].exemplars[*at]);
    Ok(match name {
        "time" => times(each().map(|(time, ..)| Some(*time))),
        "value" => Arc::new(each().map(|(_, value, _)| Some(*value)).collect::<Float64Array>()),
        "trace_id" | "span_id" => texts(each().map(|(.., labels)| labels.get(name))),
        _ => {
            let mut maps = crate::tables::cells::TextMaps::default();
            for (.., labels) in each() {
                labels.iter().for_each(|(name, value)| maps.push(name, value));
                maps.end();
            }
            Arc::new(maps.finish()?)
        }
    })
}
