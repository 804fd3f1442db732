//! The registry of named tables, and their snapshots over what the store gives.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use quiver_types::configured::{Configured, ConfiguredSource, Listed};
use quiver_types::logs::{LogSnapshot, LogSource};
use quiver_types::source::{RowSnapshot, RowSource};
use quiver_types::spans::{SpanSnapshot, SpanSource};
use quiver_types::tables::history::{ALERT_ACTIONS, ALERT_EVENTS, NOTIFICATIONS, RULE_EVALUATIONS};
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, RESOURCE_HEALTH, STORAGE_STATS};
use quiver_types::{Access, Clock, Domain, MillisRange, Result, SeriesSnapshot, SeriesSource};

use super::episodes::EpisodeTable;
use super::history::HistoryTable;
use super::keys::KeyTable;
use super::listed::ListedTable;
use super::logs::LogTable;
use super::metrics::{ExemplarTable, MetadataTable, SampleTable, SeriesListTable};
use super::processes::{About, ProcessTable};
use super::resources::ResourceTable;
use super::rules::RuleTable;
use super::spans::{Each, SpanTable};
use super::views::{OPERATIONS, SERVICE_EDGES, TRACES};
use super::{DomainAccess, Moment, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry, TableRequest, TableSnapshot, Tables};
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::from_datafusion;
use crate::logs::LogTables;
use crate::samples::SampleTables;
use crate::spans::SpanTables;

/// Rows that are looked at to learn what a column holds that a statement found by name.
pub(super) const PROBE_ROWS: usize = 128 * 1024;

/// A table that anyone can name.
pub(super) trait NamedTable: Send + Sync + Debug {
    /// Its name in schema `quiver`.
    fn name(&self) -> &'static str;

    /// Whose right its rows need.
    fn domain(&self) -> Domain;

    /// Fixed columns: what `SELECT *` gives.
    fn columns(&self) -> SchemaRef;

    /// Says whether a name that is no fixed column may be a column of the data.
    fn finds(&self, column: &str) -> bool;

    /// Makes the table of a statement: fixed columns, then those that were found by name.
    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>>;
}

/// All tables of schema `quiver`.
pub(super) const TABLES: &[&dyn NamedTable] = &[
    &SpanTable(Each::Span),
    &SpanTable(Each::Event),
    &SpanTable(Each::Link),
    &TRACES,
    &LogTable,
    &SampleTable,
    &SeriesListTable,
    &MetadataTable,
    &ExemplarTable,
    &SERVICE_EDGES,
    &OPERATIONS,
    &HistoryTable(&ALERT_EVENTS),
    &EpisodeTable,
    &HistoryTable(&ALERT_ACTIONS),
    &HistoryTable(&RULE_EVALUATIONS),
    &HistoryTable(&NOTIFICATIONS),
    &HistoryTable(&QUERY_LOG),
    &HistoryTable(&STORAGE_STATS),
    &HistoryTable(&RESOURCE_HEALTH),
    &HistoryTable(&INGEST_USAGE),
    &KeyTable,
    &ProcessTable(About::Instances),
    &ProcessTable(About::Steps),
    &ProcessTable(About::Funnel),
    &ResourceTable::Resources,
    &ResourceTable::Relationships,
    &RuleTable,
    &ListedTable(Listed::Receivers),
    &ListedTable(Listed::Silences),
    &ListedTable(Listed::Audit),
];

/// What tables read from, at one moment.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) engine: Arc<QueryEngine>,
    pub(super) series: Arc<dyn SeriesSnapshot>,
    pub(super) samples: Arc<dyn SampleTables>,
    pub(super) logs: Arc<dyn LogSnapshot>,
    pub(super) log_tables: Arc<dyn LogTables>,
    pub(super) spans: Arc<dyn SpanSnapshot>,
    pub(super) span_tables: Arc<dyn SpanTables>,
    pub(super) rows: Arc<dyn RowSnapshot>,
    pub(super) service_labels: Arc<[String]>,
    pub(super) configured: Arc<Configured>,
    /// Who is asked for what is read only where a statement names it.
    pub(super) configuration: Arc<dyn ConfiguredSource>,
    pub(super) now_ms: i64,
}

/// What a table is asked for.
pub(super) struct Ask<'a> {
    pub(super) sources: &'a Arc<Sources>,
    /// Columns that the table finds by name, each once.
    pub(super) found: &'a [String],
    pub(super) by_domain: &'a DomainAccess,
    pub(super) ctx: &'a QueryContext,
}

impl Ask<'_> {
    /// What the caller may see of a domain.
    pub(super) fn access(&self, domain: Domain) -> Access {
        self.by_domain.get(domain)
    }

    /// Runs a look at the data while a statement is planned; it ends after [`PROBE_ROWS`] rows.
    pub(super) async fn probe(&self, table: Arc<dyn TableProvider>) -> Result<Probed> {
        // Without a limit in the plan: the session without rules brings no partitions together below one.
        let plan = LogicalPlanBuilder::scan("probe", provider_as_source(table), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        let rows = self.sources.engine.execute(&plan, self.ctx).await?;
        let mut left = PROBE_ROWS;
        let bounded = rows.try_take_while(move |batch| {
            let goes_on = left > 0;
            left = left.saturating_sub(batch.num_rows());
            futures::future::ok(goes_on)
        });
        Ok(bounded.boxed())
    }
}

