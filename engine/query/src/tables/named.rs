//! The registry of named tables, and their snapshots over what the store gives.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::TableProvider;
use futures::future::BoxFuture;
use quiver_types::configured::{ConfiguredSource, Listed};
use quiver_types::logs::LogSource;
use quiver_types::source::RowSource;
use quiver_types::spans::SpanSource;
use quiver_types::tables::history::{ALERT_ACTIONS, ALERT_EVENTS, NOTIFICATIONS, RULE_EVALUATIONS};
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, RESOURCE_HEALTH, STORAGE_STATS};
use quiver_types::{Clock, MillisRange, Result, SeriesSource};

use super::ask::{Ask, NamedTable, Sources};
use super::episodes::EpisodeTable;
use super::history::HistoryTable;
use super::keys::KeyTable;
use super::listed::ListedTable;
use super::logs::LogTable;
use super::metrics::SampleTable;
use super::metrics::lists::{ExemplarTable, MetadataTable, SeriesListTable};
use super::processes::{About, ProcessTable};
use super::resources::ResourceTable;
use super::rules::RuleTable;
use super::snapshot::{
    DomainAccess, Moment, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry, TableRequest, TableSnapshot, Tables,
};
use super::spans::SpanTable;
use super::spans::columns::Each;
use super::views::{OPERATIONS, SERVICE_EDGES, TRACES};
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::logs::LogTables;
use crate::samples::SampleTables;
use crate::spans::SpanTables;

/// All tables of schema `quiver`.
const TABLES: &[&dyn NamedTable] = &[
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
