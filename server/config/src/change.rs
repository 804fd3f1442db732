//! One change: its checks, rows, references, history and audit row, in one transaction.
//!
//! `operation` is the operation that is asked for, `draft` its parsed form, `entity_change` carries it out on one entity with `rows`,
//! `references`, `restore` and `identity`; here transactions begin and end.

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::ChangeMode;
use serde_json::{Map, Value, json};

use crate::config::{Config, next_revision};
use crate::entity::find;
use crate::entity_place::Place;
use crate::family::{Caller, Family};
use crate::fields::{Mode, SECRET};
use crate::migrations;
use crate::problem::{InvalidChanges, Problem, Result};

mod draft;
mod entity_change;
mod identity;
mod joint_validation;
mod kept_secrets;
mod operation;
pub(crate) mod references;
mod restore;
mod rows;

pub(crate) use draft::Draft;
pub use draft::ReadOnlyPolicy;
pub(crate) use entity_change::Work;
use entity_change::owner_exists;
pub use operation::{ChangeOutcome, Condition, Op, System};

/// The manager of built-in entities.
const BUILTIN: &str = "builtin";

impl Config {
    /// Makes one change. A dry run does the same and rolls back.
    ///
    /// # Errors
    /// All that section 1.5 of `config-api` lists; refused changes leave an audit row.
    pub fn change<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        op: Op,
        system: System,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<ChangeOutcome>> {
        Box::pin(async move {
            let (id, action) = (op.id().map(str::to_owned), op.action());
            let mut result = self.try_change(place, caller, op, system, mode).await;
            if let (Err(problem), false) = (&mut result, mode.is_dry_run()) {
                self.audit_refused(place.family, caller, action, id.as_deref(), problem).await;
            }
            result
        })
    }

    async fn try_change(
        &self,
        place: &Place,
        caller: &Caller,
        op: Op,
        system: System,
        mode: ChangeMode,
    ) -> Result<ChangeOutcome> {
        let (op, system) = self.sealed(place.family, op, system).await?;
        let mut tx = migrations::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let mut work = Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
        let done = work.apply(place, op, system).await?;
        self.whole(&mut tx, std::slice::from_ref(&done), place.family.composes).await?;
        if mode.is_dry_run() {
            tx.rollback().await?;
            return Ok(done);
        }
        let revision = if done.changed { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(done)
    }

    /// Checks a body as for a creation, by the rules of its fields, and gives it with defaults filled in.
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

    /// Like [`Self::checked`], without a check of rights.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`.
    pub fn read_as_new(&self, family: &'static Family, body: Map<String, Value>) -> Result<Map<String, Value>> {
        let draft = Draft { family, before: None, reading: ReadOnlyPolicy::Lenient }.read(body, System::default())?;
        self.fits(family, &draft.body)?;
        Ok(draft.body)
    }

    /// Has the server check a body by rules that only it knows.
    fn fits(&self, family: &Family, body: &Map<String, Value>) -> Result<()> {
        let mut errors = Vec::new();
        self.checks.check(family, body, &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }

    /// Makes several changes atomically, also of several families. Errors have paths below `/<n>`.
    ///
    /// # Errors
    /// All that is not valid; else what is wrong with the first change that cannot be.
    pub fn change_all<'a>(
        &'a self,
        caller: &'a Caller,
        ops: Vec<(Place, Op)>,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<Vec<ChangeOutcome>>> {
        Box::pin(async move {
            let mut tx = migrations::begin(&self.pool).await?;
            let now_ms = self.clock.now_ms();
            let mut all = Vec::with_capacity(ops.len());
            let composes = ops.iter().any(|(place, _)| place.family.composes);
            let (mut invalid, mut refused) = (InvalidChanges::default(), None);
            for (n, (place, op)) in ops.into_iter().enumerate() {
                let (id, action, family) = (op.id().map(str::to_owned), op.action(), place.family);
                let mut work =
                    Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Lenient, named: None };
                match work.apply(&place, op, System::default()).await {
                    Ok(done) => all.push(done),
                    Err(problem) => {
                        refused.get_or_insert((family, action, id));
                        if !invalid.note(problem.below(&format!("/{n}"))) {
                            break;
                        }
                    }
                }
            }
            if let (Some(mut problem), Some((family, action, id))) = (invalid.into_problem(), refused) {
                tx.rollback().await?;
                if !mode.is_dry_run() {
                    self.audit_refused(family, caller, action, id.as_deref(), &mut problem).await;
                }
                return Err(problem);
            }
            self.whole(&mut tx, &all, composes).await?;
            if mode.is_dry_run() {
                tx.rollback().await?;
                return Ok(all);
            }
            let revision = if all.iter().any(|done| done.changed) { Some(next_revision(&mut tx).await?) } else { None };
            tx.commit().await?;
            self.tell(revision);
            Ok(all)
        })
    }

    /// Hashes secrets before the transaction begins, since that takes long. `<secret>` stands for the stored secret.
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

    /// Checks that the owner in a path exists.
    ///
    /// # Errors
    /// `NOT_FOUND`; `STORE_BUSY`, `INTERNAL`.
    pub fn owner_exists<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if place.owner.is_empty() {
                return Ok(());
            }
            let mut connection = self.pool.acquire().await?;
            owner_exists(&mut connection, place).await
        })
    }

    /// Creates a built-in entity, or updates it to the current release; gives whether anything changed.
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
            // A new release may change a built-in entity, but not one that users may change.
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
            reading: ReadOnlyPolicy::Strict,
            named: None,
        };
        Ok(work.apply(&Place::of(family), op, System::default()).await?.changed)
    }
}
