//! Bulk changes in which each item may fail by itself. They run in one transaction, in which a failed item is rolled
//! back alone, and noted in the audit log.

use futures::future::BoxFuture;
use quiver_types::ChangeMode;
use serde_json::{Map, Value};

use super::{FailedItem, bounded, deletion_order, own_links};
use crate::audit::refusal;
use crate::change::{Condition, Op, ReadOnlyPolicy, System, Work};
use crate::config::{Config, next_revision};
use crate::entity_place::Place;
use crate::family::Caller;
use crate::fields::Mode;
use crate::migrations;
use crate::problem::{Problem, ProblemKind, Result};

/// Removes duplicate ids: a second change would be applied to the result of the first.
fn distinct(mut ids: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    ids
}

impl Config {
    /// Deletes many entities, each by itself. An entity that refers to another one in the list is deleted before that
    /// one.
    ///
    /// # Errors
    /// Those of the request as a whole; errors of single items are in the result.
    pub fn delete_many<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        ids: Vec<String>,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<(Vec<String>, Vec<FailedItem>)>> {
        let op = |id| Op::Delete { id, condition: Condition::None };
        Box::pin(async move { self.one_by_one(place, caller, distinct(ids), &op, mode).await })
    }

    /// Changes many entities, each by itself.
    ///
    /// # Errors
    /// As [`Self::delete_many`].
    pub fn update_many<'a>(
        &'a self,
        place: &'a Place,
        caller: &'a Caller,
        ids: Vec<String>,
        patch: Map<String, Value>,
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<(Vec<String>, Vec<FailedItem>)>> {
        Box::pin(async move {
            let secret = place.family.fields.iter().find(|f| f.mode == Mode::WriteOnly && patch.contains_key(f.name));
            if let Some(field) = secret {
                let text = "one secret is not set for many";
                return Err(Problem::field(format!("/patch/{}", field.name), "UNSUPPORTED", text));
            }
            let op = |id| Op::Patch { id, patch: patch.clone(), condition: Condition::None };
            self.one_by_one(place, caller, distinct(ids), &op, mode).await
        })
    }

    /// Does the same with all of some entities. The operation of each is made when its turn comes: a patch may be as large as
    /// a body, and there are ten thousand of them.
    async fn one_by_one(
        &self,
        place: &Place,
        caller: &Caller,
        ids: Vec<String>,
        op_of: &(dyn Fn(String) -> Op + Sync),
        mode: ChangeMode,
    ) -> Result<(Vec<String>, Vec<FailedItem>)> {
        if ids.is_empty() {
            return Err(Problem::field("/ids", "REQUIRED", "must name at least one"));
        }
        bounded(ids.len(), "ids")?;
        let mut tx = migrations::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let links = own_links(&mut tx, place.family).await?;
        let mut waiting = vec![true; ids.len()];
        let mut problems: Vec<Option<Problem>> = ids.iter().map(|_| None).collect();
        let mut changed = false;
        for n in deletion_order(&ids, &links) {
            if !std::mem::take(&mut waiting[n]) {
                continue;
            }
            let op = op_of(ids[n].clone());
            let action = op.action();
            tx.mark().await?;
            let mut work =
                Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
            let result = match work.apply(place, op, System::default()).await {
                Ok(done) => {
                    let whole = self.whole(&mut tx, std::slice::from_ref(&done), place.family.composes).await;
                    whole.map(|()| done)
                }
                Err(problem) => Err(problem),
            };
            match result {
                Ok(done) => {
                    changed |= done.changed;
                    tx.keep_marked().await?;
                }
                Err(mut problem) if matches!(problem.kind, ProblemKind::Busy | ProblemKind::Internal) => {
                    drop(tx);
                    if !mode.is_dry_run() {
                        self.audit_refused(place.family, caller, action, Some(&ids[n]), &mut problem).await;
                    }
                    return Err(problem);
                }
                Err(mut problem) => {
                    tx.take_back().await?;
                    if !mode.is_dry_run() {
                        let event = refusal(place.family, action, Some(&ids[n]), &mut problem);
                        self.audit_within(&mut tx, caller, event).await?;
                    }
                    problems[n] = Some(problem);
                }
            }
        }
        if mode.is_dry_run() {
            tx.rollback().await?;
        } else {
            let revision = if changed { Some(next_revision(&mut tx).await?) } else { None };
            tx.commit().await?;
            self.tell(revision);
        }
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (id, problem) in ids.into_iter().zip(problems) {
            match problem {
                None => done.push(id),
                Some(problem) => failed.push(FailedItem { id, problem }),
            }
        }
        Ok((done, failed))
    }
}
