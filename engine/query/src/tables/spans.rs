//! `spans`: one row per span, as it was sent; `span_events` and `span_links`.

mod column_access;
pub(super) mod columns;
mod config_values;
mod conventions;
pub(super) mod convert;
mod filter;
mod typing;

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use quiver_types::query_configuration::QueryConfiguration;
use quiver_types::spans::{SpanFilter, SpanRequest, SpanSnapshot};
use quiver_types::{Access, Domain, MillisRange, ReadStats, Result};

use self::columns::{Kinds, SpanRowKind, attribute_of, span_columns, span_prefix};
use self::convert::SpanRows;
use self::filter::SpanLower;
use super::cells::{text, text_map, time};
use super::config_columns;
use super::convert::ConvertExec;
use super::filter_lowering::{Lower as _, lower_all, supported};
use super::named_table::{Ask, NamedTable, Since};
use super::seen_kinds;
use crate::error::to_datafusion;
use crate::spans::SpanTables;
use crate::table_provider::table_by_plan;

/// One of the three tables over spans.
#[derive(Debug)]
pub(super) struct SpanTable(pub(super) SpanRowKind);

impl NamedTable for SpanTable {
    fn name(&self) -> &'static str {
        match self.0 {
            SpanRowKind::Span => "spans",
            SpanRowKind::Event => "span_events",
            SpanRowKind::Link => "span_links",
        }
    }

    fn domain(&self) -> Domain {
        Domain::Traces
    }

    fn columns(&self) -> SchemaRef {
        let columns = match self.0 {
            SpanRowKind::Span => span_columns(),
            SpanRowKind::Event => {
                let own = [time("time", TimeUnit::Nanosecond), text("name"), text_map("attributes")];
                span_prefix().into_iter().chain(own).collect()
            }
            SpanRowKind::Link => {
                let own = [text("linked_trace_id"), text("linked_span_id"), text_map("attributes")];
                span_prefix().into_iter().chain(own).collect()
            }
        };
        Arc::new(Schema::new(columns))
    }

    fn finds(&self, column: &str) -> bool {
        // Events and links have attributes of their own; of their span's, only those of the resource can be named.
        let is_known =
            conventions::kind_of(column).is_some() && (self.0 == SpanRowKind::Span || column.starts_with("res@"));
        is_known
            || self.0 == SpanRowKind::Span && (attribute_of(column).is_some() || config_columns::is_configured(column))
    }

    fn is_unchanged(&self, since: &Since<'_>) -> Option<bool> {
        // Events and links have times of their own. Changes are recorded by the start times of spans.
        let is_known = self.0 == SpanRowKind::Span || since.range == MillisRange::ALL;
        is_known.then(|| since.sources.spans.is_unchanged(since.then.spans, since.range))
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let mut fields: Vec<Field> = self.columns().fields().iter().map(|f| (**f).clone()).collect();
            let found = typing::kinds(ask).await?;
            let kinds: Kinds = ask.found.iter().cloned().zip(found).collect();
            let reads_more = ask.reads_more(Domain::Traces);
            let read = if reads_more { seen_kinds::read_as(&kinds, typing::is_fixed) } else { kinds.clone() };
            fields.extend(read.iter().map(|(name, kind)| Field::new(name, kind.data_type(), true)));
            let table = SpanProvider {
                configured: Arc::clone(&ask.sources.configured),
                name: self.name(),
                row_kind: self.0,
                schema: Arc::new(Schema::new(fields)),
                lower: SpanLower { row_kind: self.0, kinds: read },
                snapshot: Arc::clone(&ask.sources.spans),
                tables: Arc::clone(&ask.sources.span_tables),
                access: ask.access(Domain::Traces),
                stats: Arc::clone(&ask.ctx.stats),
            };
            seen_kinds::with_kinds(Arc::new(table), &kinds)
        })
    }
}

/// The table for one statement.
#[derive(Debug)]
struct SpanProvider {
    configured: Arc<QueryConfiguration>,
    name: &'static str,
    row_kind: SpanRowKind,
    schema: SchemaRef,
    lower: SpanLower,
    snapshot: Arc<dyn SpanSnapshot>,
    tables: Arc<dyn SpanTables>,
    access: Access,
    stats: Arc<ReadStats>,
}

impl TableProvider for SpanProvider {
    table_by_plan!();

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported(&self.lower, filters))
    }
}

impl SpanProvider {
    fn plan<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let mut filter = SpanLower::all_of(lower_all(&self.lower, filters));
            if let Some(segment) = self.access.spans() {
                filter = filter.and(segment.clone());
            }
            // For a trace id, the store returns every report of a span; the table must show a span once.
            if filter.traces().is_some() {
                filter = filter.and(SpanFilter::WithoutRepeats);
            }
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let rows = SpanRows::new(
                self.row_kind,
                &self.schema,
                projection.unwrap_or(&all),
                &self.lower.kinds,
                &self.configured,
            )
            .map_err(to_datafusion)?;
            let request = SpanRequest { filter, columns: rows.stored().to_vec() };
            let scan = self.tables.spans(&self.snapshot, &self.access, &request, &self.stats).map_err(to_datafusion)?;
            // A span may have no events or links, so the limit does not apply to spans.
            let stored_limit = limit.filter(|_| self.row_kind == SpanRowKind::Span);
            let input = scan.scan(state, None, &[], stored_limit).await?;
            Ok(Arc::new(ConvertExec::new(self.name, input, Arc::new(rows), limit)) as Arc<dyn ExecutionPlan>)
        })
    }
}
