//! `TracesEngine`: one query is one snapshot, one context, and one or more plans over the table of spans.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quiver_query::rows::slice_bytes;
use quiver_query::{
    AnswerStarted, QueryContext, QueryEngine, QueryReservation, Rules, SpanTables, from_datafusion, is_crowded_out,
};
use quiver_types::spans::{
    RollupRequest, Span, SpanColumn, SpanFilter, SpanRequest, SpanSnapshot, SpanSource, TagRequest, TraceId,
    all_columns, parse_hex, read_spans,
};
use quiver_types::{Access, Error, ErrorKind, brief_text};

use crate::assemble::{Trace, all_as_received, as_received, assemble, assemble_all, retain};
use crate::traceql::error::TraceqlError;

/// A parameter of a request that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamError {
    /// Name of the parameter; `body` when the body as a whole is wrong.
    pub name: String,
    /// What is wrong with its value, to follow the name in a message.
    pub reason: String,
}

impl ParamError {
    /// Makes the error.
    pub fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), reason: brief_text(reason.into()) }
    }
}

/// Why a read of traces gives nothing.
#[derive(Debug, Clone)]
pub enum TraceError {
    /// The text is no trace id: 16 or 32 hex digits, not all 0.
    InvalidId,
    /// A parameter is wrong.
    Param(ParamError),
    /// Not TraceQL, or more of it than is supported.
    Traceql(TraceqlError),
    /// The cursor belongs to another search.
    CursorMismatch,
    /// There is no such trace, or what was asked for is not in it.
    NotFound,
    /// The caller may see nothing of it.
    Forbidden,
    /// More spans than one answer may have.
    TooLarge(usize),
    /// An error of storage, of the query engine or of its limits.
    Engine(Error),
}

impl From<Error> for TraceError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<TraceqlError> for TraceError {
    fn from(error: TraceqlError) -> Self {
        Self::Traceql(error)
    }
}

impl From<ParamError> for TraceError {
    fn from(error: ParamError) -> Self {
        Self::Param(error)
    }
}

/// Which spans of a trace are wanted.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The trace to look up, all 16 bytes of its id.
    pub id: TraceId,
    /// Spans overlap this; both ends included, Unix nanoseconds.
    pub window: (i64, i64),
    /// Spans of one of these services; none: all.
    pub services: Vec<String>,
    /// Reports as they were received, instead of the spans that they tell of: an id may be there more than once.
    pub as_received: bool,
}

impl Selection {
    /// Reads an id of 32 or 16 hex digits.
    ///
    /// # Errors
    /// [`TraceError::InvalidId`]: another length, another character, or all digits are 0.
    pub fn parse_id(text: &str) -> Result<TraceId, TraceError> {
        let id = if matches!(text.len(), 16 | 32) { parse_hex(text) } else { None };
        id.filter(|id| *id != [0; 16]).ok_or(TraceError::InvalidId)
    }

    /// Selects all spans of a trace, whatever their time and service.
    pub fn all(id: TraceId) -> Self {
        Self { id, window: (i64::MIN, i64::MAX), services: Vec::new(), as_received: false }
    }
}

/// Finds, assembles and counts traces, over a source of spans.
pub struct TracesEngine {
    source: Arc<dyn SpanSource>,
    tables: Arc<dyn SpanTables>,
    engine: Arc<QueryEngine>,
    spans_max: usize,
}

impl fmt::Debug for TracesEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracesEngine").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What one query reads from.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    traces: Arc<TracesEngine>,
    snapshot: Arc<dyn SpanSnapshot>,
    pub(crate) ctx: QueryContext,
    /// What the read collects until it ends.
    memory: Arc<QueryReservation>,
}

