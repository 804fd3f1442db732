//! Aggregates with `WITHIN GROUP (ORDER BY x)`. `percentile_disc` returns one of the values, of any type; the planner
//! does not know it. The planner's `percentile_cont` rounds the position between two values to a millionth, so
//! `quantile` replaces it. `mode` becomes a function of one argument.

use datafusion::sql::sqlparser::ast::{
    Array, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByExpr,
};
use quiver_types::{Error, Result};

use super::expressions::{arguments, bare, call, expr, is_null, literal};
use super::{hypothetical_sets, naming};

/// Percentiles of each number of `ARRAY[…]` as a list, which is NULL if there are no values; `None` if the function
/// is called with one number.
pub(super) fn several(name: &str, function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(Array { elem, .. })))] = list.args.as_slice() else {
        return Ok(None);
    };
    let one = |q: &Expr| -> Result<Expr> {
        let mut list = list.clone();
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(q.clone()))];
        let one = Function { args: FunctionArguments::List(list), ..function.clone() };
        Ok(one_of(name, &one)?.unwrap_or(Expr::Function(one)))
    };
    let each = elem.iter().map(one).collect::<Result<Vec<Expr>>>()?;
    let first = each.first().map(ToString::to_string);
    let list = call("make_array", each);
    match first {
        Some(first) => expr(&format!("CASE WHEN ({first}) IS NOT NULL THEN {list} END")).map(Some),
        None => Ok(Some(list)),
    }
}

/// An ordered-set aggregate for the planner; `None` if it is another function, or called in another form.
pub(super) fn one_of(name: &str, function: &Function) -> Result<Option<Expr>> {
    if let Some(rank) = hypothetical_sets::of_value(name, function)? {
        return Ok(Some(rank));
    }
    let ([order], None, Some(args)) = (function.within_group.as_slice(), &function.over, arguments(&function.args))
    else {
        return Ok(None);
    };
    let q = match (name, args.as_slice()) {
        ("mode", []) => return mode(function, order).map(Some),
        ("percentile_cont" | "percentile_disc", [q]) => q,
        _ => return Ok(None),
    };
    if is_null(q) {
        return expr(&format!("CASE WHEN FALSE THEN max({}) END", order.expr)).map(Some);
    }
    let number = number_of(q);
    if number.is_some_and(|number| !(0.0..=1.0).contains(&number)) {
        return Err(Error::invalid(format!("`{name}` takes a number from 0 to 1, not `{q}`")));
    }
    match (name, number) {
        ("percentile_cont", Some(number)) => cont(function, number, order).map(Some),
        ("percentile_disc", number) => {
            disc(function, &number.map_or_else(|| q.to_string(), |number| number.to_string()), order).map(Some)
        }
        _ => Ok(None),
    }
}

/// The value of a numeric literal, rounded as its cast does; `None` if it is no literal, or cast to another type.
fn number_of(q: &Expr) -> Option<f64> {
    match q {
        Expr::Nested(expr) => number_of(expr),
        Expr::Cast { expr, data_type, .. } => {
            let number = number_of(expr)?;
            match naming::type_of(data_type).as_str() {
                "float8" => Some(number),
                "float4" => Some(f64::from(number as f32)),
                "numeric" if matches!(data_type, DataType::Numeric(ExactNumberInfo::None)) => Some(number),
                "int2" | "int4" | "int8" => Some(number.round()),
                _ => None,
            }
        }
        // A literal with a fraction that is cast to an integer.
        Expr::Function(function) if bare(&function.name).as_deref() == Some("round") => {
            match arguments(&function.args)?.as_slice() {
                [number] => number_of(number).map(f64::round),
                _ => None,
            }
        }
        other => literal(other).and_then(|text| text.parse().ok()),
    }
}

/// The `FILTER` clause of a call.
fn filter(function: &Function) -> String {
    function.filter.as_ref().map_or_else(String::new, |kept| format!(" FILTER (WHERE {kept})"))
}

/// Of equally frequent values the first in the order counts.
fn mode(function: &Function, order: &OrderByExpr) -> Result<Expr> {
    let name = if order.options.asc == Some(false) { "mode_last" } else { "mode" };
    expr(&format!("{name}({}){}", order.expr, filter(function)))
}

/// The interpolated percentile. For `DESC` it is computed from the negated values, so that even its last digit is
/// PostgreSQL's.
fn cont(function: &Function, q: f64, order: &OrderByExpr) -> Result<Expr> {
    let (value, filter) = (&order.expr, filter(function));
    if order.options.asc == Some(false) {
        expr(&format!("(-quantile(-1.0 * ({value}), {q}){filter})"))
    } else {
        expr(&format!("quantile({value}, {q}){filter}"))
    }
}

/// The percentile taken from the sorted list of all values.
fn disc(function: &Function, q: &str, order: &OrderByExpr) -> Result<Expr> {
    let value = &order.expr;
    let kept = function.filter.as_ref().map_or_else(String::new, |kept| format!(" AND ({kept})"));
    let present = format!("FILTER (WHERE {value} IS NOT NULL{kept})");
    expr(&format!(
        "array_element(array_agg({value} ORDER BY {order}) {present}, \
         CAST(greatest(ceil({q} * count({value}) {present}), 1) AS BIGINT))"
    ))
}
