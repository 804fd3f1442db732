//! Edits that wait for a deploy (`config-api` 2.3). In an area that is not deployed automatically, the server runs a
//! copy of its entities as last deployed, made within the transaction of the deploy, so that it is consistent.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use quiver_types::ChangeMode;

use crate::area::{Area, acts_by_itself};
use crate::change::{ChangeOutcome, Op, ReadOnlyPolicy, System, Work};
use crate::config::{Config, next_revision};
use crate::entity::{Entity, all_of, find};
use crate::entity_place::Place;
use crate::families::{ALERTING_SETTINGS, FAMILIES, ROUTES, RULES, SETTINGS_ID};
use crate::family::{Caller, Family};
use crate::migrations;
use crate::problem::{InvalidChanges, Result};

/// The families of an area.
fn families(area: Area) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(move |family| Area::of(family.name) == Some(area))
}

/// What a deploy lets run.
pub struct Release<'a> {
    /// Area of configuration that is released.
    pub area: Area,
    /// As the audit log calls it: `DEPLOY`, `ROLLBACK`.
    pub action: &'static str,
    /// Says of an entity, saved or deployed before, whether it is released.
    pub covers: &'a (dyn Fn(&Family, &Entity) -> bool + Send + Sync),
}

impl std::fmt::Debug for Release<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Release").field("area", &self.area).field("action", &self.action).finish_non_exhaustive()
    }
}

async fn deployed_of(db: &mut Connection, family: &Family) -> Result<Vec<Entity>> {
    let sql = format!("SELECT {} FROM deployed WHERE family = ? ORDER BY id", Entity::COLUMNS);
    statement(sql).bind(family.name).fetch_all(db).await?.iter().map(Entity::read).collect()
}

