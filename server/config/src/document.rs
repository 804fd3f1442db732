//! Entities: reading and listing.

use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Statement, statement};
use serde_json::{Map, Value, json};

use crate::access::follows_others;
use crate::config::Config;
use crate::entity::{Entity, diff};
use crate::entity_place::{Place, is_visible};
use crate::family::Caller;
use crate::json::time_text;
use crate::listing::Listing;
use crate::page_buffer::{FirstEntities, PageBuffer};
use crate::problem::{Problem, Result};
use crate::query::{ListQuery, Page};
use crate::sql_filter::{CandidateSet, Share};

impl Config {
    /// Lists entities that the caller may see. Memory is bounded by the page, not by the family; so are the entities that
    /// are read, where an index has the first field of the order or what the filter looks for. What remains for the whole
    /// family are filters and orders by what no index has: parts of objects, free texts.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn list<'a>(
        &'a self,
        place: &'a Place,
        query: &'a ListQuery,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let beside = self.beside(place.family).await?;
            let listing = Listing { place, query, caller, beside: &beside };
            let (few, values) = if let Some(found) = query.looked_up(place.family) {
                found
            } else {
                if let Some(page) = self.page_held(listing).await? {
                    return Ok(page);
                }
                let asked = self.asked(place, query.filter.as_ref()).await?;
                let narrowed =
                    CandidateSet::of(query.filter.as_ref(), query.contains.as_deref(), place, caller, &asked);
                let share = match &narrowed {
                    Some(narrowed) => self.share(narrowed, query.only_field()).await?,
                    None => Share::Many,
                };
                let left = if let Share::Few(few) = share {
                    Some(few)
                } else {
                    let known = narrowed.as_ref();
                    let page = match (share, known) {
                        (Share::Part, Some(within)) => self.page_within(listing, within).await?,
                        _ => self.page_by_index(listing, known).await?,
                    };
                    if let Some(page) = page {
                        return Ok(page);
                    }
                    if let Some(page) = self.page_by_groups(listing, known).await? {
                        return Ok(page);
                    }
                    narrowed
                };
                left.as_ref().map(CandidateSet::condition).unwrap_or_default()
            };
            let sql = format!("SELECT {} FROM entity WHERE family = ? AND owner = ?{few}", Entity::COLUMNS);
            let select = statement(sql).bind(place.family.name).bind(&place.owner);
            let mut rows = values.into_iter().fold(select, Statement::bind).fetch(&self.pool);
            let query = Arc::new(query.clone());
            let mut kept = PageBuffer::default();
            // One row more than the page shows whether there is a next page.
            let mut first = FirstEntities::behind(&kept, &query, query.limit + 1);
            let mut total = 0;
            while let Some(row) = rows.try_next().await? {
                let Some((entity, map)) = listing.read(&row)? else { continue };
                total += 1;
                let keys = query.keys(&map);
                if query.is_behind(&keys, &entity.id) {
                    first.take(keys, entity.id, map);
                }
            }
            first.add_to(&mut kept);
            Ok(query.page_of(kept, query.count.then_some(total)))
        })
    }

    /// The versions of an entity, newest first, with what each changed.
    ///
    /// # Errors
    /// `NOT_FOUND` when it never was, or the caller may not see it.
    pub fn history<'a>(&'a self, place: &'a Place, id: &'a str, caller: &'a Caller) -> BoxFuture<'a, Result<Value>> {
        Box::pin(async move {
            let sql = "SELECT version, at_ms, by_whom, action, owner, body FROM entity_version \
                WHERE family = ? AND id = ? ORDER BY version";
            let rows = statement(sql).bind(place.family.name).bind(id).fetch_all(&self.pool).await?;
            let mut before = Map::new();
            let mut items = Vec::with_capacity(rows.len());
            // Where services follow from other entities, what is there now tells who may see what was.
            let now = self.find(place.family, id).await?;
            let present = now.is_some_and(|e| follows_others(&e) && is_visible(place, &e, caller));
            for row in &rows {
                let body: String = row.try_get(5)?;
                let body: Map<String, Value> = serde_json::from_str(&body).map_err(Problem::internal)?;
                if row.try_get::<String>(4)? != place.owner || !(present || place.family.shows(caller, &body, None)) {
                    return Err(Problem::not_found(id));
                }
                items.push(json!({
                    "version": row.try_get::<i64>(0)?,
                    "at": time_text(row.try_get(1)?),
                    "by": row.try_get::<String>(2)?,
                    "action": row.try_get::<String>(3)?,
                    "diff": diff(&before, &body),
                }));
                before = body;
            }
            if items.is_empty() {
                return Err(Problem::not_found(id));
            }
            items.reverse();
            Ok(json!({"items": items}))
        })
    }
}
