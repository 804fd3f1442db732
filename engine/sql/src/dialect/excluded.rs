//! Frames of windows that leave the row at hand out (`EXCLUDE CURRENT ROW`), those that are equal to it in order (`EXCLUDE
//! GROUP`), or these but for the row itself (`EXCLUDE TIES`). The planner has no such frames: what stands before the row,
//! the row where it is left, and what stands behind it are frames of their own, and what a function gives of each is put
//! together. Of a few rows around the row at hand, each is a frame, which counts if it is not equal to it.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArguments, Ident, ObjectName, OrderByExpr, Value, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use quiver_types::{Error, Result};

use super::expressions::{bare, expr, number};
use super::operators;
use crate::error::unsupported;
use crate::wording::{WITHOUT_GROUP, WITHOUT_ROW, WITHOUT_TIES};

/// Rows that a frame leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Row,
    Group,
    Ties,
}

/// Whether the name of a window is such a mark.
pub(super) fn is_mark(name: &Ident) -> bool {
    [WITHOUT_ROW, WITHOUT_GROUP, WITHOUT_TIES].contains(&name.value.as_str())
}

impl Left {
    /// What a window is marked with; none: it leaves nothing out.
    fn of(window: &WindowSpec) -> Option<Self> {
        match window.window_name.as_ref()?.value.as_str() {
            WITHOUT_ROW => Some(Self::Row),
            WITHOUT_GROUP => Some(Self::Group),
            WITHOUT_TIES => Some(Self::Ties),
            _ => None,
        }
    }

    /// What is left of a frame, in its order.
    ///
    /// # Errors
    /// Unsupported: it is no few parts.
    fn parts(self, units: WindowFrameUnits, (from, to): (i64, i64), is_ordered: bool) -> Result<Vec<Part>> {
        let is_whole = (from, to) == (i64::MIN, i64::MAX);
        // To a range that ends at no value the rows of a group are one, as they are to groups.
        let by_groups = [from, to].iter().all(|place| [i64::MIN, 0, i64::MAX].contains(place));
        let is_within = from <= 0 && to >= 0;
        let groups = match units {
            WindowFrameUnits::Groups => true,
            WindowFrameUnits::Range => by_groups && is_ordered,
            WindowFrameUnits::Rows => is_whole && is_ordered,
        };
        let rows = units == WindowFrameUnits::Rows;
        // All rows of a partition without an order are equal.
        let is_equal = !is_ordered && (rows || (units == WindowFrameUnits::Range && by_groups));
        Ok(match self {
            Self::Row if rows || is_whole => around(WindowFrameUnits::Rows, from, to, &[]),
            Self::Row if is_equal && is_within => around(WindowFrameUnits::Rows, i64::MIN, i64::MAX, &[]),
            Self::Row if groups => {
                around(WindowFrameUnits::Groups, from, to, &[Part::Equal(i64::MIN, -1), Part::Equal(1, i64::MAX)])
            }
            Self::Group if is_equal => Vec::new(),
            Self::Ties if is_equal => {
                if is_within {
                    vec![ITSELF]
                } else {
                    Vec::new()
                }
            }
            Self::Group if groups => around(WindowFrameUnits::Groups, from, to, &[]),
            Self::Ties if groups => around(WindowFrameUnits::Groups, from, to, &[ITSELF]),
            Self::Group | Self::Ties if rows => self.unlike(from, to)?,
            _ => return Err(refused()),
        })
    }

    /// Rows of a frame of rows that are not equal to the row at hand, and the row itself where ties are left out alone.
    fn unlike(self, from: i64, to: i64) -> Result<Vec<Part>> {
        let groups = WindowFrameUnits::Groups;
        let mut parts = Vec::new();
        match from {
            i64::MIN if to < -1 => return Err(refused()),
            i64::MIN => parts.push(Part::Frame(groups, from, -1)),
            _ => parts.extend((from..=to.min(-1)).take(ROWS_MAX + 1).map(Part::Unlike)),
        }
        if self == Self::Ties && from <= 0 && to >= 0 {
            parts.push(ITSELF);
        }
        match to {
            i64::MAX if from > 1 => return Err(refused()),
            i64::MAX => parts.push(Part::Frame(groups, 1, to)),
            _ => parts.extend((from.max(1)..=to).take(ROWS_MAX + 1).map(Part::Unlike)),
        }
        if parts.len() > ROWS_MAX {
            return Err(refused());
        }
        Ok(parts)
    }
}

