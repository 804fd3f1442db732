//! Building blocks of plans over spans: expressions over the columns of a scan, and how a read runs a plan.

pub(crate) mod functions;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::functions::expr_fn::{contains, lower};
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, ident, lit, when};
use futures::StreamExt;
use quiver_query::{QueryReservation, from_datafusion};
use quiver_types::spans::STATUS_ERROR;

use crate::engine::{Reader, TraceError, batch_bytes};
use crate::export::internal::STATUS;

/// About what a row of a list takes besides its text and its numbers, while the list grows.
const ROW_BYTES: usize = 64;

/// Which rows of a list are wanted, by their names, and how many of them.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// What a name must contain, in lower case; `None`: any name.
    pub like: Option<String>,
    /// Rows at most; all without it.
    pub limit: Option<usize>,
    /// Whether those that are given come by their names, and not the commonest first.
    pub by_name: bool,
}

/// A text as the scan has those of contexts.
pub(crate) fn view(text: &str) -> Expr {
    lit(ScalarValue::Utf8View(Some(text.to_owned())))
}

/// A service as readers see it.
pub(crate) fn shown_service(service: Expr) -> DataFusionResult<Expr> {
    when(service.clone().eq(view("")), view("unknown_service")).otherwise(service)
}

/// The word of a state.
pub(crate) fn status_word() -> DataFusionResult<Expr> {
    when(ident("status").eq(lit(0u8)), lit(STATUS[0]))
        .when(ident("status").eq(lit(1u8)), lit(STATUS[1]))
        .otherwise(lit(STATUS[2]))
}

/// How many rows there are.
pub(crate) fn rows() -> Expr {
    count(lit(1i64))
}

/// How many of the spans failed.
pub(crate) fn failed() -> Expr {
    sum(cast(ident("status").eq(lit(STATUS_ERROR)), DataType::Int64))
}

/// A count of the store as the counts of plans.
pub(crate) fn int(column: Expr) -> Expr {
    cast(column, DataType::Int64)
}

/// Orders by these columns, all ascending, nulls last.
pub(crate) fn ascending<const N: usize>(names: [&str; N]) -> Vec<datafusion::logical_expr::SortExpr> {
    names.map(|name| ident(name).sort(true, false)).to_vec()
}

/// Keeps rows whose name (a `Utf8` column) is wanted.
pub(crate) fn named(
    plan: LogicalPlanBuilder,
    name: &str,
    like: Option<&String>,
) -> DataFusionResult<LogicalPlanBuilder> {
    match like {
        Some(like) => plan.filter(contains(lower(ident(name)), lit(like.as_str()))),
        None => Ok(plan),
    }
}

/// What is put together of several plans; `None` of none.
pub(crate) fn union(
    plans: impl IntoIterator<Item = LogicalPlanBuilder>,
) -> DataFusionResult<Option<LogicalPlanBuilder>> {
    plans.into_iter().try_fold(None, |all: Option<LogicalPlanBuilder>, plan| match all {
        Some(all) => Ok(Some(all.union(plan.build()?)?)),
        None => Ok(Some(plan)),
    })
}

/// Ends a plan.
pub(crate) fn built(plan: DataFusionResult<LogicalPlanBuilder>) -> Result<LogicalPlan, TraceError> {
    Ok(plan.and_then(LogicalPlanBuilder::build).map_err(from_datafusion)?)
}

impl Reader {
    /// Runs a plan of a list, and hands each batch to a function. What that makes of it counts until the answer is sent.
    pub(crate) async fn list(
        &self,
        plan: &LogicalPlan,
        each: impl FnMut(&RecordBatch) -> Result<(), TraceError> + Send,
    ) -> Result<(), TraceError> {
        let memory = self.groups(plan, each).await?;
        self.ctx.keep(memory);
        Ok(())
    }

    /// As [`Self::list`], for the first rows of a plan, each of which becomes one of the list with one text of its own.
    pub(crate) async fn first_rows(
        &self,
        plan: &LogicalPlan,
        rows_max: usize,
        mut each: impl FnMut(&RecordBatch) -> Result<(), TraceError> + Send,
    ) -> Result<(), TraceError> {
        let (memory, mut left) = (self.collected("list"), rows_max);
        let mut rows = self.grouped(plan).await?;
        while left > 0
            && let Some(batch) = rows.next().await
        {
            self.ctx.check("query execution")?;
            let batch = batch.map_err(from_datafusion)?;
            let batch = batch.slice(0, left.min(batch.num_rows()));
            left -= batch.num_rows();
            memory.add(batch_bytes(&batch) + ROW_BYTES * batch.num_rows())?;
            each(&batch)?;
        }
        self.ctx.keep(memory);
        Ok(())
    }

    /// As [`Self::list`], for rows that are only added up: what is made of them counts as long as what is given lives.
    pub(crate) async fn groups(
        &self,
        plan: &LogicalPlan,
        mut each: impl FnMut(&RecordBatch) -> Result<(), TraceError> + Send,
    ) -> Result<QueryReservation, TraceError> {
        let memory = self.collected("groups");
        let mut rows = self.grouped(plan).await?;
        while let Some(batch) = rows.next().await {
            self.ctx.check("query execution")?;
            let batch = batch.map_err(from_datafusion)?;
            // What is made of it is about as large.
            memory.add(2 * batch_bytes(&batch))?;
            each(&batch)?;
        }
        Ok(memory)
    }
}
