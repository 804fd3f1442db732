//! Query → DataFusion `LogicalPlan`.
//!
//! Pipes are walked backwards for the fields they need; the scan is asked for just these, filter included. Then each
//! pipe adds a node. Nothing is read here: subqueries in filters were run before, their values stand in the query.

pub(crate) mod filter;
pub(crate) mod stats;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, TimestampNanosecondArray};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use quiver_query::{LogTables, QueryContext, from_datafusion};
use quiver_types::Result;
use quiver_types::logs::{
    LogColumn, LogFilter, LogForm, LogOrder, LogRequest, LogSnapshot, ROW_COUNT, STREAM, STREAM_ID, TIME,
};
use serde::{Deserialize, Serialize};

use crate::ast::{Filter, Pipe, Query};
use crate::chunked_stream::map_batches;
use crate::ops::stream_context::{self, Context};
use crate::partial_plan::PartialPlan;
use crate::pipes::delete::Delete;
use crate::pipes::fields::Fields;
use crate::pipes::filter::FilterRows;
use crate::pipes::limit::cut;
use crate::pipes::pipe::{At, Order, QueryPlanner};
use crate::pipes::sort::Sort;
use crate::pipes::window_stats::WindowStats;
use crate::reference_time::TimeScope;
use crate::required_fields::Needs;
use crate::rows::{Column, ColumnStorage, Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<ShiftedTime>()];

/// Name of the table in plans.
const TABLE: &str = "logs";

/// What plans of one query are made from: the tables, and their state at one moment.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub(crate) tables: &'a Arc<dyn LogTables>,
    pub(crate) snapshot: &'a Arc<dyn LogSnapshot>,
    pub(crate) ctx: &'a QueryContext,
    pub(crate) now_ns: i64,
}

impl QueryPlanner for Planner<'_> {
    fn query(&self, query: &Query, needs: &Needs) -> Result<PartialPlan> {
        let query = &*in_time_order(query);
        let scope = self.scope(query);
        let after = needs_between(query, needs);
        let own = query.pipes.iter().enumerate().rev().find_map(|(i, pipe)| Some((i, pipe.kind().own_rows()?)));
        let (mut planned, first) = match own {
            Some((i, rows)) => (rows?, i + 1),
            None => self.source(query, &after, scope)?,
        };
        for (i, pipe) in query.pipes.iter().enumerate().skip(first) {
            planned = self.pipe(pipe, planned, &after[i + 1], scope)?;
        }
        Ok(planned)
    }
}

