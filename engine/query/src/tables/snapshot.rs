//! The tables that a statement may name, at one moment: the interface between query languages and the owners of
//! tables.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use futures::future::BoxFuture;
use quiver_types::logs::LogSnapshot;
use quiver_types::query_configuration::QueryConfiguration;
use quiver_types::{Access, Domain, MillisRange, Result, SeriesSnapshot, Version};

use crate::context::QueryContext;

/// Schema of the tables of the product.
pub const QUIVER_SCHEMA: &str = "quiver";
/// Schema of the operator's own tables.
pub const PUBLIC_SCHEMA: &str = "public";

/// A caller's rights by domain, since one statement may read several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainAccess {
    by_domain: Arc<[(Domain, Access)]>,
}

impl DomainAccess {
    /// Calls `access` for each domain.
    pub fn of(mut access: impl FnMut(Domain) -> Access) -> Self {
        Self { by_domain: Domain::ALL.iter().map(|(domain, ..)| (*domain, access(*domain))).collect() }
    }

    /// Full access to all domains.
    pub fn full() -> Self {
        Self::of(|_| Access::full())
    }

    /// Gives what may be seen of a domain: nothing of one that is not known.
    pub fn get(&self, domain: Domain) -> Access {
        let found = self.by_domain.iter().find(|(d, _)| *d == domain);
        found.map_or_else(|| Access::services(Vec::<String>::new()), |(_, access)| access.clone())
    }

    /// Whether all of a domain may be seen, which rows without a service require.
    pub fn is_full(&self, domain: Domain) -> bool {
        self.get(domain).is_full()
    }

    /// Whether everything may be seen.
    pub fn is_full_everywhere(&self) -> bool {
        self.by_domain.iter().all(|(_, access)| access.is_full())
    }
}

/// A table that a caller may name.
#[derive(Debug, Clone)]
pub struct TableEntry {
    /// `quiver`, `public` or `olap`.
    pub schema: &'static str,
    /// Name within the schema.
    pub name: String,
    /// Fixed columns; others are found by name.
    pub columns: SchemaRef,
}

/// The table that a statement names, and what it reads of it.
#[derive(Debug, Clone)]
pub struct TableRequest<'a> {
    /// Schema, if one is given.
    pub schema: Option<&'a str>,
    /// Name of the table.
    pub name: &'a str,
    /// Every column name that the statement uses, with or without a table's alias. Names that are not fixed columns
    /// are looked up in the data (attributes, fields, labels) and typed as the data is.
    pub columns: &'a [String],
    /// What may be read: what the caller sees, or more.
    pub access: &'a DomainAccess,
    /// What the caller sees. Of columns that are found by name, it decides which type they have.
    pub typed_by: &'a DomainAccess,
}

/// Gives snapshots of all tables; implemented over the store and the operator's folders.
pub trait Tables: Send + Sync + Debug {
    /// Pins what is visible now, so that all tables of one request are read at one moment.
    fn snapshot(&self) -> Arc<dyn TableSnapshot>;
}

/// The version of the product's tables at one moment, without their content.
#[derive(Debug, Clone)]
pub struct SnapshotVersion {
    pub(crate) samples: Version,
    pub(crate) logs: Version,
    pub(crate) spans: Version,
    pub(crate) configured: Arc<QueryConfiguration>,
}

impl SnapshotVersion {
    /// Makes it of the versions of the sources, and the configuration.
    pub fn new(samples: Version, logs: Version, spans: Version, configured: Arc<QueryConfiguration>) -> Self {
        Self { samples, logs, spans, configured }
    }

    /// The version of spans.
    pub fn spans(&self) -> Version {
        self.spans
    }
}

/// What the tables of the product are made of at one moment, for languages within a statement.
#[derive(Debug, Clone)]
pub struct StoredData {
    /// Series and their samples.
    pub series: Arc<dyn SeriesSnapshot>,
    /// Log rows.
    pub logs: Arc<dyn LogSnapshot>,
    /// The moment, Unix milliseconds.
    pub now_ms: i64,
}

/// All tables at one moment.
pub trait TableSnapshot: Send + Sync + Debug {
    /// Finds a table; `None` if there is no table of that name.
    ///
    /// # Errors
    ///
    /// Those of reading the schema of the data.
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>>;

    /// Lists the tables that a caller may name.
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry>;

    /// A number that changes whenever the rows of a table do; `None` if unknown.
    fn version(&self, _request: &TableRequest<'_>) -> Option<u64> {
        None
    }

    /// The version at this moment; `None` if unknown.
    fn moment(&self) -> Option<SnapshotVersion> {
        None
    }

    /// What the tables are made of; `None` if there are none of the product.
    fn stored(&self) -> Option<StoredData> {
        None
    }

    /// Whether a table has the same rows in a time range as at an earlier moment; `None` if unknown for this table.
    /// The request's columns matter, too, since some are computed from more than the rows.
    fn is_unchanged(&self, _request: &TableRequest<'_>, _since: &SnapshotVersion, _range: MillisRange) -> Option<bool> {
        None
    }
}