/// Rows that are looked at.
pub(super) type Probed = BoxStream<'static, datafusion::error::Result<RecordBatch>>;

/// What the binary wires: engine, sources and the doors to their scans.
#[derive(Debug, Clone)]
pub struct TableSources {
    /// Runs what must be known of the data while a statement is planned.
    pub engine: Arc<QueryEngine>,
    /// Which series there are.
    pub series: Arc<dyn SeriesSource>,
    /// Scans of samples of selected series.
    pub samples: Arc<dyn SampleTables>,
    /// Which streams of logs there are.
    pub logs: Arc<dyn LogSource>,
    /// Scans of log rows.
    pub log_tables: Arc<dyn LogTables>,
    /// Snapshots of spans.
    pub spans: Arc<dyn SpanSource>,
    /// Scans of spans, their attributes and roll-ups.
    pub span_tables: Arc<dyn SpanTables>,
    /// Tables that keep rows as they came.
    pub rows: Arc<dyn RowSource>,
    /// Labels of which the first that a series has is its service.
    pub service_labels: Arc<[String]>,
    /// What is configured.
    pub configured: Arc<dyn ConfiguredSource>,
    /// Wall clock: which instances of a process are still running.
    pub clock: Arc<dyn Clock>,
}

impl Tables for TableSources {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        Arc::new(NamedTables(Arc::new(Sources {
            engine: Arc::clone(&self.engine),
            series: self.series.snapshot(),
            samples: Arc::clone(&self.samples),
            logs: self.logs.snapshot(),
            log_tables: Arc::clone(&self.log_tables),
            spans: self.spans.snapshot(),
            span_tables: Arc::clone(&self.span_tables),
            rows: self.rows.snapshot(),
            service_labels: Arc::clone(&self.service_labels),
            configured: self.configured.configured(),
            configuration: Arc::clone(&self.configured),
            now_ms: self.clock.now_ms(),
        })))
    }
}

/// What is told of each of [`TABLES`], made once: plans ask for it again and again, and there are hundreds of columns.
static ENTRIES: LazyLock<Vec<TableEntry>> = LazyLock::new(|| {
    let entry = |table: &&dyn NamedTable| TableEntry {
        schema: QUIVER_SCHEMA,
        name: table.name().to_owned(),
        columns: table.columns(),
    };
    TABLES.iter().map(entry).collect()
});

/// The tables of schema `quiver` at one moment.
#[derive(Debug)]
struct NamedTables(Arc<Sources>);

impl TableSnapshot for NamedTables {
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(async move {
            // The operator has no tables of his own here, so an unqualified name is one of the product.
            if request.schema.is_some_and(|schema| schema != QUIVER_SCHEMA) {
                debug_assert!(request.schema != Some("") && PUBLIC_SCHEMA != QUIVER_SCHEMA);
                return Ok(None);
            }
            let mut tables = TABLES.iter().zip(ENTRIES.iter());
            let Some((table, entry)) = tables.find(|(table, _)| table.name() == request.name) else { return Ok(None) };
            let fixed = &entry.columns;
            let mut found: Vec<String> = Vec::new();
            for name in request.columns {
                if fixed.column_with_name(name).is_none() && table.finds(name) && !found.contains(name) {
                    found.push(name.clone());
                }
            }
            let ask = Ask { sources: &self.0, found: &found, by_domain: request.access, ctx };
            table.open(&ask).await.map(Some)
        })
    }

    fn moment(&self) -> Option<Moment> {
        let sources = &self.0;
        let (logs, spans) = (sources.logs.version()?, sources.spans.version()?);
        Some(Moment::new(sources.series.version(), logs, spans, Arc::clone(&sources.configured)))
    }

    fn is_unchanged(&self, request: &TableRequest<'_>, since: &Moment, range: MillisRange) -> Option<bool> {
        if request.schema.is_some_and(|schema| schema != QUIVER_SCHEMA) {
            return None;
        }
        let sources = &self.0;
        let rows = match request.name {
            "spans" => sources.spans.is_unchanged(since.spans, range),
            "logs" => sources.logs.is_unchanged(since.logs, range),
            // What a counter rose by within a range goes by the sample before it.
            "metric_samples" if range == MillisRange::ALL || request.columns.iter().all(|name| name != "increase") => {
                let now = sources.series.version();
                let is_past = since.samples.written <= now.written && since.samples.dropped == now.dropped;
                is_past && sources.series.first_change(since.samples, range).is_none()
            }
            // Times of their rows are not those that spans start at.
            "span_events" | "span_links" | "traces" | "service_edges" | "operations" if range == MillisRange::ALL => {
                sources.spans.is_unchanged(since.spans, range)
            }
            _ => return None,
        };
        // What is configured acts on all history.
        Some(rows && Arc::ptr_eq(&since.configured, &sources.configured))
    }

    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        let sees = |table: &dyn NamedTable| {
            let access = access.get(table.domain());
            access.is_full() || !access.patterns().is_empty()
        };
        TABLES.iter().zip(ENTRIES.iter()).filter(|(table, _)| sees(**table)).map(|(_, entry)| entry.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_columns_too() {
        for (at, table) in TABLES.iter().enumerate() {
            assert!(TABLES[at + 1..].iter().all(|other| other.name() != table.name()), "{}", table.name());
            let columns = table.columns();
            let mut names: Vec<&String> = columns.fields().iter().map(|field| field.name()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), columns.fields().len(), "{}", table.name());
        }
    }
}
