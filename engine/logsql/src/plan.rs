//! Query → DataFusion `LogicalPlan`.
//!
//! Pipes are walked backwards for the fields they need; the scan is asked for just these, filter included. Then each
//! pipe adds a node. Nothing is read here: subqueries in filters were run before, their values stand in the query.

pub(crate) mod filter;
pub(crate) mod needs_of;
mod pipe;
mod stats;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use quiver_query::{LogTables, QueryContext, from_datafusion};
use quiver_types::logs::{
    LogColumn, LogFilter, LogForm, LogOrder, LogRequest, LogSnapshot, ROW_COUNT, STREAM, STREAM_ID, TIME,
};
use quiver_types::{Error, Result};

use crate::ast::pipe::{Sort, SortForm, WindowCall, WindowFunc};
use crate::ast::{FieldPattern, Pipe, Query, StatsFunc};
use crate::needs::Needs;
use crate::ops::context::Context;
use crate::ops::facets;
use crate::rows::{Column, Kind, Shape};
use filter::TimeScope;

/// Name of the table in plans.
const TABLE: &str = "logs";

/// A plan and what its rows look like.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) plan: LogicalPlan,
    pub(crate) shape: Shape,
    /// Bounds of the time of the rows, both included: what rates are over.
    pub(crate) time: (i64, i64),
}

/// Makes plans.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub(crate) tables: &'a Arc<dyn LogTables>,
    pub(crate) snapshot: &'a Arc<dyn LogSnapshot>,
    pub(crate) ctx: &'a QueryContext,
    pub(crate) now_ns: i64,
}

