//! Reads measures with their windows, shifts and stages.

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use super::Reader;
use super::dimension::case;
use super::mapping::member;
use crate::dates::granularity::{Granularity, Interval};
use crate::model::{AddedGroup, Measure, MeasureType, Reach, RollingWindow, Template, TimeShift};

pub(super) fn measure(node: &Node, own: &str, problems: &mut Problems) -> Option<Measure> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    // Cube reads both ways of writing them.
    let words = MeasureType::ALL.iter().flat_map(|(ty, word, camel)| [(*word, *ty), (*camel, *ty)]);
    let types: Vec<(&str, MeasureType)> = words.collect();
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

/// Reports multi-stage settings that would have no effect.
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

/// A filter of a measure. One that cannot be read is reported: without it the measure would count all rows.
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

/// Types of rolling windows: whether one goes to date, and from the start of which unit if its name says that.
const WINDOWS: [(&str, (bool, Option<&str>)); 5] = [
    ("fixed", (false, None)),
    ("to_date", (true, None)),
    ("year_to_date", (true, Some("year"))),
    ("quarter_to_date", (true, Some("quarter"))),
    ("month_to_date", (true, Some("month"))),
];

fn rolling_window(node: &Node, problems: &mut Problems) -> Option<RollingWindow> {
    let mut r = Reader::new(node, "", problems)?;
    let (is_to_date, unit) = r.word("type", &WINDOWS).unwrap_or_default();
    let granularity = unit.map(str::to_owned).or_else(|| r.text("granularity"));
    let from_start = r.word("offset", &[("end", false), ("start", true)]).unwrap_or(false);
    let mut reach = |name: &'static str| match r.text(name).as_deref() {
        None => Some(Reach::Of(Interval::default())),
        Some("unbounded") => Some(Reach::Unbounded),
        Some(text) => Interval::parse(text).map(Reach::Of).map_err(|e| r.bad(name, e)).ok(),
    };
    let (trailing, leading) = (reach("trailing"), reach("leading"));
    let others: &[&str] = if is_to_date { &["trailing", "leading", "offset"] } else { &["granularity"] };
    if let Some(other) = others.iter().find(|name| r.fields.node().get(name).is_some_and(|node| !node.is_null())) {
        let text =
            format!("`{other}` belongs to windows of {}", if is_to_date { "`type: fixed`" } else { "`type: to_date`" });
        r.bad(other, text);
    }
    let window = if is_to_date {
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

/// A member, optionally followed by a granularity.
fn added(text: &str, own: &str) -> AddedGroup {
    let plain = text.trim().replace(['$', '{', '}'], "");
    match plain.rsplit_once('.') {
        Some((rest, granularity)) if rest.contains('.') => {
            AddedGroup { member: member(rest, own), granularity: Some(granularity.to_owned()) }
        }
        _ => AddedGroup { member: member(&plain, own), granularity: None },
    }
}
