//! Frames of windows that leave the row at hand out (`EXCLUDE CURRENT ROW`), or those that are equal to it in order (`EXCLUDE
//! GROUP`). The planner has no such frames: what stands before the row and what stands behind it are two, and what a
//! function gives of both is put together.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArguments, Ident, ObjectName, Value, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use quiver_types::Result;

use super::{bare, expr, number, operators, queries};
use crate::wording::{WITHOUT_GROUP, WITHOUT_ROW};

/// Whether a window is marked as one that leaves rows out.
fn is_marked(window: &WindowSpec) -> bool {
    window.window_name.as_ref().is_some_and(|name| [WITHOUT_ROW, WITHOUT_GROUP].contains(&name.value.as_str()))
}

/// A call over such a window.
///
/// # Errors
/// Unsupported: a frame, or a function, that is not put together of two. Limit exceeded: it is too long for copies.
pub(super) fn translate(function: &Function) -> Result<Option<Expr>> {
    let Some(WindowType::WindowSpec(window)) = function.over.as_ref().filter(|over| marked(over)) else {
        return Ok(None);
    };
    let mut window = window.clone();
    let is_row = window.window_name.take().is_some_and(|name| name.value == WITHOUT_ROW);
    let Some(frame) = window.window_frame.take() else { return Ok(None) };
    let end = frame.end_bound.unwrap_or(WindowFrameBound::CurrentRow);
    let (Some(from), Some(to)) = (place(&frame.start_bound), place(&end)) else {
        return Err(queries::unsupported("`EXCLUDE` in the frame of a window whose ends are no whole numbers"));
    };
    let is_whole = (from, to) == (i64::MIN, i64::MAX);
    let units = match (is_row, frame.units) {
        (true, WindowFrameUnits::Rows) => WindowFrameUnits::Rows,
        (true, _) if is_whole => WindowFrameUnits::Rows,
        (false, WindowFrameUnits::Groups) => WindowFrameUnits::Groups,
        (false, _) if is_whole && !window.order_by.is_empty() => WindowFrameUnits::Groups,
        _ => {
            return Err(queries::unsupported(
                "`EXCLUDE CURRENT ROW` goes with `ROWS`, and `EXCLUDE GROUP` with `GROUPS` or a whole ordered partition: \
                 otherwise join the rows",
            ));
        }
    };
    let over = |name: Option<&str>, from: i64, to: i64| {
        let mut call = function.clone();
        if let Some(name) = name {
            call.name = ObjectName::from(vec![Ident::new(name)]);
        }
        let mut window = window.clone();
        window.window_frame = Some(WindowFrame { units, start_bound: bound(from), end_bound: Some(bound(to)) });
        call.over = Some(WindowType::WindowSpec(window));
        call
    };
    match (from < 0 && to >= 0, to > 0 && from <= 0) {
        (true, true) => {}
        (true, false) => return Ok(Some(Expr::Function(over(None, from, -1)))),
        (false, true) => return Ok(Some(Expr::Function(over(None, 1, to)))),
        (false, false) if from == 0 && to == 0 => {
            return Err(queries::unsupported("`EXCLUDE` in the frame of a window that leaves no rows"));
        }
        // The row is not in it.
        (false, false) => return Ok(Some(Expr::Function(over(None, from, to)))),
    }
    operators::copied(&Expr::Function(function.clone()), 6)?;
    both(function, |name| (over(name, from, -1), over(name, 1, to)))
}

fn marked(over: &WindowType) -> bool {
    matches!(over, WindowType::WindowSpec(window) if is_marked(window))
}

/// What a function gives of two frames, by what it, or another one, gives of each.
fn both(function: &Function, of: impl Fn(Option<&str>) -> (Function, Function)) -> Result<Option<Expr>> {
    let name = bare(&function.name).unwrap_or_default();
    let refused = || {
        queries::unsupported(format!(
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
    let (before, behind) = of(None);
    let of_some = |op: &str, (before, behind): &(Function, Function)| {
        format!("coalesce({before} {op} {behind}, {before}, {behind})")
    };
    let rows = |call: &Function| call.over.as_ref().map_or_else(String::new, |over| format!("count(*) OVER {over}"));
    let sql = match name.as_str() {
        "count" => format!("({before} + {behind})"),
        "sum" => of_some("+", &(before, behind)),
        "min" => format!("least({before}, {behind})"),
        "max" => format!("greatest({before}, {behind})"),
        "bool_and" | "every" => of_some("AND", &(before, behind)),
        "bool_or" => of_some("OR", &(before, behind)),
        "avg" => {
            let (first, second) = of(Some("count"));
            format!("(1.0 * {} / nullif({first} + {second}, 0))", of_some("+", &of(Some("sum"))))
        }
        "first_value" if function.filter.is_none() => {
            format!("CASE WHEN {} > 0 THEN {before} ELSE {behind} END", rows(&before))
        }
        "last_value" if function.filter.is_none() => {
            format!("CASE WHEN {} > 0 THEN {behind} ELSE {before} END", rows(&behind))
        }
        _ => return Err(refused()),
    };
    expr(&sql).map(Some)
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
        assert_eq!(translated("count(a) over (rows 1 preceding)").unwrap(), "none");
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
    fn others_are_refused() {
        for (call, part) in [
            ("stddev(a) over (order by c rows between 1 preceding and 1 following exclude current row)", "`stddev`"),
            ("sum(distinct a) over (rows between 1 preceding and 1 following exclude current row)", "`DISTINCT`"),
            ("sum(a) over (order by c range between 1 preceding and 1 following exclude current row)", "`ROWS`"),
            ("sum(a) over (order by c rows between 1 preceding and 1 following exclude group)", "`GROUPS`"),
            ("sum(a) over (rows between 1 preceding and b following exclude current row)", "whole numbers"),
            ("sum(a) over (rows between current row and current row exclude current row)", "no rows"),
        ] {
            let error = translated(call).unwrap_err();
            assert!(error.message.contains(part), "{call}: {error}");
        }
    }
}
