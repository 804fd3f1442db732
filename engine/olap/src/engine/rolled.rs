//! Answers from rollups: which serves a query, its rows, and the query's plan over them (`olap-api.md` 11.5).
//!
//! A rollup is made when a query first comes that it serves, by the caller's rights and within his limits. What stands in its
//! way leaves the query to raw rows.

use std::sync::Arc;

use datafusion::datasource::TableProvider;
use quiver_query::QueryContext;
use quiver_query::tables::{DomainAccess, TableSnapshot};
use quiver_types::ErrorKind;

use super::{OlapEngine, members};
use crate::error::{OlapError, OlapResult};
use crate::model::catalog::Catalog;
use crate::plan::sources::version;
use crate::plan::{Given, Planned, Planner, Sources};
use crate::query::Query;
use crate::rollup::{Held, Kept, Used, bytes_of, candidates, key};

/// Rollups by their names, with the reason why each does not serve, if so.
pub(super) type Told = Vec<(String, Option<String>)>;

/// A rollup that serves a query, with what it takes to answer from it.
#[derive(Debug)]
pub(super) struct Chosen {
    held: Held,
    key: String,
    query: Query,
    catalog: Arc<Catalog>,
    tables: Arc<dyn TableSnapshot>,
    access: DomainAccess,
}

impl Chosen {
    /// `Model.rollup`.
    pub(super) fn id(&self) -> &str {
        &self.held.id
    }
}

impl OlapEngine {
    /// The rollups that a query could come from, and the first that serves it.
    pub(super) fn chosen(
        &self,
        catalog: &Arc<Catalog>,
        query: &Query,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
    ) -> (Told, Option<Chosen>) {
        let state = self.engine.relational();
        let (mut told, mut chosen) = (Told::new(), None);
        for candidate in candidates(catalog, query, state) {
            let versioned = candidate.fit.and_then(|held| {
                let text = "its rows come from tables whose changes are not known, such as those of the product";
                let rows = version(&held.model, tables.as_ref(), state, access).ok_or_else(|| text.to_owned())?;
                Ok((key(catalog, &held, access, &rows), held))
            });
            told.push((candidate.id, versioned.as_ref().err().cloned()));
            if let (Ok((key, held)), true) = (versioned, chosen.is_none()) {
                let (query, catalog, tables) = (query.clone(), Arc::clone(catalog), Arc::clone(tables));
                chosen = Some(Chosen { held, key, query, catalog, tables, access: access.clone() });
            }
        }
        (told, chosen)
    }

    /// The plan of a query over a rollup, whose rows are made where they are not kept; or why there is none.
    pub(super) async fn rolled(
        &self,
        chosen: &Chosen,
        ctx: &QueryContext,
    ) -> quiver_types::Result<Result<(Planned, Used), String>> {
        let place = self.rollups.place(&chosen.key, chosen.catalog.version);
        // Who comes while it is being made waits for it.
        let mut place = place.lock().await;
        let known = (*place).clone();
        let kept = if let Some(known) = known {
            known
        } else {
            let made = match self.made(chosen, ctx).await {
                Ok((kept, true)) => {
                    self.rollups.made(&chosen.key, kept.bytes);
                    Ok(Arc::new(kept))
                }
                // Queries need the memory: it is of use for this one alone.
                Ok((kept, false)) => {
                    drop(place);
                    return Ok(self.plan_rolled(chosen, Arc::new(kept)));
                }
                // The query itself has ended; the next one tries anew.
                Err(OlapError::Engine(e)) if matches!(e.kind, ErrorKind::Timeout | ErrorKind::Cancelled) => {
                    return Err(e);
                }
                Err(e) => Err(e.to_string()),
            };
            *place = Some(made.clone());
            made
        };
        drop(place);
        Ok(kept.and_then(|kept| self.plan_rolled(chosen, kept)))
    }

    fn plan_rolled(&self, chosen: &Chosen, kept: Arc<Kept>) -> Result<(Planned, Used), String> {
        let plan = self.plan_over(&chosen.held, &chosen.query, &chosen.catalog, &kept).map_err(|e| e.to_string())?;
        let (id, kind) = (chosen.held.id.clone(), chosen.held.kind.clone());
        Ok((plan, Used { id, kind, made_ms: kept.made_ms, _rows: kept }))
    }

    /// Runs the query of a rollup; says whether there is room to keep its rows.
    async fn made(&self, chosen: &Chosen, ctx: &QueryContext) -> OlapResult<(Kept, bool)> {
        let held = &chosen.held;
        let catalog = Catalog::alone(&held.model, chosen.catalog.version);
        let (tables, access) = (&chosen.tables, &chosen.access);
        let planned = self.planned(&catalog, &held.query, &Given::new(), tables, access, ctx, false).await?;
        let memory = self.engine.collected("rows of a rollup", ctx);
        let (schema, batches) = self.collect(&planned.rows, ctx, &memory).await?;
        self.rollups.check(&batches)?;
        let (room, made_ms) = (self.engine.keep("a rollup", bytes_of(&batches)), now_ms(&chosen.query));
        let is_kept = room.is_some();
        Ok((Kept::new(&schema, batches, made_ms, room.unwrap_or(memory))?, is_kept))
    }

    /// Plans a query as ever, over a model whose rows are those of a rollup. They are such as the caller sees.
    pub(super) fn plan_over(&self, held: &Held, query: &Query, catalog: &Catalog, kept: &Kept) -> OlapResult<Planned> {
        let state = self.engine.relational();
        let sources = Sources::of_rows(&held.model.common.name, Arc::clone(&kept.table) as Arc<dyn TableProvider>)?;
        let named = members(query);
        let views = catalog.views.iter().filter(|(name, _)| named.iter().any(|id| id.model == **name));
        let views = views.map(|(name, view)| (name.clone(), view.clone())).collect();
        let mut catalog = Catalog::alone(&held.over(&kept.schema, state), catalog.version);
        catalog.views = views;
        let (access, given) = (DomainAccess::full(), Given::new());
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

/// The time at which a query is asked.
pub(super) fn now_ms(query: &Query) -> i64 {
    query.now_ns.div_euclid(1_000_000)
}