impl TracesEngine {
    /// Makes the engine; `spans_max` is the most that one trace may have in an answer.
    pub fn new(
        source: Arc<dyn SpanSource>,
        tables: Arc<dyn SpanTables>,
        engine: Arc<QueryEngine>,
        spans_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self { source, tables, engine, spans_max })
    }

    /// Begins to count in the memory of a query.
    pub(crate) fn collected(&self, name: &str, ctx: &QueryContext) -> QueryReservation {
        self.engine.collected(name, ctx)
    }

    /// Runs a read for the request `asked`, over a snapshot of its own, on the threads of the engine. If other queries held
    /// the memory that it needs, it is repeated after them over a new snapshot.
    pub(crate) fn read<T, I, F, Fut>(
        self: &Arc<Self>,
        ctx: &QueryContext,
        asked: I,
        work: F,
    ) -> BoxFuture<'_, Result<T, TraceError>>
    where
        T: Send + 'static,
        I: Clone + Send + 'static,
        F: Fn(Reader, I) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, TraceError>> + Send + 'static,
    {
        let (this, ctx) = (Arc::clone(self), of_run(ctx));
        let inner = ctx.clone();
        let work = move || refusable(work(this.reader_of(inner.clone()), asked.clone()));
        let run = async move {
            self.engine.run_anew(&ctx, &AnswerStarted::default(), work).await.map_err(TraceError::Engine)?
        };
        run.boxed()
    }

    /// Like [`Self::read`], for reads that mostly find what they need in memory, and otherwise give way to others first
    /// ([`QueryEngine::run_short_anew`]).
    pub(crate) fn look_up<T, I, F, Fut>(
        self: &Arc<Self>,
        ctx: &QueryContext,
        asked: I,
        work: F,
    ) -> BoxFuture<'_, Result<T, TraceError>>
    where
        T: Send + 'static,
        I: Clone + Send + 'static,
        F: Fn(Reader, I) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, TraceError>> + Send + 'static,
    {
        let (this, ctx) = (Arc::clone(self), of_run(ctx));
        let inner = ctx.clone();
        let work = move || refusable(work(this.reader_of(inner.clone()), asked.clone()));
        async move { self.engine.run_short_anew(&ctx, work).await.map_err(TraceError::Engine)? }.boxed()
    }

    fn reader_of(self: &Arc<Self>, ctx: QueryContext) -> Reader {
        let memory = Arc::new(self.engine.collected("traces", &ctx));
        Reader { traces: Arc::clone(self), snapshot: self.source.snapshot(), ctx, memory }
    }

    /// Gives one trace as a caller may see it.
    ///
    /// # Errors
    /// NotFound, Forbidden, TooLarge; those of the engine.
    pub fn trace(
        self: &Arc<Self>,
        ctx: &QueryContext,
        selection: Selection,
    ) -> BoxFuture<'_, Result<Trace, TraceError>> {
        self.look_up(ctx, selection, |reader, selection| async move { reader.trace(&selection).await })
    }

    /// Gives several traces, those that are not there left out.
    ///
    /// # Errors
    /// TooLarge; those of the engine.
    pub fn traces(
        self: &Arc<Self>,
        ctx: &QueryContext,
        ids: Vec<TraceId>,
    ) -> BoxFuture<'_, Result<Vec<Trace>, TraceError>> {
        self.read(ctx, ids, |reader, ids| async move { reader.traces(ids).await })
    }
}

/// Turns a refusal that is due to other queries into an error of the engine, which then repeats the read. Any other
/// outcome is the answer.
fn refusable<T: Send + 'static>(
    read: impl Future<Output = Result<T, TraceError>> + Send + 'static,
) -> BoxFuture<'static, Result<Result<T, TraceError>, Error>> {
    let run = async move {
        match read.await {
            Err(TraceError::Engine(error)) if is_crowded_out(&error) => Err(error),
            outcome => Ok(outcome),
        }
    };
    run.boxed()
}

/// A context for one run: its end cancels its own tasks only, so that the call can begin another run.
fn of_run(ctx: &QueryContext) -> QueryContext {
    let mut ctx = ctx.clone();
    ctx.cancel = ctx.cancel.child_token();
    ctx
}

/// A filter of whole traces, or of what of them overlaps a window.
pub(crate) fn lookup_filter(mut ids: Vec<TraceId>, window: (i64, i64)) -> SpanFilter {
    ids.sort_unstable();
    ids.dedup();
    let traces = SpanFilter::Traces(Arc::new(ids));
    if window == (i64::MIN, i64::MAX) { traces } else { traces.and(SpanFilter::Overlaps(window.0, window.1)) }
}

impl Reader {
    /// Reserves bytes of what the read collects until it ends.
    pub(crate) fn collect(&self, bytes: usize) -> Result<(), TraceError> {
        Ok(self.memory.add(bytes)?)
    }

    /// Gives bytes back that were reserved so.
    pub(crate) fn give_back(&self, bytes: usize) {
        drop(self.memory.part(bytes));
    }

