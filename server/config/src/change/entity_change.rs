//! One change of one entity within a transaction: its validation, its rows, and its consequences.

use quiver_database::{Connection, statement};
use serde_json::{Map, Value, json};

use super::{BUILTIN, ChangeOutcome, Draft, Op, ReadOnlyPolicy, System};
use crate::audit;
use crate::config::Config;
use crate::entity::{DraftContent, Entity, find};
use crate::entity_place::{Place, is_visible};
use crate::families::FAMILIES;
use crate::family::{Caller, ChangeContext, EntityChange, Family};
use crate::fields::Mode;
use crate::json::merge;
use crate::problem::{Problem, ProblemKind, Result};
use crate::sort_encoding::encoded;

/// Most entities of a family that a caller may make for himself without a right to it.
const OWN_MAX: i64 = 1000;
/// Most bytes of each of them, so that lists of all of them stay some pages.
const OWN_BYTES_MAX: usize = 80 << 10;

/// What is written of an entity, and how the audit log calls it.
pub(super) struct Written {
    pub(super) body: Map<String, Value>,
    pub(super) system: System,
    pub(super) action: &'static str,
}

/// A change within a transaction.
pub(crate) struct Work<'a> {
    pub(crate) config: &'a Config,
    pub(crate) db: &'a mut Connection,
    pub(crate) caller: &'a Caller,
    pub(crate) now_ms: i64,
    pub(crate) reading: ReadOnlyPolicy,
    /// The action in the audit log, if it does not follow from the change.
    pub(crate) named: Option<&'static str>,
}

