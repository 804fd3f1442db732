//! Fields of rows: `(event).name`, `(row(1, 2)).f1`, `(json_each(object)).key`. The planner has a function for them, but does
//! not know the fields of a row constructor, and those of functions that return rows.

use datafusion::sql::sqlparser::ast::{AccessExpr, Expr};

use super::expressions::{arguments, bare, call, take, text};
use super::{arrays, set_returning_functions};
use crate::names::normal;
use crate::parse::qualified;

/// Rewrites the accesses to parts of a value for the planner.
pub(super) fn translate(place: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = place else { return };
    arrays::bounded(access_chain);
    qualified(root, access_chain);
    let has_names = access_chain.iter().any(|access| matches!(access, AccessExpr::Dot(_)));
    if !has_names && !arrays::are_of_levels(access_chain) {
        return;
    }
    let (mut value, mut subscripts) = (take(root), Vec::new());
    for access in std::mem::take(access_chain) {
        match access {
            AccessExpr::Dot(Expr::Identifier(name)) => {
                let (row, name) = (of_subscripts(value, std::mem::take(&mut subscripts)), normal(&name));
                let known = of_row(&row, &name).or_else(|| of_members(&row, &name));
                value = known.unwrap_or_else(|| call("get_field", vec![row, text(&name)]));
            }
            other => subscripts.push(other),
        }
    }
    *place = of_subscripts(value, subscripts);
}

fn of_subscripts(value: Expr, subscripts: Vec<AccessExpr>) -> Expr {
    if subscripts.is_empty() {
        return value;
    }
    if arrays::are_of_levels(&subscripts) {
        return arrays::of_levels(value, subscripts);
    }
    Expr::CompoundFieldAccess { root: Box::new(value), access_chain: subscripts }
}

/// The value of a field of a row constructor, whose fields PostgreSQL names `f1`, `f2`, …
fn of_row(row: &Expr, field: &str) -> Option<Expr> {
    let at = field.strip_prefix('f')?.parse::<usize>().ok()?.checked_sub(1)?;
    let Expr::Nested(row) = row else { return None };
    let items = match &**row {
        Expr::Tuple(items) => items.clone(),
        Expr::Function(call) if bare(&call.name).as_deref() == Some("row") => arguments(&call.args)?,
        _ => return None,
    };
    items.into_iter().nth(at).map(|item| Expr::Nested(Box::new(item)))
}

/// A column of a function that returns the members of an object, as a function that returns its values.
fn of_members(row: &Expr, column: &str) -> Option<Expr> {
    let Expr::Nested(row) = row else { return None };
    let Expr::Function(function) = &**row else { return None };
    let name = bare(&function.name).filter(|name| set_returning_functions::gives_members(name))?;
    let mut columns = set_returning_functions::lists_of(&name, arguments(&function.args)?).into_iter();
    let (_, list) = columns.find(|(known, _)| *known == Some(column))?;
    Some(call("unnest", vec![list]))
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn columns_of_members_are_lists_that_are_taken_apart() {
        let of = |row: &str, column: &str| of_members(&expr(row).unwrap(), column).map(|list| list.to_string());
        assert_eq!(of("(json_each(x))", "key").as_deref(), Some("unnest(json_keys(json_value(x)))"));
        let value = "unnest(json_values_text(json_normal(json_value(x))))";
        assert_eq!(of("(jsonb_each_text(x))", "value").as_deref(), Some(value));
        for (row, column) in
            [("(json_each(x))", "other"), ("json_each(x)", "key"), ("(lower(x))", "key"), ("(x)", "key")]
        {
            assert_eq!(of(row, column), None, "{row} {column}");
        }
    }
}