    /// Begins to count what the answer holds; it counts until the end of the query where the context keeps it.
    pub(crate) fn collected(&self, name: &str) -> QueryReservation {
        self.traces.collected(name, &self.ctx)
    }

    /// Makes the plan of a request of roll-ups.
    pub(crate) fn rollup_plan(&self, request: &RollupRequest) -> Result<LogicalPlan, Error> {
        let table = self.traces.tables.rollups(&self.snapshot, &self.ctx.access, request)?;
        LogicalPlanBuilder::scan(TableReference::bare("span_rollups"), provider_as_source(table), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }

    /// Makes the plan of a request of keys or values of attributes.
    pub(crate) fn tags_plan(&self, request: &TagRequest) -> Result<LogicalPlan, Error> {
        let table = self.traces.tables.tags(&self.snapshot, &self.ctx.access, request)?;
        LogicalPlanBuilder::scan(TableReference::bare("span_tags"), provider_as_source(table), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }

    fn table(&self, access: &Access, request: &SpanRequest) -> Result<Arc<dyn TableProvider>, Error> {
        self.traces.tables.spans(&self.snapshot, access, request, &self.ctx.stats)
    }

    pub(crate) fn plan_as(&self, access: &Access, request: &SpanRequest) -> Result<LogicalPlan, Error> {
        scan_of(self.table(access, request)?)
    }

    /// How many spans that a filter may take start in its window, about; `None`: unknown.
    pub(crate) fn spans_about(&self, filter: SpanFilter) -> Result<Option<usize>, Error> {
        let request = SpanRequest { filter, columns: Vec::new() };
        Ok(rows_about(&*self.table(&self.ctx.access, &request)?))
    }

    /// Makes the plan of a scan of spans, if no more than so many start in its window, about, and tells how many do. Never
    /// where some are hidden from whoever asks: by the plan he would learn how many.
    pub(crate) fn plan_of_few(
        &self,
        request: &SpanRequest,
        most: usize,
    ) -> Result<Option<(LogicalPlan, usize)>, Error> {
        if self.ctx.stats.is_hidden() {
            return Ok(None);
        }
        let table = self.table(&self.ctx.access, request)?;
        let Some(rows) = rows_about(&*table).filter(|rows| *rows <= most) else { return Ok(None) };
        Ok(Some((scan_of(table)?, rows)))
    }

    /// Makes the plan of a scan of spans.
    pub(crate) fn plan(&self, request: &SpanRequest) -> Result<LogicalPlan, Error> {
        self.plan_as(&self.ctx.access, request)
    }

    /// Starts a plan of groups, order or joins over many partitions.
    pub(crate) async fn grouped(&self, plan: &LogicalPlan) -> Result<SendableRecordBatchStream, TraceError> {
        Ok(self.traces.engine.execute(plan, &self.ctx, Rules::Lists).await?)
    }

    /// Runs a request, and hands each batch to a function; it says whether it wants more.
    pub(crate) async fn scan(
        &self,
        filter: SpanFilter,
        columns: Vec<SpanColumn>,
        each: impl FnMut(&RecordBatch) -> Result<bool, TraceError> + Send,
    ) -> Result<(), TraceError> {
        let plan = self.plan(&SpanRequest { filter, columns })?;
        self.run(&plan, each).await
    }

    pub(crate) async fn run(
        &self,
        plan: &LogicalPlan,
        mut each: impl FnMut(&RecordBatch) -> Result<bool, TraceError> + Send,
    ) -> Result<(), TraceError> {
        let mut rows = self.traces.engine.execute(plan, &self.ctx, Rules::Direct).await?;
        while let Some(batch) = rows.next().await {
            self.ctx.check("query execution")?;
            if !each(&batch.map_err(from_datafusion)?)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads spans with some columns; they count in the query's memory as long as what is given beside them lives.
    pub(crate) async fn spans(
        &self,
        filter: SpanFilter,
        columns: Vec<SpanColumn>,
    ) -> Result<(Vec<Span>, QueryReservation), TraceError> {
        let mut out = Vec::new();
        let most = self.traces.spans_max;
        let memory = self.traces.engine.collected("spans", &self.ctx);
        self.scan(filter, columns, |batch| {
            if out.len() + batch.num_rows() > most {
                return Err(TraceError::TooLarge(most));
            }
            memory.add(spans_bytes(batch.num_rows(), batch_bytes(batch)))?;
            read_spans(batch, &mut out)?;
            Ok(true)
        })
        .await?;
        Ok((out, memory))
    }

    async fn trace(&self, selection: &Selection) -> Result<Trace, TraceError> {
        let filter = lookup_filter(vec![selection.id], selection.window);
        let (reports, memory) = self.spans(filter, all_columns()).await?;
        self.ctx.keep(memory);
        if reports.is_empty() {
            let hidden = self.is_hidden(selection.id).await?;
            return Err(if hidden { TraceError::Forbidden } else { self.not_found() });
        }
        let put_together = if selection.as_received { as_received } else { assemble };
        let mut trace = put_together(selection.id, reports);
        trace.left_out = self.ctx.stats.left_out.texts();
        if !selection.services.is_empty() {
            retain(&mut trace, |span| selection.services.iter().any(|s| s == span.service_shown()));
            if trace.spans.is_empty() {
                return Err(self.not_found());
            }
        }
        Ok(trace)
    }

    /// That a trace is not there can be said only when every file was read.
    fn not_found(&self) -> TraceError {
        match self.ctx.stats.left_out.texts().into_iter().next() {
            Some(text) => Error::new(ErrorKind::Damaged, text).into(),
            None => TraceError::NotFound,
        }
    }

    /// Says whether there is a trace of which the caller may see nothing, whatever window was asked for: by windows in
    /// which hidden spans alone lie, and those in which none do, he would find out when they were.
    async fn is_hidden(&self, id: TraceId) -> Result<bool, TraceError> {
        if self.ctx.access.is_full() {
            return Ok(false);
        }
        Ok(!self.exists(id, &self.ctx.access).await? && self.exists(id, &Access::full()).await?)
    }

    /// Says whether there are spans of a trace that may be seen.
    async fn exists(&self, id: TraceId, access: &Access) -> Result<bool, TraceError> {
        let filter = lookup_filter(vec![id], (i64::MIN, i64::MAX));
        let request = SpanRequest { filter, columns: vec![SpanColumn::Own("trace_id")] };
        let plan = self.plan_as(access, &request)?;
        let mut found = false;
        self.run(&plan, |batch| {
            found |= batch.num_rows() > 0;
            Ok(!found)
        })
        .await?;
        Ok(found)
    }

    pub(crate) async fn traces(&self, ids: Vec<TraceId>) -> Result<Vec<Trace>, TraceError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (reports, memory) = self.spans(lookup_filter(ids, (i64::MIN, i64::MAX)), all_columns()).await?;
        self.ctx.keep(memory);
        Ok(assemble_all(reports))
    }

    /// Gives the reports of several traces as they were received, in the order of these ids.
    pub(crate) async fn traces_as_received(&self, ids: &[TraceId]) -> Result<Vec<Trace>, TraceError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let filter = lookup_filter(ids.to_vec(), (i64::MIN, i64::MAX));
        let (reports, memory) = self.spans(filter, all_columns()).await?;
        self.ctx.keep(memory);
        Ok(all_as_received(ids, reports))
    }
}

fn rows_about(table: &dyn TableProvider) -> Option<usize> {
    table.statistics()?.num_rows.get_value().copied()
}

fn scan_of(spans: Arc<dyn TableProvider>) -> Result<LogicalPlan, Error> {
    LogicalPlanBuilder::scan(TableReference::bare("spans"), provider_as_source(spans), None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

/// How often the texts of spans are held: as they were read, in the trace, in what is made of it.
const SPAN_COPIES: usize = 3;

/// Gives what so many spans take once they are read from columns of so many bytes.
pub fn spans_bytes(spans: usize, columns: usize) -> usize {
    spans * size_of::<Span>() + SPAN_COPIES * columns
}

/// The bytes of the rows of a batch; those that many rows share are there once.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| slice_bytes(column).min(column.get_array_memory_size())).sum()
}

/// Columns that a summary needs.
pub(crate) fn summary_columns() -> Vec<SpanColumn> {
    let own = ["trace_id", "span_id", "parent_span_id", "name", "kind", "start", "end", "status", "received", "marks"];
    own.into_iter().map(SpanColumn::Own).chain([SpanColumn::Context("service")]).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray, StringViewArray, UInt32Array};
    use arrow::compute::take;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn ids_have_sixteen_or_thirty_two_digits() {
        let id = |text: &str| Selection::parse_id(text).ok();
        assert_eq!(
            id("0102030405060708090a0b0c0d0e0f10"),
            Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])
        );
        // The short form is that of the lower half, in either case.
        assert_eq!(id("00000000000000AB"), id("000000000000000000000000000000ab"));
        assert!(id("00000000000000ab").is_some());
        let [none, short, long] = ["0".repeat(32), "1".repeat(31), "1".repeat(33)];
        // The last one has as many bytes, but no digits.
        let texts: [&str; 8] = ["", "ab", "0000000000000000", &none, &short, &long, "000000000000000g", "éééééééé"];
        for wrong in texts {
            assert_eq!(id(wrong), None, "{wrong}");
        }
        assert!(matches!(Selection::parse_id("x"), Err(TraceError::InvalidId)));
    }