impl Planner<'_> {
    /// Adds a pipe; `needs` is what is needed of its rows.
    fn pipe(&self, pipe: &Pipe, planned: PartialPlan, needs: &Needs, scope: TimeScope) -> Result<PartialPlan> {
        pipe.kind().plan(planned, At { planner: self, needs, scope })
    }

    fn scope(&self, query: &Query) -> TimeScope {
        let offset_ns = query.options.time_offset.as_ref().map_or(0, |offset| offset.value);
        TimeScope { now_ns: self.now_ns, offset_ns }
    }

    /// Plans the scan; also gives how many of the first pipes it already does. `needs[i]` is what the rows before pipe
    /// `i` need to have.
    fn source(&self, query: &Query, needs: &[Needs], scope: TimeScope) -> Result<(PartialPlan, usize)> {
        // A query for `{}` and nothing else asks for no stream, as VictoriaLogs has it; beside others it is no
        // condition.
        let filter = match &query.filter {
            Filter::Stream(stream) if stream.groups.is_empty() => LogFilter::None,
            filter => filter::lower(filter, scope)?,
        };
        // Rows that are moved in time are not those that the scan counts.
        if let (Some(pipe), 0) = (query.pipes.first(), scope.offset_ns)
            && let Some(request) = pipe.kind().counted_by_scan(&filter)
        {
            let counts =
                PartialPlan { plan: self.table(request, None)?, shape: Shape::default(), time: filter.time_bounds() };
            return Ok((pipe.kind().add_counts(counts)?, 1));
        }
        let mut shape = source_shape(query, &needs[0]);
        let newest = newest(query);
        if (newest.is_some() || scope.offset_ns != 0) && shape.index(TIME).is_none() {
            shape.columns.push(Column { name: TIME.to_owned(), kind: ColumnStorage::Time });
        }
        if counts_rows(query, &shape) {
            shape.columns.push(Column { name: ROW_COUNT.to_owned(), kind: ColumnStorage::Count });
        }
        let order = newest.map_or(LogOrder::Any, |newest| newest.order);
        let time = filter.time_bounds();
        let most = if newest.is_some() { None } else { most_rows(query) };
        let plan = self.scan(filter, &shape, order, most)?;
        let mut planned = PartialPlan { plan, shape, time };
        if scope.offset_ns != 0 {
            planned = shifted(planned, scope.offset_ns)?;
        }
        let Some(newest) = newest else { return Ok((planned, 0)) };
        for (i, pipe) in query.pipes[..newest.sort_at].iter().enumerate() {
            planned = self.pipe(pipe, planned, &needs[i + 1], scope)?;
        }
        planned = cut(planned, newest.skip, newest.fetch)?;
        Ok((planned, newest.sort_at + 1))
    }

    /// `stream_context`: rows of some streams by (stream, time), of which the operator chooses; then the other pipes.
    pub(crate) fn around(
        &self,
        query: &Query,
        rows: LogFilter,
        context: Context,
        needs: &Needs,
        scope: TimeScope,
    ) -> Result<PartialPlan> {
        let shape = source_shape(query, needs);
        let time = rows.time_bounds();
        let plan = self.scan(rows, &shape, LogOrder::Any, None)?;
        let mut planned = PartialPlan { plan, shape, time };
        if scope.offset_ns != 0 {
            planned = shifted(planned, scope.offset_ns)?;
        }
        planned = stream_context::plan(context, planned)?;
        let after = needs_between(query, &Needs::all());
        for (i, pipe) in query.pipes.iter().enumerate().skip(1) {
            planned = self.pipe(pipe, planned, &after[i + 1], scope)?;
        }
        Ok(planned)
    }

    /// A scan of the logs table; of each partition no more than so many rows are wanted.
    pub(crate) fn scan(
        &self,
        filter: LogFilter,
        shape: &Shape,
        order: LogOrder,
        most: Option<u64>,
    ) -> Result<LogicalPlan> {
        let column = |c: &Column| LogColumn { name: c.name.clone(), stored: c.kind == ColumnStorage::Stored };
        let columns = shape.columns.iter().filter(|c| c.kind != ColumnStorage::Count).map(column).collect();
        let counted = shape.columns.iter().any(|c| c.kind == ColumnStorage::Count);
        let form = if counted { LogForm::Counted } else { LogForm::Rows };
        let request = LogRequest { filter, columns, rest: shape.rest, order, form };
        self.table(request, most)
    }

    fn table(&self, request: LogRequest, most: Option<u64>) -> Result<LogicalPlan> {
        let table = self.tables.logs(self.snapshot, &self.ctx.access, request, &self.ctx.stats)?;
        let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        LogicalPlanBuilder::scan_with_filters_fetch(
            TableReference::bare(TABLE),
            provider_as_source(table),
            None,
            Vec::new(),
            most,
        )
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
    }
}

/// What is needed before each pipe, and behind the last one.
fn needs_between(query: &Query, behind: &Needs) -> Vec<Needs> {
    let mut all = vec![behind.clone()];
    for pipe in query.pipes.iter().rev() {
        let wanted = pipe.kind().before(all.last().expect("begins with one"));
        all.push(wanted);
    }
    all.reverse();
    all
}

/// The names that a pipe itself speaks of: they get columns wherever a map of other fields is.
fn mentioned(pipe: &Pipe) -> BTreeSet<String> {
    let mut own = pipe.kind().before(&Needs::default());
    own.add_all(pipe.kind().mentions().iter().map(String::as_str));
    own.names
}

/// Moves `_time` forward.
fn shifted(planned: PartialPlan, offset_ns: i64) -> Result<PartialPlan> {
    let shape = planned.shape.clone();
    planned.then(ShiftedTime { offset_ns, shape: shape.clone() }, shape)
}

/// Lacks in DataFusion: an addition to times that ends at the first and last of them, and does not fail there.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct ShiftedTime {
    offset_ns: i64,
    shape: Shape,
}

impl StepKind for ShiftedTime {
    const KIND: &'static str = "time_offset";
}

