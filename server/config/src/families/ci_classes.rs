//! Classes of configuration items and their subclasses: which attributes resources of a type have (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::attributes::{ATTRIBUTE, ATTRIBUTES_MAX, Attributes, rules};
use super::ci_below::hook;
use super::{id_link, text};
use crate::change::Drafted;
use crate::document::find;
use crate::family::{Family, Making, OnDelete};
use crate::fields::{Field, Kind};
use crate::problem::{FieldError, Problem, ProblemKind, Result};

/// Deepest class below another one.
const DEPTH_MAX: usize = 8;

/// Classes of configuration items; each may lie below another one.
pub const CI_CLASSES: Family = Family {
    name: "ci-classes",
    path: "/platform-api/ci-classes",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("key", Kind::Slug),
        Field::open("parentId", Kind::Id, "null"),
        Field::open("icon", Kind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("attributes", Kind::List { of: ATTRIBUTE, max: ATTRIBUTES_MAX }, "[]"),
    ],
    unique: &[&["key"], &["name"]],
    links: |body| id_link(body, "parentId", &["ci-classes"], OnDelete::Refuse),
    rules,
    hook: Some(hook),
    prepare: Some(class),
    ..Family::BASE
};

/// Subclasses, each of one class, with attributes besides those of the class.
pub const CI_SUBCLASSES: Family = Family {
    name: "ci-subclasses",
    path: "/platform-api/ci-subclasses",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("classId", Kind::Id),
        Field::required("key", Kind::Slug),
        Field::open("icon", Kind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("attributes", Kind::List { of: ATTRIBUTE, max: ATTRIBUTES_MAX }, "[]"),
    ],
    unique: &[&["classId", "key"], &["classId", "name"]],
    links: |body| id_link(body, "classId", &["ci-classes"], OnDelete::Refuse),
    rules,
    hook: Some(hook),
    prepare: Some(subclass),
    ..Family::BASE
};

/// Gives a class and those above it, from the class up.
pub(super) async fn line(db: &mut Connection, id: &str) -> Result<Vec<(String, Map<String, Value>)>> {
    let (mut found, mut next) = (Vec::new(), Some(id.to_owned()));
    while let Some(id) = next.filter(|id| found.len() <= DEPTH_MAX && found.iter().all(|(seen, _)| seen != id)) {
        let Some(entity) = find(db, CI_CLASSES.name, &id).await? else { break };
        next = entity.body.get("parentId").and_then(Value::as_str).map(str::to_owned);
        found.push((id, entity.body));
    }
    Ok(found)
}

/// A class is not above itself, not too deep, and contradicts nothing above it.
pub(super) async fn class_fits(db: &mut Connection, own: Option<&str>, body: &Map<String, Value>) -> Result<()> {
    let Some(parent) = body.get("parentId").and_then(Value::as_str) else { return Ok(()) };
    let above = line(db, parent).await?;
    if above.iter().any(|(id, _)| Some(id.as_str()) == own) {
        return Err(cycle("/parentId", "a class cannot be above itself"));
    }
    if above.len() >= DEPTH_MAX {
        let why = format!("classes are nested at most {DEPTH_MAX} deep");
        return Err(Problem::field("/parentId", "LIMIT_EXCEEDED", why));
    }
    no_clash(body, above.iter().map(|(_, body)| body))
}

/// A subclass contradicts nothing above it.
pub(super) async fn subclass_fits(db: &mut Connection, body: &Map<String, Value>) -> Result<()> {
    let above = line(db, text(body, "classId")).await?;
    no_clash(body, above.iter().map(|(_, body)| body))
}

fn class<'a>(db: &'a mut Connection, making: &'a Making<'a>, draft: &'a mut Drafted) -> BoxFuture<'a, Result<()>> {
    Box::pin(class_fits(db, making.id, &draft.body))
}

fn subclass<'a>(db: &'a mut Connection, _: &'a Making<'a>, draft: &'a mut Drafted) -> BoxFuture<'a, Result<()>> {
    Box::pin(subclass_fits(db, &draft.body))
}

/// What would close a circle.
pub(super) fn cycle(field: &str, why: &str) -> Problem {
    let error = FieldError::new(field, "CYCLE", why);
    Problem { errors: vec![error], ..Problem::new(ProblemKind::Conflict, "CYCLE", why) }
}

/// An attribute that others declare, too, has their type.
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
