//! What a statement may name, at one moment: what languages ask, and whoever has tables answers.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use futures::future::BoxFuture;
use quiver_types::configured::Configured;
use quiver_types::{Access, Domain, MillisRange, Result, Version};

use crate::context::QueryContext;

/// Schema of the tables of the product.
pub const QUIVER_SCHEMA: &str = "quiver";
/// Schema of the operator's own tables.
pub const PUBLIC_SCHEMA: &str = "public";

/// What a caller may see, domain by domain: one statement may read several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainAccess {
    by_domain: Arc<[(Domain, Access)]>,
}

impl DomainAccess {
    /// Asks for the access of each domain.
    pub fn of(mut access: impl FnMut(Domain) -> Access) -> Self {
        Self { by_domain: Domain::ALL.iter().map(|(domain, ..)| (*domain, access(*domain))).collect() }
    }

    /// Sees all rows of all domains.
    pub fn full() -> Self {
        Self::of(|_| Access::full())
    }

    /// Gives the access of a domain.
    pub fn get(&self, domain: Domain) -> Access {
        let found = self.by_domain.iter().find(|(d, _)| *d == domain);
        found.map_or_else(|| Access::services(Vec::<String>::new()), |(_, access)| access.clone())
    }

    /// Whether all of a domain may be seen: what belongs to no service needs it.
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

/// Which table, and what is asked of it.
#[derive(Debug, Clone)]
pub struct TableRequest<'a> {
    /// Schema, where one is named.
    pub schema: Option<&'a str>,
    /// Name of the table.
    pub name: &'a str,
    /// Every column name that the statement speaks of, with or without a table's alias before it: those that are no fixed
    /// columns of the table are looked up in the data (attributes, fields, labels), typed as the data is.
    pub columns: &'a [String],
    /// What the caller may see.
    pub access: &'a DomainAccess,
}

/// Gives snapshots of all tables. Made by the binary out of the store and the operator's folders.
pub trait Tables: Send + Sync + Debug {
    /// Pins what is visible now: all tables of one request are read at one moment.
    fn snapshot(&self) -> Arc<dyn TableSnapshot>;
}

/// A moment of the tables of the product, without what they held.
#[derive(Debug, Clone)]
pub struct Moment {
    pub(crate) samples: Version,
    pub(crate) logs: Version,
    pub(crate) spans: Version,
    pub(crate) configured: Arc<Configured>,
}

impl Moment {
    /// What had been written of each, and what was configured.
    pub fn new(samples: Version, logs: Version, spans: Version, configured: Arc<Configured>) -> Self {
        Self { samples, logs, spans, configured }
    }

    /// What had been written of spans.
    pub fn spans(&self) -> Version {
        self.spans
    }
}

/// All tables at one moment.
pub trait TableSnapshot: Send + Sync + Debug {
    /// Finds a table; `None`: there is none of that name.
    ///
    /// # Errors
    /// Those of reading the schema of the data.
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>>;

    /// Lists what a caller may name.
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry>;

    /// Which rows a table has: another number when they are others; none where that is not known.
    fn version(&self, _request: &TableRequest<'_>) -> Option<u64> {
        None
    }

    /// This moment; none where nothing tells it from others.
    fn moment(&self) -> Option<Moment> {
        None
    }

    /// Says whether a table has, within a range of its time, the rows that it had at an earlier moment. None: that cannot be
    /// known of this table. Its columns are asked for with it, as some follow from more than its rows.
    fn is_unchanged(&self, _request: &TableRequest<'_>, _since: &Moment, _range: MillisRange) -> Option<bool> {
        None
    }
}
