//! The interface of named tables, and what a statement asks of one.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use quiver_types::logs::LogSnapshot;
use quiver_types::query_configuration::{ConfiguredSource, QueryConfiguration};
use quiver_types::source::RowSnapshot;
use quiver_types::spans::SpanSnapshot;
use quiver_types::{Access, Domain, MillisRange, Result, SeriesSnapshot};

use super::snapshot::{DomainAccess, SnapshotVersion};
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::from_datafusion;
use crate::logs::LogTables;
use crate::planning_rules::Rules;
use crate::spans::SpanTables;

/// Rows that are read to find the type of a column that a statement names.
pub(super) const PROBE_ROWS: usize = 128 * 1024;

/// A table that statements can name.
pub(super) trait NamedTable: Send + Sync + Debug {
    /// Its name in schema `quiver`.
    fn name(&self) -> &'static str;

    /// The domain whose right its rows need.
    fn domain(&self) -> Domain;

    /// Fixed columns: what `SELECT *` gives.
    fn columns(&self) -> SchemaRef;

    /// Says whether a name that is no fixed column may be a column of the data.
    fn finds(&self, column: &str) -> bool;

    /// Makes the table for one statement: its fixed columns, then those found by name.
    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>>;

    /// Says whether its rows are those of an earlier moment, configuration aside; `None`: nobody knows.
    fn is_unchanged(&self, _since: &Since<'_>) -> Option<bool> {
        None
    }
}

/// An earlier moment, and which rows are compared with those of it.
pub(super) struct Since<'a> {
    pub(super) sources: &'a Sources,
    pub(super) then: &'a SnapshotVersion,
    /// The times of the rows.
    pub(super) range: MillisRange,
    /// Names of the columns that are looked at.
    pub(super) columns: &'a [String],
}

/// What tables read from, at one moment.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) engine: Arc<QueryEngine>,
    pub(super) series: Arc<dyn SeriesSnapshot>,
    pub(super) logs: Arc<dyn LogSnapshot>,
    pub(super) log_tables: Arc<dyn LogTables>,
    pub(super) spans: Arc<dyn SpanSnapshot>,
    pub(super) span_tables: Arc<dyn SpanTables>,
    pub(super) rows: Arc<dyn RowSnapshot>,
    pub(super) service_labels: Arc<[String]>,
    pub(super) configured: Arc<QueryConfiguration>,
    /// The configuration, read only if a statement names it.
    pub(super) configuration: Arc<dyn ConfiguredSource>,
    pub(super) now_ms: i64,
}

/// What a statement asks of a table.
pub(super) struct Ask<'a> {
    pub(super) sources: &'a Arc<Sources>,
    /// Columns to be found by name, without duplicates.
    pub(super) found: &'a [String],
    pub(super) by_domain: &'a DomainAccess,
    /// What decides about the types of columns that are found by name.
    pub(super) typed_by: &'a DomainAccess,
    pub(super) ctx: &'a QueryContext,
}

impl Ask<'_> {
    /// What may be read of a domain.
    pub(super) fn access(&self, domain: Domain) -> Access {
        self.by_domain.get(domain)
    }

    /// What of a domain decides about the types of columns.
    pub(super) fn typing_access(&self, domain: Domain) -> Access {
        self.typed_by.get(domain)
    }

    /// Whether rows are read that the caller may not see, and which must not decide about types.
    pub(super) fn reads_more(&self, domain: Domain) -> bool {
        self.access(domain) != self.typing_access(domain)
    }

    /// Reads rows while a statement is planned, at most [`PROBE_ROWS`].
    pub(super) async fn probe(&self, table: Arc<dyn TableProvider>) -> Result<ProbeStream> {
        // The limit is not part of the plan, since a session without rules does not merge partitions below it.
        let plan = LogicalPlanBuilder::scan("probe", provider_as_source(table), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        let rows = self.sources.engine.execute(&plan, self.ctx, Rules::Direct).await?;
        let mut left = PROBE_ROWS;
        let bounded = rows.try_take_while(move |batch| {
            let goes_on = left > 0;
            left = left.saturating_sub(batch.num_rows());
            futures::future::ok(goes_on)
        });
        Ok(bounded.boxed())
    }
}

/// The rows of a probe.
pub(super) type ProbeStream = BoxStream<'static, datafusion::error::Result<RecordBatch>>;
