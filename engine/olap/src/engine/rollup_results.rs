//! Results from rollups: chooses the rollup that serves a query, makes its rows, and plans the query over them
//! (`olap-api.md` 11.5). A rollup is made on the first query that it serves, with the caller's rights and within his
//! limits. If that fails, the query reads raw rows.

use std::sync::Arc;

use quiver_query::QueryContext;
use quiver_query::tables::{DomainAccess, TableSnapshot};
use quiver_types::ErrorKind;

use super::OlapEngine;
use super::bucket_results::BucketEvaluation;
use crate::error::{OlapError, OlapResult};
use crate::model::catalog::Catalog;
use crate::plan::QueryPlans;
use crate::plan::sources::version;
use crate::query::Query;
use crate::rollup::{
    Admission, BucketedQuery, CachedRollup, Parts, StorableRollup, UsedRollup, bytes_of, candidates, key,
};

/// A plan over a rollup, the rollup used, and how the result is made of its buckets.
type OverRollup = (QueryPlans, UsedRollup, Option<Parts>);

/// The names of rollups, with the reason if one does not serve the query.
pub(super) type RollupVerdicts = Vec<(String, Option<String>)>;

/// A rollup that serves a query, and what answering from it needs.
#[derive(Debug)]
pub(super) enum SelectedRollup {
    /// Its tables have versions, so all of its rows are cached.
    Whole(Box<WholeRollup>),
    /// It reads a table of the product, so the rows of closed buckets are cached.
    Buckets(Box<BucketEvaluation>),
}

/// What answering from a rollup that is cached as a whole needs.
#[derive(Debug)]
pub(super) struct WholeRollup {
    held: StorableRollup,
    key: String,
    query: Query,
    catalog: Arc<Catalog>,
    tables: Arc<dyn TableSnapshot>,
    access: DomainAccess,
}

impl SelectedRollup {
    /// Name of the chosen rollup as `Model.rollup`.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Whole(whole) => &whole.held.id,
            Self::Buckets(parted) => &parted.held().id,
        }
    }
}

impl OlapEngine {
    /// All rollups that were considered, and the first that serves the query.
    pub(super) fn chosen(
        &self,
        catalog: &Arc<Catalog>,
        query: &Query,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
    ) -> (RollupVerdicts, Option<SelectedRollup>) {
        let state = self.engine.relational();
        let (mut told, mut chosen) = (RollupVerdicts::new(), None);
        for candidate in candidates(catalog, query, state, tables.as_ref()) {
            let found = candidate.fit.and_then(|held| self.serving(catalog, query, held, tables, access));
            told.push((candidate.id, found.as_ref().err().cloned()));
            if chosen.is_none() {
                chosen = found.ok();
            }
        }
        (told, chosen)
    }

    /// Prepares answering from a rollup that serves a query; the error is the reason if that is impossible.
    fn serving(
        &self,
        catalog: &Arc<Catalog>,
        query: &Query,
        held: StorableRollup,
        tables: &Arc<dyn TableSnapshot>,
        access: &DomainAccess,
    ) -> Result<SelectedRollup, String> {
        let state = self.engine.relational();
        let Some(rows) = version(&held.model, tables.as_ref(), state, access) else {
            self.may_keep()?;
            let of = BucketedQuery::declared(catalog, query, held, state, tables.as_ref())?;
            return self
                .parted_of(of, catalog, tables, access, Admission::AtOnce)
                .map(|parted| SelectedRollup::Buckets(Box::new(parted)));
        };
        let key = key(catalog, &held, access, &rows);
        let (query, catalog, tables) = (query.clone(), Arc::clone(catalog), Arc::clone(tables));
        Ok(SelectedRollup::Whole(Box::new(WholeRollup { held, key, query, catalog, tables, access: access.clone() })))
    }

    /// The plan of a query over a rollup, whose rows are made unless they are cached; the error is the reason if
    /// there is none.
    pub(super) async fn rolled(
        &self,
        chosen: &SelectedRollup,
        ctx: &QueryContext,
    ) -> quiver_types::Result<Result<OverRollup, String>> {
        match chosen {
            SelectedRollup::Whole(whole) => {
                let made = Box::pin(self.whole(whole, ctx)).await?;
                Ok(made.map(|(plan, used)| (plan, used, None)))
            }
            SelectedRollup::Buckets(parted) => {
                let made = Box::pin(self.over_parts(parted, ctx)).await?;
                Ok(made
                    .map(|(plan, parts)| (plan, UsedRollup::of(parted.held(), Arc::clone(&parts.rows)), Some(parts))))
            }
        }
    }

    async fn whole(
        &self,
        chosen: &WholeRollup,
        ctx: &QueryContext,
    ) -> quiver_types::Result<Result<(QueryPlans, UsedRollup), String>> {
        let place = self.rollups.place(&chosen.key, chosen.catalog.version);
        // Requests that come while it is being made wait for it.
        let mut place = place.lock().await;
        let known = (*place).clone();
        let kept = if let Some(known) = known {
            known
        } else {
            let made = match self.compute(chosen, ctx).await {
                Ok((kept, true)) => {
                    self.rollups.account(&chosen.key, kept.bytes);
                    Ok(Arc::new(kept))
                }
                // Queries need the memory, so the rows are used for this query only.
                Ok((kept, false)) => {
                    drop(place);
                    return Ok(self.plan_rolled(chosen, Arc::new(kept)));
                }
                // This query has ended, so the next one tries again.
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

    fn plan_rolled(&self, chosen: &WholeRollup, kept: Arc<CachedRollup>) -> Result<(QueryPlans, UsedRollup), String> {
        let plan = self.plan_over(&chosen.held, &chosen.query, &chosen.catalog, &kept).map_err(|e| e.to_string())?;
        Ok((plan, UsedRollup::of(&chosen.held, kept)))
    }

    /// Runs the query of a rollup; returns whether there is memory to cache its rows.
    async fn compute(&self, chosen: &WholeRollup, ctx: &QueryContext) -> OlapResult<(CachedRollup, bool)> {
        let held = &chosen.held;
        let catalog = Catalog::alone(&held.model, chosen.catalog.version);
        let planned = self.plan(&catalog, &held.query, &chosen.tables, &chosen.access, ctx).await?;
        let memory = self.engine.collected("rows of a rollup", ctx);
        let (schema, batches) = self.collect(&planned.rows, ctx, &memory).await?;
        self.rollups.check(&batches)?;
        let (room, made_ms) = (self.engine.keep("a rollup", bytes_of(&batches)), chosen.query.now_ms());
        let is_kept = room.is_some();
        Ok((CachedRollup::new(&schema, batches, made_ms, room.unwrap_or(memory))?, is_kept))
    }
}