impl Planner<'_> {
    /// Plans a query of whose rows these fields are needed.
    pub(crate) fn query(&self, query: &Query, needs: &Needs) -> Result<Planned> {
        let query = &*in_time_order(query);
        let scope = self.scope(query);
        let mut after = vec![needs.clone()];
        for pipe in query.pipes.iter().rev() {
            let wanted = needs_of::before(pipe, after.last().expect("begins with one"));
            after.push(wanted);
        }
        after.reverse();
        let own_rows = query.pipes.iter().rposition(|pipe| matches!(pipe, Pipe::GenerateSequence(_) | Pipe::Rows(_)));
        let (mut planned, first) = match own_rows {
            Some(i) => (pipe::own_rows(&query.pipes[i])?, i + 1),
            None => self.source(query, &after, scope)?,
        };
        for (i, pipe) in query.pipes.iter().enumerate().skip(first) {
            planned = self.pipe(pipe, planned, &after[i + 1], scope)?;
        }
        Ok(planned)
    }

    fn scope(&self, query: &Query) -> TimeScope {
        let offset_ns = query.options.time_offset.as_ref().map_or(0, |offset| offset.value);
        TimeScope { now_ns: self.now_ns, offset_ns }
    }

    /// The scan; also says how many pipes it already does. `needs[i]` is what the rows before pipe `i` need to have.
    fn source(&self, query: &Query, needs: &[Needs], scope: TimeScope) -> Result<(Planned, usize)> {
        let filter = filter::lower(&query.filter, scope)?;
        if let (Some(pipe @ Pipe::FieldNames { .. }), 0) = (query.pipes.first(), scope.offset_ns) {
            let time = filter.time_bounds();
            let plan = self.table(LogRequest::field_counts(filter), None)?;
            return Ok((pipe::sum_field_names(pipe, Planned { plan, shape: Shape::default(), time })?, 1));
        }
        if let (Some(pipe @ Pipe::Facets(of)), 0) = (query.pipes.first(), scope.offset_ns) {
            let time = filter.time_bounds();
            let plan = self.table(LogRequest::value_counts(filter, facets::limits(of)), None)?;
            return Ok((pipe::add_facets(pipe, Planned { plan, shape: facets::counts_shape(), time })?, 1));
        }
        let mut shape = source_shape(query, &needs[0]);
        let newest = newest(query);
        if (newest.is_some() || scope.offset_ns != 0) && shape.index(TIME).is_none() {
            shape.columns.push(Column { name: TIME.to_owned(), kind: Kind::Time });
        }
        if counts_rows(query, &shape) {
            shape.columns.push(Column { name: ROW_COUNT.to_owned(), kind: Kind::Count });
        }
        let order = newest.map_or(LogOrder::Any, |newest| newest.order);
        let time = filter.time_bounds();
        let most = if newest.is_some() { None } else { most_rows(query) };
        let plan = self.scan(filter, &shape, order, most)?;
        let mut planned = Planned { plan, shape, time };
        if scope.offset_ns != 0 {
            planned = pipe::shift_time(planned, scope.offset_ns)?;
        }
        let Some(newest) = newest else { return Ok((planned, 0)) };
        for (i, pipe) in query.pipes[..newest.sort_at].iter().enumerate() {
            planned = self.pipe(pipe, planned, &needs[i + 1], scope)?;
        }
        planned = pipe::window(planned, newest.skip, newest.fetch)?;
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
    ) -> Result<Planned> {
        let shape = source_shape(query, needs);
        let time = rows.time_bounds();
        let plan = self.scan(rows, &shape, LogOrder::Any, None)?;
        let mut planned = Planned { plan, shape, time };
        if scope.offset_ns != 0 {
            planned = pipe::shift_time(planned, scope.offset_ns)?;
        }
        planned = pipe::stream_context(planned, context)?;
        let mut after = vec![Needs::all()];
        for pipe in query.pipes.iter().rev() {
            let wanted = needs_of::before(pipe, after.last().expect("begins with one"));
            after.push(wanted);
        }
        after.reverse();
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
        let column = |c: &Column| LogColumn { name: c.name.clone(), stored: c.kind == Kind::Stored };
        let columns = shape.columns.iter().filter(|c| c.kind != Kind::Count).map(column).collect();
        let counted = shape.columns.iter().any(|c| c.kind == Kind::Count);
        let form = if counted { LogForm::Counted } else { LogForm::Rows };
        let request = LogRequest { filter, columns, rest: shape.rest, order, form };
        self.table(request, most)
    }

    fn table(&self, request: LogRequest, most: Option<u64>) -> Result<LogicalPlan> {
        let table = self.tables.logs(self.snapshot, &self.ctx.access, request, &self.ctx.stats)?;
        let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        LogicalPlanBuilder::scan_with_filters_fetch(TABLE, provider_as_source(table), None, Vec::new(), most)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }
}

/// The columns of the scan: what is needed by name; if more is needed, all names that the query speaks of before its
/// rows become others, and the map.
pub(crate) fn source_shape(query: &Query, needs: &Needs) -> Shape {
    let mut names: BTreeSet<String> = needs.names.clone();
    if needs.open() {
        let mut spoken = Needs::default();
        for pipe in &query.pipes {
            needs_of::mentioned(pipe, &mut spoken);
            if needs_of::is_barrier(pipe) {
                break;
            }
        }
        names.extend(spoken.names);
        names.extend([TIME, STREAM, STREAM_ID].into_iter().filter(|name| needs.has(name)).map(str::to_owned));
    }
    let stored = stored(query);
    let kind = |name: &str| match name {
        TIME => Kind::Time,
        name if stored.iter().any(|own| own == name) => Kind::Stored,
        _ => Kind::Text,
    };
    let columns = names.into_iter().map(|name| Column { kind: kind(&name), name }).collect();
    Shape { columns, rest: needs.open() }
}

/// Fields that the rows of the scan are grouped by or that are added up: codes and numbers serve better there than texts.
fn stored(query: &Query) -> Vec<String> {
    let first = query.pipes.iter().find(|pipe| !matches!(pipe, Pipe::Filter(_)));
    match first {
        Some(Pipe::Stats(stats)) => stats::named(stats),
        Some(Pipe::Uniq(uniq)) => uniq.by.clone(),
        Some(Pipe::Top(top)) => top.by.clone(),
        Some(Pipe::FieldValues { field, .. }) => vec![field.clone()],
        _ => Vec::new(),
    }
}

