//! Classes of configuration items and their subclasses, which declare the attributes of resources (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};

use super::attributes::{ATTRIBUTE, ATTRIBUTES_MAX, rules};
use super::body::id_link;
use super::ci_ancestors::{class_fits, subclass_fits};
use super::ci_descendants::hook;
use super::names;
use crate::entity::Drafted;
use crate::family::{Family, Making, OnDelete};
use crate::fields::{Field, Kind};
use crate::problem::Result;

/// Classes of configuration items; a class may have a parent class.
pub const CI_CLASSES: Family = Family {
    name: names::CI_CLASSES,
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

/// Subclasses; each belongs to a class and adds attributes to it.
pub const CI_SUBCLASSES: Family = Family {
    name: names::CI_SUBCLASSES,
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

fn class<'a>(db: &'a mut Connection, making: &'a Making<'a>, draft: &'a mut Drafted) -> BoxFuture<'a, Result<()>> {
    Box::pin(class_fits(db, making.id, &draft.body))
}

fn subclass<'a>(db: &'a mut Connection, _: &'a Making<'a>, draft: &'a mut Drafted) -> BoxFuture<'a, Result<()>> {
    Box::pin(subclass_fits(db, &draft.body))
}
