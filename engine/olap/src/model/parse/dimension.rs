//! Reads dimensions with their cases and granularities.

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use super::Reader;
use crate::dates::granularity::{Granularity, STANDARD};
use crate::model::{Case, Dimension, DimensionType, Label, Template, is_name};

pub(super) fn dimension(node: &Node, problems: &mut Problems) -> Option<Dimension> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let types: Vec<(&str, DimensionType)> = DimensionType::ALL.iter().map(|(ty, word)| (*word, *ty)).collect();
    if r.fields.node().get("type").is_none() {
        r.fields.problem("type", Code::Required, format!("dimension `{}` needs a type", common.name), r.problems);
    }
    let ty = r.word("type", &types);
    let place = |r: &mut Reader<'_, '_>, name: &'static str| {
        let inner = r.fields.some(name)?.get("sql")?;
        inner.text().map(|t| Template::parse(t, inner.place))
    };
    let (latitude, longitude) = (place(&mut r, "latitude"), place(&mut r, "longitude"));
    let sql = r.sql("sql");
    let case = r.fields.some("case").and_then(|n| case(n, r.problems));
    let geo = latitude.zip(longitude);
    let ways = usize::from(sql.is_some()) + usize::from(case.is_some()) + usize::from(geo.is_some());
    if ways != 1 && ty != Some(DimensionType::Switch) {
        r.bad("sql", format!("dimension `{}` needs one of `sql`, `case`, `latitude` with `longitude`", common.name));
    }
    let granularities = r.list("granularities").iter().filter_map(|n| granularity(n, r.problems)).collect();
    let dimension = Dimension {
        ty: ty.unwrap_or(DimensionType::String),
        sql,
        case,
        geo,
        primary_key: r.truth("primary_key").unwrap_or(false),
        suggest: r.truth("suggest_filter_values").unwrap_or(true),
        sub_query: r.truth("sub_query").unwrap_or(false),
        propagate_filters: r.truth("propagate_filters_to_sub_query").unwrap_or(false),
        propagate_range: r.truth("propagate_range_to_sub_query").unwrap_or(false),
        per_bucket: r.truth("per_bucket").unwrap_or(false),
        since: r.text("since"),
        granularities,
        values: r.texts("values"),
        is_opened: false,
        common,
    };
    r.finish();
    ty.map(|_| dimension)
}

/// Values that depend on conditions, for dimensions and measures.
pub(super) fn case(node: &Node, problems: &mut Problems) -> Option<Case> {
    let mut r = Reader::new(node, "", problems)?;
    let mut when = Vec::new();
    for one in r.list("when") {
        let mut w = Reader::new(one, "", r.problems)?;
        let sql = w.sql("sql");
        let label = w.fields.take("label").and_then(label);
        if sql.is_none() || label.is_none() {
            w.fields.problem("sql", Code::Required, "a case needs `sql` and `label`", w.problems);
        }
        w.finish();
        when.push((sql?, label?));
    }
    let otherwise = r.fields.some("else").map(|n| n.get("label").and_then(label));
    if matches!(otherwise, Some(None)) {
        r.bad("else", "`else` of a case needs a `label`");
    }
    if when.is_empty() {
        r.bad("when", "a case needs `when`");
    }
    r.finish();
    Some(Case { when, otherwise: otherwise.flatten() })
}

fn label(node: &Node) -> Option<Label> {
    match node.get("sql") {
        Some(sql) => sql.text().map(|t| Label::Sql(Template::parse(t, sql.place))),
        None => node.text().map(|t| Label::Text(t.to_owned())),
    }
}

fn granularity(node: &Node, problems: &mut Problems) -> Option<Granularity> {
    let mut r = Reader::new(node, "", problems)?;
    let (name, title, interval) = (r.text("name"), r.text("title"), r.text("interval"));
    let (origin, offset) = (r.text("origin"), r.text("offset"));
    let (Some(name), Some(interval)) = (name, interval) else {
        r.fields.problem("interval", Code::Required, "a granularity needs `name` and `interval`", r.problems);
        return None;
    };
    if STANDARD.contains(&name.as_str()) || !is_name(&name) {
        r.bad("name", format!("`{name}` cannot name an own granularity"));
    }
    let made = Granularity::custom(&name, title.as_deref(), &interval, origin.as_deref(), offset.as_deref());
    let made = made.map_err(|e| r.bad("interval", e)).ok();
    r.finish();
    made
}