/// Most rows of a frame of which each is looked at by itself.
const ROWS_MAX: usize = 16;

/// A part of what is left of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Rows or groups from one place to another.
    Frame(WindowFrameUnits, i64, i64),
    /// Rows among those that are equal to the row at hand.
    Equal(i64, i64),
    /// The row at a place, if it is not equal to the row at hand.
    Unlike(i64),
}

/// The row at hand.
const ITSELF: Part = Part::Frame(WindowFrameUnits::Rows, 0, 0);

/// A frame with others in the place of the row or group at hand; the frame itself where that is not in it.
fn around(units: WindowFrameUnits, from: i64, to: i64, instead: &[Part]) -> Vec<Part> {
    if from > 0 || to < 0 {
        return vec![Part::Frame(units, from, to)];
    }
    let before = (from < 0).then_some(Part::Frame(units, from, -1));
    let behind = (to > 0).then_some(Part::Frame(units, 1, to));
    before.into_iter().chain(instead.iter().copied()).chain(behind).collect()
}

fn refused() -> Error {
    unsupported(format!(
        "`EXCLUDE CURRENT ROW` goes with `ROWS`, `GROUPS`, or a `RANGE` whose ends are no values, `EXCLUDE GROUP` and `EXCLUDE TIES` \
         with these where `ROWS` are all before or behind the row at hand, or {ROWS_MAX} at most: otherwise join the rows"
    ))
}

/// A call over a part of a frame.
struct Over {
    call: Function,
    /// Whether its row counts.
    condition: Option<String>,
}

impl Over {
    /// What it gives; `none` if its row does not count.
    fn text(&self, none: &str) -> String {
        match &self.condition {
            None => self.call.to_string(),
            Some(condition) => format!("CASE WHEN {condition} THEN {} ELSE {none} END", self.call),
        }
    }
}

/// A call, by another name if there is one, over a part of a frame of its window.
fn over(function: &Function, name: Option<&str>, window: &WindowSpec, part: Part) -> Over {
    let (mut call, mut window) = (function.clone(), window.clone());
    if let Some(name) = name {
        call.name = ObjectName::from(vec![Ident::new(name)]);
    }
    let (mut condition, rows) = (None, WindowFrameUnits::Rows);
    let (units, from, to) = match part {
        Part::Frame(units, from, to) => (units, from, to),
        Part::Equal(from, to) => {
            window.partition_by.extend(window.order_by.drain(..).map(|key| key.expr));
            (rows, from, to)
        }
        Part::Unlike(at) => {
            let shift = if at < 0 { "lag" } else { "lead" };
            let unlike = |key: &OrderByExpr| {
                format!("({shift}({0}, {1}) OVER ({window}) IS DISTINCT FROM ({0}))", key.expr, at.unsigned_abs())
            };
            condition = Some(window.order_by.iter().map(unlike).collect::<Vec<_>>().join(" OR "));
            (rows, at, at)
        }
    };
    window.window_frame = Some(WindowFrame { units, start_bound: bound(from), end_bound: Some(bound(to)) });
    call.over = Some(WindowType::WindowSpec(window));
    Over { call, condition }
}

/// A call over such a window.
///
/// # Errors
/// Unsupported: a frame, or a function, that is not put together of others. Limit exceeded: it is too long for copies.
pub(super) fn translate(function: &Function) -> Result<Option<Expr>> {
    let Some(WindowType::WindowSpec(window)) = &function.over else { return Ok(None) };
    let Some(left) = Left::of(window) else { return Ok(None) };
    let mut window = window.clone();
    window.window_name = None;
    let Some(frame) = window.window_frame.take() else { return Ok(None) };
    if bare(&function.name).is_some_and(|name| FRAMELESS.contains(&name.as_str())) {
        let mut call = function.clone();
        call.over = Some(WindowType::WindowSpec(window));
        return Ok(Some(Expr::Function(call)));
    }
    let end = frame.end_bound.unwrap_or(WindowFrameBound::CurrentRow);
    let (Some(from), Some(to)) = (place(&frame.start_bound), place(&end)) else {
        return Err(unsupported("`EXCLUDE` in the frame of a window whose ends are no whole numbers"));
    };
    let parts = left.parts(frame.units, (from, to), !window.order_by.is_empty())?;
    if let [one @ (Part::Frame(..) | Part::Equal(..))] = parts.as_slice() {
        return Ok(Some(Expr::Function(over(function, None, &window, *one).call)));
    }
    let times = match parts.len() {
        0..=2 => 6,
        3 => 13,
        several => 6 * several,
    };
    // Whether a row counts is said with the window once for each key.
    let is_unlike = parts.iter().any(|part| matches!(part, Part::Unlike(_)));
    let keys = if is_unlike { 1 + window.order_by.len() } else { 1 };
    operators::copied(&Expr::Function(function.clone()), times * keys)?;
    together(function, |name| match parts.as_slice() {
        [] => vec![Over { condition: Some("false".to_owned()), ..over(function, name, &window, ITSELF) }],
        parts => parts.iter().map(|part| over(function, name, &window, *part)).collect(),
    })
}

