//! What of a query runs before it can be planned: its subqueries, whose values take their place in its filters, and the
//! matches of `stream_context`.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::StreamExt as _;
use quiver_query::{QueryContext, QueryReservation, Rules, from_datafusion};
use quiver_types::logs::{LogFilter, LogSnapshot, MSG, STREAM, STREAM_ID, TIME};
use quiver_types::{Error, ErrorKind, Result};

use super::LogsqlEngine;
use crate::ast::{Filter, Pipe, Query, Test, Values};
use crate::filter_fields::add_needs;
use crate::ops::stream_context::{Context, WINDOW_NS};
use crate::partial_plan::PartialPlan;
use crate::pipes::pipe::QueryPlanner;
use crate::pipes::stream_context::StreamContext;
use crate::plan::Planner;
use crate::plan::filter::lower;
use crate::reference_time::TimeScope;
use crate::required_fields::Needs;
use crate::rows::{Texts, texts_of};

/// Most values of a subquery.
const VALUES_MAX: usize = 1_000_000;

/// Number of copies of a subquery's values in memory: in its result, in the query, in the plan, and in a look-up
/// table.
const VALUE_COPIES: usize = 4;

type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Gives the pipe `stream_context`, if the query begins with it.
fn first_context(query: &Query) -> Option<&StreamContext> {
    query.pipes.first().and_then(Pipe::downcast_ref)
}

/// One query with its snapshot.
pub(super) struct QueryRun<'a> {
    pub(super) engine: &'a LogsqlEngine,
    pub(super) snapshot: Arc<dyn LogSnapshot>,
    pub(super) ctx: &'a QueryContext,
    pub(super) now_ns: i64,
    /// The reservation for the values of subqueries.
    pub(super) memory: &'a QueryReservation,
}

