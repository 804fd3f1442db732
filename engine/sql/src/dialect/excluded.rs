//! Frames of windows that leave the row at hand out (`EXCLUDE CURRENT ROW`), those that are equal to it in order (`EXCLUDE
//! GROUP`), or these but for the row itself (`EXCLUDE TIES`). The planner has no such frames: what stands before the row,
//! the row where it is left, and what stands behind it are frames of their own, and what a function gives of each is put
//! together.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArguments, Ident, ObjectName, Value, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use quiver_types::Result;

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

    /// The units in which the frame is divided: what is left out is one of them.
    ///
    /// # Errors
    /// Unsupported: it is not divided in such units.
    fn units(self, units: WindowFrameUnits, (from, to): (i64, i64), is_ordered: bool) -> Result<WindowFrameUnits> {
        let is_whole = (from, to) == (i64::MIN, i64::MAX);
        // To a range that ends at no value the rows of a group are one, as they are to groups.
        let by_groups = [from, to].iter().all(|place| [i64::MIN, 0, i64::MAX].contains(place));
        let by_rows = WindowFrameUnits::Rows;
        match (self, units) {
            (Self::Row, WindowFrameUnits::Rows) => Ok(by_rows),
            (Self::Row, _) if is_whole => Ok(by_rows),
            (Self::Group | Self::Ties, WindowFrameUnits::Groups) => Ok(WindowFrameUnits::Groups),
            (Self::Group | Self::Ties, WindowFrameUnits::Range) if by_groups && is_ordered => {
                Ok(WindowFrameUnits::Groups)
            }
            (Self::Group | Self::Ties, _) if is_whole && is_ordered => Ok(WindowFrameUnits::Groups),
            _ => Err(unsupported(
                "`EXCLUDE CURRENT ROW` goes with `ROWS` or a whole partition, `EXCLUDE GROUP` and `EXCLUDE TIES` with `GROUPS`, an \
                 ordered `RANGE` whose ends are no values, or a whole ordered partition: otherwise join the rows",
            )),
        }
    }
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
    let end = frame.end_bound.unwrap_or(WindowFrameBound::CurrentRow);
    let (Some(from), Some(to)) = (place(&frame.start_bound), place(&end)) else {
        return Err(unsupported("`EXCLUDE` in the frame of a window whose ends are no whole numbers"));
    };
    let (rows, is_within, is_ordered) = (WindowFrameUnits::Rows, from <= 0 && to >= 0, !window.order_by.is_empty());
    // The frames that are left, in their order.
    let mut frames = Vec::new();
    if left == Left::Ties && !is_ordered && frame.units != WindowFrameUnits::Groups && is_within {
        // All rows of a partition without an order are equal.
        frames.push((rows, 0, 0));
    } else if is_within {
        let units = left.units(frame.units, (from, to), is_ordered)?;
        frames.extend((from < 0).then_some((units, from, -1)));
        frames.extend((left == Left::Ties).then_some((rows, 0, 0)));
        frames.extend((to > 0).then_some((units, 1, to)));
    } else {
        // The row is not in it.
        frames.push((left.units(frame.units, (from, to), is_ordered)?, from, to));
    }
    let over = |name: Option<&str>, (units, from, to): (WindowFrameUnits, i64, i64)| {
        let mut call = function.clone();
        if let Some(name) = name {
            call.name = ObjectName::from(vec![Ident::new(name)]);
        }
        let mut window = window.clone();
        window.window_frame = Some(WindowFrame { units, start_bound: bound(from), end_bound: Some(bound(to)) });
        call.over = Some(WindowType::WindowSpec(window));
        call
    };
    match frames.as_slice() {
        [] => Err(unsupported("`EXCLUDE` in the frame of a window that leaves no rows")),
        [one] => Ok(Some(Expr::Function(over(None, *one)))),
        several => {
            operators::copied(&Expr::Function(function.clone()), if several.len() > 2 { 13 } else { 6 })?;
            together(function, |name| several.iter().map(|frame| over(name, *frame)).collect())
        }
    }
}

/// What a function gives of several frames, by what it, or another one, gives of each.
fn together(function: &Function, of: impl Fn(Option<&str>) -> Vec<Function>) -> Result<Option<Expr>> {
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
    let of_some = |op: &str, calls: &[Function]| {
        let texts = calls.iter().map(Function::to_string);
        texts.reduce(|all, next| format!("coalesce({all} {op} {next}, {all}, {next})")).unwrap_or_default()
    };
    let listed =
        |calls: &[Function], between: &str| calls.iter().map(Function::to_string).collect::<Vec<_>>().join(between);
    let calls = of(None);
    let sql = match name.as_str() {
        "count" => format!("({})", listed(&calls, " + ")),
        "sum" => of_some("+", &calls),
        "min" => format!("least({})", listed(&calls, ", ")),
        "max" => format!("greatest({})", listed(&calls, ", ")),
        "bool_and" | "every" => of_some("AND", &calls),
        "bool_or" => of_some("OR", &calls),
        "avg" => {
            let counts = listed(&of(Some("count")), " + ");
            format!("(1.0 * {} / nullif({counts}, 0))", of_some("+", &of(Some("sum"))))
        }
        "first_value" if function.filter.is_none() => first_of(calls.iter()),
        "last_value" if function.filter.is_none() => first_of(calls.iter().rev()),
        _ => return Err(refused()),
    };
    expr(&sql).map(Some)
}

/// What the first of some calls gives whose frame has rows, or else the last one.
fn first_of<'c>(mut calls: impl DoubleEndedIterator<Item = &'c Function>) -> String {
    let Some(last) = calls.next_back() else { return String::new() };
    let arm = |call: &Function| {
        let rows = call.over.as_ref().map_or_else(String::new, |over| format!("count(*) OVER {over}"));
        format!("WHEN {rows} > 0 THEN {call}")
    };
    format!("CASE {} ELSE {last} END", calls.map(arm).collect::<Vec<_>>().join(" "))
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
        check("groups between 2 following and 3 following exclude ties", "groups 2 FOLLOWING AND 3 FOLLOWING)");
        assert_eq!(translated("count(a) over (rows 1 preceding)").unwrap(), "none");
        // Without an order all rows are equal.
        for frame in ["rows 1 preceding", "range unbounded preceding"] {
            let found = translated(&format!("stddev(a) over (partition by b {frame} exclude ties)")).expect(frame);
            assert_eq!(found, "stddev(a) OVER (PARTITION BY b ROWS BETWEEN CURRENT ROW AND CURRENT ROW)");
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
            ("sum(a) over (order by c rows between 1 preceding and 1 following exclude group)", "`GROUPS`"),
            ("sum(a) over (order by c rows between 1 preceding and 1 following exclude ties)", "`GROUPS`"),
            ("sum(a) over (order by c range between 1 preceding and 1 following exclude ties)", "`RANGE`"),
            ("stddev(a) over (order by c groups between 1 preceding and 1 following exclude ties)", "`stddev`"),
            ("sum(a) over (rows between 1 following and 2 following exclude ties)", "`GROUPS`"),
            ("sum(a) over (rows between 1 preceding and b following exclude current row)", "whole numbers"),
            ("sum(a) over (rows between current row and current row exclude current row)", "no rows"),
        ] {
            let error = translated(call).unwrap_err();
            assert!(error.message.contains(part), "{call}: {error}");
        }
    }
}
