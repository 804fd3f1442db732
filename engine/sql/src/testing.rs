//! What tests share: a fake product with the tables and models that a test lists, which computes nothing, and parsed
//! queries.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_query::tables::models::{ModelPlan, ModelRows, ModelSelect, Models};
use quiver_query::tables::{DomainAccess, TableEntry, TableRequest, TableSnapshot, Tables};
use quiver_types::{Error, Result};

use crate::parse::{Params, ReadStatement, parse};
use crate::table_functions::{Call, CallRows, Languages};

/// Parses a text that must be a query.
pub(crate) fn query(text: &str) -> Query {
    let ReadStatement::Query(query) = parse(text, &Params::default()).expect(text).statement else {
        panic!("no query: {text}")
    };
    *query
}

/// A product, by what it says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    /// Tables that somebody may name.
    pub(crate) tables: fn(&DomainAccess) -> Vec<TableEntry>,
    /// The rows of one.
    pub(crate) table: fn(&TableRequest<'_>) -> Option<Arc<dyn TableProvider>>,
    /// Models that somebody may name.
    pub(crate) models: fn(&DomainAccess) -> Vec<TableEntry>,
    /// Whether a model has a member that is not listed.
    pub(crate) finds: fn(&str, &str) -> bool,
}

/// One without tables and models.
pub(crate) const EMPTY: Product =
    Product { tables: |_| Vec::new(), table: |_| None, models: |_| Vec::new(), finds: |_, _| false };

impl Tables for Product {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        Arc::new(*self)
    }
}

impl TableSnapshot for Product {
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(async move { Ok((self.table)(request)) })
    }

    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        (self.tables)(access)
    }
}

impl Models for Product {
    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        (self.models)(access)
    }

    fn finds(&self, model: &str, member: &str) -> bool {
        (self.finds)(model, member)
    }

    fn select<'a>(
        &'a self,
        _: &'a ModelSelect,
        _: &'a Arc<dyn TableSnapshot>,
        _: &'a DomainAccess,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>> {
        Box::pin(async move { Err(Error::internal("nothing is compiled here")) })
    }

    fn rows<'a>(
        &'a self,
        _: &'a ModelRows,
        _: &'a Arc<dyn TableSnapshot>,
        _: &'a DomainAccess,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<LogicalPlan>> {
        Box::pin(async move { Err(Error::internal("nothing is compiled here")) })
    }
}

#[async_trait]
impl Languages for Product {
    async fn call(
        &self,
        _: &Call,
        _: &dyn TableSnapshot,
        _: &DomainAccess,
        _: &QueryContext,
        _: &mut CallRows,
    ) -> Result<()> {
        Err(Error::internal("there are no languages"))
    }

    fn columns(&self, _: &str) -> SchemaRef {
        Arc::new(Schema::empty())
    }
}