impl QueryRun<'_> {
    fn planner(&self) -> Planner<'_> {
        Planner { tables: &self.engine.tables, snapshot: &self.snapshot, ctx: self.ctx, now_ns: self.now_ns }
    }

    /// Plans a query whose subqueries have run.
    ///
    /// # Errors
    /// Those of planning, and of finding the matches that `stream_context` shows the surroundings of.
    pub(super) async fn plan(&self, query: &Query) -> Result<PartialPlan> {
        let Some(context) = first_context(query) else { return self.planner().query(query, &Needs::all()) };
        let context = Context {
            filter: LogFilter::All,
            before: context.before.unwrap_or(0),
            after: context.after.unwrap_or(0),
            window_ns: context.time_window.as_ref().map_or(WINDOW_NS, |window| window.value),
        };
        self.stream_context(query, context).await
    }

    /// Runs the subqueries in the filters of a query, innermost first, and replaces them by their values.
    ///
    /// # Errors
    /// Those of planning and running; LimitExceeded: too many values.
    pub(super) fn subqueries<'q>(&'q self, query: &'q mut Query) -> Work<'q, ()> {
        Box::pin(async move {
            self.in_filter(&mut query.filter).await?;
            for (i, pipe) in query.pipes.iter_mut().enumerate() {
                if let Some(context) = pipe.downcast_mut::<StreamContext>() {
                    if i > 0 {
                        return Err(Error::invalid("`stream_context` must be the first pipe"));
                    }
                    for filter in &mut context.within {
                        self.in_filter(filter).await?;
                    }
                    continue;
                }
                for filter in pipe.kind_mut().filters_mut() {
                    self.in_filter(filter).await?;
                }
                for inner in pipe.kind_mut().queries_mut() {
                    self.prepare_inner(inner).await?;
                }
            }
            Ok(())
        })
    }

    /// Prepares a query that another one contains.
    async fn prepare_inner(&self, query: &mut Query) -> Result<()> {
        if first_context(query).is_some() {
            return Err(Error::invalid("`stream_context` cannot stand in `join` and `union`"));
        }
        self.subqueries(query).await
    }

    fn in_filter<'q>(&'q self, filter: &'q mut Filter) -> Work<'q, ()> {
        Box::pin(async move {
            match filter {
                Filter::And(inner) | Filter::Or(inner) => {
                    for filter in inner {
                        self.in_filter(filter).await?;
                    }
                }
                Filter::Not(inner) => self.in_filter(inner).await?,
                Filter::StreamId(values)
                | Filter::Field {
                    test: Test::In(values) | Test::ContainsAll(values) | Test::ContainsAny(values),
                    ..
                } => {
                    if let Values::Subquery(query) = values {
                        let found = self.values(query).await?;
                        *values = Values::List(found);
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Runs a subquery for the values of its one field.
    async fn values(&self, query: &mut Query) -> Result<Vec<String>> {
        self.subqueries(query).await?;
        let field = query.output_field().unwrap_or(MSG).to_owned();
        let planned = if first_context(query).is_some() {
            self.plan(query).await?
        } else {
            self.planner().query(query, &Needs::of([&field]))?
        };
        let mut found = BTreeSet::new();
        let mut scratch = String::new();
        self.each_batch(&planned, |batch| {
            let texts = texts_of(batch, &planned.shape, &field).map_err(from_datafusion)?;
            for row in 0..batch.num_rows() {
                let value = texts.get(row, &mut scratch);
                if !found.contains(value) {
                    self.memory.add(VALUE_COPIES * (value.len() + size_of::<String>()))?;
                    found.insert(value.to_owned());
                }
            }
            if found.len() > VALUES_MAX {
                let text = format!("a subquery gives more than {VALUES_MAX} values");
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
            Ok(())
        })
        .await?;
        Ok(found.into_iter().collect())
    }

    async fn each_batch(&self, planned: &PartialPlan, mut each: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        let mut batches = self.engine.query.execute(&planned.plan, self.ctx, Rules::Direct).await?;
        while let Some(batch) = batches.next().await {
            self.ctx.check("query execution")?;
            each(&batch.map_err(from_datafusion)?)?;
        }
        Ok(())
    }

    /// Finds the streams and times of matching rows, then plans a scan of these streams around these times.
    async fn stream_context(&self, query: &Query, mut context: Context) -> Result<PartialPlan> {
        let scope = TimeScope {
            now_ns: self.now_ns,
            offset_ns: query.options.time_offset.as_ref().map_or(0, |offset| offset.value),
        };
        let matching = Query { pipes: Vec::new(), ..query.clone() };
        let found = self.planner().query(&matching, &Needs::of([TIME, STREAM_ID]))?;
        let (mut ids, mut range) = (BTreeSet::new(), (i64::MAX, i64::MIN));
        self.each_batch(&found, |batch| {
            let column = |name| texts_of(batch, &found.shape, name).map_err(from_datafusion);
            let (streams, times) = (column(STREAM_ID)?, column(TIME)?);
            let mut scratch = String::new();
            for row in 0..batch.num_rows() {
                let id = streams.get(row, &mut scratch);
                if !ids.contains(id) {
                    self.memory.add(VALUE_COPIES * (id.len() + size_of::<String>()))?;
                    ids.insert(id.to_owned());
                }
                if let Texts::Time(times) = &times {
                    range = (range.0.min(times.value(row)), range.1.max(times.value(row)));
                }
            }
            Ok(())
        })
        .await?;
        context.filter = lower(&query.filter, TimeScope { offset_ns: 0, ..scope })?;
        let around = (
            range.0.saturating_sub(context.window_ns).saturating_sub(scope.offset_ns),
            range.1.saturating_add(context.window_ns).saturating_sub(scope.offset_ns),
        );
        let streams = lower(&Filter::StreamId(Values::List(ids.into_iter().collect())), scope)?;
        let mut rows = vec![streams, LogFilter::Time(vec![around])];
        // The rows around matches are subject to the caller's rights like any others.
        if let Some(of) = first_context(query) {
            rows.extend(of.within.iter().map(|filter| lower(filter, scope)).collect::<Result<Vec<_>>>()?);
        }
        let rows = LogFilter::And(rows);
        let mut needs = Needs::all();
        for pipe in query.pipes.iter().rev() {
            needs = pipe.kind().before(&needs);
        }
        needs.add_all([TIME, STREAM, STREAM_ID, MSG]);
        add_needs(&query.filter, &mut needs);
        self.planner().around(query, rows, context, &needs, scope)
    }
}
