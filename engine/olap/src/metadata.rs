//! Metadata of models and members for clients: annotations of responses, and the list of all models (`olap-api.md` 6.3,
//! 8).

use arrow::datatypes::{DataType, Schema};
use serde_json::{Map, Value, json};

use crate::dates::granularity::Granularity;
use crate::member_formats;
use crate::model::catalog::{Catalog, MemberKind, ResolvedMember};
use crate::model::template::Piece;
use crate::model::{
    Case, Common, DimensionType, Folder, FolderItem, Label, MeasureType, MemberId, Model, Source, View,
};
use crate::query::Query;
use crate::visibility::may_name;
use quiver_query::tables::DomainAccess;

/// Says of each member of a query what it is. `columns`: those of its rows, which alone say what type an open dimension
/// has.
pub fn annotation(catalog: &Catalog, query: &Query, columns: &Schema) -> Value {
    let list = |ids: &[MemberId]| {
        ids.iter().filter_map(|id| Some((id.to_string(), member(catalog, id, columns)?))).collect::<Map<_, _>>()
    };
    let mut times = Map::new();
    for time in &query.times {
        if let (Some(column), Some(granularity)) = (time.column(), &time.granularity) {
            let Some(plain) = member(catalog, &time.member, columns) else { continue };
            let mut bucketed = plain.clone();
            bucketed["granularity"] = described_granularity(granularity);
            times.insert(column, bucketed);
            times.insert(time.member.to_string(), plain);
        }
    }
    let dimensions = query.dimensions.iter().filter_map(|id| {
        let mut shown = member(catalog, id, columns)?;
        if let Some(own) = catalog.find(id).and_then(|found| own_granularities(&found)) {
            shown["granularities"] = own;
        }
        Some((id.to_string(), shown))
    });
    let dimensions: Map<String, Value> = dimensions.collect();
    json!({"measures": list(&query.measures), "dimensions": dimensions, "segments": list(&query.segments), "timeDimensions": times})
}

/// The granularities that the model defines for a dimension; `None` if it defines none.
fn own_granularities(found: &ResolvedMember<'_>) -> Option<Value> {
    let MemberKind::Dimension(dimension) = found.kind else { return None };
    let own = dimension.granularities.iter().map(described_granularity);
    (!dimension.granularities.is_empty()).then(|| own.collect())
}

fn described_granularity(granularity: &Granularity) -> Value {
    let mut out = json!({"name": granularity.name, "title": granularity.title, "interval": granularity.interval});
    for (key, value) in [("offset", &granularity.offset), ("origin", &granularity.origin)] {
        if let Some(value) = value {
            out[key] = value.as_str().into();
        }
    }
    out
}

/// What an annotation says of a member.
fn member(catalog: &Catalog, id: &MemberId, columns: &Schema) -> Option<Value> {
    let found = catalog.find(id)?;
    let mut out = titles(&found);
    match found.kind {
        MemberKind::Measure(m) => {
            out.insert("type".into(), m.ty.value_type().into());
            drill(catalog, &found, &mut out);
        }
        MemberKind::Dimension(d) => {
            let column = columns.column_with_name(&id.to_string()).filter(|_| d.is_opened);
            let ty = match column.map(|(_, field)| field.data_type()) {
                Some(kind) if kind.is_numeric() => DimensionType::Number,
                Some(DataType::Boolean) => DimensionType::Boolean,
                _ => d.ty,
            };
            out.insert("type".into(), ty.value_type().into());
        }
        MemberKind::Segment(_) => {}
    }
    Some(out.into())
}

fn titles(found: &ResolvedMember<'_>) -> Map<String, Value> {
    let common = found.common();
    let short = common.short_title();
    let mut out = Map::new();
    out.insert("title".into(), format!("{} {short}", found.model_title()).into());
    out.insert("shortTitle".into(), short.into());
    optional(common, &mut out);
    if let Some(format) = &common.format {
        out.insert("format".into(), member_formats::shown(format, found.kind));
    }
    out
}

fn optional(common: &Common, out: &mut Map<String, Value>) {
    if let Some(text) = &common.description {
        out.insert("description".into(), text.as_str().into());
    }
    if let Some(meta) = &common.meta {
        out.insert("meta".into(), meta.clone());
    }
    if let Some(currency) = &common.currency {
        out.insert("currency".into(), currency.to_uppercase().into());
    }
}