/// Functions that go by partitions and their order, whatever the frame.
const FRAMELESS: [&str; 8] = ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"];

/// What a function gives of several parts of a frame, by what it, or another one, gives of each.
fn together(function: &Function, of: impl Fn(Option<&str>) -> Vec<Over>) -> Result<Option<Expr>> {
    let name = bare(&function.name).unwrap_or_default();
    let refused = || {
        unsupported(format!(
            "`{name}` over the frame of a window with `EXCLUDE`: `count`, `sum`, `avg`, `min`, `max`, `bool_and`, `bool_or`, \
             `first_value` and `last_value` are known, without `DISTINCT`, `ORDER BY` and `IGNORE NULLS`"
        ))
    };
    let is_plain = match &function.args {
        FunctionArguments::List(list) => {
            list.clauses.is_empty() && list.duplicate_treatment != Some(DuplicateTreatment::Distinct)
        }
        _ => false,
    };
    if !is_plain || function.null_treatment.is_some() || !function.within_group.is_empty() {
        return Err(refused());
    }
    let texts = |calls: &[Over], none: &str| calls.iter().map(|call| call.text(none)).collect::<Vec<_>>();
    let counted = |calls: &[Over]| texts(calls, "0").join(" + ");
    let calls = of(None);
    let given = texts(&calls, "NULL");
    let most =
        |name: &str| if let [one] = given.as_slice() { one.clone() } else { format!("{name}({})", given.join(", ")) };
    let sql = match name.as_str() {
        "count" => format!("({})", counted(&calls)),
        "sum" => of_some(&given, "+", "0"),
        "min" => most("least"),
        "max" => most("greatest"),
        "bool_and" | "every" => of_some(&given, "AND", "TRUE"),
        "bool_or" => of_some(&given, "OR", "FALSE"),
        "avg" => {
            let sums = of_some(&texts(&of(Some("sum")), "NULL"), "+", "0");
            format!("(1.0 * {sums} / nullif({}, 0))", counted(&of(Some("count"))))
        }
        "first_value" if function.filter.is_none() => first_of(calls.iter()),
        "last_value" if function.filter.is_none() => first_of(calls.iter().rev()),
        _ => return Err(refused()),
    };
    expr(&sql).map(Some)
}

/// Most values that are put together by writing out which of them are there.
const WRITTEN_MAX: usize = 3;

/// Values put together by an operator, those left out that are NULL; `none` changes nothing.
fn of_some(given: &[String], op: &str, none: &str) -> String {
    if given.len() <= WRITTEN_MAX {
        let both = |all: String, next: String| format!("coalesce({all} {op} {next}, {all}, {next})");
        return given.iter().cloned().reduce(both).unwrap_or_default();
    }
    let all = given.iter().map(|value| format!("coalesce({value}, {none})")).collect::<Vec<_>>();
    format!("CASE WHEN coalesce({}) IS NOT NULL THEN {} END", given.join(", "), all.join(&format!(" {op} ")))
}

/// What the first of some calls gives whose part of the frame has rows; none: NULL.
fn first_of<'c>(mut calls: impl DoubleEndedIterator<Item = &'c Over>) -> String {
    let Some(last) = calls.next_back() else { return String::new() };
    let arm = |one: &Over| {
        let rows = one.call.over.as_ref().map_or_else(String::new, |over| format!("count(*) OVER {over}"));
        let condition = one.condition.as_ref().map_or_else(String::new, |condition| format!("({condition}) AND "));
        format!("WHEN {condition}{rows} > 0 THEN {}", one.call)
    };
    let arms = calls.map(arm).collect::<Vec<_>>();
    if arms.is_empty() { last.text("NULL") } else { format!("CASE {} ELSE {} END", arms.join(" "), last.text("NULL")) }
}

