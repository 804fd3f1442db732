//! Aggregates over frames whose beginning moves on (`ROWS BETWEEN 1 PRECEDING AND …`): some of DataFusion's cannot leave a
//! row out again, and others that can give the same.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, FunctionArguments, Ident, ObjectName, WindowFrameBound, WindowType,
};
use quiver_types::Result;

use super::{arguments, bare, expr, gathered, operators};

/// Puts such a call as the planner takes it.
///
/// # Errors
/// Limit exceeded: calls that stand in each other would make a statement of any length.
pub(super) fn translate(place: &mut Expr) -> Result<()> {
    let Expr::Function(function) = &mut *place else { return Ok(()) };
    let Some(over) = &function.over else { return Ok(()) };
    let name = bare(&function.name);
    if let Some((variance, is_root)) = name.as_deref().and_then(variance)
        && may_move(over)
    {
        operators::copied(&Expr::Function(function.clone()), 2)?;
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
            let Some(between) = gathered::separator(between) else { return Ok(()) };
            let filter = function.filter.as_ref().map_or_else(String::new, |kept| format!(" FILTER (WHERE {kept})"));
            if is_plain {
                operators::copied(&Expr::Function(function.clone()), 2)?;
                // Of no text at all there is NULL, and not a text without letters.
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

/// The variance of a function, and whether it is the root of it. Where rows are left out again what is left of equal
/// values may lie below zero by a last digit, and has no root.
fn variance(name: &str) -> Option<(&'static str, bool)> {
    Some(match name {
        "stddev" | "stddev_samp" => ("var_samp", true),
        "stddev_pop" => ("var_pop", true),
        "var" | "var_samp" | "var_sample" | "variance" => ("var_samp", false),
        "var_pop" | "var_population" => ("var_pop", false),
        _ => return None,
    })
}

/// Whether frames may begin at other rows than the first: those of a window with a name are not looked up.
fn may_move(over: &WindowType) -> bool {
    match over {
        WindowType::WindowSpec(window) => window.window_name.is_some() || moves(over),
        WindowType::NamedWindow(_) => true,
    }
}

/// Whether frames begin at other rows than the first.
fn moves(over: &WindowType) -> bool {
    let WindowType::WindowSpec(window) = over else { return false };
    let begins = window.window_frame.as_ref().map(|frame| &frame.start_bound);
    begins.is_some_and(|start| *start != WindowFrameBound::Preceding(None))
}
