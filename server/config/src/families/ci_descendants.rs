//! The descendants of a class or subclass: other classes, subclasses, resource types. A change must not contradict
//! what they inherit, or they could not be changed any more (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::statement;

use super::body::text;
use super::ci_ancestors::{class_fits, subclass_fits};
use super::names::{CI_CLASSES, CI_SUBCLASSES, RESOURCE_TYPES};
use super::resource_types::type_fits;
use crate::entity::{Entity, find};
use crate::family::EntityChange;
use crate::problem::{Problem, ProblemKind, Result};

/// Most descendants that are checked per change.
const BELOW_MAX: usize = 10_000;

/// Checks that all descendants are still valid after a change of a class.
pub(super) fn hook(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        let mut keys = ["attributes", "parentId", "classId"].into_iter();
        let Some(changed) = keys.find(|key| before.body.get(*key) != after.body.get(*key)) else { return Ok(()) };
        let of = if after.body.contains_key("classId") { CI_SUBCLASSES } else { CI_CLASSES };
        let mut open = vec![(of.to_owned(), after.id.clone())];
        let mut asked = 0;
        while let Some((to_family, to_id)) = open.pop() {
            let sql = "SELECT family, id FROM entity_link WHERE to_family = ? AND to_id = ? ORDER BY family, id";
            let rows = statement(sql).bind(to_family).bind(to_id).fetch_all(&mut *db).await?;
            for row in rows {
                let (name, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                let Some(one) = find(db, &name, &id).await? else { continue };
                asked += 1;
                if asked > BELOW_MAX {
                    let why = format!("more than {BELOW_MAX} others stand below");
                    return Err(Problem::field(format!("/{changed}"), "LIMIT_EXCEEDED", why));
                }
                let fits = match name.as_str() {
                    CI_CLASSES => class_fits(db, Some(&id), &one.body).await,
                    CI_SUBCLASSES => subclass_fits(db, &one.body).await,
                    RESOURCE_TYPES => type_fits(db, &one.body).await,
                    _ => Ok(()),
                };
                fits.map_err(|problem| contradicted(changed, &name, &one, problem))?;
                if name != RESOURCE_TYPES {
                    open.push((name, id));
                }
            }
        }
        Ok(())
    })
}

/// Reports a contradiction at the field that changed.
fn contradicted(changed: &str, name: &str, by: &Entity, problem: Problem) -> Problem {
    if matches!(problem.kind, ProblemKind::Busy | ProblemKind::Internal) {
        return problem;
    }
    let title = text(&by.body, "name");
    let why = problem.errors.first().map_or(problem.detail.as_str(), |error| error.message.as_str());
    let why = format!("contradicts `{title}` of {name}, which stands below: {why}");
    Problem::field(format!("/{changed}"), "INVALID_VALUE", why)
}