    /// Breaks if a refusal that is due to others becomes the answer instead of a repetition.
    #[test]
    fn what_others_refuse_is_no_answer() {
        let outcome = |read: Result<u8, TraceError>| {
            refusable(std::future::ready(read)).now_or_never().expect("there is nothing to wait for")
        };
        let text = "other queries hold the memory that this one needs";
        let crowded = TraceError::Engine(Error::new(ErrorKind::Unavailable, text));
        assert!(outcome(Err(crowded)).is_err());
        for own in [TraceError::NotFound, TraceError::Engine(Error::new(ErrorKind::LimitExceeded, text))] {
            assert!(matches!(outcome(Err(own)), Ok(Err(_))));
        }
        assert!(matches!(outcome(Ok(7)), Ok(Ok(7))));
    }

    #[test]
    fn look_ups_name_each_trace_once() {
        let of = |ids: &[u8], window| lookup_filter(ids.iter().map(|id| [*id; 16]).collect(), window);
        let all = (i64::MIN, i64::MAX);
        assert_eq!(of(&[2, 1, 2], all).traces().map(|ids| ids.to_vec()), Some(vec![[1; 16], [2; 16]]));
        assert_eq!(of(&[1], all).to_string(), format!("trace = {}", "01".repeat(16)));
        // What overlaps a window begins before its end, not within it.
        let bounded = of(&[2, 1], (5, 9));
        assert_eq!(bounded.to_string(), "(trace in 2 ids and overlaps [5, 9])");
        assert_eq!(bounded.start_bounds(), (i64::MIN, 9));
        assert_eq!(
            of(&[1], (i64::MIN, 9)).to_string(),
            format!("(trace = {} and overlaps [{}, 9])", "01".repeat(16), i64::MIN)
        );
    }

