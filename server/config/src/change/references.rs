//! Unique values, references between entities, and their consequences for deletions.

use std::collections::HashSet;

use quiver_database::statement;
use serde_json::{Map, Value, json};

use super::Work;
use crate::entity::{Entity, find};
use crate::failpoint;
use crate::families::{FAMILIES, family};
use crate::family::Family;
use crate::problem::{FieldError, LISTED_MAX, Problem, ProblemKind, Result};

impl Work<'_> {
    /// Claims the unique values of an entity.
    pub(crate) async fn keep_unique(&mut self, family: &Family, entity: &Entity) -> Result<()> {
        let sql = "DELETE FROM entity_key WHERE family = ? AND id = ?";
        statement(sql).bind(family.name).bind(&entity.id).execute(&mut *self.db).await?;
        for fields in family.unique {
            let value = key_value(fields, &entity.body);
            let sql = "INSERT INTO entity_key (family, owner, fields, value, id) VALUES (?, ?, ?, ?, ?) \
                ON CONFLICT DO NOTHING";
            let row = statement(sql).bind(family.name).bind(&entity.owner).bind(fields.join(","));
            let done = row.bind(value).bind(&entity.id).execute(&mut *self.db).await?;
            if done == 0 {
                let text = format!("there is one with the same {}", fields.join(", "));
                let pointer = format!("/{}", fields.first().copied().unwrap_or_default());
                let error = FieldError::new(pointer, "DUPLICATE", text.clone());
                let problem = Problem::new(ProblemKind::Conflict, "DUPLICATE", text);
                return Err(Problem { errors: vec![error], ..problem });
            }
        }
        failpoint::hit("config.after-keys");
        Ok(())
    }

    /// Checks the references of an entity, and stores them.
    pub(super) async fn keep_links(&mut self, of: &Family, entity: &Entity) -> Result<()> {
        let sql = "DELETE FROM entity_link WHERE family = ? AND id = ?";
        statement(sql).bind(of.name).bind(&entity.id).execute(&mut *self.db).await?;
        let mut errors = Vec::new();
        for link in (of.links)(&entity.body) {
            let mut found = None;
            for to in link.families {
                if let Some(target) = find(self.db, to, &link.id).await? {
                    let seen = family(to).is_some_and(|f| f.is_visible(self.caller, &target));
                    found = seen.then_some(*to);
                    break;
                }
            }
            let Some(to) = found else {
                let text = format!("there is no entity `{}`", link.id);
                errors.push(FieldError::new(link.pointer, "UNKNOWN_REFERENCE", text));
                continue;
            };
            let sql = "INSERT INTO entity_link (family, id, to_family, to_id, on_delete) VALUES (?, ?, ?, ?, ?) \
                ON CONFLICT DO NOTHING";
            let row = statement(sql).bind(of.name).bind(&entity.id).bind(to).bind(&link.id);
            row.bind(link.on_delete.word()).execute(&mut *self.db).await?;
        }
        failpoint::hit("config.after-links");
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }

    /// Removes all references to an entity, or refuses its deletion.
    pub(super) async fn unlink(&mut self, of: &Family, id: &str) -> Result<()> {
        let mut gone = vec![(of.name.to_owned(), id.to_owned())];
        let mut known: HashSet<(String, String)> = gone.iter().cloned().collect();
        let mut at = 0;
        while at < gone.len() {
            let (to_family, to_id) = gone[at].clone();
            at += 1;
            let sql =
                "SELECT family, id, on_delete FROM entity_link WHERE to_family = ? AND to_id = ? ORDER BY family, id";
            let rows = statement(sql).bind(&to_family).bind(&to_id).fetch_all(&mut *self.db).await?;
            let mut refusing = Vec::new();
            for row in rows {
                let one: (String, String) = (row.try_get(0)?, row.try_get(1)?);
                match row.try_get::<String>(2)?.as_str() {
                    _ if known.contains(&one) => {}
                    "cascade" => {
                        known.insert(one.clone());
                        gone.push(one);
                    }
                    "detach" => self.detach(&one.0, &one.1, &to_id).await?,
                    _ => refusing.push(one),
                }
            }
            self.nothing_refuses(refusing).await?;
            let owned = self.owned(&to_family, &to_id).await?;
            gone.extend(owned.into_iter().filter(|one| known.insert(one.clone())));
        }
        for (name, id) in gone.into_iter().skip(1) {
            let Some(of) = family(&name) else { continue };
            if let Some(entity) = find(self.db, of.name, &id).await? {
                self.remove(of, &entity).await?;
                failpoint::hit("config.in-cascade");
                self.note(of, "DELETE", Some(&entity), None).await?;
            }
        }
        Ok(())
    }

    /// Entities whose path contains another one.
    async fn owned(&mut self, owner: &str, id: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for family in FAMILIES.iter().filter(|f| f.owners.contains(&owner)) {
            let sql = "SELECT id FROM entity WHERE family = ? AND owner = ? ORDER BY id";
            let rows = statement(sql).bind(family.name).bind(format!("{owner}/{id}"));
            for row in rows.fetch_all(&mut *self.db).await? {
                found.push((family.name.to_owned(), row.try_get(0)?));
            }
        }
        Ok(found)
    }

    /// Refuses a deletion because of references from others.
    pub(crate) async fn nothing_refuses(&mut self, refusing: Vec<(String, String)>) -> Result<()> {
        if refusing.is_empty() {
            return Ok(());
        }
        let (mut listed, mut hidden) = (Vec::new(), 0_usize);
        for (name, id) in &refusing {
            let Some(of) = family(name) else { continue };
            let entity = find(self.db, name, id).await?;
            match entity.filter(|e| of.is_visible(self.caller, e) && listed.len() < LISTED_MAX) {
                Some(e) => listed.push(json!({"family": name, "id": id, "name": of.title_of(&e.body)})),
                None => hidden += 1,
            }
        }
        let text = format!("{} others name this one", refusing.len());
        Err(Problem::new(ProblemKind::Conflict, "REFERENCED", text)
            .with("references", json!(listed))
            .with("hiddenReferences", json!(hidden)))
    }

    /// Removes an id from an entity.
    async fn detach(&mut self, name: &str, id: &str, gone: &str) -> Result<()> {
        let (Some(of), Some(before)) = (family(name), find(self.db, name, id).await?) else { return Ok(()) };
        let mut after = Entity { version: before.version + 1, updated_ms: self.now_ms, ..before.clone() };
        after.updated_by.clone_from(&self.caller.name);
        forget(&mut after.body, gone);
        self.store(of, Some(&before), &after, "UPDATE").await?;
        let sql = "DELETE FROM entity_link WHERE family = ? AND id = ? AND to_id = ?";
        statement(sql).bind(name).bind(id).bind(gone).execute(&mut *self.db).await?;
        self.note(of, "UPDATE", Some(&before), Some(&after)).await
    }
}

