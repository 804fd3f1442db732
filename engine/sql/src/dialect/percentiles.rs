//! `percentile_disc(q) WITHIN GROUP (ORDER BY x)`: a value that is there, of any type; the planner has the one between
//! values (`percentile_cont`) alone.

use datafusion::sql::sqlparser::ast::{Array, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use quiver_types::{Error, Result};

use super::{arguments, call, expr, literal};

/// A percentile of each number of `ARRAY[…]`, as a list; none: the function is called with one number.
pub(super) fn several(name: &str, function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(Array { elem, .. })))] = list.args.as_slice() else {
        return Ok(None);
    };
    let one = |q: &Expr| -> Result<Expr> {
        let mut list = list.clone();
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(q.clone()))];
        let one = Function { args: FunctionArguments::List(list), ..function.clone() };
        let put = if name == "percentile_disc" { disc(&one)? } else { None };
        Ok(put.unwrap_or(Expr::Function(one)))
    };
    Ok(Some(call("make_array", elem.iter().map(one).collect::<Result<_>>()?)))
}

/// The value out of the sorted list of all; none: it is called in another way.
pub(super) fn disc(function: &Function) -> Result<Option<Expr>> {
    let ([order], None, Some(args)) = (function.within_group.as_slice(), &function.over, arguments(&function.args))
    else {
        return Ok(None);
    };
    let [q] = args.as_slice() else { return Ok(None) };
    if let Some(number) = literal(q).and_then(|text| text.parse::<f64>().ok())
        && !(0.0..=1.0).contains(&number)
    {
        return Err(Error::invalid(format!("`percentile_disc` takes a number from 0 to 1, not `{q}`")));
    }
    let value = &order.expr;
    let kept = function.filter.as_ref().map_or_else(String::new, |kept| format!(" AND ({kept})"));
    let present = format!("FILTER (WHERE {value} IS NOT NULL{kept})");
    expr(&format!(
        "array_element(array_agg({value} ORDER BY {order}) {present}, \
         CAST(greatest(ceil({q} * count({value}) {present}), 1) AS BIGINT))"
    ))
    .map(Some)
}
