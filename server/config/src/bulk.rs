//! Many changes at once: atomic (put, import), or each by itself (delete, update: `independent_items`).

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use quiver_types::ChangeMode;
use serde_json::{Map, Value, json};

use crate::change::references::key_value;
use crate::change::{ChangeOutcome, Condition, Op, ReadOnlyPolicy, System, Work};
use crate::config::{Config, next_revision};
use crate::entity::{Entity, diff, find};
use crate::entity_place::{Place, is_visible};
use crate::families::RESOURCES;
use crate::family::{Caller, Family};
use crate::migrations;
use crate::problem::{InvalidChanges, Problem, ProblemKind, Result};
use crate::query::ListQuery;

mod independent_items;

/// Most items of a call.
const ITEMS_MAX: usize = 10_000;

/// Ids that one statement names.
const IDS_AT_ONCE: usize = 100;

/// An item that could not be changed.
#[derive(Debug, Clone)]
pub struct FailedItem {
    /// Id of the item, as the request named it.
    pub id: String,
    /// Why it could not be changed.
    pub problem: Problem,
}

/// What an import does with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    /// Creates and replaces.
    Upsert,
    /// Creates only; what is there already is refused as `DUPLICATE`.
    Create,
    /// Creates, replaces, and deletes what the body lacks.
    Replace,
}

/// How items are taken in.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions<'a> {
    /// What is done with what is there.
    pub mode: ImportMode,
    /// What [`ImportMode::Replace`] may delete; `None`: all.
    pub within: Option<&'a ListQuery>,
    /// Whether only to say what would change.
    pub change_mode: ChangeMode,
}

/// What an import did.
#[derive(Debug, Clone, Default)]
pub struct ImportOutcome {
    /// Number of entities that were not there.
    pub created: usize,
    /// Number of entities that differed and were replaced.
    pub updated: usize,
    /// Number of entities that were deleted.
    pub deleted: usize,
    /// Number of entities that were as the import has them.
    pub unchanged: usize,
    /// One for each that changed: `{op, id, name, diff}`.
    pub changes: Vec<Value>,
    /// Id and ETag of each item.
    pub items: Vec<Value>,
}

impl ImportOutcome {
    fn note(&mut self, place: &Place, done: &ChangeOutcome) {
        let Some(entity) = done.after.as_ref().or(done.before.as_ref()) else { return };
        if done.after.is_some() {
            self.items.push(json!({"id": entity.id, "etag": entity.etag()}));
        }
        let op = match (&done.before, &done.after) {
            _ if !done.changed => {
                self.unchanged += 1;
                return;
            }
            (None, _) => {
                self.created += 1;
                "create"
            }
            (Some(_), Some(_)) => {
                self.updated += 1;
                "update"
            }
            (Some(_), None) => {
                self.deleted += 1;
                "delete"
            }
        };
        let body = |e: &Option<Entity>| e.as_ref().map(|e| e.body.clone()).unwrap_or_default();
        let diff = diff(&body(&done.before), &body(&done.after));
        self.changes
            .push(json!({"op": op, "id": entity.id, "name": place.family.title_of(&entity.body), "diff": diff}));
    }
}

fn bounded(count: usize, what: &str) -> Result<()> {
    if count > ITEMS_MAX {
        let text = format!("must have at most {ITEMS_MAX} entries, has {count}");
        return Err(Problem::field(format!("/{what}"), "LIMIT_EXCEEDED", text));
    }
    Ok(())
}