impl Work<'_> {
    /// Makes a change.
    pub(crate) async fn apply(&mut self, place: &Place, op: Op, system: System) -> Result<ChangeOutcome> {
        let family = place.family;
        let action = self.named.unwrap_or(op.action());
        let before = match op.id() {
            Some(id) => find(self.db, family.name, id).await?,
            None => None,
        };
        let hidden = before.as_ref().is_some_and(|b| !is_visible(place, b, self.caller));
        let before = match (op, before) {
            // A caller who may not see the entity learns only that the id is taken; ids cannot be guessed.
            (Op::Create { .. }, Some(_)) => {
                let text = "there is one with this id";
                return Err(Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", text));
            }
            (Op::Create { id, body }, None) => {
                owner_exists(self.db, place).await?;
                return self.put(place, id, None, Written { body, system, action }).await;
            }
            (Op::Restore { id, version }, before) if !hidden => {
                return self.restore(place, id, version, before, system).await;
            }
            (op, Some(before)) if !hidden => (op, before),
            (op, _) => return Err(Problem::not_found(op.id().unwrap_or_default())),
        };
        match before {
            (Op::Replace { body, condition, .. }, before) => {
                condition.check(&before)?;
                self.put(place, None, Some(before), Written { body, system, action }).await
            }
            (Op::Patch { patch, condition, .. }, before) => {
                condition.check(&before)?;
                let mut body = before.shown();
                let patch = resolved(family, patch, &mut body);
                merge(&mut body, patch);
                self.put(place, None, Some(before), Written { body, system, action }).await
            }
            (Op::Delete { condition, .. }, before) => {
                condition.check(&before)?;
                self.delete(place, before).await
            }
            (Op::Create { .. } | Op::Restore { .. }, _) => Err(Problem::internal("handled above")),
        }
    }

    /// Writes an entity, which replaces `before` or is new: with this `id`, or one that is made.
    pub(super) async fn put(
        &mut self,
        place: &Place,
        id: Option<String>,
        before: Option<Entity>,
        Written { body, mut system, action }: Written,
    ) -> Result<ChangeOutcome> {
        let family = place.family;
        let made = system.made.take();
        let mut draft = Draft { family, before: before.as_ref(), reading: self.reading }.read(body, system)?;
        self.config.fits(family, &draft.body)?;
        self.config.hide(family, before.as_ref(), &mut draft)?;
        if let Some(prepare) = family.prepare {
            let config = self.config;
            let making = ChangeContext {
                caller: self.caller,
                id: before.as_ref().map(|b| b.id.as_str()).or(id.as_deref()),
                before: before.as_ref(),
                group_interval: &config.checks.group_interval(),
                new_id: &|| config.new_id(),
            };
            prepare(self.db, &making, &mut draft).await?;
        }
        self.may_write(place, before.as_ref(), Some(&draft))?;
        self.own_is_small(family, &draft.body)?;
        let same = before.as_ref().is_some_and(|b| b.body == draft.body && b.sealed == draft.sealed);
        if same {
            let (after, given) = (before.clone(), draft.given);
            return Ok(ChangeOutcome { action, before, after, changed: false, family: family.name, given });
        }
        let after = match &before {
            None => self.fresh(place, id, draft.body, draft.sealed, made).await?,
            Some(old) => Entity {
                version: old.version + 1,
                updated_ms: self.now_ms,
                updated_by: self.caller.name.clone(),
                managed_by: self.caller.manager.clone(),
                body: draft.body,
                sealed: draft.sealed,
                ..old.clone()
            },
        };
        self.store(family, before.as_ref(), &after, action).await?;
        self.keep_unique(family, &after).await?;
        self.keep_links(family, &after).await?;
        if let Some(hook) = family.hook {
            let (caller, now_ms) = (self.caller, self.now_ms);
            let (before, after) = (before.as_ref(), Some(&after));
            hook(EntityChange { db: &mut *self.db, caller, now_ms, before, after }).await?;
        }
        self.note(family, action, before.as_ref(), Some(&after)).await?;
        self.follow_identity(family, before.as_ref(), &after).await?;
        Ok(ChangeOutcome { action, before, after: Some(after), changed: true, family: family.name, given: draft.given })
    }

    async fn fresh(
        &mut self,
        place: &Place,
        id: Option<String>,
        body: Map<String, Value>,
        sealed: Map<String, Value>,
        made: Option<(i64, String)>,
    ) -> Result<Entity> {
        // If the change is refused later, this is rolled back, too.
        let sql = "INSERT INTO entity_count (family, number) VALUES (?, 1) ON CONFLICT (family) DO UPDATE SET \
            number = entity_count.number + 1 RETURNING number";
        let count: i64 = statement(sql).bind(place.family.name).fetch_one(&mut *self.db).await?.try_get(0)?;
        if count > place.family.entities_max {
            let text = format!("there are {} already", place.family.entities_max);
            return Err(Problem::field("", "LIMIT_EXCEEDED", text));
        }
        self.own_are_few(place).await?;
        let id = id.unwrap_or_else(|| self.config.new_id());
        let sql = "SELECT coalesce(max(version), 0) FROM entity_version WHERE family = ? AND id = ?";
        let last: i64 = statement(sql).bind(place.family.name).bind(&id).fetch_one(&mut *self.db).await?.try_get(0)?;
        let (created_ms, created_by) = made.unwrap_or_else(|| (self.now_ms, self.caller.name.clone()));
        Ok(Entity {
            id,
            owner: place.owner.clone(),
            version: last + 1,
            created_ms,
            updated_ms: self.now_ms,
            created_by,
            updated_by: self.caller.name.clone(),
            managed_by: self.caller.manager.clone(),
            body,
            sealed,
        })
    }

    /// Refuses what is larger than a caller may keep for himself.
    fn own_is_small(&self, family: &Family, body: &Map<String, Value>) -> Result<()> {
        if !family.is_for_oneself(self.caller) {
            return Ok(());
        }
        let bytes = serde_json::to_vec(body).map_err(Problem::internal)?.len();
        if bytes > OWN_BYTES_MAX {
            let text = format!("has more than {OWN_BYTES_MAX} bytes in all");
            return Err(Problem::field("", "LIMIT_EXCEEDED", text));
        }
        Ok(())
    }

    /// Refuses one more of what a caller keeps for himself if he has very many: he would fill the family for everybody.
    async fn own_are_few(&mut self, place: &Place) -> Result<()> {
        let family = place.family;
        if !family.is_for_oneself(self.caller) {
            return Ok(());
        }
        let count = if family.owners.is_empty() {
            // Each entity is in the index with its owner.
            let sql = "SELECT count(*) FROM entity_value WHERE family = ? AND owner = ? AND field = ? AND value = ?";
            let row = statement(sql).bind(family.name).bind(&place.owner).bind("owner");
            row.bind(encoded(&json!(self.caller.subject)))
        } else {
            let sql = "SELECT count(*) FROM entity WHERE family = ? AND owner = ?";
            statement(sql).bind(family.name).bind(&place.owner)
        };
        let count: i64 = count.fetch_one(&mut *self.db).await?.try_get(0)?;
        if count >= OWN_MAX {
            let text = format!("there are {OWN_MAX} of your own already");
            return Err(Problem::field("", "LIMIT_EXCEEDED", text));
        }
        Ok(())
    }

    async fn delete(&mut self, place: &Place, before: Entity) -> Result<ChangeOutcome> {
        let family = place.family;
        self.may_write(place, Some(&before), None)?;
        self.unlink(family, &before.id).await?;
        self.remove(family, &before).await?;
        if let Some(hook) = family.hook {
            let (caller, now_ms) = (self.caller, self.now_ms);
            hook(EntityChange { db: &mut *self.db, caller, now_ms, before: Some(&before), after: None }).await?;
        }
        self.note(family, self.named.unwrap_or("DELETE"), Some(&before), None).await?;
        let (before, family, given) = (Some(before), family.name, Vec::new());
        Ok(ChangeOutcome { action: "DELETE", before, after: None, changed: true, family, given })
    }

    /// Notes a change of an entity in the audit log.
    pub(crate) async fn note(
        &mut self,
        family: &Family,
        action: &str,
        before: Option<&Entity>,
        after: Option<&Entity>,
    ) -> Result<()> {
        let row = audit::change(self.caller, family, action, before, after);
        audit::append(self.db, self.config.new_id(), self.now_ms, row).await
    }

    /// Checks that the caller may write the entity, and that it is not managed by someone else.
    fn may_write(&self, place: &Place, before: Option<&Entity>, after: Option<&DraftContent>) -> Result<()> {
        let family = place.family;
        if place.owner != own_place(self.caller) {
            let bodies = before.map(|b| (&b.body, &b.sealed)).into_iter();
            for (body, sealed) in bodies.chain(after.map(|a| (&a.body, &a.sealed))) {
                family.may_write(self.caller, body, sealed)?;
            }
        }
        let Some(before) = before else { return Ok(()) };
        let over = self.caller.override_managed && family.may_override(self.caller, before);
        let foreign = before.managed_by != self.caller.manager && !over;
        let builtin = before.managed_by == BUILTIN;
        let open = family.builtin_open && after.is_some() && builtin;
        if !open && (foreign || builtin && self.caller.manager != BUILTIN) {
            let text = format!("this is managed by `{}`", before.managed_by);
            return Err(Problem::new(ProblemKind::Conflict, "MANAGED_ENTITY", text));
        }
        Ok(())
    }
}

/// Checks that the owner in the path exists.
pub(super) async fn owner_exists(db: &mut Connection, place: &Place) -> Result<()> {
    let Some((family, id)) = place.owner.rsplit_once('/') else { return Ok(()) };
    let known = place.family.owners.contains(&family) && FAMILIES.iter().any(|f| f.name == family);
    if known && find(db, family, id).await?.is_some() { Ok(()) } else { Err(Problem::not_found(id)) }
}

/// The place of a caller's own keys.
fn own_place(caller: &Caller) -> String {
    caller.account().map_or_else(|| "none".to_owned(), |(family, id)| format!("{family}/{id}"))
}

/// In a patch null sets the default; a patch that only removes a member of a map is not changed.
fn resolved(family: &Family, patch: Map<String, Value>, body: &mut Map<String, Value>) -> Map<String, Value> {
    let mut rest = Map::new();
    for (key, value) in patch {
        match family.field(&key) {
            // Merging into an object that is not a free map would mix two values.
            Some(_) if value.is_null() => {
                body.insert(key, Value::Null);
            }
            Some(f) if f.mode == Mode::WriteOnly => {
                body.insert(key, value);
            }
            _ => {
                rest.insert(key, value);
            }
        }
    }
    rest
}