/// Drill members; through a view those that the view has.
fn drill(catalog: &Catalog, found: &ResolvedMember<'_>, out: &mut Map<String, Value>) {
    let MemberKind::Measure(measure) = found.kind else { return };
    let named = |id: &MemberId| match found.view {
        None => Some(id.to_string()),
        Some((view, _)) => {
            let member = view.members.iter().find(|m| m.target == *id)?;
            Some(format!("{}.{}", view.common.name, member.common.name))
        }
    };
    let (mut all, mut measures, mut dimensions) = (Vec::new(), Vec::new(), Vec::new());
    for id in &measure.drill_members {
        let Some(name) = named(id) else { continue };
        all.push(name.clone());
        match catalog.find(id).map(|f| f.kind) {
            Some(MemberKind::Measure(_)) => measures.push(name),
            _ => dimensions.push(name),
        }
    }
    out.insert("drillMembers".into(), all.into());
    out.insert("drillMembersGrouped".into(), json!({"measures": measures, "dimensions": dimensions}));
}

/// Which list of models is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelListOptions {
    /// Whether models are left out, so that only views are listed.
    pub only_views: bool,
    /// Whether the definitions are shown too: SQL, joins and rollups.
    pub extended: bool,
    /// Name of the only model or view that is wanted; none: all.
    pub model: Option<String>,
}

/// Lists all models and views that a caller may see.
pub fn meta(catalog: &Catalog, access: &DomainAccess, wanted: &ModelListOptions) -> Value {
    let mut cubes = Vec::new();
    let is_wanted = |common: &Common| {
        wanted.model.as_ref().is_none_or(|name| *name == common.name) && may_name(catalog, &common.name, access)
    };
    if !wanted.only_views {
        for model in catalog.models.values().filter(|m| is_wanted(&m.common)) {
            let mut cube = cube(catalog, model, access, wanted.extended);
            cube.insert("connectedComponent".into(), catalog.components.get(&model.common.name).copied().into());
            if has_members(&cube) {
                cubes.push(Value::Object(cube));
            }
        }
    }
    for view in catalog.views.values().filter(|v| is_wanted(&v.common)) {
        let made = self::view(catalog, view);
        if has_members(&made) {
            cubes.push(Value::Object(made));
        }
    }
    json!({"cubes": cubes})
}

fn has_members(cube: &Map<String, Value>) -> bool {
    ["measures", "dimensions"].iter().any(|key| cube[*key].as_array().is_some_and(|list| !list.is_empty()))
}

fn cube(catalog: &Catalog, model: &Model, access: &DomainAccess, extended: bool) -> Map<String, Value> {
    let ids: Vec<MemberId> = model.member_names().map(|n| MemberId::new(&model.common.name, n)).collect();
    let mut out = entity(catalog, &model.common, "cube", &ids, extended);
    let is_shown = |id: &&MemberId| {
        let is_public = catalog.find(id).is_some_and(|found| catalog.is_public(&found));
        is_public && may_name(catalog, &id.model, access)
    };
    let hierarchies = model.hierarchies.iter().filter_map(|of| {
        let levels: Vec<String> = of.levels.iter().filter(is_shown).map(ToString::to_string).collect();
        hierarchy(&of.common, &model.common.name, &levels, None)
    });
    out.insert("hierarchies".into(), hierarchies.collect());
    out.insert("folders".into(), json!([]));
    out.insert("nestedFolders".into(), json!([]));
    if extended {
        match &model.source {
            Some(Source::Select(sql)) => _ = out.insert("sql".into(), sql.trim().into()),
            Some(Source::Table(schema, name)) => {
                let name = schema.as_ref().map_or_else(|| name.clone(), |s| format!("{s}.{name}"));
                out.insert("sql_table".into(), name.into());
            }
            None => {}
        }
        let joins = model.joins.iter();
        let joins = joins.map(|j| json!({"name": j.target, "relationship": j.relationship.word(), "sql": j.sql.text}));
        out.insert("joins".into(), joins.collect());
        let rollups = model.pre_aggregations.iter().map(|p| json!({"name": p.name, "type": p.kind}));
        out.insert("preAggregations".into(), rollups.collect());
        out.insert("refreshKey".into(), model.refresh_key.clone().into());
        out.insert("fileName".into(), (*model.file).into());
    }
    out
}

