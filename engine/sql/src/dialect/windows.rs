//! Windows. Those with a name are written out where it stands: the planner looks names up among outputs alone, and reads
//! `OVER (w ORDER BY x)` as `OVER (ORDER BY x)`.
//!
//! Aggregates over frames whose beginning moves on (`ROWS BETWEEN 1 PRECEDING AND …`): some of DataFusion's cannot leave a
//! row out again, and others that can give the same. Frames that leave rows out by themselves (`EXCLUDE TIES`, which is a key
//! of their partitions here) are each made anew.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    NamedWindowDefinition, NamedWindowExpr, ObjectName, OrderBy, Query, Select, UnaryOperator, Value, VisitorMut,
    WindowFrame, WindowFrameBound, WindowSpec, WindowType,
};
use quiver_types::{Error, ErrorKind, Result};

use super::collecting_aggregates;
use super::expressions::{arguments, bare, copied, expr, is_null, literal, take};
use crate::error::unsupported;
use crate::names::normal;
use crate::statement_walk::{counts_depth, look_outside_subqueries, refused, selects, walk_mut};

/// The most bytes that named windows may add to a statement when they are written out.
const NAMED_BYTES_MAX: usize = 64 << 10;

/// Replaces names of windows in a query by their definitions.
///
/// # Errors
///
/// Invalid: there is no window of a name, or a definition cannot extend the window that it names. Limit exceeded: the
/// statement would grow too long.
pub(super) fn written_out(query: &mut Query) -> Result<()> {
    selects(query, of_select)
}

/// Refuses window functions in `WHERE`, `GROUP BY` and `HAVING`, which determine the rows that windows see.
///
/// # Errors
///
/// Invalid.
pub(super) fn none_in_where(select: &Select) -> Result<()> {
    let is_window = |e: &Expr| matches!(e, Expr::Function(function) if function.over.is_some());
    let mut clause = None;
    look_outside_subqueries(&select.group_by, |e| clause = clause.or(is_window(e).then_some("GROUP BY")));
    look_outside_subqueries(&select.having, |e| clause = clause.or(is_window(e).then_some("HAVING")));
    look_outside_subqueries(&select.selection, |e| clause = clause.or(is_window(e).then_some("WHERE")));
    match clause {
        None => Ok(()),
        Some(clause) => {
            let text = format!("window functions are not allowed in `{clause}`: compute them in a subquery");
            Err(Error::invalid(text))
        }
    }
}

