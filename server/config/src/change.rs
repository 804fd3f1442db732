//! One change: its checks, its rows, its references, history and audit row, in one transaction.

use std::sync::PoisonError;

use quiver_database::{Connection, statement};
use quiver_types::random_bytes;
use serde_json::{Map, Value, json};

use crate::audit;
use crate::db;
use crate::document::{Config, Entity, Place, diff, find, is_visible};
use crate::failpoint;
use crate::families::FAMILIES;
use crate::family::{Caller, Family, Making};
use crate::fields::{Mode, SECRET};
use crate::json::merge;
use crate::problem::{Problem, ProblemKind, Result};

mod asked;
mod draft;
mod identity;
pub(crate) mod links;
mod restore;
mod rows;
mod wholes;

pub(crate) use asked::NoChecks;
pub use asked::{Checks, Sealer};
pub use draft::Drafted;
pub(crate) use draft::{Draft, Reading, audited};
pub use wholes::Part;

/// What must hold of the present entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing: the last writer wins.
    None,
    /// It exists (`If-Match: *`).
    Exists,
    /// It has one of these versions.
    Versions(Vec<i64>),
    /// It has none of these versions (`If-None-Match`).
    Others(Vec<i64>),
    /// It does not exist (`If-None-Match: *`): no change of one can be meant.
    Absent,
}

impl Condition {
    /// Checks it.
    ///
    /// # Errors
    /// `VERSION_CONFLICT`, with what is there.
    pub fn check(&self, present: &Entity) -> Result<()> {
        let text = match self {
            Self::Versions(versions) if !versions.contains(&present.version) => "the entity has changed meanwhile",
            Self::Others(versions) if versions.contains(&present.version) => "the entity has this version",
            Self::Absent => "there is one with this id",
            _ => return Ok(()),
        };
        Err(Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", text)
            .with("current", Value::Object(present.shown()))
            .with("etag", json!(present.etag())))
    }
}

/// Who manages what is built in.
const BUILTIN: &str = "builtin";

/// A change.
#[derive(Debug, Clone)]
pub enum Op {
    /// Make one, under an id or a new one.
    Create {
        /// Its id.
        id: Option<String>,
        /// Its fields.
        body: Map<String, Value>,
    },
    /// Put another body in its place.
    Replace {
        /// Id of the entity.
        id: String,
        /// Its fields.
        body: Map<String, Value>,
        /// What must hold.
        condition: Condition,
    },
    /// Change some fields (RFC 7396).
    Patch {
        /// Id of the entity.
        id: String,
        /// What changes.
        patch: Map<String, Value>,
        /// What must hold.
        condition: Condition,
    },
    /// Delete it.
    Delete {
        /// Id of the entity.
        id: String,
        /// What must hold.
        condition: Condition,
    },
    /// Bring back what it was.
    Restore {
        /// Id of the entity.
        id: String,
        /// Version whose fields come back.
        version: i64,
    },
}

impl Op {
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Create { id, .. } => id.as_deref(),
            Self::Replace { id, .. } | Self::Patch { id, .. } | Self::Delete { id, .. } | Self::Restore { id, .. } => {
                Some(id)
            }
        }
    }

    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE",
            Self::Replace { .. } | Self::Patch { .. } => "UPDATE",
            Self::Delete { .. } => "DELETE",
            Self::Restore { .. } => "RESTORE",
        }
    }

    fn fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        match self {
            Self::Create { body, .. } | Self::Replace { body, .. } => Some(body),
            Self::Patch { patch, .. } => Some(patch),
            _ => None,
        }
    }
}

/// What the service itself puts into an entity, beside what the request says.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// Fields that are read only.
    pub body: Map<String, Value>,
    /// Hashes of secrets.
    pub sealed: Map<String, Value>,
    /// When and by whom it was made, of one that comes back.
    pub made: Option<(i64, String)>,
}

/// What a change did.
#[derive(Debug, Clone)]
pub struct Done {
    /// `CREATE`, `UPDATE`, `DELETE`, `RESTORE`.
    pub action: &'static str,
    /// What was there.
    pub before: Option<Entity>,
    /// What is there now.
    pub after: Option<Entity>,
    /// Whether they differ.
    pub changed: bool,
}

impl Done {
    /// What differs: a map of fields to `{from, to}`.
    pub fn diff(&self) -> Value {
        let body = |e: &Option<Entity>| e.as_ref().map(|e| e.body.clone()).unwrap_or_default();
        diff(&body(&self.before), &body(&self.after))
    }
}