fn view(catalog: &Catalog, view: &View) -> Map<String, Value> {
    let ids: Vec<MemberId> = view.members.iter().map(|m| MemberId::new(&view.common.name, &m.common.name)).collect();
    let mut out = entity(catalog, &view.common, "view", &ids, false);
    let (own, is_shown) = (&view.common.name, |name: &str| is_shown(catalog, view, name));
    let hierarchies = view.hierarchies.iter().filter_map(|of| {
        let levels = of.levels.iter().filter(|level| is_shown(level)).map(|level| format!("{own}.{level}"));
        hierarchy(&of.common, own, &levels.collect::<Vec<_>>(), Some(&of.target))
    });
    out.insert("hierarchies".into(), hierarchies.collect());
    let nested: Vec<Value> = view.folders.iter().map(|of| folder(view, of, &is_shown)).collect();
    let flat = view.folders.iter().map(|of| json!({"name": of.name, "members": flat_members(view, of, &is_shown)}));
    out.insert("folders".into(), flat.collect());
    out.insert("nestedFolders".into(), nested.into());
    out
}

/// A hierarchy by the levels that are shown; none: nothing of it is.
fn hierarchy(common: &Common, owner: &str, levels: &[String], target: Option<&MemberId>) -> Option<Value> {
    if common.public == Some(false) || levels.is_empty() {
        return None;
    }
    let name = format!("{owner}.{}", common.name);
    let mut out = json!({"name": name, "title": common.short_title(), "levels": levels, "public": true});
    if let Some(target) = target {
        out["aliasMember"] = target.to_string().into();
    }
    Some(out)
}

/// Whether a member or hierarchy of a view is shown.
fn is_shown(catalog: &Catalog, view: &View, name: &str) -> bool {
    let found = catalog.find(&MemberId::new(&view.common.name, name));
    found.is_some_and(|found| catalog.is_public(&found))
        || view.hierarchies.iter().any(|h| h.common.name == name && h.common.public != Some(false))
}

/// The names of what lies in a folder by one of its items, those that are shown.
fn members_of(view: &View, item: &FolderItem, is_shown: &dyn Fn(&str) -> bool) -> Vec<String> {
    let names = view.names_of(item).into_iter().filter(|name| is_shown(name));
    names.map(|name| format!("{}.{name}", view.common.name)).collect()
}

fn folder(view: &View, of: &Folder, is_shown: &dyn Fn(&str) -> bool) -> Value {
    let members = of.includes.iter().flat_map(|item| match item {
        FolderItem::Folder(inner) => vec![folder(view, inner, is_shown)],
        FolderItem::Member(_) | FolderItem::All | FolderItem::Part(_) => {
            members_of(view, item, is_shown).into_iter().map(Value::from).collect()
        }
    });
    json!({"name": of.name, "members": members.collect::<Vec<_>>()})
}

fn flat_members(view: &View, of: &Folder, is_shown: &dyn Fn(&str) -> bool) -> Vec<String> {
    let members = of.includes.iter().flat_map(|item| match item {
        FolderItem::Folder(inner) => flat_members(view, inner, is_shown),
        FolderItem::Member(_) | FolderItem::All | FolderItem::Part(_) => members_of(view, item, is_shown),
    });
    members.collect()
}

fn entity(catalog: &Catalog, common: &Common, kind: &str, ids: &[MemberId], extended: bool) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("name".into(), common.name.as_str().into());
    out.insert("type".into(), kind.into());
    out.insert("title".into(), common.short_title().into());
    out.insert("isVisible".into(), true.into());
    out.insert("public".into(), true.into());
    optional(common, &mut out);
    let (mut measures, mut dimensions, mut segments) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids {
        let Some(found) = catalog.find(id).filter(|f| catalog.is_public(f)) else { continue };
        let shown = described(catalog, id, &found, extended);
        match found.kind {
            MemberKind::Measure(_) => measures.push(shown),
            MemberKind::Dimension(_) => dimensions.push(shown),
            MemberKind::Segment(_) => segments.push(shown),
        }
    }
    out.insert("measures".into(), measures.into());
    out.insert("dimensions".into(), dimensions.into());
    out.insert("segments".into(), segments.into());
    out
}

/// The member whose value a member gives as it is: its text names that one and nothing else.
fn stands_for<'a>(found: &ResolvedMember<'a>) -> Option<&'a MemberId> {
    let sql = match found.kind {
        MemberKind::Measure(m) => {
            let expression =
                matches!(m.ty, MeasureType::Number | MeasureType::String | MeasureType::Time | MeasureType::Boolean);
            m.sql.as_ref().filter(|_| expression && m.filters.is_empty())
        }
        MemberKind::Dimension(d) => d.sql.as_ref().filter(|_| !d.sub_query),
        MemberKind::Segment(_) => None,
    };
    match &sql?.pieces[..] {
        [Piece::Member(id)] => Some(id),
        _ => None,
    }
}