impl Config {
    /// Creates or replaces many; what is not named stays. All or nothing.
    ///
    /// # Errors
    /// All that is not valid, below `/items/<n>`; else what is wrong with the first item that cannot be.
    pub fn put_many<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        items: Vec<Value>,
        change_mode: ChangeMode,
    ) -> BoxFuture<'a, Result<ImportOutcome>> {
        let options = ImportOptions { mode: ImportMode::Upsert, within: None, change_mode };
        Box::pin(self.import(place, caller, items, ReadOnlyPolicy::Strict, options))
    }

    /// Takes in what an export gave.
    ///
    /// # Errors
    /// As [`Self::put_many`].
    pub fn import_many<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        items: Vec<Value>,
        options: ImportOptions<'a>,
    ) -> BoxFuture<'a, Result<ImportOutcome>> {
        Box::pin(self.import(place, caller, items, ReadOnlyPolicy::Lenient, options))
    }

    async fn import(
        &self,
        place: &Place,
        caller: &Caller,
        items: Vec<Value>,
        reading: ReadOnlyPolicy,
        options: ImportOptions<'_>,
    ) -> Result<ImportOutcome> {
        bounded(items.len(), "items")?;
        let mut result = self.try_import(place, caller, items, reading, options).await;
        if let (Err(problem), false) = (&mut result, options.change_mode.is_dry_run()) {
            self.audit_refused(place.family, caller, "UPDATE", None, problem).await;
        }
        result
    }

    async fn try_import(
        &self,
        place: &Place,
        caller: &Caller,
        items: Vec<Value>,
        reading: ReadOnlyPolicy,
        ImportOptions { mode, within, change_mode }: ImportOptions<'_>,
    ) -> Result<ImportOutcome> {
        // Secrets are hashed before the transaction: the lock is not held meanwhile.
        let prepared = self.prepared(place, items).await?;
        let mut tx = migrations::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let (mut imported, mut all) = (ImportOutcome::default(), Vec::new());
        let mut named = HashSet::new();
        let handed_over = hand_over(&mut tx, place, &prepared).await?;
        let order = creation_order(place.family, &prepared);
        let mut prepared: Vec<Option<(Op, System)>> = prepared.into_iter().map(Some).collect();
        let mut written: Vec<Option<ChangeOutcome>> = prepared.iter().map(|_| None).collect();
        let mut invalid = InvalidChanges::default();
        for n in order {
            let Some((op, system)) = prepared[n].take() else { continue };
            let mut work = Work { config: self, db: &mut tx, caller, now_ms, reading, named: None };
            let below = format!("/items/{n}");
            let done = match work.put_item(place, op, system, mode).await {
                Ok(done) => done,
                Err(problem) => {
                    if invalid.note(problem.of_item(&below)) {
                        continue;
                    }
                    break;
                }
            };
            // The request will be refused, so the remaining items are only checked for further errors.
            if !invalid.is_empty() {
                continue;
            }
            // It gave up nothing after all.
            if let Some(same) = done.after.as_ref().filter(|e| !done.changed && handed_over.contains(&e.id)) {
                work.keep_unique(place.family, same).await.map_err(|p| p.of_item(&below))?;
            }
            if let Some(entity) = &done.after
                && !named.insert(entity.id.clone())
            {
                // The last one would win in silence.
                let text = format!("an item before it is the same entity: `{}`", entity.id);
                return Err(Problem::new(ProblemKind::Conflict, "DUPLICATE", text).of_item(&below));
            }
            written[n] = Some(done);
        }
        if let Some(problem) = invalid.into_problem() {
            return Err(problem);
        }
        for done in written.into_iter().flatten() {
            imported.note(place, &done);
            all.extend(place.family.composes.then_some(done));
        }
        if mode == ImportMode::Replace {
            let gone = self.lacking(&mut tx, place, caller, within, &named).await?;
            let links = own_links(&mut tx, place.family).await?;
            let mut staying = staying(place.family, &gone, &links);
            for n in deletion_order(&gone, &links) {
                let id = &gone[n];
                let mut work = Work { config: self, db: &mut tx, caller, now_ms, reading, named: None };
                let naming = staying.remove(id.as_str()).unwrap_or_default();
                let done = work.give_up(place, id, naming).await.map_err(|problem| problem.of(id))?;
                imported.note(place, &done);
                all.extend(place.family.composes.then_some(done));
            }
        }
        self.whole(&mut tx, &all, place.family.composes).await?;
        if change_mode.is_dry_run() {
            tx.rollback().await?;
            return Ok(imported);
        }
        let changed = !imported.changes.is_empty();
        let revision = if changed { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(imported)
    }

    /// The items of an import as changes that create or replace, with their secrets sealed.
    async fn prepared(&self, place: &Place, items: Vec<Value>) -> Result<Vec<(Op, System)>> {
        let mut prepared = Vec::with_capacity(items.len());
        for (n, item) in items.into_iter().enumerate() {
            let below = format!("/items/{n}");
            let Value::Object(mut body) = item else {
                return Err(Problem::field(below, "INVALID_TYPE", "must be an object"));
            };
            let id = match body.remove("id") {
                None | Some(Value::Null) => None,
                // Ids are kept in one form, by which paths name them.
                Some(id) => match id.as_str().map(uuid::Uuid::try_parse) {
                    Some(Ok(id)) => Some(id.to_string()),
                    _ => return Err(Problem::field(format!("{below}/id"), "INVALID_VALUE", "must be an id (a UUID)")),
                },
            };
            let op = Op::Create { id, body };
            let sealed = self.sealed(place.family, op, System::default()).await.map_err(|p| p.below(&below))?;
            prepared.push(sealed);
        }
        Ok(prepared)
    }

    /// Ids of entities that the body lacks, in their order.
    async fn lacking(
        &self,
        tx: &mut quiver_database::WriteTransaction,
        place: &Place,
        caller: &Caller,
        within: Option<&ListQuery>,
        named: &HashSet<String>,
    ) -> Result<Vec<String>> {
        let sql = format!("SELECT {} FROM entity WHERE family = ? AND owner = ? ORDER BY id", Entity::COLUMNS);
        let rows = statement(sql).bind(place.family.name).bind(&place.owner);
        let mut ids = Vec::new();
        for row in rows.fetch_all(&mut **tx).await? {
            let entity = Entity::read(&row)?;
            let wanted = within.is_none_or(|query| query.wants(place.family, &entity.shown()));
            let may = place.family.may_write(caller, &entity.body, &entity.sealed).is_ok();
            let may = may && place.family.is_visible(caller, &entity);
            if wanted && may && entity.managed_by != "builtin" && !named.contains(&entity.id) {
                ids.push(entity.id);
            }
        }
        Ok(ids)
    }

    /// Finds the ids that a filter names, for a change of many.
    ///
    /// # Errors
    /// `LIMIT_EXCEEDED` when they are too many.
    pub fn ids_of<'a>(
        &'a self,
        place: &'a Place,
        query: &'a ListQuery,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let ids = self.all_ids(place, query, caller, ITEMS_MAX).await?;
            bounded(ids.len(), "filter")?;
            Ok(ids)
        })
    }
}