/// A change within a transaction.
pub(crate) struct Work<'a> {
    pub(crate) config: &'a Config,
    pub(crate) db: &'a mut Connection,
    pub(crate) caller: &'a Caller,
    pub(crate) now_ms: i64,
    pub(crate) reading: Reading,
    /// What the audit log calls its changes, where that does not follow from them.
    pub(crate) named: Option<&'static str>,
}

impl Config {
    /// Makes one change. A dry run does everything and keeps nothing.
    ///
    /// # Errors
    /// All that section 1.5 of `config-api` lists; refused changes leave an audit row.
    pub async fn change(&self, place: &Place, caller: &Caller, op: Op, system: System, dry_run: bool) -> Result<Done> {
        let (id, action) = (op.id().map(str::to_owned), op.action());
        let mut result = self.try_change(place, caller, op, system, dry_run).await;
        if let (Err(problem), false) = (&mut result, dry_run) {
            self.audit_refused(place.family, caller, action, id.as_deref(), problem).await;
        }
        result
    }

    async fn try_change(&self, place: &Place, caller: &Caller, op: Op, system: System, dry_run: bool) -> Result<Done> {
        let (op, system) = self.sealed(place.family, op, system).await?;
        let mut tx = db::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let mut work = Work { config: self, db: &mut tx, caller, now_ms, reading: Reading::Strict, named: None };
        let done = work.apply(place, op, system).await?;
        self.whole(&mut tx, std::slice::from_ref(&done), place.family.composes).await?;
        if dry_run {
            tx.rollback().await?;
            return Ok(done);
        }
        let revision = if done.changed { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(done)
    }

    /// Checks a body as if it were created, by the rules of its fields, and gives it with its defaults.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`; `FORBIDDEN` without the right to operate what it is about.
    pub fn checked(
        &self,
        family: &'static Family,
        caller: &Caller,
        body: Map<String, Value>,
    ) -> Result<Map<String, Value>> {
        let body = self.read_as_new(family, body)?;
        let service = (family.service)(&body);
        crate::access::must_have(caller, quiver_types::Right::Operate, family.domain, &service)?;
        Ok(body)
    }

    /// As [`Self::checked`], whoever asks.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`.
    pub fn read_as_new(&self, family: &'static Family, body: Map<String, Value>) -> Result<Map<String, Value>> {
        let draft = Draft { family, before: None, reading: Reading::Lenient }.read(body, System::default())?;
        self.fits(family, &draft.body)?;
        Ok(draft.body)
    }

    /// Asks the service about a body.
    fn fits(&self, family: &Family, body: &Map<String, Value>) -> Result<()> {
        let mut errors = Vec::new();
        self.checks.check(family, body, &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }

    /// Makes several changes, also of several families: all or nothing. Errors lie below `/<n>`.
    ///
    /// # Errors
    /// Those of the first change that cannot be.
    pub async fn change_all(&self, caller: &Caller, ops: Vec<(Place, Op)>, dry_run: bool) -> Result<Vec<Done>> {
        let mut tx = db::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let mut all = Vec::with_capacity(ops.len());
        let composes = ops.iter().any(|(place, _)| place.family.composes);
        for (n, (place, op)) in ops.into_iter().enumerate() {
            let (id, action, family) = (op.id().map(str::to_owned), op.action(), place.family);
            let mut work = Work { config: self, db: &mut tx, caller, now_ms, reading: Reading::Lenient, named: None };
            match work.apply(&place, op, System::default()).await {
                Ok(done) => all.push(done),
                Err(mut problem) => {
                    tx.rollback().await?;
                    if !dry_run {
                        self.audit_refused(family, caller, action, id.as_deref(), &mut problem).await;
                    }
                    return Err(problem.below(&format!("/{n}")));
                }
            }
        }
        self.whole(&mut tx, &all, composes).await?;
        if dry_run {
            tx.rollback().await?;
            return Ok(all);
        }
        let revision = if all.iter().any(|done| done.changed) { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(all)
    }

    /// Tells who watches that something changed.
    pub(crate) fn tell(&self, revision: Option<u64>) {
        if let Some(number) = revision {
            failpoint::hit("config.after-commit");
            // Another server's change may have been seen first.
            self.revision.send_if_modified(|known| {
                let newer = number > *known;
                *known = number.max(*known);
                newer
            });
        }
    }

    /// Hashes secrets before the transaction begins, as that takes long. `<secret>` means the stored one.
    pub(crate) async fn sealed(&self, family: &Family, mut op: Op, mut system: System) -> Result<(Op, System)> {
        let Some(fields) = op.fields_mut() else { return Ok((op, system)) };
        for field in family.fields.iter().filter(|f| f.mode == Mode::WriteOnly) {
            let Some(Value::String(secret)) = fields.get(field.name) else { continue };
            if secret == SECRET {
                continue;
            }
            if let Some(error) = self.sealer.check(family, field.name, secret, fields) {
                return Err(Problem::invalid(vec![error]));
            }
            let sealed = self.sealer.seal(family, field.name, secret).await?;
            system.sealed.insert(field.name.to_owned(), json!(sealed));
            fields.insert(field.name.to_owned(), json!(SECRET));
        }
        Ok((op, system))
    }

    /// Checks that the owner is there whom a path names.
    ///
    /// # Errors
    /// `NOT_FOUND`; `STORE_BUSY`, `INTERNAL`.
    pub async fn owner_exists(&self, place: &Place) -> Result<()> {
        if place.owner.is_empty() {
            return Ok(());
        }
        let mut connection = self.pool.acquire().await?;
        owner_exists(&mut connection, place).await
    }

    /// Makes an id: UUIDv7 of our clock and random source. Those of one millisecond go up, so that what is made together
    /// keeps its order in lists, and in a policy.
    pub fn new_id(&self) -> String {
        /// The bits behind version and variant.
        const COUNTED: u128 = (1 << 62) - 1;
        let random = random_bytes::<10>(&*self.random);
        let builder = uuid::Builder::from_unix_timestamp_millis(self.clock.now_ms() as u64, &random);
        let made = builder.into_uuid().as_u128();
        let mut last = self.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, same_time) = (*last + 1, made >> 80 == *last >> 80);
        *last = if same_time && made <= *last && next & COUNTED != 0 { next } else { made };
        uuid::Uuid::from_u128(*last).to_string()
    }

    /// Makes what is built in, or what a later release says of it; gives whether that is new.
    pub(crate) async fn put_one_builtin(
        &self,
        db: &mut Connection,
        family: &'static Family,
        id: &str,
        body: Value,
    ) -> Result<bool> {
        let Value::Object(body) = body else { return Ok(false) };
        let op = match find(db, family.name, id).await? {
            None => Op::Create { id: Some(id.to_owned()), body },
            // A later release may say more of it; what people change is theirs.
            Some(known) if known.managed_by == BUILTIN && !family.builtin_open => {
                Op::Replace { id: id.to_owned(), body, condition: Condition::None }
            }
            Some(_) => return Ok(false),
        };
        let caller = Caller { manager: BUILTIN.to_owned(), ..Caller::system() };
        let mut work = Work {
            config: self,
            db,
            caller: &caller,
            now_ms: self.clock.now_ms(),
            reading: Reading::Strict,
            named: None,
        };
        Ok(work.apply(&Place::of(family), op, System::default()).await?.changed)
    }
}

/// Counts a change.
pub(crate) async fn next_revision(db: &mut Connection) -> Result<u64> {
    let sql = "UPDATE revision SET number = number + 1 RETURNING number";
    let number: i64 = statement(sql).fetch_one(db).await?.try_get(0)?;
    failpoint::hit("config.before-commit");
    Ok(number as u64)
}

impl Work<'_> {
    /// Makes a change.
    pub(crate) async fn apply(&mut self, place: &Place, op: Op, system: System) -> Result<Done> {
        let family = place.family;
        let action = self.named.unwrap_or(op.action());
        let before = match op.id() {
            Some(id) => find(self.db, family.name, id).await?,
            None => None,
        };
        let hidden = before.as_ref().is_some_and(|b| !is_visible(place, b, self.caller));
        let before = match (op, before) {
            // Whoever may not see it learns that the id is taken, and no more: ids are not guessed.
            (Op::Create { .. }, Some(_)) => {
                let text = "there is one with this id";
                return Err(Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", text));
            }
            (Op::Create { id, body }, None) => {
                owner_exists(self.db, place).await?;
                return self.put(place, id, None, body, system, action).await;
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
                self.put(place, None, Some(before), body, system, action).await
            }
            (Op::Patch { patch, condition, .. }, before) => {
                condition.check(&before)?;
                let mut body = before.shown();
                let patch = resolved(family, patch, &mut body);
                merge(&mut body, patch);
                self.put(place, None, Some(before), body, system, action).await
            }
            (Op::Delete { condition, .. }, before) => {
                condition.check(&before)?;
                self.delete(place, before).await
            }
            (Op::Create { .. } | Op::Restore { .. }, _) => Err(Problem::internal("handled above")),
        }
    }

    /// Writes an entity, new or in the place of another one.
    async fn put(
        &mut self,
        place: &Place,
        id: Option<String>,
        before: Option<Entity>,
        body: Map<String, Value>,
        mut system: System,
        action: &'static str,
    ) -> Result<Done> {
        let family = place.family;
        let made = system.made.take();
        let mut draft = Draft { family, before: before.as_ref(), reading: self.reading }.read(body, system)?;
        self.config.fits(family, &draft.body)?;
        self.config.hide(family, before.as_ref(), &mut draft)?;
        if let Some(prepare) = family.prepare {
            let config = self.config;
            let making = Making {
                caller: self.caller,
                id: before.as_ref().map(|b| b.id.as_str()).or(id.as_deref()),
                before: before.as_ref(),
                group_interval: &config.checks.group_interval(),
                new_id: &|| config.new_id(),
            };
            prepare(self.db, &making, &mut draft).await?;
        }
        self.may_write(place, before.as_ref(), Some(&draft))?;
        let same = before.as_ref().is_some_and(|b| b.body == draft.body && b.sealed == draft.sealed);
        if same {
            return Ok(Done { action, after: before.clone(), before, changed: false });
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
            hook(self.db, self.caller, self.now_ms, before.as_ref(), Some(&after)).await?;
        }
        audit::changed(self, family, action, before.as_ref(), Some(&after)).await?;
        self.follow_identity(family, before.as_ref(), &after).await?;
        Ok(Done { action, before, after: Some(after), changed: true })
    }

    async fn fresh(
        &mut self,
        place: &Place,
        id: Option<String>,
        body: Map<String, Value>,
        sealed: Map<String, Value>,
        made: Option<(i64, String)>,
    ) -> Result<Entity> {
        // Of a change that is refused further on nothing stays, this neither.
        let sql = "INSERT INTO entity_count (family, number) VALUES (?, 1) ON CONFLICT (family) DO UPDATE SET \
            number = entity_count.number + 1 RETURNING number";
        let count: i64 = statement(sql).bind(place.family.name).fetch_one(&mut *self.db).await?.try_get(0)?;
        if count > place.family.entities_max {
            let text = format!("there are {} already", place.family.entities_max);
            return Err(Problem::field("", "LIMIT_EXCEEDED", text));
        }
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

    async fn delete(&mut self, place: &Place, before: Entity) -> Result<Done> {
        let family = place.family;
        self.may_write(place, Some(&before), None)?;
        self.unlink(family, &before.id).await?;
        self.remove(family, &before).await?;
        if let Some(hook) = family.hook {
            hook(self.db, self.caller, self.now_ms, Some(&before), None).await?;
        }
        audit::changed(self, family, self.named.unwrap_or("DELETE"), Some(&before), None).await?;
        Ok(Done { action: "DELETE", before: Some(before), after: None, changed: true })
    }

    /// Whether the caller may write this one, and nobody else owns it.
    fn may_write(&self, place: &Place, before: Option<&Entity>, after: Option<&Drafted>) -> Result<()> {
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

/// What the path puts before a family is there.
async fn owner_exists(db: &mut Connection, place: &Place) -> Result<()> {
    let Some((family, id)) = place.owner.rsplit_once('/') else { return Ok(()) };
    let known = place.family.owners.contains(&family) && FAMILIES.iter().any(|f| f.name == family);
    if known && find(db, family, id).await?.is_some() { Ok(()) } else { Err(Problem::not_found(id)) }
}

/// The place of a caller's own keys.
fn own_place(caller: &Caller) -> String {
    caller.account().map_or_else(|| "none".to_owned(), |(family, id)| format!("{family}/{id}"))
}

/// In a patch null means the default; what would only remove a member of a map stays a patch.
fn resolved(family: &Family, patch: Map<String, Value>, body: &mut Map<String, Value>) -> Map<String, Value> {
    let mut rest = Map::new();
    for (key, value) in patch {
        match family.field(&key) {
            // A merge of an object that is no free map would mix two values.
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

#[cfg(test)]
mod tests;