/// How many rows or groups a bound is behind the row at hand; none: it is no number.
fn place(bound: &WindowFrameBound) -> Option<i64> {
    let rows = |count: &Expr| match count {
        Expr::Value(value) => match &value.value {
            Value::Number(count, _) => count.parse::<u32>().ok().map(i64::from),
            _ => None,
        },
        _ => None,
    };
    match bound {
        WindowFrameBound::CurrentRow => Some(0),
        WindowFrameBound::Preceding(None) => Some(i64::MIN),
        WindowFrameBound::Following(None) => Some(i64::MAX),
        WindowFrameBound::Preceding(Some(count)) => rows(count).map(|count| -count),
        WindowFrameBound::Following(Some(count)) => rows(count),
    }
}

/// The bound at a place.
fn bound(place: i64) -> WindowFrameBound {
    match place {
        0 => WindowFrameBound::CurrentRow,
        i64::MIN => WindowFrameBound::Preceding(None),
        i64::MAX => WindowFrameBound::Following(None),
        before if before < 0 => WindowFrameBound::Preceding(Some(Box::new(number(-before)))),
        behind => WindowFrameBound::Following(Some(Box::new(number(behind)))),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr};

    use super::*;
    use crate::parse::{Params, Parsed, parse};

    fn translated(call: &str) -> Result<String> {
        let statement = parse(&format!("select {call} from t"), &Params::default()).expect(call).statement;
        let Parsed::Query(query) = statement else { panic!("no query: {call}") };
        let SetExpr::Select(select) = &*query.body else { panic!("no select: {call}") };
        let Some(SelectItem::UnnamedExpr(Expr::Function(function))) = select.projection.first() else {
            panic!("no call: {call}")
        };
        Ok(translate(function)?.map_or_else(|| "none".to_owned(), |found| found.to_string()))
    }

    #[test]
    fn frames_are_divided_at_the_row() {
        let check = |frame: &str, expected: &str| {
            let found = translated(&format!("count(a) over (partition by b order by c {frame})")).expect(frame);
            let over = |units: &str| format!("count(a) OVER (PARTITION BY b ORDER BY c {units} BETWEEN ");
            let expected = expected.replace("rows ", &over("ROWS")).replace("groups ", &over("GROUPS"));
            assert_eq!(found, expected, "{frame}");
        };
        check(
            "rows between 2 preceding and 3 following exclude current row",
            "(rows 2 PRECEDING AND 1 PRECEDING) + rows 1 FOLLOWING AND 3 FOLLOWING))",
        );
        check("rows unbounded preceding exclude current row", "rows UNBOUNDED PRECEDING AND 1 PRECEDING)");
        check("rows between current row and 1 following exclude current row", "rows 1 FOLLOWING AND 1 FOLLOWING)");
        check("rows between 3 preceding and 2 preceding exclude current row", "rows 3 PRECEDING AND 2 PRECEDING)");
        check("rows between 1 following and 2 following exclude current row", "rows 1 FOLLOWING AND 2 FOLLOWING)");
        let whole = "(rows UNBOUNDED PRECEDING AND 1 PRECEDING) + rows 1 FOLLOWING AND UNBOUNDED FOLLOWING))";
        for units in ["rows", "range", "groups"] {
            let between = format!("{units} between unbounded preceding and unbounded following exclude");
            check(&format!("{between} current row"), whole);
            check(&format!("{between} group"), &whole.replace("rows ", "groups "));
        }
        check(
            "groups between 1 preceding and 1 following exclude group",
            "(groups 1 PRECEDING AND 1 PRECEDING) + groups 1 FOLLOWING AND 1 FOLLOWING))",
        );
        check(
            "groups between 1 preceding and 1 following exclude ties",
            "(groups 1 PRECEDING AND 1 PRECEDING) + rows CURRENT ROW AND CURRENT ROW) + groups 1 FOLLOWING AND 1 FOLLOWING))",
        );
        // To a range without values rows are of groups.
        check("range unbounded preceding exclude group", "groups UNBOUNDED PRECEDING AND 1 PRECEDING)");
        check(
            "range unbounded preceding exclude ties",
            "(groups UNBOUNDED PRECEDING AND 1 PRECEDING) + rows CURRENT ROW AND CURRENT ROW))",
        );
        check("groups current row exclude ties", "rows CURRENT ROW AND CURRENT ROW)");
        check("rows unbounded preceding exclude group", "groups UNBOUNDED PRECEDING AND 1 PRECEDING)");
        check(
            "groups between 1 preceding and 1 following exclude current row",
            "(groups 1 PRECEDING AND 1 PRECEDING) + count(a) OVER (PARTITION BY b, c ROWS BETWEEN UNBOUNDED PRECEDING AND 1 \
             PRECEDING) + count(a) OVER (PARTITION BY b, c ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) + groups 1 \
             FOLLOWING AND 1 FOLLOWING))",
        );
        check("groups between 2 following and 3 following exclude ties", "groups 2 FOLLOWING AND 3 FOLLOWING)");
        assert_eq!(translated("count(a) over (rows 1 preceding)").unwrap(), "none");
        // Without an order all rows are equal.
        for frame in ["rows 1 preceding", "range unbounded preceding"] {
            let found = translated(&format!("stddev(a) over (partition by b {frame} exclude ties)")).expect(frame);
            assert_eq!(found, "stddev(a) OVER (PARTITION BY b ROWS BETWEEN CURRENT ROW AND CURRENT ROW)");
        }
    }

    #[test]
    fn rows_count_that_are_not_equal() {
        let check = |frame: &str, expected: &str| {
            let found = translated(&format!("count(a) over (order by c {frame})")).expect(frame);
            let expected = expected
                .replace("rows ", "count(a) OVER (ORDER BY c ROWS BETWEEN ")
                .replace("groups ", "count(a) OVER (ORDER BY c GROUPS BETWEEN ")
                .replace("unlike ", "OVER (ORDER BY c) IS DISTINCT FROM (c)) THEN ");
            assert_eq!(found, expected, "{frame}");
        };
        let before = "CASE WHEN (lag(c, 1) unlike rows 1 PRECEDING AND 1 PRECEDING) ELSE 0 END";
        let behind = "CASE WHEN (lead(c, 1) unlike rows 1 FOLLOWING AND 1 FOLLOWING) ELSE 0 END";
        let own = "rows CURRENT ROW AND CURRENT ROW)";
        let near = "rows between 1 preceding and 1 following exclude";
        check(&format!("{near} group"), &format!("({before} + {behind})"));
        check(&format!("{near} ties"), &format!("({before} + {own} + {behind})"));
        check("rows 1 preceding exclude group", &format!("({before})"));
        check(
            "rows between 2 preceding and 1 preceding exclude ties",
            &format!("(CASE WHEN (lag(c, 2) unlike rows 2 PRECEDING AND 2 PRECEDING) ELSE 0 END + {before})"),
        );
        check(
            "rows between unbounded preceding and 1 following exclude ties",
            &format!("(groups UNBOUNDED PRECEDING AND 1 PRECEDING) + {own} + {behind})"),
        );
        check(
            "rows between 1 following and unbounded following exclude ties",
            "groups 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
        );
        let two = translated("max(a) over (order by b, c desc rows 1 preceding exclude group)").expect("two keys");
        assert_eq!(
            two,
            "CASE WHEN (lag(b, 1) OVER (ORDER BY b, c DESC) IS DISTINCT FROM (b)) OR (lag(c, 1) OVER (ORDER BY b, c DESC) IS \
             DISTINCT FROM (c)) THEN max(a) OVER (ORDER BY b, c DESC ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING) ELSE NULL END"
        );
        let several = translated("sum(a) over (order by c rows between 4 preceding and 1 preceding exclude group)");
        let several = several.expect("four rows");
        assert!(several.starts_with("CASE WHEN coalesce(CASE WHEN (lag(c, 4) OVER"), "{several}");
        assert!(several.contains("IS NOT NULL THEN coalesce(CASE WHEN (lag(c, 4) OVER"), "{several}");
    }

    #[test]
    fn frames_without_rows_and_functions_without_frames() {
        let own = "OVER (ROWS BETWEEN CURRENT ROW AND CURRENT ROW)";
        for (call, expected) in [
            (
                "count(*) over (rows current row exclude current row)",
                format!("(CASE WHEN false THEN count(*) {own} ELSE 0 END)"),
            ),
            (
                "sum(a) over (rows 1 preceding exclude group)",
                format!("CASE WHEN false THEN sum(a) {own} ELSE NULL END"),
            ),
            (
                "last_value(a) over (rows between 1 following and 2 following exclude ties)",
                format!("CASE WHEN false THEN last_value(a) {own} ELSE NULL END"),
            ),
            ("rank() over (order by c rows 30 preceding exclude ties)", "rank() OVER (ORDER BY c)".to_owned()),
        ] {
            assert_eq!(translated(call).expect(call), expected);
        }
    }

    #[test]
    fn functions_are_put_together() {
        let window = "(ORDER BY c ROWS BETWEEN ";
        for (call, expected) in [
            ("sum(a)", "coalesce(sum(a) OVER A + sum(a) OVER B, sum(a) OVER A, sum(a) OVER B)"),
            ("min(a)", "least(min(a) OVER A, min(a) OVER B)"),
            ("max(a) filter (where b)", "greatest(max(a) FILTER (WHERE b) OVER A, max(a) FILTER (WHERE b) OVER B)"),
            ("bool_or(a)", "coalesce(bool_or(a) OVER A OR bool_or(a) OVER B, bool_or(a) OVER A, bool_or(a) OVER B)"),
            (
                "avg(a)",
                "(1.0 * coalesce(sum(a) OVER A + sum(a) OVER B, sum(a) OVER A, sum(a) OVER B) / \
                 nullif(count(a) OVER A + count(a) OVER B, 0))",
            ),
            (
                "first_value(a)",
                "CASE WHEN count(*) OVER A > 0 THEN first_value(a) OVER A ELSE first_value(a) OVER B END",
            ),
            ("last_value(a)", "CASE WHEN count(*) OVER B > 0 THEN last_value(a) OVER B ELSE last_value(a) OVER A END"),
        ] {
            let frame = "rows between 1 preceding and 1 following exclude current row";
            let found = translated(&format!("{call} over (order by c {frame})")).expect(call);
            let found = found
                .replace(&format!("{window}1 PRECEDING AND 1 PRECEDING)"), "A")
                .replace(&format!("{window}1 FOLLOWING AND 1 FOLLOWING)"), "B");
            assert_eq!(found, expected, "{call}");
        }
    }

    #[test]
    fn three_frames_are_put_together() {
        for (call, expected) in [
            ("max(a)", "greatest(max(a) OVER A, max(a) OVER B, max(a) OVER C)"),
            (
                "sum(a)",
                "coalesce(coalesce(sum(a) OVER A + sum(a) OVER B, sum(a) OVER A, sum(a) OVER B) + sum(a) OVER C, \
                 coalesce(sum(a) OVER A + sum(a) OVER B, sum(a) OVER A, sum(a) OVER B), sum(a) OVER C)",
            ),
            (
                "last_value(a)",
                "CASE WHEN count(*) OVER C > 0 THEN last_value(a) OVER C WHEN count(*) OVER B > 0 THEN last_value(a) OVER B \
                 ELSE last_value(a) OVER A END",
            ),
        ] {
            let frame = "groups between 1 preceding and 1 following exclude ties";
            let found = translated(&format!("{call} over (order by c {frame})")).expect(call);
            let found = found
                .replace("(ORDER BY c GROUPS BETWEEN 1 PRECEDING AND 1 PRECEDING)", "A")
                .replace("(ORDER BY c ROWS BETWEEN CURRENT ROW AND CURRENT ROW)", "B")
                .replace("(ORDER BY c GROUPS BETWEEN 1 FOLLOWING AND 1 FOLLOWING)", "C");
            assert_eq!(found, expected, "{call}");
        }
    }

    #[test]
    fn others_are_refused() {
        for (call, part) in [
            ("stddev(a) over (order by c rows between 1 preceding and 1 following exclude current row)", "`stddev`"),
            ("sum(distinct a) over (rows between 1 preceding and 1 following exclude current row)", "`DISTINCT`"),
            ("sum(a) over (order by c range between 1 preceding and 1 following exclude current row)", "`ROWS`"),
            ("sum(a) over (order by c rows between 20 preceding and 1 following exclude group)", "16 at most"),
            ("sum(a) over (order by c rows between unbounded preceding and 2 preceding exclude ties)", "`ROWS`"),
            ("sum(a) over (order by c rows between 2 following and unbounded following exclude group)", "`ROWS`"),
            ("stddev(a) over (order by c rows 1 preceding exclude group)", "`stddev`"),
            ("sum(a) over (order by c range between 1 preceding and 1 following exclude ties)", "`RANGE`"),
            ("stddev(a) over (order by c groups between 1 preceding and 1 following exclude ties)", "`stddev`"),
            ("sum(a) over (rows between 1 preceding and b following exclude current row)", "whole numbers"),
            ("row_count(a) over (rows between current row and current row exclude current row)", "`row_count`"),
        ] {
            let error = translated(call).unwrap_err();
            assert!(error.message.contains(part), "{call}: {error}");
        }
    }
}