impl Work<'_> {
    /// Deletes what an import lacks. What stays and names it refuses that: it does not go along, as it might with a deletion
    /// by itself, since the import says that it stays, or says nothing of it.
    async fn give_up(&mut self, place: &Place, id: &str, naming: Vec<(String, String)>) -> Result<ChangeOutcome> {
        self.nothing_refuses(naming).await?;
        let op = Op::Delete { id: id.to_owned(), condition: Condition::None };
        self.apply(place, op, System::default()).await
    }

    /// Creates an item, or replaces the one with its id or its unique fields.
    async fn put_item(&mut self, place: &Place, op: Op, system: System, mode: ImportMode) -> Result<ChangeOutcome> {
        let Op::Create { id, mut body } = op else { return Err(Problem::internal("an item is an entity")) };
        let found = match &id {
            Some(id) if find(self.db, place.family.name, id).await?.is_some() => Some(id.clone()),
            _ if self.reading == ReadOnlyPolicy::Lenient => self.same_names(place, &body).await?,
            _ => None,
        };
        let present = match &found {
            Some(id) => find(self.db, place.family.name, id).await?,
            None => None,
        };
        // A resource that does not say where it comes from comes from here, unless it was there already.
        let silent = body.get("source").is_none_or(Value::is_null);
        if silent && self.reading == ReadOnlyPolicy::Lenient && place.family.name == RESOURCES.name {
            let source = present.as_ref().and_then(|p| p.body.get("source").cloned());
            body.insert("source".to_owned(), source.unwrap_or_else(|| json!("import")));
        }
        match found {
            Some(id) if mode == ImportMode::Create => {
                let text = format!("there is one already: `{id}`");
                Err(Problem::new(ProblemKind::Conflict, "DUPLICATE", text))
            }
            Some(id) => {
                // What is built in is the same in every installation: it may stand in an import as it is.
                if let Some(present) =
                    present.filter(|p| self.reading == ReadOnlyPolicy::Lenient && p.managed_by == "builtin")
                {
                    return Ok(ChangeOutcome {
                        action: "UPDATE",
                        before: Some(present.clone()),
                        after: Some(present),
                        changed: false,
                        family: place.family.name,
                        given: Vec::new(),
                    });
                }
                self.apply(place, Op::Replace { id, body, condition: Condition::None }, system).await
            }
            None => self.apply(place, Op::Create { id, body }, system).await,
        }
    }

    /// Finds the entity that has the same unique fields. One that the caller may not see is met as when one is made: its
    /// name is taken, and no more is told of it.
    async fn same_names(&mut self, place: &Place, body: &Map<String, Value>) -> Result<Option<String>> {
        for fields in place.family.unique {
            let sql = "SELECT id FROM entity_key WHERE family = ? AND owner = ? AND fields = ? AND value = ?";
            let row = statement(sql).bind(place.family.name).bind(&place.owner).bind(fields.join(","));
            let Some(row) = row.bind(key_value(fields, body)).fetch_optional(&mut *self.db).await? else { continue };
            let id: String = row.try_get(0)?;
            let entity = find(self.db, place.family.name, &id).await?;
            if entity.is_some_and(|entity| is_visible(place, &entity, self.caller)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

impl Config {
    /// Notes that a data-extraction rule took too long, so that all nodes leave it out until somebody changes it.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`; `NOT_FOUND` when it is gone.
    pub fn suspend_rule<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let caller = Caller { override_managed: true, ..Caller::system() };
            let system = [("health".to_owned(), json!("suspended"))].into_iter().collect();
            let op = Op::Patch { id: id.to_owned(), patch: Map::new(), condition: Condition::None };
            let place = Place::of(&crate::families::EXTRACTION_RULES);
            self.change(&place, &caller, op, System { body: system, ..System::default() }, ChangeMode::Apply).await?;
            Ok(())
        })
    }

    /// Puts the entities of an ordered family into an order: exactly those that are there. What ranks before the position
    /// keeps its values, which go to the entities anew.
    ///
    /// # Errors
    /// `VALIDATION_FAILED` when ids lack or are too many; those of a change of each entity.
    pub fn order<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        ids: Vec<String>,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            let mut result = self.try_order(place, caller, &ids, mode).await;
            if let (Err(problem), false) = (&mut result, mode.is_dry_run()) {
                self.audit_refused(place.family, caller, "UPDATE", None, problem).await;
            }
            result
        })
    }

    async fn try_order(&self, place: &Place, caller: &Caller, ids: &[String], mode: ChangeMode) -> Result<Vec<Value>> {
        let mut tx = migrations::begin(&self.pool).await?;
        let mut all = crate::entity::all_of(&mut tx, place.family.name).await?;
        all.retain(|e| is_visible(place, e, caller));
        let named: HashSet<&String> = ids.iter().collect();
        if named.len() != ids.len() || all.len() != ids.len() || !all.iter().all(|e| named.contains(&e.id)) {
            let text = format!("must name each of the {} entities that are there once", all.len());
            return Err(Problem::field("/ids", "INVALID_VALUE", text));
        }
        let rank = |e: &Entity, field: &str| e.body.get(field).cloned().unwrap_or(Value::Null);
        let (ranks, _) = place.family.natural.split_at(place.family.natural.len().saturating_sub(1));
        let mut held: Vec<Vec<Value>> = all.iter().map(|e| ranks.iter().map(|(f, _)| rank(e, f)).collect()).collect();
        held.sort_by(|a, b| {
            let each =
                a.iter().zip(b).zip(ranks).map(|((x, y), (_, down))| {
                    if *down { crate::filter::order(y, x) } else { crate::filter::order(x, y) }
                });
            each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let now_ms = self.clock.now_ms();
        let by_id: HashMap<&str, &Entity> = all.iter().map(|e| (e.id.as_str(), e)).collect();
        let (mut items, mut changed) = (Vec::with_capacity(ids.len()), false);
        for (n, id) in ids.iter().enumerate() {
            let Some(present) = by_id.get(id.as_str()) else { continue };
            let mut body = present.shown();
            let system = [("position".to_owned(), json!(n))].into_iter().collect();
            body.insert("position".to_owned(), present.body.get("position").cloned().unwrap_or(Value::Null));
            for ((field, _), value) in ranks.iter().zip(&held[n]) {
                body.insert((*field).to_owned(), value.clone());
            }
            let mut work =
                Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
            let op = Op::Replace { id: id.clone(), body, condition: Condition::None };
            let done = work.apply(place, op, System { body: system, ..System::default() }).await?;
            changed |= done.changed;
            items.push(json!({"id": id, "position": n}));
        }
        if mode.is_dry_run() || !changed {
            tx.rollback().await?;
            return Ok(items);
        }
        let revision = Some(next_revision(&mut tx).await?);
        tx.commit().await?;
        self.tell(revision);
        Ok(items)
    }
}

/// Takes the names away that one item gives up for another one, whichever comes first; gives whose they were.
async fn hand_over(db: &mut Connection, place: &Place, prepared: &[(Op, System)]) -> Result<HashSet<String>> {
    let family = place.family;
    let (mut wanted, mut own, mut ids) = (HashSet::new(), HashMap::new(), Vec::new());
    for (op, _) in prepared {
        let Op::Create { id, body } = op else { continue };
        let keys: Vec<_> = family.unique.iter().map(|fields| (fields.join(","), key_value(fields, body))).collect();
        wanted.extend(keys.iter().cloned());
        if let Some(id) = id {
            ids.push(id);
            own.insert(id, keys);
        }
    }
    let mut handed_over = HashSet::new();
    for some in ids.chunks(IDS_AT_ONCE) {
        let places = vec!["?"; some.len()].join(", ");
        let sql =
            format!("SELECT id, fields, value FROM entity_key WHERE family = ? AND owner = ? AND id IN ({places})");
        let select = statement(sql).bind(family.name).bind(&place.owner);
        let select = some.iter().fold(select, |select, id| select.bind(*id));
        for row in select.fetch_all(&mut *db).await? {
            let (id, key): (String, (String, String)) = (row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
            if !wanted.contains(&key) || own.get(&id).is_some_and(|keys| keys.contains(&key)) {
                continue;
            }
            let sql = "DELETE FROM entity_key WHERE family = ? AND owner = ? AND fields = ? AND value = ?";
            let gone = statement(sql).bind(family.name).bind(&place.owner).bind(key.0).bind(key.1);
            gone.execute(&mut *db).await?;
            handed_over.insert(id);
        }
    }
    Ok(handed_over)
}

/// The order in which items are created: one that another refers to by its id comes first.
fn creation_order(family: &Family, prepared: &[(Op, System)]) -> Vec<usize> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (n, (op, _)) in prepared.iter().enumerate() {
        if let Op::Create { id: Some(id), .. } = op {
            places.insert(id, n);
        }
    }
    let mut after = Vec::new();
    for (n, (op, _)) in prepared.iter().enumerate() {
        let Op::Create { body, .. } = op else { continue };
        for link in (family.links)(body) {
            if link.families.contains(&family.name)
                && let Some(whom) = places.get(link.id.to_lowercase().as_str())
            {
                after.push((n, *whom));
            }
        }
    }
    topological_order(prepared.len(), &after)
}

/// The references within a family, as pairs of ids: from, to.
async fn own_links(db: &mut Connection, family: &Family) -> Result<Vec<(String, String)>> {
    let sql = "SELECT id, to_id FROM entity_link WHERE family = ? AND to_family = ? ORDER BY id, to_id";
    let rows = statement(sql).bind(family.name).bind(family.name).fetch_all(db).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// The order in which entities are deleted: one that refers to another goes before it; otherwise as given.
fn deletion_order(ids: &[String], links: &[(String, String)]) -> Vec<usize> {
    let places: HashMap<&str, usize> = ids.iter().enumerate().map(|(n, id)| (id.as_str(), n)).collect();
    let place = |id: &String| places.get(id.as_str()).copied();
    let after: Vec<_> = links.iter().filter_map(|(who, whom)| place(whom).zip(place(who))).collect();
    topological_order(ids.len(), &after)
}

/// The remaining references to entities that are deleted: family and id of each referring entity, by deleted id.
fn staying<'a>(
    family: &Family,
    gone: &[String],
    links: &'a [(String, String)],
) -> HashMap<&'a str, Vec<(String, String)>> {
    let gone: HashSet<&String> = gone.iter().collect();
    let mut staying: HashMap<&str, Vec<(String, String)>> = HashMap::new();
    for (who, whom) in links {
        if gone.contains(whom) && !gone.contains(who) {
            staying.entry(whom).or_default().push((family.name.to_owned(), who.clone()));
        }
    }
    staying
}

/// A topological order of `0..count`, given pairs of a number and the one that it must come after; otherwise ascending.
/// Numbers in a cycle come last; the rules of the family will refuse those entities.
fn topological_order(count: usize, after: &[(usize, usize)]) -> Vec<usize> {
    let mut open = vec![0_usize; count];
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &(one, other) in after.iter().filter(|(one, other)| one != other) {
        open[one] += 1;
        behind[other].push(one);
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|n| open[*n] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(n) = ready.pop_first() {
        order.push(n);
        for &one in &behind[n] {
            open[one] -= 1;
            if open[one] == 0 {
                ready.insert(one);
            }
        }
    }
    order.extend((0..count).filter(|n| open[*n] > 0));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_has_its_turn_before() {
        assert_eq!(topological_order(3, &[]), [0, 1, 2]);
        assert_eq!(topological_order(4, &[(0, 2), (2, 3), (1, 1)]), [1, 3, 2, 0]);
        assert_eq!(topological_order(4, &[(0, 1), (1, 0), (2, 0)]), [3, 0, 1, 2]);
        assert_eq!(topological_order(2, &[(0, 1), (0, 1)]), [1, 0]);
    }
}