impl Config {
    /// Says whether changes of an area wait for a deploy.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn is_staged(&self, area: Area) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let settings = self.find(&ALERTING_SETTINGS, SETTINGS_ID).await?;
            Ok(!acts_by_itself(settings.as_ref(), area))
        })
    }

    /// Reads all entities of a family as they run: as they are saved, unless their changes wait.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn running<'a>(&'a self, family: &'a Family) -> BoxFuture<'a, Result<Vec<Entity>>> {
        Box::pin(async move {
            match Area::of(family.name) {
                Some(area) if self.is_staged(area).await? => {
                    let mut connection = self.pool.acquire().await?;
                    deployed_of(&mut connection, family).await
                }
                _ => self.all(family).await,
            }
        })
    }

    /// Gives the versions of a family's entities that run, where changes wait; none where they act by themselves.
    pub(crate) async fn versions_running(&self, family: &Family) -> Result<Option<HashMap<String, i64>>> {
        match Area::of(family.name) {
            Some(area) if self.is_staged(area).await? => {
                let sql = "SELECT id, version FROM deployed WHERE family = ?";
                let rows = statement(sql).bind(family.name).fetch_all(&self.pool).await?;
                rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_>>().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Makes changes, all or nothing, and lets what a release covers run as it is saved then. Gives what that changed
    /// of what runs.
    ///
    /// # Errors
    /// All that is not valid, else what is wrong with the first change that cannot be; `FORBIDDEN` where something is
    /// released that the caller may not write.
    pub fn deploy<'a>(
        &'a self,
        caller: &'a Caller,
        ops: Vec<(Place, Op)>,
        release: &'a Release<'a>,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<Vec<ChangeOutcome>>> {
        Box::pin(async move {
            let mut tx = migrations::begin(&self.pool).await?;
            let now_ms = self.clock.now_ms();
            let settings = find(&mut tx, ALERTING_SETTINGS.name, SETTINGS_ID).await?;
            let mut work = Work {
                config: self,
                db: &mut tx,
                caller,
                now_ms,
                reading: ReadOnlyPolicy::Lenient,
                named: Some(release.action),
            };
            let mut all = Vec::with_capacity(ops.len());
            let (mut invalid, mut refused) = (InvalidChanges::default(), None);
            for (n, (place, op)) in ops.into_iter().enumerate() {
                let (family, id) = (place.family, op.id().map(str::to_owned));
                match work.apply(&place, op, System::default()).await {
                    Ok(done) => all.push(done),
                    Err(problem) => {
                        refused.get_or_insert((family, id));
                        if !invalid.note(problem.below(&format!("/{n}"))) {
                            break;
                        }
                    }
                }
            }
            if let (Some(mut problem), Some((family, id))) = (invalid.into_problem(), refused) {
                tx.rollback().await?;
                if !mode.is_dry_run() {
                    self.audit_refused(family, caller, release.action, id.as_deref(), &mut problem).await;
                }
                return Err(problem);
            }
            let edited = all.iter().any(|done| done.changed);
            self.whole(work.db, &all, release.area == Area::Policy).await?;
            if !acts_by_itself(settings.as_ref(), release.area) {
                let noted: HashSet<String> = all.iter().filter(|d| d.changed).filter_map(id_of).collect();
                match work.release(release, &noted).await {
                    Ok(released) => all = released,
                    Err(mut problem) => {
                        tx.rollback().await?;
                        if !mode.is_dry_run() {
                            let family = if release.area == Area::Rules { &RULES } else { &ROUTES };
                            self.audit_refused(family, caller, release.action, None, &mut problem).await;
                        }
                        return Err(problem);
                    }
                }
            }
            if mode.is_dry_run() {
                tx.rollback().await?;
                return Ok(all);
            }
            let changed = edited || all.iter().any(|done| done.changed);
            let revision = if changed { Some(next_revision(&mut tx).await?) } else { None };
            tx.commit().await?;
            self.tell(revision);
            Ok(all)
        })
    }
}

fn id_of(done: &ChangeOutcome) -> Option<String> {
    done.after.as_ref().or(done.before.as_ref()).map(|entity| entity.id.clone())
}

impl Work<'_> {
    /// Copies what a release covers to what runs; entities in `noted` have an audit row of this request already.
    async fn release(&mut self, release: &Release<'_>, noted: &HashSet<String>) -> Result<Vec<ChangeOutcome>> {
        let mut all = Vec::new();
        for family in families(release.area) {
            let covered = |entities: Vec<Entity>| -> BTreeMap<String, Entity> {
                let own = entities.into_iter().filter(|entity| (release.covers)(family, entity));
                own.map(|entity| (entity.id.clone(), entity)).collect()
            };
            let mut before = covered(deployed_of(self.db, family).await?);
            let after = covered(all_of(self.db, family.name).await?);
            let mut rows: Vec<(Option<Entity>, Option<Entity>)> =
                after.into_iter().map(|(id, entity)| (before.remove(&id), Some(entity))).collect();
            rows.extend(before.into_values().map(|entity| (Some(entity), None)));
            for (before, after) in rows {
                let version = |e: &Option<Entity>| e.as_ref().map(|e| e.version);
                let changed = version(&before) != version(&after);
                if changed {
                    for entity in before.iter().chain(&after) {
                        family.may_write(self.caller, &entity.body, &entity.sealed)?;
                    }
                    self.let_run(family, before.as_ref(), after.as_ref()).await?;
                    let id = after.as_ref().or(before.as_ref()).map(|entity| entity.id.as_str()).unwrap_or_default();
                    if !noted.contains(id) {
                        self.note(family, release.action, before.as_ref(), after.as_ref()).await?;
                    }
                }
                let (action, family, given) = (release.action, family.name, Vec::new());
                all.push(ChangeOutcome { action, before, after, changed, family, given });
            }
        }
        Ok(all)
    }

    async fn let_run(&mut self, family: &Family, before: Option<&Entity>, after: Option<&Entity>) -> Result<()> {
        if let Some(gone) = before {
            let sql = "DELETE FROM deployed WHERE family = ? AND id = ?";
            statement(sql).bind(family.name).bind(&gone.id).execute(&mut *self.db).await?;
        }
        if let Some(entity) = after {
            let (into, from) = (Entity::COLUMNS, Entity::COLUMNS);
            let sql = format!(
                "INSERT INTO deployed (family, {into}) SELECT family, {from} FROM entity WHERE family = ? AND id = ?"
            );
            statement(sql).bind(family.name).bind(&entity.id).execute(&mut *self.db).await?;
        }
        Ok(())
    }
}
