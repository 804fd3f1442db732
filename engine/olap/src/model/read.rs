//! One YAML file to cubes and views; names are not resolved yet.

mod views;

use std::sync::Arc;

use quiver_types::Domain;
use quiver_types::meant::did_you_mean;
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Kind, Node, read};
use serde_json::{Map, Value};

use super::owner::near_field;
use super::template::Template;
use super::{
    AddedGroup, Case, Common, Dimension, DimensionType, Hierarchy, Join, Label, Measure, MeasureType, MemberId, Model,
    OpenMembers, OwnRows, PreAggregation, Reach, Reads, Relationship, RollingWindow, RowRight, Segment, Source,
    TimeShift, View, is_name,
};
use crate::dates::granularity::{Granularity, Interval, STANDARD};
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

/// Turns YAML into JSON, for what is passed on as it is.
fn json(node: &Node) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::List(items) => items.iter().map(json).collect(),
        Kind::Map(pairs) => Value::Object(pairs.iter().map(|(k, v)| (k.text.clone(), json(v))).collect::<Map<_, _>>()),
        Kind::Scalar { text, .. } => {
            let truth = matches!(text.as_str(), "true" | "false").then(|| node.truth()).flatten();
            let whole = node.integer().and_then(|i| i64::try_from(i).ok());
            let number = || node.number().filter(|n| n.is_finite());
            truth
                .map(Value::from)
                .or(whole.map(Value::from))
                .or_else(|| number().map(Value::from))
                .unwrap_or_else(|| text.as_str().into())
        }
    }
}

/// A mapping that is being read.
struct Reader<'a, 'p> {
    fields: Fields<'a>,
    problems: &'p mut Problems,
}

impl<'a, 'p> Reader<'a, 'p> {
    fn new(node: &'a Node, path: &str, problems: &'p mut Problems) -> Option<Self> {
        let fields = Fields::new(node, path, problems)?;
        Some(Self { fields, problems })
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        self.fields.text(name, self.problems)
    }

    fn truth(&mut self, name: &'static str) -> Option<bool> {
        self.fields.truth(name, self.problems)
    }

    fn list(&mut self, name: &'static str) -> &'a [Node] {
        self.fields.list(name, self.problems).unwrap_or_default()
    }

    fn texts(&mut self, name: &'static str) -> Vec<String> {
        self.fields.texts(name, self.problems).unwrap_or_default()
    }

    fn bad(&mut self, name: &str, message: impl Into<String>) {
        self.fields.problem(name, Code::InvalidValue, message, self.problems);
    }

    fn sql(&mut self, name: &'static str) -> Option<Template> {
        let place = self.fields.node().get(name)?.place;
        self.text(name).map(|text| Template::parse(&text, place))
    }

    /// One of listed words.
    fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let hint = did_you_mean(&text, words.iter().map(|(word, _)| *word));
            self.bad(name, format!("unknown {name} `{text}`{hint}"));
        }
        found
    }

    fn common(&mut self) -> Option<Common> {
        let place = self.fields.node().place;
        let name = self.text("name");
        match &name {
            None => self.fields.problem("name", Code::Required, "a name must be given", self.problems),
            Some(n) if !is_name(n) || n.starts_with(|c: char| c.is_ascii_digit()) => {
                self.bad("name", format!("`{n}` is no identifier"));
            }
            Some(_) => {}
        }
        let shown = self.truth("shown");
        Some(Common {
            name: name?,
            title: self.text("title"),
            description: self.text("description"),
            public: self.truth("public").or(shown),
            meta: self.fields.some("meta").map(json),
            format: self.fields.some("format").map(json),
            currency: self.text("currency"),
            place,
        })
    }

    fn members(&mut self, name: &'static str, own: &str) -> Vec<MemberId> {
        self.texts(name).iter().map(|text| member(text, own)).collect()
    }

    fn finish(self) {
        self.fields.finish_with(near_field, self.problems);
    }
}

/// A member by its name, with or without that of its model, with or without braces.
fn member(text: &str, own: &str) -> MemberId {
    let plain = text.trim().replace(['$', '{', '}'], "");
    match plain.split_once('.') {
        Some(("CUBE", name)) => MemberId::new(own, name),
        Some((model, name)) => MemberId::new(model, name),
        None => MemberId::new(own, plain),
    }
}

