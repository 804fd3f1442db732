//! The language on an engine and a source of logs: queries in, streams of rows or plans out.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quiver_query::{Explain, LogTables, QueryContext, QueryEngine, QueryReservation, Rules, from_datafusion};
use quiver_types::logs::{LogFilter, LogSnapshot, LogSource, MSG, STREAM, STREAM_ID, TIME};
use quiver_types::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::ast::{Filter, Pipe, Query, Test, Values};
use crate::encoding::hand_on_matchers;
use crate::filter_fields::add_needs;
use crate::ops::stream_context::{Context, WINDOW_NS};
use crate::partial_plan::PartialPlan;
use crate::pipes::pipe::QueryPlanner;
use crate::pipes::stream_context::StreamContext;
use crate::plan::Planner;
use crate::plan::filter::lower;
use crate::reference_time::TimeScope;
use crate::request_scope::QueryScope;
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, Texts, texts, texts_of};

mod row_stream;

pub use row_stream::RowStream;

/// Most values of a subquery.
const VALUES_MAX: usize = 1_000_000;

/// Number of copies of a subquery's values in memory: in its result, in the query, in the plan, and in a look-up
/// table.
const VALUE_COPIES: usize = 4;

/// Most batches that wait for a slow reader, besides the one that it is reading.
const WAITING_MAX: usize = 1;

/// A batch that shows less than half of the text buffers that it keeps alive is copied, if they have at least this
/// many bytes.
const PINNED_BYTES_MIN: usize = 64 * 1024;

/// Runs LogsQL over a source of streams, the table of logs and the query engine.
#[derive(Debug, Clone)]
pub struct LogsqlEngine {
    source: Arc<dyn LogSource>,
    tables: Arc<dyn LogTables>,
    query: Arc<QueryEngine>,
}

/// Some rows of a result: a batch, and the meaning of its columns.
#[derive(Clone)]
pub struct Rows {
    shape: Arc<Shape>,
    batch: RecordBatch,
    /// The batch's share of the query's memory, held until its last slice is dropped.
    memory: Option<Arc<QueryReservation>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {}", self.batch.num_rows(), self.shape)
    }
}

/// What is done with the fields of a row.
type RowVisitor<'a> = dyn FnMut(&mut dyn Iterator<Item = (&str, &str)>) + 'a;
/// The same, which may fail.
type FallibleVisitor<'a> = Box<dyn FnMut(&mut dyn Iterator<Item = (&str, &str)>) -> Result<()> + Send + 'a>;

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `len` rows from one on, without a copy.
    #[must_use]
    pub fn slice(&self, from: usize, len: usize) -> Self {
        Self { shape: Arc::clone(&self.shape), batch: self.batch.slice(from, len), memory: self.memory.clone() }
    }

    /// Calls `row` for each row with its non-empty fields (name, value): first the columns in their order, then fields
    /// without a column, by name.
    ///
    /// # Errors
    /// Internal: a column does not hold text.
    pub fn each_row(&self, mut row: impl FnMut(&mut dyn Iterator<Item = (&str, &str)>)) -> Result<()> {
        self.visit(&mut row)
    }

    /// Compiled once, not for each caller.
    fn visit(&self, row: &mut RowVisitor<'_>) -> Result<()> {
        let mut columns: Vec<(&str, Texts)> = self
            .shape
            .names()
            .zip(self.batch.columns())
            .map(|(name, column)| Ok((name, texts(column)?)))
            .collect::<datafusion::error::Result<_>>()
            .map_err(from_datafusion)?;
        // A query may name a thousand fields, most of which no row has.
        columns.retain(|(_, texts)| !texts.is_absent());
        let rest = Rest::of(&self.batch, &self.shape);
        let mut scratch = vec![String::new(); columns.len()];
        for i in 0..self.len() {
            let own: Vec<(&str, &str)> =
                columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(i, s))).collect();
            let more = rest.iter().flat_map(|rest| rest.row(i));
            row(&mut own.into_iter().chain(more).filter(|(_, value)| !value.is_empty()));
        }
        Ok(())
    }

    /// Copies the names and values of each row, without empty ones.
    ///
    /// # Errors
    /// As [`Self::each_row`].
    pub fn to_texts(&self) -> Result<Vec<Vec<(String, String)>>> {
        let mut all = Vec::with_capacity(self.len());
        self.each_row(|fields| all.push(fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect()))?;
        Ok(all)
    }
}

