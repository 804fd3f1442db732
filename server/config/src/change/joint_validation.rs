//! Entities that are validated together, and secrets within their bodies.

use std::collections::{BTreeSet, HashMap};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quiver_database::Connection;
use serde_json::{Map, Value, json};

use super::ChangeOutcome;
use super::kept_secrets::kept_places;
use crate::config::Config;
use crate::entity::{DraftContent, Entity, all_of};
use crate::families::{FAMILIES, POLICY_GLOBAL, RECEIVERS};
use crate::family::Family;
use crate::fields::SECRET;
use crate::problem::{FieldError, Problem, Result};
use crate::server_checks::ComponentEntity;
use crate::tables::SECRETS;

/// Why `<secret>` is refused.
const NONE_KEPT: &str = "must be given: no secret is stored for it, or it is not clear which one is meant";

impl Config {
    /// Validates the entities that belong together, before a change of some of them is committed.
    pub(crate) async fn whole(&self, db: &mut Connection, all: &[ChangeOutcome], composes: bool) -> Result<()> {
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
        self.checks.whole(&parts, &changed)?;
        let sends = |done: &ChangeOutcome| done.changed && [RECEIVERS.name, POLICY_GLOBAL.name].contains(&done.family);
        if !all.iter().any(sends) {
            return Ok(());
        }
        self.checks.kept_secrets(&self.parts_before(&parts, all), &parts, &changed, &self.given_secrets(all))
    }

    /// The entities as they were before some changes.
    fn parts_before(&self, parts: &[ComponentEntity], all: &[ChangeOutcome]) -> Vec<ComponentEntity> {
        // An import may give an entity the id of one of another family.
        let mut before: HashMap<(&str, &str), ComponentEntity> =
            parts.iter().map(|part| ((part.family, part.id.as_str()), part.clone())).collect();
        // The first change of an entity tells what it was.
        for done in all.iter().rev().filter(|done| done.changed) {
            if let Some(after) = &done.after {
                before.remove(&(done.family, after.id.as_str()));
            }
            let family = FAMILIES.iter().find(|family| family.name == done.family && family.composes);
            if let (Some(family), Some(entity)) = (family, &done.before) {
                before.insert((family.name, &entity.id), self.part(family, entity));
            }
        }
        before.into_values().collect()
    }

    /// The secrets that a request gives itself.
    fn given_secrets(&self, all: &[ChangeOutcome]) -> BTreeSet<String> {
        let mut given = BTreeSet::new();
        for done in all.iter().filter(|done| !done.given.is_empty()) {
            let family = FAMILIES.iter().find(|family| family.name == done.family);
            let (Some(family), Some(after)) = (family, &done.after) else { continue };
            let body = Value::Object(self.part(family, after).body);
            given.extend(done.given.iter().filter_map(|at| body.pointer(at)?.as_str().map(str::to_owned)));
        }
        given
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

    fn closed(&self, family: &Family, place: &str, text: &str) -> String {
        BASE64_STANDARD.encode(self.vault.seal(&format!("{}{place}", family.name), text.as_bytes()))
    }

    /// Gives what is stored at one place as it is stored at another: it can be decrypted for its own place only.
    fn moved(&self, family: &Family, from: &str, to: &str, stored: &str) -> Option<String> {
        if from == to {
            return Some(stored.to_owned());
        }
        Some(self.closed(family, to, &self.opened(family, from, stored)?))
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
        let former = before.map(|before| kept_places(&before.body, &body, &places)).unwrap_or_default();
        for place in places {
            let kept_at = |place: &String| kept.and_then(|kept| kept.get(place)).and_then(Value::as_str);
            let Some(slot) = body.pointer_mut(&place) else { continue };
            // A password may be a number: its digits are the secret.
            let given = slot.as_str().map_or_else(|| slot.to_string(), str::to_owned);
            *slot = json!(SECRET);
            let text = if given == SECRET {
                let from = former.get(&place);
                let Some(text) = from.and_then(|from| self.moved(family, from, &place, kept_at(from)?)) else {
                    errors.push(FieldError::new(place, "REQUIRED", NONE_KEPT));
                    continue;
                };
                text
            } else {
                draft.given.push(place.clone());
                // An equal secret keeps its encrypted bytes, so that the entity counts as unchanged.
                let stored = kept_at(&place);
                let equal = stored.filter(|stored| self.opened(family, &place, stored).as_deref() == Some(&given));
                equal.map_or_else(|| self.closed(family, &place, &given), str::to_owned)
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