/// A member, perhaps with a granularity behind its name.
fn added(text: &str, own: &str) -> AddedGroup {
    let plain = text.trim().replace(['$', '{', '}'], "");
    match plain.rsplit_once('.') {
        Some((rest, granularity)) if rest.contains('.') => {
            AddedGroup { member: member(rest, own), granularity: Some(granularity.to_owned()) }
        }
        _ => AddedGroup { member: member(&plain, own), granularity: None },
    }
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
    // A name of the format's reference: there is one source here. It is never stale, so `refresh_key` is only shown.
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

fn case(node: &Node, problems: &mut Problems) -> Option<Case> {
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

fn dimension(node: &Node, problems: &mut Problems) -> Option<Dimension> {
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
        common,
    };
    r.finish();
    ty.map(|_| dimension)
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

fn measure(node: &Node, own: &str, problems: &mut Problems) -> Option<Measure> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let types: Vec<(&str, MeasureType)> = MeasureType::ALL.iter().map(|(ty, word, _)| (*word, *ty)).collect();
    if r.fields.node().get("type").is_none() {
        r.fields.problem("type", Code::Required, format!("measure `{}` needs a type", common.name), r.problems);
    }
    let ty = r.word("type", &types)?;
    let sql = r.sql("sql");
    let case = r.fields.some("case").and_then(|n| case(n, r.problems));
    if sql.is_none() && case.is_none() && !matches!(ty, MeasureType::Count | MeasureType::Rank) {
        r.fields.problem("sql", Code::Required, format!("measure `{}` needs `sql`", common.name), r.problems);
        return None;
    }
    if sql.is_some() && case.is_some() {
        r.bad("case", format!("measure `{}` has `sql` or `case`, not both", common.name));
    }
    let filters = r.list("filters").iter().filter_map(|n| condition(n, r.problems)).collect();
    let order_by = r.list("order_by").iter().filter_map(|n| order_by(n, r.problems)).collect::<Vec<_>>();
    let rolling_window = r.fields.some("rolling_window").and_then(|n| rolling_window(n, r.problems));
    let rolling_window = match ty {
        MeasureType::RunningTotal if rolling_window.is_none() => Some(RollingWindow::Around {
            trailing: Reach::Unbounded,
            leading: Reach::Of(Interval::default()),
            from_start: false,
        }),
        _ => rolling_window,
    };
    let group_by = r.fields.some("group_by").is_some();
    let group_by = group_by.then(|| r.texts("group_by").iter().map(|text| added(text, own)).collect());
    let measure = Measure {
        sql,
        case,
        filters,
        drill_members: r.members("drill_members", own),
        rolling_window,
        multi_stage: r.truth("multi_stage").unwrap_or(false) || ty == MeasureType::Rank,
        group_by,
        reduce_by: r.members("reduce_by", own),
        add_group_by: r.texts("add_group_by").iter().map(|text| added(text, own)).collect(),
        order_by,
        time_shift: r.list("time_shift").iter().filter_map(|n| time_shift(n, own, r.problems)).collect(),
        apart: r.truth("apart").unwrap_or(false),
        common,
        ty,
    };
    if ty == MeasureType::Rank && measure.order_by.is_empty() {
        r.bad("order_by", "a rank needs `order_by`");
    }
    stages(&measure, &mut r);
    r.finish();
    Some(measure)
}

/// What says how a measure is made of inner results is told of where nothing would come of it.
fn stages(measure: &Measure, r: &mut Reader<'_, '_>) {
    if measure.multi_stage {
        if measure.rolling_window.is_some() {
            r.bad("rolling_window", "a measure has `rolling_window` or `multi_stage`, not both");
        }
        return;
    }
    for key in ["group_by", "reduce_by", "add_group_by", "time_shift", "order_by"] {
        if r.fields.node().get(key).is_some_and(|node| !node.is_null()) {
            r.bad(key, format!("`{key}` belongs to measures with `multi_stage: true`"));
        }
    }
}

/// A filter of a measure. One that cannot be read is told of: without it the measure would count all rows.
fn condition(node: &Node, problems: &mut Problems) -> Option<Template> {
    let mut r = Reader::new(node, "", problems)?;
    let sql = r.sql("sql");
    if sql.is_none() {
        r.fields.problem("sql", Code::Required, "a filter of a measure needs `sql`", r.problems);
    }
    r.finish();
    sql
}

fn order_by(node: &Node, problems: &mut Problems) -> Option<(Template, bool)> {
    let mut r = Reader::new(node, "", problems)?;
    let sql = r.sql("sql");
    if sql.is_none() {
        r.fields.problem("sql", Code::Required, "an entry of `order_by` needs `sql`", r.problems);
    }
    let descends = r.word("dir", &[("asc", false), ("desc", true)]).unwrap_or(false);
    r.finish();
    Some((sql?, descends))
}

fn rolling_window(node: &Node, problems: &mut Problems) -> Option<RollingWindow> {
    let mut r = Reader::new(node, "", problems)?;
    let kind = r.word("type", &[("fixed", false), ("to_date", true)]).unwrap_or(false);
    let granularity = r.text("granularity");
    let from_start = r.word("offset", &[("end", false), ("start", true)]).unwrap_or(false);
    let mut reach = |name: &'static str| match r.text(name).as_deref() {
        None => Some(Reach::Of(Interval::default())),
        Some("unbounded") => Some(Reach::Unbounded),
        Some(text) => Interval::parse(text).map(Reach::Of).map_err(|e| r.bad(name, e)).ok(),
    };
    let (trailing, leading) = (reach("trailing"), reach("leading"));
    let others: &[&str] = if kind { &["trailing", "leading", "offset"] } else { &["granularity"] };
    if let Some(other) = others.iter().find(|name| r.fields.node().get(name).is_some_and(|node| !node.is_null())) {
        let text =
            format!("`{other}` belongs to windows of {}", if kind { "`type: fixed`" } else { "`type: to_date`" });
        r.bad(other, text);
    }
    let window = if kind {
        let found = granularity.as_deref().and_then(Granularity::standard);
        if found.is_none() {
            r.bad("granularity", "a window to date needs a `granularity` such as `month`");
        }
        found.map(RollingWindow::ToDate)
    } else {
        Some(RollingWindow::Around { trailing: trailing?, leading: leading?, from_start })
    };
    r.finish();
    window
}