/// Copies texts that are a small part of their buffers, such as a few rows of a block, so that the buffers can be
/// freed.
fn unpinned(batch: RecordBatch) -> Result<RecordBatch> {
    let of_its_own = |column: &ArrayRef| -> ArrayRef {
        let Some(texts) = column.as_string_view_opt() else { return Arc::clone(column) };
        let held: usize = texts.data_buffers().iter().map(Buffer::capacity).sum();
        let pins = held > PINNED_BYTES_MIN && texts.total_buffer_bytes_used() < held / 2;
        if pins { Arc::new(texts.gc()) } else { Arc::clone(column) }
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(of_its_own).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options);
    batch.map_err(|e| Error::internal("cannot give out a batch").with_source(e))
}

fn too_many_rows(ctx: &QueryContext) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("the answer has more than {} rows", ctx.limits.rows_max))
}

type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl LogsqlEngine {
    /// Makes the engine; it holds no state of its own.
    pub fn new(source: Arc<dyn LogSource>, tables: Arc<dyn LogTables>, query: Arc<QueryEngine>) -> Self {
        hand_on_matchers();
        Self { source, tables, query }
    }

    /// Runs a query; gives its rows as they are found.
    pub fn stream(&self, query: &Query, scope: &QueryScope, ctx: &QueryContext) -> RowStream {
        let (send, rows) = mpsc::channel(WAITING_MAX);
        let (own, query, scope, ctx) = (self.clone(), query.clone(), scope.clone(), ctx.clone());
        let run = async move {
            let out = send.clone();
            let work_ctx = ctx.clone();
            let engine = Arc::clone(&own.query);
            let work = async move {
                let (planned, _memory) = own.prepare(query, &scope, &work_ctx).await?;
                let shape = Arc::new(planned.shape);
                let mut batches = own.query.execute(&planned.plan, &work_ctx, Rules::Direct).await?;
                loop {
                    // Wait for room first, so that no batch is made before it can be taken.
                    let place = own.query.taken(&work_ctx, out.reserve()).await?;
                    let place = place.map_err(|_| Error::new(ErrorKind::Cancelled, "the reader went away"))?;
                    let Some(batch) = batches.next().await else { return Ok(()) };
                    work_ctx.check("query execution")?;
                    let batch = unpinned(batch.map_err(from_datafusion)?)?;
                    let memory = own.collected("rows", &work_ctx);
                    memory.hold(get_record_batch_memory_size(&batch));
                    place.send(Ok(Rows { shape: Arc::clone(&shape), batch, memory: Some(Arc::new(memory)) }));
                }
            };
            if let Err(error) = engine.run(&ctx, work).await {
                let _ = send.send(Err(error)).await;
            }
        };
        let task = tokio::spawn(run.in_current_span());
        RowStream { rows, task }
    }

    /// Runs a query and collects its rows.
    ///
    /// # Errors
    /// Those of planning and running; LimitExceeded: more rows than the context allows.
    pub fn collect<'a>(
        &'a self,
        query: &'a Query,
        scope: &'a QueryScope,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Vec<Rows>>> {
        async move {
            let mut stream = self.stream(query, scope, ctx);
            let (mut all, mut count, memory) = (Vec::new(), 0u64, self.collected("rows", ctx));
            while let Some(rows) = stream.next().await {
                let mut rows = rows?;
                count += rows.len() as u64;
                if count > ctx.limits.rows_max {
                    return Err(too_many_rows(ctx));
                }
                rows.memory = None;
                memory.add(get_record_batch_memory_size(&rows.batch))?;
                all.push(rows);
            }
            Ok(all)
        }
        .boxed()
    }

    /// Runs a query and passes its rows to a function as [`Rows::each_row`] does, without collecting them.
    ///
    /// # Errors
    /// Those of planning and running, and of the function; LimitExceeded: more rows than the context allows.
    pub fn each_row<'a>(
        &'a self,
        query: &'a Query,
        scope: &'a QueryScope,
        ctx: &'a QueryContext,
        each: impl FnMut(&mut dyn Iterator<Item = (&str, &str)>) -> Result<()> + Send + 'a,
    ) -> BoxFuture<'a, Result<()>> {
        self.visit_rows(query, scope, ctx, Box::new(each)).boxed()
    }

    async fn visit_rows(
        &self,
        query: &Query,
        scope: &QueryScope,
        ctx: &QueryContext,
        mut each: FallibleVisitor<'_>,
    ) -> Result<()> {
        let mut stream = self.stream(query, scope, ctx);
        let mut count = 0;
        while let Some(rows) = stream.next().await {
            let rows = rows?;
            count += rows.len() as u64;
            if count > ctx.limits.rows_max {
                return Err(too_many_rows(ctx));
            }
            let mut outcome = Ok(());
            rows.each_row(|fields| {
                if outcome.is_ok() {
                    outcome = each(fields);
                }
            })?;
            outcome?;
        }
        Ok(())
    }

    /// Makes a reservation in the query's memory, for parts of its response.
    pub fn collected(&self, name: &str, ctx: &QueryContext) -> QueryReservation {
        self.query.collected(name, ctx)
    }

    /// Gives the plans as JSON.
    ///
    /// # Errors
    /// Those of planning and running.
    pub fn explain<'a>(
        &'a self,
        query: &'a Query,
        scope: &'a QueryScope,
        ctx: &'a QueryContext,
        explain: Explain,
    ) -> BoxFuture<'a, Result<Value>> {
        async move {
            let (own, query, scope, work_ctx) = (self.clone(), query.clone(), scope.clone(), ctx.clone());
            let engine = Arc::clone(&self.query);
            let work = async move {
                let (planned, _memory) = own.prepare(query, &scope, &work_ctx).await?;
                own.query.explain(&planned.plan, &work_ctx, Rules::Direct, explain).await
            };
            engine.run(ctx, work).await
        }
        .boxed()
    }

    /// The physical plan of a query, for tests that look at its nodes.
    #[cfg(test)]
    pub(crate) async fn physical(
        &self,
        query: &Query,
        scope: &QueryScope,
        ctx: &QueryContext,
    ) -> Result<Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
        let (own, query, scope, work_ctx) = (self.clone(), query.clone(), scope.clone(), ctx.clone());
        let engine = Arc::clone(&self.query);
        let work = async move {
            let (planned, _memory) = own.prepare(query, &scope, &work_ctx).await?;
            own.query.plan(&planned.plan).await
        };
        engine.run(ctx, work).await
    }

    /// Applies the scope to a query, runs its subqueries, and plans it; also gives the reservation for what the plan
    /// holds.
    async fn prepare(
        &self,
        mut query: Query,
        scope: &QueryScope,
        ctx: &QueryContext,
    ) -> Result<(PartialPlan, QueryReservation)> {
        scope.bind(&mut query)?;
        let memory = self.collected("subqueries", ctx);
        let snapshot = self.source.snapshot();
        let running = QueryRun { engine: self, snapshot, ctx, now_ns: scope.now_ns, memory: &memory };
        running.subqueries(&mut query).await?;
        let planned = running.plan(&query).await?;
        Ok((planned, memory))
    }
}