    /// Breaks if a slice of a large batch counts as all of it, so that a query of a few spans is refused.
    #[test]
    fn rows_of_a_batch_count_as_what_they_take() {
        let names: Vec<String> = (0..1_000).map(|n| format!("{n:0100}")).collect();
        let starts: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        let plain: ArrayRef = Arc::new(StringArray::from_iter_values(&names));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&names));
        for texts in [plain, views] {
            let fields = [("start", DataType::Int64), ("name", texts.data_type().clone())];
            let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec());
            let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&starts), texts]).unwrap();
            let whole = batch_bytes(&batch);
            assert!(whole >= 1_000 * (8 + 100), "{whole}");
            let few = batch_bytes(&batch.slice(500, 10));
            assert!((10 * (8 + 100)..2_000).contains(&few), "{few}");
            assert!(batch_bytes(&batch.slice(0, 0)) < 100);
        }
        // One text that all rows show.
        let shared = StringViewArray::from_iter_values([names[0].repeat(10)]);
        let shared: ArrayRef = take(&shared, &UInt32Array::from(vec![0; 1_000]), None).unwrap();
        let schema = Schema::new(vec![Field::new("service", DataType::Utf8View, false)]);
        let all = batch_bytes(&RecordBatch::try_new(Arc::new(schema), vec![shared]).unwrap());
        assert!(all < 100_000, "{all}");
        assert_eq!(spans_bytes(0, 0), 0);
        assert_eq!(spans_bytes(3, 1_000), 3 * size_of::<Span>() + 3_000);
    }

    /// What a summary reads must be columns that there are: `read_spans` fails on others.
    #[test]
    fn columns_of_summaries_are_columns_of_spans() {
        let all = all_columns();
        let missing: Vec<SpanColumn> = summary_columns().into_iter().filter(|column| !all.contains(column)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