/// Cases as models write them.
fn shown_case(case: &Case) -> Value {
    let label = |label: &Label| match label {
        Label::Text(text) => Value::from(text.as_str()),
        Label::Sql(sql) => json!({"sql": sql.text}),
    };
    let when = case.when.iter().map(|(sql, then)| json!({"sql": sql.text, "label": label(then)}));
    let mut out = json!({"when": when.collect::<Vec<_>>()});
    if let Some(otherwise) = &case.otherwise {
        out["else"] = json!({"label": label(otherwise)});
    }
    out
}

/// A member in the list of all.
fn described(catalog: &Catalog, id: &MemberId, found: &ResolvedMember<'_>, extended: bool) -> Value {
    let mut out = titles(found);
    out.insert("name".into(), id.to_string().into());
    out.insert("isVisible".into(), true.into());
    out.insert("public".into(), true.into());
    if found.view.is_some() {
        out.insert("aliasMember".into(), found.id().to_string().into());
    } else if let Some(other) = stands_for(found) {
        out.insert("aliasMember".into(), other.to_string().into());
    }
    match found.kind {
        MemberKind::Measure(m) => {
            out.insert("type".into(), m.ty.value_type().into());
            out.insert("aggType".into(), m.ty.agg_type().into());
            out.insert("cumulative".into(), m.rolling_window.is_some().into());
            out.insert("cumulativeTotal".into(), m.rolling_window.is_some().into());
            drill(catalog, found, &mut out);
        }
        MemberKind::Dimension(d) => {
            out.insert("type".into(), d.ty.value_type().into());
            out.insert("suggestFilterValues".into(), d.suggest.into());
            // Of a view nothing is a key.
            out.insert("primaryKey".into(), (d.primary_key && found.view.is_none()).into());
            if let Some(own) = own_granularities(found) {
                out.insert("granularities".into(), own);
            }
        }
        MemberKind::Segment(_) => {}
    }
    if extended {
        let sql = match found.kind {
            MemberKind::Measure(m) => m.sql.as_ref(),
            MemberKind::Dimension(d) => d.sql.as_ref(),
            MemberKind::Segment(s) => Some(&s.sql),
        };
        if let Some(sql) = sql {
            out.insert("sql".into(), sql.text.as_str().into());
        }
        let case = match found.kind {
            MemberKind::Measure(m) => m.case.as_ref(),
            MemberKind::Dimension(d) => d.case.as_ref(),
            MemberKind::Segment(_) => None,
        };
        if let Some(case) = case {
            out.insert("case".into(), shown_case(case));
        }
        if let MemberKind::Measure(m) = found.kind
            && !m.filters.is_empty()
        {
            out.insert("filters".into(), m.filters.iter().map(|f| json!({"sql": f.text})).collect());
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::{SourceFile, load};
    use crate::query::request::Request;

    fn listed(extended: bool) -> Value {
        let text = "cubes:
  - name: A
    sql_table: public.a
    refresh_key: {every: 1 hour}
    dimensions:
      - {name: unit, type: switch, values: [s, ms]}
      - name: size
        type: string
        case: {when: [{sql: '{CUBE}.n > 1', label: large}], else: {label: {sql: '{CUBE}.n'}}}
  - {name: B, sql: SELECT 1 AS n, dimensions: [{name: n, sql: n, type: number}]}
";
        let file = SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false };
        let (catalog, _) = load(&[file]).unwrap();
        meta(&catalog, &DomainAccess::full(), &ModelListOptions { extended, ..ModelListOptions::default() })
    }

    #[test]
    fn how_models_are_made() {
        let all = listed(true);
        let (a, b) = (&all["cubes"][0], &all["cubes"][1]);
        assert_eq!((&a["sql_table"], &a["sql"]), (&json!("public.a"), &Value::Null));
        assert_eq!((&b["sql_table"], &b["sql"]), (&Value::Null, &json!("SELECT 1 AS n")));
        assert_eq!((&a["refreshKey"], &b["refreshKey"]), (&json!({"every": "1 hour"}), &Value::Null));
        let case = json!({"when": [{"sql": "{CUBE}.n > 1", "label": "large"}], "else": {"label": {"sql": "{CUBE}.n"}}});
        assert_eq!(a["dimensions"][1]["case"], case);
        assert!(!listed(false).to_string().contains("refreshKey"));
    }

    #[test]
    fn hierarchies_and_folders_show_what_may_be_named() {
        let text = "cubes:
  - name: A
    sql_table: public.a
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true}
      - {name: city, sql: city, type: string}
      - {name: street, sql: street, type: string, public: false}
    hierarchies:
      - {name: place, title: Where, levels: [city, street]}
      - {name: secret, public: false, levels: [city]}
      - {name: streets, levels: [street]}
views:
  - name: V
    cubes: [{join_path: A, prefix: true, includes: [place, secret, streets]}]
    folders:
      - {name: all, includes: '*'}
      - {name: some, includes: [A_place, A_secret, A_street, {name: inner, includes: [{join_path: A}]}]}
";
        let file = SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false };
        let (catalog, _) = load(&[file]).unwrap();
        let all = meta(&catalog, &DomainAccess::full(), &ModelListOptions::default());
        let (a, v) = (&all["cubes"][0], &all["cubes"][1]);
        let place = json!({"name": "A.place", "title": "Where", "levels": ["A.city"], "public": true});
        assert_eq!(a["hierarchies"], json!([place]));
        let place = json!({
            "name": "V.A_place", "title": "Where", "levels": ["V.A_city"], "public": true, "aliasMember": "A.place",
        });
        assert_eq!(v["hierarchies"], json!([place]));
        let (all, some) = (json!(["V.A_city"]), json!(["V.A_place", "V.A_city"]));
        assert_eq!(v["folders"], json!([{"name": "all", "members": all}, {"name": "some", "members": some}]));
        let inner = json!({"name": "inner", "members": ["V.A_city"]});
        assert_eq!(v["nestedFolders"][1], json!({"name": "some", "members": ["V.A_place", inner]}));
    }

    /// Keys are there for joins; the reference shows them where the model or a view says so.
    #[test]
    fn keys_are_hidden_unless_they_are_public() {
        let text = "cubes:
  - name: A
    sql_table: public.a
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true}
      - {name: part, sql: part, type: number, primary_key: true, shown: true}
      - {name: city, sql: city, type: string}
