//! The language on an engine and a source of logs: queries in, streams of rows or plans out.

use std::sync::Arc;

use datafusion::common::utils::memory::get_record_batch_memory_size;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use quiver_query::{
    AnswerStarted, Explain, LogTables, QueryContext, QueryEngine, QueryReservation, Rules, from_datafusion,
};
use quiver_types::logs::{LogSnapshot, LogSource};
use quiver_types::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::ast::Query;
use crate::encoding::hand_on_matchers;
use crate::partial_plan::PartialPlan;
use crate::request_scope::QueryScope;

mod query_run;
mod result_rows;
mod row_stream;

use query_run::QueryRun;
pub use result_rows::Rows;
use result_rows::unpinned;
pub use row_stream::RowStream;

/// Most batches that wait for a slow reader, besides the one that it is reading.
const WAITING_MAX: usize = 1;

/// Runs LogsQL over a source of streams, the table of logs and the query engine.
#[derive(Debug, Clone)]
pub struct LogsqlEngine {
    source: Arc<dyn LogSource>,
    tables: Arc<dyn LogTables>,
    query: Arc<QueryEngine>,
}

/// A source at one moment.
#[derive(Debug)]
struct Moment(Arc<dyn LogSnapshot>);

impl LogSource for Moment {
    fn snapshot(&self) -> Arc<dyn LogSnapshot> {
        Arc::clone(&self.0)
    }
}

/// What is done with the fields of a row, which may fail.
type FallibleVisitor<'a> = Box<dyn FnMut(&mut dyn Iterator<Item = (&str, &str)>) -> Result<()> + Send + 'a>;

fn too_many_rows(ctx: &QueryContext) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!("the answer has more than {} rows; add the pipe `limit`, or ask for less", ctx.limits.rows_max),
    )
}

impl LogsqlEngine {
    /// Makes the engine; it holds no state of its own.
    pub fn new(source: Arc<dyn LogSource>, tables: Arc<dyn LogTables>, query: Arc<QueryEngine>) -> Self {
        hand_on_matchers();
        Self { source, tables, query }
    }

    /// Gives an engine that reads one moment: what it sees was not written later.
    #[must_use]
    pub fn at(&self, snapshot: Arc<dyn LogSnapshot>) -> Self {
        Self { source: Arc::new(Moment(snapshot)), ..self.clone() }
    }

    /// Runs a query; gives its rows as they are found.
    pub fn stream(&self, query: &Query, scope: &QueryScope, ctx: &QueryContext) -> RowStream {
        let (send, rows) = mpsc::channel(WAITING_MAX);
        let (own, query, scope, ctx) = (self.clone(), query.clone(), scope.clone(), ctx.clone());
        let run = async move {
            let (engine, out, sent, work_ctx) =
                (Arc::clone(&own.query), send.clone(), AnswerStarted::default(), ctx.clone());
            let given = sent.clone();
            let work = move || {
                let (own, query, scope, ctx) = (own.clone(), query.clone(), scope.clone(), work_ctx.clone());
                let (out, given) = (out.clone(), given.clone());
                async move { own.send_rows(query, &scope, &ctx, &out, &given).await }
            };
            if let Err(error) = engine.run_anew(&ctx, &sent, work).await {
                let _ = send.send(Err(error)).await;
            }
        };
        let task = tokio::spawn(run.in_current_span());
        RowStream { rows, task }
    }

    async fn send_rows(
        &self,
        query: Query,
        scope: &QueryScope,
        ctx: &QueryContext,
        out: &mpsc::Sender<Result<Rows>>,
        sent: &AnswerStarted,
    ) -> Result<()> {
        let (planned, _memory) = self.prepare(query, scope, ctx).await?;
        let shape = Arc::new(planned.shape);
        let mut batches = self.query.execute(&planned.plan, ctx, Rules::Direct).await?;
        loop {
            // Wait for room first, so that no batch is made before it can be taken.
            let place = self.query.taken(ctx, out.reserve()).await?;
            let place = place.map_err(|_| Error::new(ErrorKind::Cancelled, "the reader went away"))?;
            let Some(batch) = batches.next().await else { return Ok(()) };
            ctx.check("query execution")?;
            let batch = unpinned(batch.map_err(from_datafusion)?)?;
            let memory = self.collected("rows", ctx);
            memory.hold(get_record_batch_memory_size(&batch));
            sent.set();
            place.send(Ok(Rows { shape: Arc::clone(&shape), batch, memory: Some(Arc::new(memory)) }));
        }
    }

    /// Runs a query and collects its rows, which count in its memory until the last of them is dropped.
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
            let (mut all, mut count, memory) = (Vec::new(), 0u64, Arc::new(self.collected("rows", ctx)));
            while let Some(rows) = stream.next().await {
                let mut rows = rows?;
                count += rows.len() as u64;
                if count > ctx.limits.rows_max {
                    return Err(too_many_rows(ctx));
                }
                rows.memory = None;
                memory.add(get_record_batch_memory_size(&rows.batch))?;
                rows.memory = Some(Arc::clone(&memory));
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

#[cfg(test)]
mod tests {
    use quiver_query::Limits;
    use quiver_types::Access;

    use super::*;
    use crate::ast::Pipe;
    use crate::parse;
    use crate::pipes::rows::Rows as OwnRows;
    use crate::pipes::testing::engine;

    #[test]
    fn answers_have_as_many_rows_as_their_context_allows() {
        let (runtime, logsql) = engine();
        let own = ["1", "2", "3"].map(|value| vec![("a".to_owned(), value.to_owned())]);
        let query = Query { pipes: vec![Pipe::from(OwnRows(own.to_vec()))], ..parse("*").expect("a query") };
        let scope = QueryScope::default();
        let ctx = |rows_max: u64| QueryContext::new(Access::full(), Limits { rows_max, ..Limits::default() });
        let collect = |rows_max: u64| runtime.block_on(logsql.collect(&query, &scope, &ctx(rows_max)));
        let found = collect(3).expect("all of them");
        let texts: Vec<_> = found.iter().flat_map(|rows| rows.to_texts().expect("texts")).collect();
        assert_eq!(texts, own);
        assert!(found.iter().all(|rows| rows.memory.is_some()), "they count as long as they are held");
        let each = runtime.block_on(logsql.each_row(&query, &scope, &ctx(2), |_| Ok(())));
        for error in [collect(2).expect_err("too many"), each.expect_err("too many")] {
            assert_eq!(error.kind, ErrorKind::LimitExceeded);
            assert_eq!(error.message, "the answer has more than 2 rows; add the pipe `limit`, or ask for less");
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