fn time_shift(node: &Node, own: &str, problems: &mut Problems) -> Option<TimeShift> {
    let mut r = Reader::new(node, "", problems)?;
    let time_dimension = r.text("time_dimension").map(|t| member(&t, own));
    let text = r.text("interval");
    let is_range = text.as_deref() == Some("range");
    let parsed = |text: String| Interval::parse(&text).map_err(|e| r.bad("interval", e)).ok();
    let interval = if is_range { Some(Interval::default()) } else { text.and_then(parsed) };
    let next = r.word("type", &[("prior", false), ("next", true)]).unwrap_or(false);
    if r.fields.node().get("interval").is_none() {
        r.fields.problem("interval", Code::Required, "a shift of time needs `interval`", r.problems);
    }
    r.finish();
    let interval = interval?;
    let sign = if next { -1 } else { 1 };
    let interval = if next { interval.negated() } else { interval };
    Some(TimeShift { time_dimension, interval, ranges: if is_range { sign } else { 0 } })
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
        Some(Kind::List(_)) => r.texts("service"),
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

fn rollup(node: &Node, own: &str, problems: &mut Problems) -> Option<PreAggregation> {
    const KINDS: [(&str, &str); 4] = [
        ("rollup", "rollup"),
        ("original_sql", "original_sql"),
        ("rollup_join", "rollup_join"),
        ("rollup_lambda", "rollup_lambda"),
    ];
    let mut r = Reader::new(node, "", problems)?;
    let name = r.text("name");
    let kind = r.word("type", &KINDS).unwrap_or("rollup");
    let (time, granularity) = (r.text("time_dimension"), r.text("granularity"));
    if name.is_none() {
        r.fields.problem("name", Code::Required, "a rollup needs a `name`", r.problems);
    }
    if kind == "rollup" && time.is_some() && granularity.is_none() {
        r.fields.problem(
            "granularity",
            Code::Required,
            "a rollup with `time_dimension` needs `granularity`",
            r.problems,
        );
    }
    let made = PreAggregation {
        name: name?,
        kind: kind.to_owned(),
        measures: r.members("measures", own),
        dimensions: r.members("dimensions", own),
        segments: r.members("segments", own),
        time: time.map(|t| member(&t, own)).zip(granularity),
    };
    // When and how a rollup is built is up to the store here; the keys are read so that models stay portable.
    for key in [
        "external",
        "refresh_key",
        "partition_granularity",
        "build_range_start",
        "build_range_end",
        "indexes",
        "union_with_source_data",
        "rollups",
        "scheduled_refresh",
        "allow_non_strict_date_range_match",
    ] {
        let _ = r.fields.take(key);
    }
    r.finish();
    Some(made)
}