fn of_select(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    let mut windows = Windows::default();
    for NamedWindowDefinition(name, window) in std::mem::take(&mut select.named_window) {
        let spec = match window {
            NamedWindowExpr::WindowSpec(mut spec) => {
                windows.complete(&mut spec)?;
                spec
            }
            NamedWindowExpr::NamedWindow(other) => windows.find(&other)?,
        };
        let name = normal(&name);
        if windows.known.iter().any(|(known, _)| *known == name) {
            return Err(Error::invalid(format!("there are several windows `{name}`")));
        }
        windows.known.push((name, spec));
    }
    let mut done = walk_mut(select, &mut windows);
    if let Some(order) = order
        && done.is_continue()
    {
        done = walk_mut(order, &mut windows);
    }
    match done {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The named windows of a select.
#[derive(Default)]
struct Windows {
    /// The windows that are defined so far, with the windows that they extend already merged in.
    known: Vec<(String, WindowSpec)>,
    /// Bytes that they have added to the statement.
    bytes: usize,
    /// How many queries enclose the visited place: they have windows of their own.
    depth: usize,
}

impl Windows {
    /// The definition of a named window.
    fn find(&mut self, name: &Ident) -> Result<WindowSpec> {
        let own = normal(name);
        let Some((_, spec)) = self.known.iter().find(|(known, _)| *known == own) else {
            return Err(Error::invalid(format!("there is no window `{own}`")));
        };
        self.bytes += spec.to_string().len();
        if self.bytes > NAMED_BYTES_MAX {
            let text =
                format!("windows with names add {NAMED_BYTES_MAX} bytes to a statement at most: write shorter ones");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(spec.clone())
    }

    /// Merges the window that a definition extends into it.
    fn complete(&mut self, spec: &mut WindowSpec) -> Result<()> {
        let Some(name) = spec.window_name.take() else { return Ok(()) };
        let base = self.find(&name)?;
        let (left_out, own): (Vec<_>, Vec<_>) =
            std::mem::take(&mut spec.partition_by).into_iter().partition(leaves_out);
        let clash = if base.window_frame.is_some() {
            "has a frame: write `OVER` and its name alone"
        } else if !own.is_empty() {
            "says how rows are partitioned: leave `PARTITION BY` out"
        } else if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            "has an order: leave `ORDER BY` out"
        } else {
            spec.partition_by = base.partition_by;
            spec.partition_by.extend(left_out);
            if spec.order_by.is_empty() {
                spec.order_by = base.order_by;
            }
            return Ok(());
        };
        Err(Error::invalid(format!("window `{}`, which another is built on, {clash}", normal(&name))))
    }
}

impl VisitorMut for Windows {
    type Break = Box<Error>;

    counts_depth!();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = place else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let done = match &mut function.over {
            Some(WindowType::WindowSpec(spec)) => self.complete(spec),
            Some(WindowType::NamedWindow(name)) => {
                self.find(name).map(|spec| function.over = Some(WindowType::WindowSpec(spec)))
            }
            None => Ok(()),
        };
        done.map_or_else(refused, ControlFlow::Continue)
    }
}

/// Whether a partition key encodes what the frames exclude.
fn leaves_out(key: &Expr) -> bool {
    let is_mark = |name: &str| matches!(name, "exclude_current_row" | "exclude_group" | "exclude_ties");
    matches!(key, Expr::Function(call) if bare(&call.name).as_deref().is_some_and(is_mark))
}

/// Window functions that are no aggregates.
const OF_ROWS: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// Rewrites a call of a window function for the planner.
///
/// # Errors
///
/// Invalid: a place before the first row. Limit exceeded: nested calls would grow the statement without bound.
/// Unsupported: a `FILTER` on a function that is no aggregate, which the planner would ignore.
pub(super) fn translate(place: &mut Expr) -> Result<()> {
    let Expr::Function(function) = &mut *place else { return Ok(()) };
    if let Some(WindowType::WindowSpec(WindowSpec { window_frame: Some(frame), .. })) = &mut function.over {
        known_bounds(frame);
    }
    if let Some(found) = over_no_rows(function)? {
        *place = found;
        return Ok(());
    }
    let Some(over) = &function.over else { return Ok(()) };
    let name = bare(&function.name);
    if matches!(name.as_deref(), Some("lag" | "lead"))
        && let Some([value, offset, ..]) = arguments(&function.args).as_deref()
        && is_null(offset)
        && let FunctionArguments::List(list) = &mut function.args
    {
        // How far away the row is is not known.
        let unknown = expr(&format!("CASE WHEN FALSE THEN {value} END"))?;
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(unknown))];
        return Ok(());
    }
    if let Some(name) = name.as_deref().filter(|name| OF_ROWS.contains(name))
        && function.filter.is_some()
    {
        return Err(unsupported(format!("`FILTER` beside `{name}`, which is no aggregate")));
    }
    if matches!(name.as_deref(), Some("lag" | "lead"))
        && let Some([_, offset, default]) = arguments(&function.args).as_deref()
        && !is_written(default)
    {
        copied(&Expr::Function(function.clone()), 2)?;
        let beyond = format!("{}(1, {offset}) OVER {over} IS NULL", function.name);
        if let FunctionArguments::List(list) = &mut function.args {
            list.args.truncate(2);
        }
        *place = expr(&format!("CASE WHEN {beyond} THEN {default} ELSE {function} END"))?;
        return Ok(());
    }
    if name.as_deref() == Some("nth_value")
        && arguments(&function.args).is_some_and(|args| args.get(1).is_some_and(is_below_one))
    {
        return Err(Error::invalid("argument of nth_value must be greater than zero"));
    }
    if let Some((variance, is_root)) = name.as_deref().and_then(variance)
        && moves(over)
    {
        copied(&Expr::Function(function.clone()), 2)?;
        function.name = ObjectName::from(vec![Ident::new(variance)]);
        let least = format!("CASE WHEN {function} < 0 THEN 0.0 ELSE {function} END");
        *place = expr(&if is_root { format!("sqrt({least})") } else { least })?;
        return Ok(());
    }
    let other = match name.as_deref() {
        Some("bool_and" | "every") => "min",
        Some("bool_or") => "max",
        Some("string_agg") if moves(over) => {
            let is_plain = matches!(&function.args, FunctionArguments::List(list) if list.clauses.is_empty()
                && list.duplicate_treatment != Some(DuplicateTreatment::Distinct));
            let args = arguments(&function.args).unwrap_or_default();
            let [text, between] = args.as_slice() else { return Ok(()) };
            let Some(between) = collecting_aggregates::separator(between) else { return Ok(()) };
            let filter = function.filter.as_ref().map_or_else(String::new, |kept| format!(" FILTER (WHERE {kept})"));
            if is_plain {
                copied(&Expr::Function(function.clone()), 2)?;
                // The result for no texts is NULL, and not an empty text.
                *place = expr(&format!(
                    "CASE WHEN count({text}){filter} OVER {over} > 0 \
                     THEN array_to_string(array_agg({text}){filter} OVER {over}, {between}) END"
                ))?;
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    function.name = ObjectName::from(vec![Ident::new(other)]);
    Ok(())
}

/// Whether what `lag` gives beyond the first row is a literal, and no value of the row at hand, which the planner does not take.
fn is_written(default: &Expr) -> bool {
    match default {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } | Expr::Cast { expr: inner, .. } => is_written(inner),
        Expr::Value(_) | Expr::TypedString(_) | Expr::Interval(_) => true,
        _ => false,
    }
}

/// Leaves numbers in the bounds of a frame as they are written: those of parameters are cast, and the planner takes none but
/// literals.
fn known_bounds(frame: &mut WindowFrame) {
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        let (WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows))) = bound else {
            continue;
        };
        let Expr::Cast { expr: number, data_type, .. } = &mut **rows else { continue };
        if matches!(&**number, Expr::Value(value) if matches!(value.value, Value::Number(..))) {
            let number = take(number);
            **rows = number;
            continue;
        }
        let is_whole = matches!(data_type, DataType::BigInt(None) | DataType::Integer(None) | DataType::SmallInt(None));
        let written = literal(number).filter(|text| is_whole && text.parse::<u64>().is_ok());
        if let Some(written) = written.map(str::to_owned) {
            **rows = Expr::Value(Value::Number(written, false).into());
        }
    }
}

