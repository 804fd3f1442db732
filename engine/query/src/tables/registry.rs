//! The registry of named tables, and their snapshots.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::TableProvider;
use futures::future::BoxFuture;
use quiver_types::logs::LogSource;
use quiver_types::query_configuration::{ConfigurationList, ConfiguredSource};
use quiver_types::source::RowSource;
use quiver_types::spans::SpanSource;
use quiver_types::tables::history::{ALERT_ACTIONS, ALERT_EVENTS, NOTIFICATIONS, RULE_EVALUATIONS};
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, RESOURCE_HEALTH, STORAGE_STATS};
use quiver_types::{Clock, MillisRange, Result, SeriesSource};

use super::config_tables::ListedTable;
use super::episodes::EpisodeTable;
use super::history::HistoryTable;
use super::key_transactions::KeyTable;
use super::logs::LogTable;
use super::metrics::SampleTable;
use super::metrics::lists::{ExemplarTable, MetadataTable, SeriesListTable};
use super::named_table::{Ask, NamedTable, Since, Sources};
use super::processes::{ProcessRowKind, ProcessTable};
use super::resources::ResourceTable;
use super::rules::RuleTable;
use super::snapshot::{
    DomainAccess, QUIVER_SCHEMA, SnapshotVersion, StoredData, TableEntry, TableRequest, TableSnapshot, Tables,
};
use super::spans::SpanTable;
use super::spans::columns::SpanRowKind;
use super::views::{OPERATIONS, SERVICE_EDGES, TRACES};
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::logs::LogTables;
use crate::spans::SpanTables;

/// All tables of schema `quiver`.
const TABLES: &[&dyn NamedTable] = &[
    &SpanTable(SpanRowKind::Span),
    &SpanTable(SpanRowKind::Event),
    &SpanTable(SpanRowKind::Link),
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
    &ProcessTable(ProcessRowKind::Instances),
    &ProcessTable(ProcessRowKind::Steps),
    &ProcessTable(ProcessRowKind::Funnel),
    &ResourceTable::Resources,
    &ResourceTable::Relationships,
    &RuleTable,
    &ListedTable(ConfigurationList::Receivers),
    &ListedTable(ConfigurationList::Silences),
    &ListedTable(ConfigurationList::Audit),
];

/// The sources of the named tables: engine, indexes, and traits that make scans. Filled in by the binary.
#[derive(Debug, Clone)]
pub struct TableSources {
    /// Runs the probes of the data that planning a statement needs.
    pub engine: Arc<QueryEngine>,
    /// The index of series, and their samples.
    pub series: Arc<dyn SeriesSource>,
    /// The index of log streams.
    pub logs: Arc<dyn LogSource>,
    /// Scans of log rows.
    pub log_tables: Arc<dyn LogTables>,
    /// Snapshots of spans.
    pub spans: Arc<dyn SpanSource>,
    /// Scans of spans, of the index of their attributes, and of rollups.
    pub span_tables: Arc<dyn SpanTables>,
    /// Tables that store rows unchanged.
    pub rows: Arc<dyn RowSource>,
    /// Labels that name the service of a series; the first that is not empty counts.
    pub service_labels: Arc<[String]>,
    /// The configuration that queries read.
    pub configured: Arc<dyn ConfiguredSource>,
    /// The wall clock, which decides which processes are still running.
    pub clock: Arc<dyn Clock>,
}

impl Tables for TableSources {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        Arc::new(NamedTables(Arc::new(Sources {
            engine: Arc::clone(&self.engine),
            series: self.series.snapshot(),
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

/// The descriptions of [`TABLES`], made once, since every plan needs them and there are hundreds of columns.
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
            // This snapshot has no tables of the operator, so an unqualified name means one of the product.
            if request.schema.is_some_and(|schema| schema != QUIVER_SCHEMA) {
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
            let (by_domain, typed_by) = (request.access, request.typed_by);
            let ask = Ask { sources: &self.0, found: &found, by_domain, typed_by, ctx };
            table.open(&ask).await.map(Some)
        })
    }

    fn moment(&self) -> Option<SnapshotVersion> {
        let sources = &self.0;
        let (logs, spans) = (sources.logs.version()?, sources.spans.version()?);
        Some(SnapshotVersion::new(sources.series.version(), logs, spans, Arc::clone(&sources.configured)))
    }

    fn stored(&self) -> Option<StoredData> {
        let Sources { series, logs, now_ms, .. } = &*self.0;
        Some(StoredData { series: Arc::clone(series), logs: Arc::clone(logs), now_ms: *now_ms })
    }

    fn is_unchanged(&self, request: &TableRequest<'_>, since: &SnapshotVersion, range: MillisRange) -> Option<bool> {
        if request.schema.is_some_and(|schema| schema != QUIVER_SCHEMA) {
            return None;
        }
        let table = TABLES.iter().find(|table| table.name() == request.name)?;
        let asked = Since { sources: &self.0, then: since, range, columns: request.columns };
        // Configuration applies to all history.
        Some(table.is_unchanged(&asked)? && Arc::ptr_eq(&since.configured, &self.0.configured))
    }

    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        let sees = |table: &dyn NamedTable| access.get(table.domain()).sees_some();
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
