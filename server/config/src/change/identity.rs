//! Updates the keys of resources after their type has changed which attributes form the key.

use quiver_database::statement;
use serde_json::json;

use super::Work;
use crate::entity::{Entity, find};
use crate::families::body::{text, texts};
use crate::families::{RESOURCE_TYPES, RESOURCES, identity};
use crate::family::Family;
use crate::problem::{FieldError, Problem, ProblemKind, Result};

/// Most resources that may be updated by one change of a type.
const FOLLOWING_MAX: usize = 10_000;

impl Work<'_> {
    /// Updates the keys of a type's resources if other attributes form them now. Resources without these attributes
    /// keep their keys.
    pub(super) async fn follow_identity(
        &mut self,
        family: &Family,
        before: Option<&Entity>,
        after: &Entity,
    ) -> Result<()> {
        let keys: Vec<&str> = texts(&after.body, "identityKeys").collect();
        let same = before.is_none_or(|before| texts(&before.body, "identityKeys").eq(keys.iter().copied()));
        if family.name != RESOURCE_TYPES.name || same || keys.is_empty() {
            return Ok(());
        }
        let moved = self.moved(&after.id, &keys).await?;
        // Two resources may swap keys, so all give up their keys before the first takes another one.
        for (id, _) in &moved {
            let sql = "DELETE FROM entity_key WHERE family = ? AND id = ?";
            statement(sql).bind(RESOURCES.name).bind(id).execute(&mut *self.db).await?;
        }
        for (id, key) in moved {
            let Some(old) = find(self.db, RESOURCES.name, &id).await? else { continue };
            let mut new = Entity { version: old.version + 1, updated_ms: self.now_ms, ..old.clone() };
            new.updated_by.clone_from(&self.caller.name);
            new.body.insert("key".to_owned(), json!(key));
            self.store(&RESOURCES, Some(&old), &new, "UPDATE").await?;
            self.keep_unique(&RESOURCES, &new).await.map_err(|problem| match problem.code {
                "DUPLICATE" => of_keys(ProblemKind::Conflict, "DUPLICATE", format!("two resources would be `{key}`")),
                _ => problem,
            })?;
            self.note(&RESOURCES, "UPDATE", Some(&old), Some(&new)).await?;
        }
        Ok(())
    }

    /// The resources of a type whose keys change, and their new keys.
    async fn moved(&mut self, of: &str, keys: &[&str]) -> Result<Vec<(String, String)>> {
        let sql = "SELECT id FROM entity_link WHERE to_family = ? AND to_id = ? AND family = ? ORDER BY id LIMIT ?";
        let rows = statement(sql).bind(RESOURCE_TYPES.name).bind(of).bind(RESOURCES.name);
        let rows = rows.bind(FOLLOWING_MAX as i64 + 1).fetch_all(&mut *self.db).await?;
        if rows.len() > FOLLOWING_MAX {
            let why = format!("more than {FOLLOWING_MAX} resources have this type");
            return Err(of_keys(ProblemKind::Invalid, "LIMIT_EXCEEDED", why));
        }
        let mut moved = Vec::new();
        for row in rows {
            let id: String = row.try_get(0)?;
            let Some(resource) = find(self.db, RESOURCES.name, &id).await? else { continue };
            let own = text(&resource.body, "key");
            match identity(keys, &resource.body, &mut Vec::new()) {
                Some(key) if key == own => {}
                Some(key) => moved.push((id, key)),
                None => {
                    let why = format!("the resource `{own}` lacks an attribute that makes identity");
                    return Err(of_keys(ProblemKind::Invalid, "INVALID_VALUE", why));
                }
            }
        }
        Ok(moved)
    }
}

fn of_keys(kind: ProblemKind, code: &'static str, why: String) -> Problem {
    let error = FieldError::new("/identityKeys", code, why.clone());
    match kind {
        ProblemKind::Invalid => Problem::invalid(vec![error]),
        _ => Problem { errors: vec![error], ..Problem::new(kind, code, why) },
    }
}