impl Step for ShiftedTime {
    fn name(&self) -> &'static str {
        "LogsShiftTime"
    }

    fn detail(&self) -> String {
        format!("{} ns", self.offset_ns)
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn open(
        self: Arc<Self>,
        rows: SendableRecordBatchStream,
        task: Arc<TaskContext>,
    ) -> datafusion::error::Result<Batches> {
        let map = move |rows: RecordBatch| {
            let mut columns = rows.columns().to_vec();
            if let Some(i) = self.shape.index(TIME) {
                let times = columns[i].as_primitive::<TimestampNanosecondType>();
                let moved: TimestampNanosecondArray = times.unary(|ns| ns.saturating_add(self.offset_ns));
                columns[i] = Arc::new(moved.with_timezone("UTC"));
            }
            batch(&self.shape, columns, rows.num_rows())
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

/// The columns of the scan: what is needed by name; if more is needed, all names that the query speaks of before its
/// rows become others, and the map.
pub(crate) fn source_shape(query: &Query, needs: &Needs) -> Shape {
    let mut names: BTreeSet<String> = needs.names.clone();
    if needs.open() {
        for pipe in &query.pipes {
            names.extend(mentioned(pipe));
            if pipe.kind().is_barrier() {
                break;
            }
        }
        names.extend([TIME, STREAM, STREAM_ID].into_iter().filter(|name| needs.has(name)).map(str::to_owned));
    }
    let stored = stored(query);
    let kind = |name: &str| match name {
        TIME => ColumnStorage::Time,
        name if stored.iter().any(|own| own == name) => ColumnStorage::Stored,
        _ => ColumnStorage::Text,
    };
    let columns = names.into_iter().map(|name| Column { kind: kind(&name), name }).collect();
    Shape { columns, rest: needs.open() }
}

/// Fields that the rows of the scan are grouped by or that are added up: codes and numbers serve better there than texts.
fn stored(query: &Query) -> Vec<String> {
    let first = query.pipes.iter().find(|pipe| !pipe.is::<FilterRows>());
    first.map_or_else(Vec::new, |pipe| pipe.kind().stored())
}

/// Whether the rows of the scan are only counted by values, so that it may give one row for many alike.
fn counts_rows(query: &Query, shape: &Shape) -> bool {
    let grouped = query.pipes.first().is_some_and(|pipe| pipe.kind().counts_rows());
    // Times are all different, and a field of the name of the count would meet it.
    grouped && !shape.rest && shape.index(TIME).is_none() && shape.index(ROW_COUNT).is_none()
}

/// How many rows of the scan a query wants, where its pipes begin with a limit: it need not look at more.
fn most_rows(query: &Query) -> Option<u64> {
    let first = query.pipes.iter().find(|pipe| !pipe.is::<Fields>() && !pipe.is::<Delete>());
    first.and_then(|pipe| pipe.kind().most_rows())
}

/// Puts rows in the order of their times where what a pipe makes of them depends on it and the query says none.
fn in_time_order(query: &Query) -> Cow<'_, Query> {
    let mut ordered = false;
    let mut at = Vec::new();
    for (i, pipe) in query.pipes.iter().enumerate() {
        if !ordered && pipe.downcast_ref::<WindowStats>().is_some_and(WindowStats::is_ordered) {
            at.push(i);
            ordered = true;
            continue;
        }
        match pipe.kind().order() {
            Order::Made => ordered = true,
            Order::Lost => ordered = false,
            Order::Kept => {}
        }
    }
    if at.is_empty() {
        return Cow::Borrowed(query);
    }
    let mut query = query.clone();
    for i in at.into_iter().rev() {
        query.pipes.insert(i, Sort::oldest_first().into());
    }
    Cow::Owned(query)
}

/// An order by time that the scan itself can give.
#[derive(Debug, Clone, Copy)]
struct Newest {
    order: LogOrder,
    sort_at: usize,
    skip: u64,
    fetch: Option<u64>,
}

/// Finds `sort by (_time [desc])` with a limit, behind pipes that keep `_time` and the number of rows or less.
fn newest(query: &Query) -> Option<Newest> {
    let sort_at = query.pipes.iter().position(|pipe| !pipe.kind().keeps_time())?;
    let sort = query.pipes[sort_at].downcast_ref::<Sort>()?;
    let [(field, descending)] = sort.by.as_slice() else { return None };
    if field != TIME || sort.limit.is_none() || !sort.partition_by.is_empty() || sort.rank.is_some() {
        return None;
    }
    let newest_first = *descending != sort.is_reversed();
    let order = if newest_first { LogOrder::NewestFirst } else { LogOrder::OldestFirst };
    Some(Newest { order, sort_at, skip: sort.offset, fetch: sort.limit })
}

#[cfg(test)]
mod tests;
