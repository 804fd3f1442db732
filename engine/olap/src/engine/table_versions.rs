//! The basis of a result: the versions of the tables that it was read from. While these stay the same, everybody who
//! asks the same with the same rights gets the same result.

use quiver_query::tables::{DomainAccess, PUBLIC_SCHEMA, QUIVER_SCHEMA, SnapshotVersion, TableRequest, TableSnapshot};
use quiver_types::MillisRange;

use super::{OlapEngine, ResultCaching};
use crate::model::catalog::Catalog;
use crate::plan::exemplars;
use crate::plan::sources::{Read, reads};
use crate::query::request::Request;

/// The tables that the queries of a request read, at one moment.
#[derive(Debug, Default)]
pub struct Basis {
    tables: Vec<Table>,
    moment: Option<SnapshotVersion>,
}

#[derive(Debug)]
struct Table {
    read: Read,
    /// Columns that are read, since some depend on more than rows.
    columns: Vec<String>,
    /// The rights with which the table is found.
    access: DomainAccess,
    /// The version of the operator's table; `None` if it is a table of the product.
    version: Option<u64>,
}

impl Table {
    fn request<'a>(&'a self, schema: &'a str) -> TableRequest<'a> {
        let (columns, access) = (&self.columns, &self.access);
        TableRequest { schema: Some(schema), name: &self.read.name, columns, access, typed_by: access }
    }

    /// The current version of the operator's table of that name, if it would be read.
    fn version_now(&self, now: &dyn TableSnapshot) -> Option<u64> {
        let is_public = self.read.schema.as_deref().is_none_or(|schema| schema == PUBLIC_SCHEMA);
        if is_public { now.version(&self.request(PUBLIC_SCHEMA)) } else { None }
    }

    fn is_unchanged(&self, now: &dyn TableSnapshot, since: Option<&SnapshotVersion>) -> Option<bool> {
        if self.read.schema.as_deref() == Some(PUBLIC_SCHEMA) {
            return None;
        }
        now.is_unchanged(&self.request(QUIVER_SCHEMA), since?, MillisRange::ALL)
    }
}

impl OlapEngine {
    /// The basis of the result of a request that starts now; `None` if it reads tables whose changes are not known,
    /// or results are not cached.
    pub fn basis(&self, catalog: &Catalog, request: &Request, access: &DomainAccess) -> Option<Basis> {
        if self.cache == ResultCaching::Off {
            return None;
        }
        let now = self.snapshot();
        let mut basis = Basis { tables: Vec::new(), moment: now.moment() };
        for query in &request.queries {
            let mut named = query.members();
            named.extend(exemplars::members(catalog, query));
            let (read, columns) = reads(catalog, query, &named, self.engine.relational())?;
            for read in read {
                let access = if read.is_guarded { DomainAccess::full() } else { access.clone() };
                let mut table = Table { read, columns: columns.clone(), access, version: None };
                table.version = table.version_now(now.as_ref());
                if table.version.is_none() {
                    table.is_unchanged(now.as_ref(), basis.moment.as_ref())?;
                }
                basis.tables.push(table);
            }
        }
        Some(basis)
    }

    /// Whether nothing of a basis has changed.
    pub fn holds(&self, basis: &Basis) -> bool {
        let now = self.snapshot();
        basis.tables.iter().all(|table| {
            table.version_now(now.as_ref()) == table.version
                && (table.version.is_some() || table.is_unchanged(now.as_ref(), basis.moment.as_ref()) == Some(true))
        })
    }
}
