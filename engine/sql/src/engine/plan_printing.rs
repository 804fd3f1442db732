//! Plans of statements over models, for printing: analytics shows the SQL of a plan, including the caller's row
//! filter.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::tables::DomainAccess;
use quiver_query::tables::models::ModelPlan;
use quiver_query::{Names, QueryContext};
use quiver_types::{Error, Result};

use super::{NamedQuery, Request, SqlEngine, TEXT_FACTOR, VisibleTables, translated};
use crate::parse::parse;

impl SqlEngine {
    /// Plans a statement that reads only models; nothing is executed. Models that the caller may not know are
    /// reported as missing.
    ///
    /// # Errors
    ///
    /// Invalid: the statement cannot be parsed or planned, or names another table.
    pub fn plan_of_models<'a>(
        &'a self,
        request: Request,
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>> {
        async move {
            let memory = self.engine.collected("statement", ctx);
            memory.add(TEXT_FACTOR * request.text.len())?;
            ctx.keep(memory);
            let snapshot = self.tables.snapshot();
            let (own, access, inner) = (self.clone(), access.clone(), ctx.clone());
            let work = async move {
                let read = parse(&request.text, &request.params)?;
                if read.explain.is_some() {
                    return Err(Error::invalid("a statement that is printed is no `EXPLAIN`"));
                }
                let catalog = Arc::new(own.catalog(&*snapshot, &access, &request.session));
                let seen = VisibleTables { snapshot: &snapshot, catalog: &catalog, access: &access };
                let query = translated(&own.engine, read, &catalog, &request.session)?;
                let mut texts = BTreeMap::new();
                let names = Names::new(own.engine.relational());
                let named = NamedQuery { query, names, session: &request.session };
                let plan = Box::pin(own.plan_named(named, seen, Some(&mut texts), &inner)).await?;
                Ok(ModelPlan { plan, texts })
            };
            self.engine.run(ctx, work).await
        }
        .boxed()
    }
}