/// Gives the pipe `stream_context`, if the query begins with it.
fn first_context(query: &Query) -> Option<&StreamContext> {
    query.pipes.first().and_then(Pipe::downcast_ref)
}

/// One query with its snapshot.
struct QueryRun<'a> {
    engine: &'a LogsqlEngine,
    snapshot: Arc<dyn LogSnapshot>,
    ctx: &'a QueryContext,
    now_ns: i64,
    /// The reservation for the values of subqueries.
    memory: &'a QueryReservation,
}

impl QueryRun<'_> {
    fn planner(&self) -> Planner<'_> {
        Planner { tables: &self.engine.tables, snapshot: &self.snapshot, ctx: self.ctx, now_ns: self.now_ns }
    }

    async fn plan(&self, query: &Query) -> Result<PartialPlan> {
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
    fn subqueries<'q>(&'q self, query: &'q mut Query) -> Work<'q, ()> {
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
                    self.beside(inner).await?;
                }
            }
            Ok(())
        })
    }

    /// Prepares a query that another one contains.
    async fn beside(&self, query: &mut Query) -> Result<()> {
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
        let mut found = std::collections::BTreeSet::new();
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
        let (mut ids, mut range) = (std::collections::BTreeSet::new(), (i64::MAX, i64::MIN));
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

#[cfg(test)]
mod tests {
    use arrow::array::{StringViewArray, UInt64Array};
    use quiver_query::Limits;
    use quiver_types::Access;

    use super::*;
    use crate::parse;
    use crate::pipes::rows::Rows as OwnRows;
    use crate::pipes::testing::engine;
    use crate::rows::{Column, ColumnStorage, RestBuilder, batch};

    fn rows() -> Rows {
        let shape = Shape::of_texts(["b", "a"]).with_rest();
        let mut rest = RestBuilder::new(3);
        let maps: [&[(&str, &str)]; 3] = [&[("c", "1"), ("d", "2")], &[], &[("c", "")]];
        for fields in maps {
            for (name, value) in fields {
                rest.push(name, value);
            }
            rest.end_row();
        }
        let column = |values: [&str; 3]| -> ArrayRef { Arc::new(StringViewArray::from_iter_values(values)) };
        let columns = vec![column(["x", "", "é"]), column(["", "", "y"]), rest.finish().expect("a map")];
        let batch = batch(&shape, columns, 3).expect("rows");
        Rows { shape: Arc::new(shape), batch, memory: None }
    }

    fn texts(rows: &Rows) -> Vec<String> {
        let text = |row: Vec<(String, String)>| {
            row.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        rows.to_texts().expect("texts").into_iter().map(text).collect()
    }

    #[test]
    fn rows_have_the_fields_that_are_not_empty() {
        let rows = rows();
        assert_eq!(texts(&rows), ["b=x c=1 d=2", "", "b=é a=y"]);
        assert_eq!(texts(&rows.slice(1, 2)), ["", "b=é a=y"]);
        assert_eq!(texts(&rows.slice(0, 2).slice(0, 1)), ["b=x c=1 d=2"]);
        let none = rows.slice(3, 0);
        assert!(none.is_empty() && texts(&none).is_empty());
        assert_eq!(format!("{rows:?}"), "3 rows of b, a, *");
        let counts = Shape { columns: vec![Column { name: "n".to_owned(), kind: ColumnStorage::Count }], rest: false };
        let batch = batch(&counts, vec![Arc::new(UInt64Array::from(vec![1])) as ArrayRef], 1).expect("rows");
        let counts = Rows { shape: Arc::new(counts), batch, memory: None };
        assert!(counts.to_texts().is_err(), "a number of rows is no text");
    }

    #[test]
    fn few_rows_let_their_block_go() {
        let block = |rows: usize| {
            let texts = (0..rows).map(|i| format!("a text that is longer than a view {i:08}"));
            let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
            batch(&Shape::of_texts(["a"]), vec![texts], rows).expect("rows")
        };
        let large = block(2000);
        let few = unpinned(large.slice(10, 3)).expect("rows");
        assert_eq!(few, large.slice(10, 3));
        let bytes = get_record_batch_memory_size(&few);
        assert!(bytes < PINNED_BYTES_MIN / 8, "{bytes}");
        // Most of a block, and a part of a small one, stay where they are.
        for part in [large.slice(0, 1900), block(50).slice(0, 1)] {
            let kept = unpinned(part.clone()).expect("rows");
            assert_eq!(get_record_batch_memory_size(&kept), get_record_batch_memory_size(&part));
        }
    }

    #[test]
    fn answers_have_as_many_rows_as_their_context_allows() {
        let (runtime, logsql) = engine();
        let own = ["1", "2", "3"].map(|value| vec![("a".to_owned(), value.to_owned())]);
        let query = Query { pipes: vec![Pipe::from(OwnRows(own.to_vec()))], ..parse("*").expect("a query") };
        let scope = QueryScope::default();
        let ctx = |rows_max: u64| QueryContext::new(Access::full(), Limits { rows_max, ..Limits::default() });
        let collect = |rows_max: u64| runtime.block_on(logsql.collect(&query, &scope, &ctx(rows_max)));
        let found = collect(3).expect("all of them");
        assert_eq!(found.iter().flat_map(texts).collect::<Vec<_>>(), ["a=1", "a=2", "a=3"]);
        let each = runtime.block_on(logsql.each_row(&query, &scope, &ctx(2), |_| Ok(())));
        for error in [collect(2).expect_err("too many"), each.expect_err("too many")] {
            assert_eq!(error.kind, ErrorKind::LimitExceeded);
            assert_eq!(error.message, "the answer has more than 2 rows");
        }
        // What is called says where it ends.
        let mut seen = 0;
        let enough = runtime.block_on(logsql.each_row(&query, &scope, &ctx(3), |_| {
            seen += 1;
            Err(Error::invalid("enough"))
        }));
        assert_eq!((seen, enough.expect_err("it ended").message), (1, "enough".to_owned()));
    }
}
