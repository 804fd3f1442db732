//! Reads one YAML file into models and views; names are not resolved yet.
//!
//! `mapping` reads a mapping; `dimension`, `measure` and `rollup` read members of models, `views` the views.

mod dimension;
mod mapping;
mod measure;
mod rollup;
mod views;

use std::sync::Arc;

use quiver_types::Domain;
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Node, NodeKind, read};

use super::problem_location::near_field;
use super::{
    Hierarchy, Join, Measure, MeasureType, Model, OpenMembers, OwnRows, Reads, Relationship, RowRight, Segment, Source,
    View,
};
use dimension::dimension;
use mapping::{Reader, json};
use measure::measure;
use rollup::rollup;
use views::view;

/// What stands in a file.
#[derive(Debug, Default)]
pub(super) struct FileContent {
    pub(super) models: Vec<Model>,
    pub(super) views: Vec<View>,
}

/// Reads a file.
pub(super) fn file(name: &str, text: &str, problems: &mut Problems) -> FileContent {
    let mut content = FileContent::default();
    let documents = match read(text) {
        Ok(documents) => documents,
        Err(problem) => {
            problems.push(problem);
            return content;
        }
    };
    let file: Arc<str> = name.into();
    for document in &documents {
        let Some(mut fields) = Fields::new(document, "", problems) else { continue };
        for node in fields.list("cubes", problems).unwrap_or_default() {
            content.models.extend(cube(node, &file, problems));
        }
        for node in fields.list("views", problems).unwrap_or_default() {
            content.views.extend(view(node, &file, problems));
        }
        fields.finish_with(near_field, problems);
    }
    content
}

fn cube(node: &Node, file: &Arc<str>, problems: &mut Problems) -> Option<Model> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let own = common.name.clone();
    let extends = r.text("extends").map(|t| t.trim_matches(['{', '}', '$']).to_owned());
    let table = r.text("sql_table");
    let select = r.text("sql");
    if table.is_some() && select.is_some() {
        r.bad("sql", "`sql` and `sql_table` exclude each other");
    }
    if table.is_none() && select.is_none() && extends.is_none() {
        r.fields.problem("sql_table", Code::Required, "a cube needs `sql_table` or `sql`", r.problems);
    }
    let source = select.map(Source::Select).or_else(|| table.map(|t| table_source(&t)));
    if r.fields.take("access_policy").is_some() {
        r.bad("access_policy", "`access_policy` is not supported; rights by row are given with `row_right`");
    }
    // A field of the format's reference; there is only one source here. Data is never stale, so `refresh_key` is only
    // shown.
    let _ = r.fields.take("data_source");
    let refresh_key = r.fields.some("refresh_key").map(json);
    let joins = r.list("joins").iter().filter_map(|n| join(n, r.problems)).collect();
    let dimensions = r.list("dimensions").iter().filter_map(|n| dimension(n, r.problems)).collect();
    let measures: Vec<Measure> = r.list("measures").iter().filter_map(|n| measure(n, &own, r.problems)).collect();
    let segments = r.list("segments").iter().filter_map(|n| segment(n, &own, r.problems)).collect();
    let hierarchies = r.list("hierarchies").iter().filter_map(|n| hierarchy(n, &own, r.problems)).collect();
    let pre_aggregations = r.list("pre_aggregations").iter().filter_map(|n| rollup(n, &own, r.problems)).collect();
    let row_right = r.fields.some("row_right").and_then(|n| row_right(n, r.problems));
    let rows = r.fields.some("rows").and_then(|n| own_rows(n, r.problems));
    let entities = r.truth("entities").unwrap_or(false);
    let whole = r.texts("whole");
    let open = r.fields.some("open").and_then(|n| open_members(n, r.problems));
    let counts = |name: &String| measures.iter().any(|m| m.common.name == *name && m.ty == MeasureType::CountDistinct);
    if open.as_ref().and_then(|open| open.counted.as_ref()).is_some_and(|name| !counts(name)) {
        r.bad("open", "`counted` names a measure of the model of type `count_distinct`");
    }
    r.finish();
    Some(Model {
        common,
        file: Arc::clone(file),
        extends,
        source,
        rows,
        entities,
        whole,
        joins,
        dimensions,
        measures,
        segments,
        open,
        hierarchies,
        pre_aggregations,
        refresh_key,
        row_right,
    })
}

