//! Entities that are validated together, and secrets within their bodies.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quiver_database::Connection;
use serde_json::{Map, Value, json};

use super::Done;
use crate::config::Config;
use crate::entity::{DraftContent, Entity, all_of};
use crate::families::FAMILIES;
use crate::family::Family;
use crate::fields::SECRET;
use crate::problem::{FieldError, Problem, Result};
use crate::server_checks::ComponentEntity;
use crate::tables::SECRETS;

impl Config {
    /// Validates the entities that belong together, before a change of some of them is committed.
    pub(crate) async fn whole(&self, db: &mut Connection, all: &[Done], composes: bool) -> Result<()> {
        if !composes || !all.iter().any(|done| done.changed) {
            return Ok(());
        }
        let mut parts = Vec::new();
        for family in FAMILIES.iter().filter(|family| family.composes) {
            parts.extend(all_of(db, family.name).await?.iter().map(|entity| self.part(family, entity)));
        }
        let changed = all.iter().filter(|done| done.changed);
        let changed: Vec<String> =
            changed.filter_map(|d| d.after.as_ref().or(d.before.as_ref())).map(|e| e.id.clone()).collect();
        self.checks.whole(&parts, &changed)
    }

    /// An entity with its secrets decrypted; those that cannot be decrypted stay hidden.
    pub fn part(&self, family: &'static Family, entity: &Entity) -> ComponentEntity {
        let mut body = Value::Object(entity.body.clone());
        let sealed = entity.sealed.get(SECRETS).and_then(Value::as_object);
        for (place, text) in sealed.into_iter().flatten() {
            let opened = text.as_str().and_then(|text| self.opened(family, place, text));
            if let (Some(slot), Some(opened)) = (body.pointer_mut(place), opened) {
                *slot = json!(opened);
            }
        }
        let Value::Object(body) = body else {
            return ComponentEntity { family: family.name, id: String::new(), body: Map::new() };
        };
        ComponentEntity { family: family.name, id: entity.id.clone(), body }
    }

    fn opened(&self, family: &Family, place: &str, text: &str) -> Option<String> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        String::from_utf8(self.vault.open(&format!("{}{place}", family.name), &bytes)?).ok()
    }

    /// Encrypts the secrets of a body and moves them to its sealed part; `<secret>` keeps the stored one.
    pub(super) fn hide(&self, family: &Family, before: Option<&Entity>, draft: &mut DraftContent) -> Result<()> {
        let places = self.checks.secrets(family, &draft.body);
        draft.sealed.remove(SECRETS);
        if places.is_empty() {
            return Ok(());
        }
        let kept = before.and_then(|b| b.sealed.get(SECRETS)).and_then(Value::as_object);
        let (mut body, mut sealed, mut errors) =
            (Value::Object(std::mem::take(&mut draft.body)), Map::new(), Vec::new());
        for place in places {
            let stored = kept.and_then(|kept| kept.get(&place)).and_then(Value::as_str);
            let Some(slot) = body.pointer_mut(&place) else { continue };
            // A password may be a number: its digits are the secret.
            let given = slot.as_str().map_or_else(|| slot.to_string(), str::to_owned);
            *slot = json!(SECRET);
            let text = match stored {
                Some(stored) if given == SECRET => stored.to_owned(),
                None if given == SECRET => {
                    errors.push(FieldError::new(place, "REQUIRED", "no secret is stored that could be kept"));
                    continue;
                }
                // An equal secret keeps its encrypted bytes, so that the entity counts as unchanged.
                Some(stored) if self.opened(family, &place, stored).as_deref() == Some(&given) => stored.to_owned(),
                _ => BASE64_STANDARD.encode(self.vault.seal(&format!("{}{place}", family.name), given.as_bytes())),
            };
            sealed.insert(place, json!(text));
        }
        if let Value::Object(body) = body {
            draft.body = body;
        }
        draft.sealed.insert(SECRETS.to_owned(), Value::Object(sealed));
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    }
}
