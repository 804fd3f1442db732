//! Rollups (`olap-api.md` 11.5): stored groups of a model's rows, from which queries are answered.
//!
//! `matching` decides which queries a rollup can answer, and gives a model over its rows, so that the ordinary planner
//! plans them; `row_cache` holds the rows. `engine::rollup_results` builds and uses rollups.
//!
//! Queries over product tables that repeat are also answered from cached rows, one group per time bucket: `buckets`
//! decides which queries, `bucket_cache` keeps the closed buckets, and `engine::bucket_results` reads the others.

mod bucket_cache;
mod buckets;
mod matching;
mod row_cache;

use std::sync::Arc;

use datafusion::execution::session_state::SessionState;
use quiver_query::tables::{DomainAccess, TableSnapshot};
use serde_json::{Value, json};

pub use bucket_cache::Parts;
pub(crate) use bucket_cache::{Admission, AllPieces, BucketBatch, Pieces};
pub(crate) use buckets::BucketedQuery;
pub(crate) use matching::StorableRollup;
pub(crate) use row_cache::{CachedRollup, Rollups, bytes_of};

use crate::model::Model;
use crate::model::catalog::Catalog;
use crate::query::{CacheMode, Query};

/// A rollup of the models that a query is about.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Name of the rollup as `Model.rollup`.
    pub(crate) id: String,
    /// What serves the query, or why it does not.
    pub(crate) fit: Result<StorableRollup, String>,
}

/// A rollup that an answer came from.
#[derive(Debug, Clone)]
pub struct UsedRollup {
    /// Name of the rollup as `Model.rollup`.
    pub id: String,
    /// `rollup` or `rollup_lambda`.
    pub kind: String,
    /// When its rows were made, in ms.
    pub made_ms: i64,
    /// The rows; their memory is charged as long as a reader holds them.
    pub(crate) _rows: Arc<CachedRollup>,
}

impl UsedRollup {
    /// A rollup, by the rows that it gave.
    pub(crate) fn of(held: &StorableRollup, rows: Arc<CachedRollup>) -> Self {
        Self { id: held.id.clone(), kind: held.kind.clone(), made_ms: rows.made_ms, _rows: rows }
    }

    /// As answers name it.
    pub(crate) fn to_json(&self) -> Value {
        let what = json!({"preAggregationId": self.id, "lastUpdatedAt": self.made_ms, "type": self.kind});
        json!({self.id.clone(): what})
    }
}

/// All rollups of the models that a query names.
pub(crate) fn candidates(
    catalog: &Catalog,
    query: &Query,
    state: &SessionState,
    tables: &dyn TableSnapshot,
) -> Vec<Candidate> {
    let mut models: Vec<&Model> = Vec::new();
    for id in query.members() {
        let Some(found) = catalog.find(&id) else { continue };
        if !models.iter().any(|model| model.common.name == found.model.common.name) {
            models.push(found.model);
        }
    }
    let wants_raw = !query.rollups || query.cache == Some(CacheMode::NoCache);
    let mut candidates = Vec::new();
    for model in &models {
        for rollup in &model.pre_aggregations {
            let fit = if wants_raw {
                Err("the query asks for raw rows".to_owned())
            } else if models.len() > 1 {
                Err("the query is about several models".to_owned())
            } else {
                StorableRollup::of(model, rollup).and_then(|mut held| {
                    held.ranged = buckets::table_of(model, state, tables).is_some();
                    held.serves(catalog, query, state).map(|()| held)
                })
            };
            candidates.push(Candidate { id: format!("{}.{}", model.common.name, rollup.name), fit });
        }
    }
    candidates
}

/// What tells the rows of a rollup from those of others: the models, the caller's rights, the rows of the tables.
pub(crate) fn key(catalog: &Catalog, held: &StorableRollup, access: &DomainAccess, tables: &str) -> String {
    format!("{} {} {} {tables}", catalog.version, held.id, row_cache::rights(access))
}

/// As `explain` shows buckets of time, or why an answer is not made of such.
pub(crate) fn shown_parts(parts: Result<&Parts, &String>) -> Value {
    parts.map_or_else(|reason| json!({"reason": reason}), Parts::to_json)
}

/// As `explain` shows them. `outcome`: the one that was tried, and why its rows are not there, if they are not.
pub(crate) fn shown(candidates: &[(String, Option<String>)], outcome: Option<(&str, Option<&str>)>) -> Value {
    let one = |(id, reason): &(String, Option<String>)| {
        let failed = outcome.filter(|(tried, _)| tried == id).and_then(|(_, reason)| reason);
        let reason = reason.as_deref().or(failed);
        json!({"id": id, "usable": reason.is_none(), "reason": reason})
    };
    let used = outcome.filter(|(_, reason)| reason.is_none()).map(|(id, _)| id);
    json!({"used": used, "candidates": candidates.iter().map(one).collect::<Vec<_>>()})
}
