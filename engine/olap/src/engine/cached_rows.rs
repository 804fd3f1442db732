//! Plans queries over cached rows: those of a rollup, or of buckets.

use std::sync::Arc;

use datafusion::datasource::TableProvider;
use quiver_query::tables::DomainAccess;

use super::OlapEngine;
use crate::error::OlapResult;
use crate::model::catalog::Catalog;
use crate::plan::{MemberExprs, Planner, QueryPlans, Sources};
use crate::query::Query;
use crate::rollup::{CachedRollup, StorableRollup};

impl OlapEngine {
    /// Plans a query over a model whose rows are those of a rollup, which only contains what the caller may see.
    pub(super) fn plan_over(
        &self,
        held: &StorableRollup,
        query: &Query,
        catalog: &Catalog,
        kept: &CachedRollup,
    ) -> OlapResult<QueryPlans> {
        let state = self.engine.relational();
        let sources = Sources::of_rows(&held.model.common.name, Arc::clone(&kept.table) as Arc<dyn TableProvider>)?;
        let named = query.members();
        let views = catalog.views.iter().filter(|(name, _)| named.iter().any(|id| id.model == **name));
        let views = views.map(|(name, view)| (name.clone(), view.clone())).collect();
        let mut catalog = Catalog::alone(&held.over(&kept.schema, state), catalog.version);
        catalog.views = views;
        let (access, given) = (DomainAccess::full(), MemberExprs::new());
        let planner = Planner {
            catalog: &catalog,
            state,
            sources: &sources,
            access: &access,
            caller: "",
            given: &given,
            marks_values: false,
        };
        planner.plan(query)
    }
}
