//! Classes of configuration items and their subclasses, which declare the attributes of resources (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};

use super::attributes::{ATTRIBUTE, ATTRIBUTES_MAX, rules};
use super::body::id_link;
use super::ci_ancestors::{class_fits, subclass_fits};
use super::ci_descendants::hook;
use super::names;
use crate::entity::DraftContent;
use crate::family::{ChangeContext, Family, OnDelete};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// Classes of configuration items; a class may have a parent class.
pub const CI_CLASSES: Family = Family {
    name: names::CI_CLASSES,
    path: "/platform-api/ci-classes",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("key", FieldKind::Slug),
        Field::open("parentId", FieldKind::Id, "null"),
        Field::open("icon", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("attributes", FieldKind::List { of: ATTRIBUTE, max: ATTRIBUTES_MAX }, "[]"),
    ],
    unique: &[&["key"], &["name"]],
    links: |body| id_link(body, "parentId", &["ci-classes"], OnDelete::Refuse),
    rules,
    hook: Some(hook),
    prepare: Some(class),
    ..Family::BASE
};

/// Subclasses; each belongs to a class and adds attributes to it.
pub const CI_SUBCLASSES: Family = Family {
    name: names::CI_SUBCLASSES,
    path: "/platform-api/ci-subclasses",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("classId", FieldKind::Id),
        Field::required("key", FieldKind::Slug),
        Field::open("icon", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("attributes", FieldKind::List { of: ATTRIBUTE, max: ATTRIBUTES_MAX }, "[]"),
    ],
    unique: &[&["classId", "key"], &["classId", "name"]],
    links: |body| id_link(body, "classId", &["ci-classes"], OnDelete::Refuse),
    rules,
    hook: Some(hook),
    prepare: Some(subclass),
    ..Family::BASE
};

fn class<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(class_fits(db, making.id, &draft.body))
}

fn subclass<'a>(
    db: &'a mut Connection,
    _: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(subclass_fits(db, &draft.body))
}
