//! The ancestors of a class, a subclass or a resource type, which it must not contradict (`config-api` 4).

use quiver_database::Connection;
use serde_json::{Map, Value};

use super::attributes::Attributes;
use super::body::text;
use super::names::CI_CLASSES;
use crate::entity::find;
use crate::problem::{FieldError, Problem, Result};

/// Most levels of classes.
const DEPTH_MAX: usize = 8;

/// A class followed by its ancestors.
pub(super) async fn line(db: &mut Connection, id: &str) -> Result<Vec<(String, Map<String, Value>)>> {
    let (mut found, mut next) = (Vec::new(), Some(id.to_owned()));
    while let Some(id) = next.filter(|id| found.len() <= DEPTH_MAX && found.iter().all(|(seen, _)| seen != id)) {
        let Some(entity) = find(db, CI_CLASSES, &id).await? else { break };
        next = entity.body.get("parentId").and_then(Value::as_str).map(str::to_owned);
        found.push((id, entity.body));
    }
    Ok(found)
}

/// Checks that a class is not its own ancestor, is not nested too deeply, and contradicts no ancestor.
pub(super) async fn class_fits(db: &mut Connection, own: Option<&str>, body: &Map<String, Value>) -> Result<()> {
    let Some(parent) = body.get("parentId").and_then(Value::as_str) else { return Ok(()) };
    let above = line(db, parent).await?;
    if above.iter().any(|(id, _)| Some(id.as_str()) == own) {
        return Err(Problem::cycle("/parentId", "a class cannot be above itself"));
    }
    if above.len() >= DEPTH_MAX {
        let why = format!("classes are nested at most {DEPTH_MAX} deep");
        return Err(Problem::field("/parentId", "LIMIT_EXCEEDED", why));
    }
    no_clash(body, above.iter().map(|(_, body)| body))
}

/// Checks that a subclass contradicts no ancestor.
pub(super) async fn subclass_fits(db: &mut Connection, body: &Map<String, Value>) -> Result<()> {
    let above = line(db, text(body, "classId")).await?;
    no_clash(body, above.iter().map(|(_, body)| body))
}

/// Checks that attributes declared more than once have the same type.
pub(super) fn no_clash<'a>(
    body: &Map<String, Value>,
    others: impl Iterator<Item = &'a Map<String, Value>>,
) -> Result<()> {
    let mut known = Attributes::default();
    others.for_each(|other| known.add(other));
    let own = body.get("attributes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let clashes = own.iter().enumerate().filter_map(|(n, attribute)| {
        let attribute = attribute.as_object()?;
        let there = known.type_of(text(attribute, "key"))?;
        (there != text(attribute, "type")).then(|| {
            let why = format!("`{}` is of type {there} already", text(attribute, "key"));
            FieldError::new(format!("/attributes/{n}/type"), "INVALID_VALUE", why)
        })
    });
    let errors: Vec<FieldError> = clashes.collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}