/// Whether the rows of the scan are only counted by values, so that it may give one row for many alike.
fn counts_rows(query: &Query, shape: &Shape) -> bool {
    let grouped = match query.pipes.first() {
        Some(Pipe::Stats(stats)) => stats.calls.iter().all(|call| {
            let counts = match &call.func {
                StatsFunc::Count(fields) => fields.iter().any(FieldPattern::is_all),
                func => matches!(func, StatsFunc::Rate),
            };
            counts && call.condition.is_none()
        }),
        Some(Pipe::Uniq(uniq)) => uniq.filter.is_none(),
        Some(Pipe::FieldValues { filter, .. }) => filter.is_none(),
        Some(Pipe::Top(_)) => true,
        _ => false,
    };
    // Times are all different, and a field of the name of the count would meet it.
    grouped && !shape.rest && shape.index(TIME).is_none() && shape.index(ROW_COUNT).is_none()
}

/// How many rows of the scan a query wants, where its pipes begin with a limit: it need not look at more.
fn most_rows(query: &Query) -> Option<u64> {
    let first = query.pipes.iter().find(|pipe| !matches!(pipe, Pipe::Fields(_) | Pipe::Delete(_)));
    match first {
        Some(Pipe::Limit(most)) => Some(*most),
        _ => None,
    }
}

/// Puts rows in the order of their times where what a pipe makes of them depends on it and the query says none.
fn in_time_order(query: &Query) -> Cow<'_, Query> {
    let mut ordered = false;
    let mut at = Vec::new();
    for (i, pipe) in query.pipes.iter().enumerate() {
        match pipe {
            Pipe::Sort(_) | Pipe::Top(_) | Pipe::GenerateSequence(_) | Pipe::Rows(_) => ordered = true,
            Pipe::WindowStats { running, calls, .. } if !ordered => {
                let by_order = |call: &WindowCall| matches!(call.func, WindowFunc::First | WindowFunc::Last);
                if *running || calls.iter().any(by_order) {
                    at.push(i);
                    ordered = true;
                }
            }
            pipe => ordered &= !needs_of::is_barrier(pipe) && !matches!(pipe, Pipe::Join(_) | Pipe::Union(_)),
        }
    }
    if at.is_empty() {
        return Cow::Borrowed(query);
    }
    let mut query = query.clone();
    for i in at.into_iter().rev() {
        query.pipes.insert(i, Pipe::Sort(Sort::by_time()));
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
    let sort_at = query.pipes.iter().position(|pipe| !keeps_time(pipe))?;
    let Pipe::Sort(sort) = &query.pipes[sort_at] else { return None };
    let [(field, descending)] = sort.by.as_slice() else { return None };
    if field != TIME || sort.limit.is_none() || !sort.partition_by.is_empty() || sort.rank.is_some() {
        return None;
    }
    let newest_first = *descending != (sort.descending != (sort.form == SortForm::Last));
    let order = if newest_first { LogOrder::NewestFirst } else { LogOrder::OldestFirst };
    Some(Newest { order, sort_at, skip: sort.offset, fetch: sort.limit })
}

fn keeps_time(pipe: &Pipe) -> bool {
    match pipe {
        Pipe::Filter(_) => true,
        Pipe::Fields(fields) => fields.iter().any(|field| field.matches(TIME)),
        Pipe::Delete(fields) => !fields.iter().any(|field| field.matches(TIME)),
        Pipe::Row { pipe, .. } => {
            let made = needs_of::targets(pipe);
            !made.iter().any(|name| name == TIME)
                && !matches!(
                    pipe,
                    crate::ast::RowPipe::UnpackJson(_)
                        | crate::ast::RowPipe::UnpackLogfmt(_)
                        | crate::ast::RowPipe::UnpackSyslog { .. }
                )
        }
        _ => false,
    }
}

/// An error of planning that only a fault of ours can cause.
pub(crate) fn internal(message: &str) -> Error {
    Error::internal(message)
}
