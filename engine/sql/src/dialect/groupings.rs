//! Grouping sets, and grouping keys by position. The planner takes `ROLLUP` and `CUBE` only of single keys and by
//! themselves, and positions (`GROUP BY 1`) only as whole keys: anything else is written out as grouping sets.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select, SelectItem, Value,
};
use quiver_types::{Error, ErrorKind, Result};

use super::expressions::bare;

/// The most parts of a `CUBE`, as in PostgreSQL: each doubles the number of sets.
const CUBE_MAX: usize = 12;

/// The most bytes of keys that are written out for the sets of a select.
const KEYS_BYTES_MAX: usize = 64 << 10;
/// Bytes that a key counts in addition to its text.
const KEY_BYTES: usize = 16;

/// Keys that belong together in a set.
type GroupingKeys = Vec<Expr>;

/// Bytes of keys written so far: each part of a `CUBE` appears in half of its sets.
#[derive(Default)]
struct KeyBytes(usize);

impl KeyBytes {
    fn add(&mut self, keys: &[Expr], times: usize) -> Result<()> {
        let bytes = keys.iter().map(|key| key.to_string().len() + KEY_BYTES).sum::<usize>();
        self.0 = self.0.saturating_add(bytes.saturating_mul(times));
        if self.0 <= KEYS_BYTES_MAX {
            return Ok(());
        }
        let text = format!("the keys of all sets of groups come to more than {KEYS_BYTES_MAX} bytes: write fewer sets");
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }
}

/// Writes out grouping sets and positions.
///
/// # Errors
///
/// LimitExceeded: a `CUBE` has too many parts, or all sets together have too many keys.
pub(super) fn translate(select: &mut Select) -> Result<()> {
    let Select { group_by, distinct, projection, .. } = select;
    if let Some(Distinct::On(ons)) = distinct {
        for on in ons {
            match item_at(on, projection) {
                Some(SelectItem::ExprWithAlias { alias, .. }) => *on = Expr::Identifier(alias.clone()),
                Some(SelectItem::UnnamedExpr(value)) => *on = value.clone(),
                _ => {}
            }
        }
    }
    let GroupByExpr::Expressions(keys, _) = group_by else { return Ok(()) };
    apart(keys);
    let mut written = KeyBytes::default();
    for key in keys {
        let single = |parts: &[GroupingKeys]| parts.iter().all(|part| part.len() == 1);
        let sets = match &*key {
            Expr::Rollup(parts) if !single(parts) => Some(rolled(parts, &mut written)?),
            Expr::Cube(parts) if !single(parts) => Some(cubed(parts, &mut written)?),
            Expr::GroupingSets(sets) => Some(flattened(sets, &mut written)?),
            _ => None,
        };
        if let Some(sets) = sets {
            *key = Expr::GroupingSets(sets);
        }
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else { continue };
        for part in sets.iter_mut().flatten() {
            if let Some(SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)) =
                item_at(part, projection)
            {
                written.add(std::slice::from_ref(expr), 1)?;
                *part = expr.clone();
            }
        }
    }
    Ok(())
}

/// Rewrites `GROUP BY (a, b)` as `GROUP BY a, b`. An empty row is a grouping set.
fn apart(keys: &mut Vec<Expr>) {
    let is_row = |key: &Expr| matches!(key, Expr::Tuple(parts) if !parts.is_empty());
    while let Some(at) = keys.iter().position(is_row) {
        if let Expr::Tuple(parts) = keys.remove(at) {
            keys.splice(at..at, parts);
        }
    }
}

/// The output at a position; `None` if the expression is no number, or a `*` precedes the position.
fn item_at<'s>(place: &Expr, projection: &'s [SelectItem]) -> Option<&'s SelectItem> {
    let Expr::Value(value) = place else { return None };
    let Value::Number(place, _) = &value.value else { return None };
    let before = projection.get(..place.parse::<usize>().ok()?)?;
    let is_one = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { .. } | SelectItem::UnnamedExpr(_));
    before.last().filter(|_| before.iter().all(is_one))
}

/// The sets of a `ROLLUP`: all parts, all but the last, and so on down to none.
fn rolled(parts: &[GroupingKeys], written: &mut KeyBytes) -> Result<Vec<GroupingKeys>> {
    for (at, part) in parts.iter().enumerate() {
        written.add(part, parts.len() - at)?;
    }
    Ok((0..=parts.len()).rev().map(|count| parts.iter().take(count).flatten().cloned().collect()).collect())
}

/// The sets of a `CUBE`: all subsets of the parts.
fn cubed(parts: &[GroupingKeys], written: &mut KeyBytes) -> Result<Vec<GroupingKeys>> {
    if parts.len() > CUBE_MAX {
        let text = format!("a `CUBE` of {} parts is too large, at most {CUBE_MAX} are allowed", parts.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    for part in parts {
        written.add(part, 1 << (parts.len() - 1))?;
    }
    let chosen = |choice: usize| -> GroupingKeys {
        let parts = parts.iter().enumerate().filter(|(at, _)| choice & (1 << at) == 0);
        parts.flat_map(|(_, part)| part).cloned().collect()
    };
    Ok((0..1 << parts.len()).map(chosen).collect())
}

/// Expands `ROLLUP` and `CUBE` within grouping sets, where the parser takes them for function calls.
fn flattened(sets: &[GroupingKeys], written: &mut KeyBytes) -> Result<Vec<GroupingKeys>> {
    let mut out = Vec::with_capacity(sets.len());
    for set in sets {
        match nested(set) {
            Some((name, parts)) if name == "rollup" => out.extend(rolled(&parts, written)?),
            Some((_, parts)) => out.extend(cubed(&parts, written)?),
            None => out.push(set.clone()),
        }
    }
    Ok(out)
}

/// The name and the parts of a set that is a `ROLLUP` or `CUBE`.
fn nested(set: &GroupingKeys) -> Option<(String, Vec<GroupingKeys>)> {
    let [Expr::Function(call)] = set.as_slice() else { return None };
    let name = bare(&call.name).filter(|name| name == "rollup" || name == "cube")?;
    let FunctionArguments::List(list) = &call.args else { return None };
    let part = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(keys))) => Some(keys.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Nested(key))) => Some(vec![key.as_ref().clone()]),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(key)) => Some(vec![key.clone()]),
        _ => None,
    };
    Some((name, list.args.iter().map(part).collect::<Option<Vec<_>>>()?))
}