/// What a call gives whose frames end before they begin (`BETWEEN 2 FOLLOWING AND 1 FOLLOWING`), and which the planner
/// refuses: they have no rows. `None` if it has other frames, or heeds none.
fn over_no_rows(function: &mut Function) -> Result<Option<Expr>> {
    let Some(WindowType::WindowSpec(window)) = &mut function.over else { return Ok(None) };
    if !window.window_frame.as_ref().is_some_and(ends_before_it_begins) {
        return Ok(None);
    }
    window.window_frame = None;
    window.partition_by.retain(|key| !leaves_out(key));
    let name = bare(&function.name).unwrap_or_default();
    let is_of_frame = matches!(name.as_str(), "first_value" | "last_value" | "nth_value");
    if OF_ROWS.contains(&name.as_str()) && !is_of_frame {
        return Ok(None);
    }
    // The call stays for its type.
    let other = if matches!(name.as_str(), "count" | "regr_count") { "0" } else { "NULL" };
    expr(&format!("CASE WHEN FALSE THEN {function} ELSE {other} END")).map(Some)
}

fn ends_before_it_begins(frame: &WindowFrame) -> bool {
    let number = |bound: &Expr| literal(bound).and_then(|digits| digits.parse::<f64>().ok());
    match (&frame.start_bound, &frame.end_bound) {
        (WindowFrameBound::Following(Some(start)), Some(WindowFrameBound::Following(Some(end)))) => {
            number(start).zip(number(end)).is_some_and(|(start, end)| start > end)
        }
        (WindowFrameBound::Preceding(Some(start)), Some(WindowFrameBound::Preceding(Some(end)))) => {
            number(start).zip(number(end)).is_some_and(|(start, end)| start < end)
        }
        _ => false,
    }
}

/// The variance function for a name, and whether the name is its square root. When rows leave the frame, the
/// remaining variance of equal values may be slightly below zero, and has no root.
fn variance(name: &str) -> Option<(&'static str, bool)> {
    Some(match name {
        "stddev" | "stddev_samp" => ("var_samp", true),
        "stddev_pop" => ("var_pop", true),
        "var" | "var_samp" | "var_sample" | "variance" => ("var_samp", false),
        "var_pop" | "var_population" => ("var_pop", false),
        _ => return None,
    })
}

/// Whether frames start at other rows than the first, so that rows leave them.
fn moves(over: &WindowType) -> bool {
    let WindowType::WindowSpec(window) = over else { return false };
    if window.partition_by.iter().any(leaves_out) {
        return false;
    }
    let begins = window.window_frame.as_ref().map(|frame| &frame.start_bound);
    begins.is_some_and(|start| *start != WindowFrameBound::Preceding(None))
}

/// Whether an expression is written as a whole number below one.
fn is_below_one(place: &Expr) -> bool {
    match place {
        Expr::Nested(inner) => is_below_one(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => literal(expr).is_some(),
        Expr::Value(_) => literal(place).is_some_and(|digits| digits.parse::<u64>() == Ok(0)),
        _ => false,
    }
}