fn table_source(text: &str) -> Source {
    let plain = |t: &str| t.trim().trim_matches('"').to_owned();
    match text.split_once('.') {
        Some((schema, name)) => Source::Table(Some(plain(schema)), plain(name)),
        None => Source::Table(None, plain(text)),
    }
}

fn join(node: &Node, problems: &mut Problems) -> Option<Join> {
    let mut r = Reader::new(node, "", problems)?;
    let target = r.text("name");
    let relationship = r.word("relationship", &Relationship::WORDS);
    let sql = r.sql("sql");
    if target.is_none() || sql.is_none() || r.fields.node().get("relationship").is_none() {
        r.fields.problem("name", Code::Required, "a join needs `name`, `relationship` and `sql`", r.problems);
    }
    r.finish();
    Some(Join { target: target?, relationship: relationship?, sql: sql?, place: node.place })
}

fn segment(node: &Node, own: &str, problems: &mut Problems) -> Option<Segment> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let sql = r.sql("sql");
    if sql.is_none() {
        r.fields.problem("sql", Code::Required, format!("segment `{}` needs `sql`", common.name), r.problems);
    }
    let by = r.members("by", own);
    r.finish();
    Some(Segment { common, sql: sql?, by })
}

fn hierarchy(node: &Node, own: &str, problems: &mut Problems) -> Option<Hierarchy> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let levels = r.members("levels", own);
    r.finish();
    Some(Hierarchy { common, levels })
}

fn open_members(node: &Node, problems: &mut Problems) -> Option<OpenMembers> {
    let mut r = Reader::new(node, "", problems)?;
    let (prefix, sql, counted) = (r.text("prefix"), r.sql("sql"), r.text("counted"));
    for (name, is_there) in [("prefix", prefix.is_some()), ("sql", sql.is_some())] {
        if !is_there {
            r.fields.problem(name, Code::Required, format!("open members need `{name}`"), r.problems);
        }
    }
    r.finish();
    Some(OpenMembers { prefix: prefix?, sql: sql?, counted })
}

fn own_rows(node: &Node, problems: &mut Problems) -> Option<OwnRows> {
    let mut r = Reader::new(node, "", problems)?;
    let sql = r.sql("sql");
    if sql.is_none() {
        r.fields.problem("sql", Code::Required, "`rows` needs a condition in `sql`", r.problems);
    }
    let unless = r.text("unless");
    r.finish();
    Some(OwnRows { sql: sql?, unless })
}

fn row_right(node: &Node, problems: &mut Problems) -> Option<RowRight> {
    let mut r = Reader::new(node, "", problems)?;
    let services = match r.fields.some("service").map(|n| &n.kind) {
        Some(NodeKind::List(_)) => r.texts("service"),
        _ => r.text("service").into_iter().collect(),
    };
    let domains: Vec<(&str, Domain)> = Domain::ALL.iter().map(|(domain, word, _)| (*word, *domain)).collect();
    let domain = r.word("domain", &domains);
    if r.fields.node().get("domain").is_none() {
        r.fields.problem("domain", Code::Required, "a row right needs a domain", r.problems);
    }
    let own = r.text("own");
    let deny = r.word("fallback", &[("scope_star", false), ("deny", true)]).unwrap_or(false);
    let reads = r.word("reads", &[("visible", Reads::Visible), ("all", Reads::All)]).unwrap_or(Reads::Both);
    if reads == Reads::All && services.is_empty() {
        r.bad("reads", "rows that are made of all rows need a `service` that says who sees them");
    }
    r.finish();
    Some(RowRight { services, domain: domain?, own, deny, reads })
}
