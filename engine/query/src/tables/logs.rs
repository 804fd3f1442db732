//! `logs`: one row per record. Any other column name is a field of the record.

mod columns;
mod config_values;
pub(super) mod convert;
pub(crate) mod filter;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use quiver_types::logs::{
    FieldPattern, LogColumn, LogFilter, LogForm, LogOrder, LogRequest, LogSnapshot, STREAM, STREAM_ID, TIME,
};
use quiver_types::{Access, Domain, ReadStats, Result};

use self::convert::LogRows;
use self::filter::{LogLower, present};
use super::cells::{CellKind, kind_of_stored, text, text_map, time};
use super::config_columns;
use super::convert::{ConvertExec, ROW_ID};
use super::filter_lowering::{Lower as _, lower_all, supported};
use super::named_table::{Ask, NamedTable, Since};
use super::seen_kinds;
use crate::error::{from_datafusion, to_datafusion};
use crate::logs::LogTables;
use crate::table_provider::table_by_plan;

/// The table of log records.
#[derive(Debug)]
pub(super) struct LogTable;

impl NamedTable for LogTable {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn domain(&self) -> Domain {
        Domain::Logs
    }

    fn columns(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![
            time("time", TimeUnit::Nanosecond).with_nullable(false),
            time("observed_time", TimeUnit::Nanosecond),
            text("service_name"),
            text("severity_text"),
            Field::new("severity_number", DataType::Int32, true),
            text("message"),
            text("trace_id"),
            text("span_id"),
            text("stream_id"),
            text("stream"),
            text_map("fields"),
        ]))
    }

    fn finds(&self, column: &str) -> bool {
        // Internal names are no fields.
        column == ROW_ID
            || !column.is_empty() && !column.starts_with("__q_") && ![TIME, STREAM, STREAM_ID].contains(&column)
    }

    fn is_unchanged(&self, since: &Since<'_>) -> Option<bool> {
        Some(since.sources.logs.is_unchanged(since.then.logs, since.range))
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let mut fields: Vec<Field> = self.columns().fields().iter().map(|f| (**f).clone()).collect();
            let mut kinds = Vec::new();
            for name in ask.found.iter().filter(|name| *name != ROW_ID) {
                let kind = match config_columns::kind_of(name) {
                    Some(kind) => kind,
                    None => kind(ask, name).await?,
                };
                kinds.push((name.clone(), kind));
            }
            let is_fixed = |name: &str| config_columns::kind_of(name).is_some();
            let reads_more = ask.reads_more(Domain::Logs);
            let read = if reads_more { seen_kinds::read_as(&kinds, is_fixed) } else { kinds.clone() };
            fields.extend(read.iter().map(|(name, kind)| Field::new(name, kind.data_type(), true)));
            if ask.found.iter().any(|name| name == ROW_ID) {
                fields.push(Field::new(ROW_ID, DataType::Int64, false));
            }
            let table = LogProvider {
                schema: Arc::new(Schema::new(fields)),
                lower: LogLower { kinds: read },
                snapshot: Arc::clone(&ask.sources.logs),
                tables: Arc::clone(&ask.sources.log_tables),
                access: ask.access(Domain::Logs),
                stats: Arc::clone(&ask.ctx.stats),
            };
            seen_kinds::with_kinds(Arc::new(table), &kinds)
        })
    }
}

/// Finds the kind of a field's values from rows that have it: numbers if all are numbers, else text.
async fn kind(ask: &Ask<'_>, field: &str) -> Result<CellKind> {
    let request = LogRequest {
        filter: LogFilter::Value { field: FieldPattern::Name(field.to_owned()), matcher: present() },
        columns: vec![LogColumn::stored(field)],
        rest: false,
        order: LogOrder::Any,
        form: LogForm::Rows,
    };
    let access = ask.typing_access(Domain::Logs);
    let table = ask.sources.log_tables.logs(&ask.sources.logs, &access, request, &ask.ctx.stats)?;
    let mut rows = ask.probe(table).await?;
    let mut found: Option<CellKind> = None;
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        found = match (found, kind_of_stored(batch.column(0))) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
        if found == Some(CellKind::Text) {
            break;
        }
        ask.ctx.check("query planning")?;
    }
    Ok(found.unwrap_or(CellKind::Text))
}

/// The table for one statement.
#[derive(Debug)]
struct LogProvider {
    schema: SchemaRef,
    lower: LogLower,
    snapshot: Arc<dyn LogSnapshot>,
    tables: Arc<dyn LogTables>,
    access: Access,
    stats: Arc<ReadStats>,
}

impl TableProvider for LogProvider {
    table_by_plan!();

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported(&self.lower, filters))
    }
}

impl LogProvider {
    fn plan<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let mut parts = lower_all(&self.lower, filters);
            parts.extend(self.access.logs().cloned());
            let filter = LogLower::all_of(parts);
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let rows =
                LogRows::new(&self.schema, projection.unwrap_or(&all), &self.lower.kinds).map_err(to_datafusion)?;
            let request = LogRequest {
                filter,
                columns: rows.stored().to_vec(),
                rest: rows.rest(),
                order: LogOrder::Any,
                form: LogForm::Rows,
            };
            let scan = self.tables.logs(&self.snapshot, &self.access, request, &self.stats).map_err(to_datafusion)?;
            let input = scan.scan(state, None, &[], limit).await?;
            Ok(Arc::new(ConvertExec::new("logs", input, Arc::new(rows), limit)) as Arc<dyn ExecutionPlan>)
        })
    }
}
