//! Aggregates with `WITHIN GROUP (ORDER BY x)`: `percentile_disc` is a value that is there, of any type, and not known to
//! the planner; its `percentile_cont` rounds the place between two values to a millionth, and `quantile` does not; `mode`
//! is a function of one value.

use datafusion::sql::sqlparser::ast::{
    Array, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByExpr,
};
use quiver_types::{Error, Result};

use super::expressions::{arguments, bare, call, expr, literal};
use super::{naming, ranks};

/// A percentile of each number of `ARRAY[…]`, as a list, which is NULL of no values; none: the function is called with one
/// number.
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

/// An aggregate with an order, as the planner knows it; none: it is called in another way, or is another one.
pub(super) fn one_of(name: &str, function: &Function) -> Result<Option<Expr>> {
    if let Some(rank) = ranks::of_value(name, function)? {
        return Ok(Some(rank));
    }
    let ([order], None, Some(args)) = (function.within_group.as_slice(), &function.over, arguments(&function.args))
    else {
        return Ok(None);
    };
    let q = match (name, args.as_slice()) {
        // Of values that are there equally often the first in the order is meant: `mode` has that of `ASC` alone.
        ("mode", []) if order.options.asc != Some(false) => return mode(function, &order.expr).map(Some),
        ("percentile_cont" | "percentile_disc", [q]) => q,
        _ => return Ok(None),
    };
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

/// A number that is written, as its type has it; none: it is not written, or of a type that is not looked at.
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
        // What becomes of a number with a fraction that is cast to a whole one.
        Expr::Function(function) if bare(&function.name).as_deref() == Some("round") => {
            match arguments(&function.args)?.as_slice() {
                [number] => number_of(number).map(f64::round),
                _ => None,
            }
        }
        other => literal(other).and_then(|text| text.parse().ok()),
    }
}

/// The condition of a call, as it is written behind it.
fn filter(function: &Function) -> String {
    function.filter.as_ref().map_or_else(String::new, |kept| format!(" FILTER (WHERE {kept})"))
}

fn mode(function: &Function, value: &Expr) -> Result<Expr> {
    expr(&format!("mode({value}){}", filter(function)))
}

/// The value between two. From the greatest on it is the one of the opposite values, to the last digit.
fn cont(function: &Function, q: f64, order: &OrderByExpr) -> Result<Expr> {
    let (value, filter) = (&order.expr, filter(function));
    if order.options.asc == Some(false) {
        expr(&format!("(-quantile(-1.0 * ({value}), {q}){filter})"))
    } else {
        expr(&format!("quantile({value}, {q}){filter}"))
    }
}

/// The value out of the sorted list of all.
fn disc(function: &Function, q: &str, order: &OrderByExpr) -> Result<Expr> {
    let value = &order.expr;
    let kept = function.filter.as_ref().map_or_else(String::new, |kept| format!(" AND ({kept})"));
    let present = format!("FILTER (WHERE {value} IS NOT NULL{kept})");
    expr(&format!(
        "array_element(array_agg({value} ORDER BY {order}) {present}, \
         CAST(greatest(ceil({q} * count({value}) {present}), 1) AS BIGINT))"
    ))
}