/// The values of fields that are unique together, as one text.
pub(crate) fn key_value(fields: &[&str], body: &Map<String, Value>) -> String {
    let values: Vec<&Value> = fields.iter().map(|field| body.get(*field).unwrap_or(&Value::Null)).collect();
    json!(values).to_string()
}

/// Removes an id from all lists of a body.
fn forget(body: &mut Map<String, Value>, id: &str) {
    for value in body.values_mut() {
        if let Value::Array(items) = value {
            items.retain(|item| item.as_str() != Some(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    /// Different combinations of values yield different texts.
    #[test]
    fn values_that_are_unique_together() {
        let key = |body: Value| key_value(&["a", "b"], &map(body));
        assert_eq!(key(json!({"a": "x", "b": 5, "c": 1})), "[\"x\",5]");
        assert_eq!(key(json!({"b": null})), key(json!({})));
        let all = [
            json!({"a": "x,y", "b": ""}),
            json!({"a": "x", "b": "y"}),
            json!({"a": "x\",\"y", "b": ""}),
            json!({"a": ["x"], "b": "y"}),
            json!({"a": 1, "b": "1"}),
            json!({"a": "1", "b": 1}),
            json!({"a": null, "b": "null"}),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| key(other.clone()) != key(one.clone())), "{one}");
        }
    }

    #[test]
    fn lists_forget_what_is_gone() {
        let mut body =
            map(json!({"members": ["a", "b", "a"], "other": ["b", 5, null], "id": "b", "map": {"b": ["b"]}}));
        forget(&mut body, "b");
        let expected = json!({"members": ["a", "a"], "other": [5, null], "id": "b", "map": {"b": ["b"]}});
        assert_eq!(Value::Object(body.clone()), expected);
        forget(&mut body, "none");
        assert_eq!(Value::Object(body), expected);
    }
}