views:
  - {name: V, cubes: [{join_path: A, includes: '*'}]}
";
        let file = SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false };
        let (catalog, _) = load(&[file]).unwrap();
        let all = meta(&catalog, &DomainAccess::full(), &ModelListOptions::default());
        let names = |cube: &Value| {
            let dimensions = cube["dimensions"].as_array().unwrap().iter();
            dimensions.map(|d| d["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all["cubes"][0]), ["A.part", "A.city"]);
        assert_eq!(names(&all["cubes"][1]), ["V.id", "V.part", "V.city"]);
        for (member, is_there) in [("A.id", false), ("A.part", true), ("V.id", true)] {
            let read = Request::parse(&json!({"dimensions": [member]}), &catalog, 0);
            assert_eq!(read.is_ok(), is_there, "{member}");
        }
    }

    /// Clients name the buckets of a time by its granularities; beside a bucket, its own says it.
    #[test]
    fn times_say_their_granularities() {
        let text = "cubes:
  - name: A
    sql_table: public.a
    dimensions:
      - {name: at, sql: at, type: time, granularities: [{name: half, interval: 12 hours, offset: 1 hour}]}
    measures: [{name: share, type: number, sql: '1.0', format: percent_1}]
";
        let file = SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false };
        let (catalog, _) = load(&[file]).unwrap();
        let half = json!({"name": "half", "title": "Half", "interval": "12 hours", "offset": "1 hour"});
        let told = |query: &Value| {
            let request = Request::parse(query, &catalog, 0).unwrap();
            annotation(&catalog, &request.queries[0], &Schema::empty())
        };
        let plain = told(&json!({"measures": ["A.share"], "dimensions": ["A.at"]}));
        assert_eq!(plain["dimensions"]["A.at"]["granularities"], json!([half]));
        let format = json!({"type": "custom-numeric", "value": ".1~%", "alias": "percent_1"});
        assert_eq!(plain["measures"]["A.share"]["format"], format);
        let bucketed = told(&json!({"dimensions": ["A.at.half"]}));
        assert_eq!(bucketed["timeDimensions"]["A.at.half"]["granularity"], half);
        assert!(bucketed["timeDimensions"]["A.at"].get("granularities").is_none());
    }

    #[test]
    fn a_switch_has_texts() {
        assert_eq!(listed(false)["cubes"][0]["dimensions"][0]["type"], "string");
    }
}
