//! Built-in analytics models have the members of the catalogue: `models.csv` lists model, kind, name, type, part of
//! the key, and stage of each, as designed. Members still missing in an existing model are in [`LEFT_OUT`], with the
//! reason. `joins.csv` lists the joins.

use std::collections::{BTreeMap, BTreeSet};

use quiver_olap::model::catalog::{Catalog, MemberKind};
use quiver_olap::model::load::{SourceFile, load};
use quiver_olap::model::{DimensionType, MeasureType, Model};

use crate::sources::{files, none, read, root};

/// Missing members: model, members, reason.
const LEFT_OUT: &[(&str, &[&str], &str)] = &[];

fn built_in() -> Vec<String> {
    files().into_iter().filter(|path| path.starts_with("schemas/olap/")).collect()
}

fn catalog() -> Catalog {
    let source = |path: String| SourceFile { text: read(&path), name: path, builtin: true };
    let sources: Vec<SourceFile> = built_in().into_iter().map(source).collect();
    match load(&sources) {
        Ok((catalog, warnings)) => {
            let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            none("parts of built-in models that speak of what is not there", &warnings);
            catalog
        }
        Err(problems) => panic!("{problems:?}"),
    }
}

/// A member of the catalogue.
struct Row {
    kind: String,
    member: String,
    ty: String,
    key: String,
}

fn rows(text: &str) -> BTreeMap<String, Vec<Row>> {
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let [model, kind, member, ty, key, _stage] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("`{line}` has other columns");
        };
        let text = str::to_owned;
        rows.entry(text(model)).or_default().push(Row {
            kind: text(kind),
            member: text(member),
            ty: text(ty),
            key: text(key),
        });
    }
    rows
}

fn dimension_type(ty: DimensionType) -> &'static str {
    DimensionType::ALL[ty as usize].1
}

fn measure_type(ty: MeasureType) -> &'static str {
    MeasureType::ALL[ty as usize].1
}

/// What is wrong with a member of the catalogue, if anything.
fn fault(model: &Model, row: &Row) -> Option<String> {
    let name = &row.member;
    let found = match row.kind.as_str() {
        "dimension" => model.dimension(name).map(|d| (dimension_type(d.ty), MemberKind::Dimension(d), d.primary_key)),
        "measure" => model.measure(name).map(|m| (measure_type(m.ty), MemberKind::Measure(m), false)),
        _ => model.segment(name).map(|s| ("boolean", MemberKind::Segment(s), false)),
    };
    let Some((ty, kind, is_key)) = found else { return Some(format!("there is no {} `{name}`", row.kind)) };
    // A bucket is a part of the key only in queries with buckets.
    let in_key = !row.key.is_empty() && row.key != "bucket";
    if ty != row.ty {
        return Some(format!("`{name}` is a `{ty}`, not a `{}`", row.ty));
    }
    if !kind.is_public() {
        return Some(format!("`{name}` is hidden"));
    }
    // Models may have hidden keys that the catalogue does not list.
    (is_key != in_key && row.kind == "dimension").then(|| format!("`{name}`: part of the key is {is_key}"))
}

#[test]
fn models_have_the_members_of_the_catalogue() {
    let (catalog, rows) = (catalog(), rows(&read("tests/house/models.csv")));
    let mut found = Vec::new();
    for model in catalog.models.values().filter(|m| m.is_public()) {
        let name = &model.common.name;
        let Some(rows) = rows.get(name) else {
            found.push(format!("{name}: the catalogue has no such model"));
            continue;
        };
        let left_out: Vec<&str> =
            LEFT_OUT.iter().filter(|(of, ..)| of == name).flat_map(|(_, members, _)| members.iter().copied()).collect();
        for row in rows {
            match (fault(model, row), left_out.contains(&row.member.as_str())) {
                (Some(text), false) => found.push(format!("{name}: {text}")),
                (None, true) => found.push(format!("{name}: `{}` is there, so it is not left out", row.member)),
                _ => {}
            }
        }
        let known: BTreeSet<&str> = rows.iter().map(|r| r.member.as_str()).collect();
        let dimensions = model.dimensions.iter().map(MemberKind::Dimension);
        let members = dimensions.chain(model.measures.iter().map(MemberKind::Measure));
        let members = members.chain(model.segments.iter().map(MemberKind::Segment)).filter(|member| member.is_public());
        let extra = members.map(MemberKind::common).filter(|c| !known.contains(c.name.as_str()));
        found.extend(extra.map(|c| format!("{name}: the catalogue has no `{}`", c.name)));
    }
    none("members that differ from the catalogue", &found);
}

/// Missing models, whose rows no query can return yet.
const MISSING: &[(&str, &str)] = &[];

#[test]
fn all_models_of_the_catalogue_are_there() {
    let (catalog, rows) = (catalog(), rows(&read("tests/house/models.csv")));
    let is_left_out = |name: &str| MISSING.iter().any(|(missing, _)| *missing == name);
    let there = |name: &str| catalog.models.contains_key(name);
    let wrong = rows.keys().filter(|name| there(name) == is_left_out(name)).cloned().collect::<Vec<_>>();
    none("models that are missing, or said to be", &wrong);
}

/// The joins of the catalogue lead from one model to the other, whichever of the two declares them.
#[test]
fn models_have_the_joins_of_the_catalogue() {
    let (catalog, list) = (catalog(), read("tests/house/joins.csv"));
    let mut missing = Vec::new();
    for line in list.lines().skip(1) {
        let [from, to, _relationship] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("`{line}` has other columns");
        };
        if catalog.path(from, to).is_none() && catalog.path(to, from).is_none() {
            missing.push(line.to_owned());
        }
    }
    none("joins of the catalogue that are missing", &missing);
}

#[test]
fn all_models_are_embedded() {
    let list = read("server/quiver/src/analytics.rs");
    let missing = built_in().into_iter().filter(|path| !list.contains(&format!("include_str!(\"../../../{path}\")")));
    none("models that the binary does not hold", &missing.collect::<Vec<_>>());
}

/// The design lies beside the checkout of those who have it.
#[test]
fn the_copy_is_that_of_the_design() {
    let Ok(design) = std::fs::read_to_string(root().join("../shared/design/olap-models.csv")) else { return };
    let names = |text: &str| -> BTreeSet<String> {
        let pair = |line: &str| line.split(',').take(4).collect::<Vec<_>>().join(",");
        text.lines().skip(1).map(pair).filter(|line| !line.contains('<')).collect()
    };
    let (design, copy) = (names(&design), names(&read("tests/house/models.csv")));
    let differ: Vec<String> = design.symmetric_difference(&copy).cloned().collect();
    none("members of the catalogue that the copy has otherwise", &differ);
}
