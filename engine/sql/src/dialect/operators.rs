//! Operators that the planner does not know, or that the parser reads with another precedence, are rewritten as ones
//! that it knows.

use datafusion::sql::sqlparser::ast::{Array, BinaryOperator, Expr, Function, UnaryOperator, Value};
use quiver_types::{Error, ErrorKind, Result};

use super::expressions::{
    Quantifier, arguments, bare, boolean, call, copied, expr, is_null, items_of_text, literal, number, take,
};
use super::patterns;
use crate::error::unsupported;
use crate::parse::OPERATORS_MAX;

/// The most items of a list that become a chain of conditions, whose nesting grows with its length.
pub(super) const ITEMS_MAX: usize = 200;

pub(super) fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(_) | Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) => expr,
        other => Expr::Nested(Box::new(other)),
    }
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Puts `x NOT IN (1, NULL)` as `x NOT IN (1) AND NULL`, which says the same. Where DataFusion's rules make one list of two,
/// such as that of `x IN (1, 2) AND x NOT IN (1, NULL)`, they take NULL for an item that excludes no other.
pub(super) fn known_items(place: &mut Expr) -> Result<()> {
    let Expr::InList { list, negated: true, .. } = place else { return Ok(()) };
    let written = list.len();
    if list.iter().all(is_null) {
        return Ok(());
    }
    list.retain(|item| !is_null(item));
    if list.len() < written {
        let unknown = expr("CAST(NULL AS BOOLEAN)")?;
        *place = Expr::Nested(Box::new(binary(take(place), BinaryOperator::And, unknown)));
    }
    Ok(())
}

/// Translates prefix operators.
pub(super) fn unary(place: &mut Expr) {
    let Expr::UnaryOp { op, expr } = place else { return };
    let function = match (&*op, &**expr) {
        (UnaryOperator::Minus, Expr::BinaryOp { .. }) => return signed_power(place),
        (UnaryOperator::BitwiseNot, _) => return complement(place),
        // The planner puts the sign before the whole text, where it changes only the first part.
        (UnaryOperator::Minus, Expr::Interval(_)) => {
            let interval = take(expr);
            *place = nested(binary(interval, BinaryOperator::Multiply, number(-1)));
            return;
        }
        (UnaryOperator::PGSquareRoot, _) => "sqrt",
        (UnaryOperator::PGCubeRoot, _) => "cbrt",
        (UnaryOperator::PGAbs, _) => "abs",
        _ => return,
    };
    *place = call(function, vec![take(expr)]);
}

/// `-2 ^ 2`: the sign belongs to the base, but the parser applies it to the power.
fn signed_power(place: &mut Expr) {
    let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = place else { return };
    if matches!(**expr, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }) {
        let mut power = take(expr);
        negate_base(&mut power);
        *place = power;
    }
}

fn negate_base(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::PGExp, .. } => negate_base(left),
        base => {
            let inner = Box::new(take(base));
            *base = Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }));
        }
    }
}

/// `~x` as `-1 - x`, which cannot overflow.
fn complement(place: &mut Expr) {
    let Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } = place else { return };
    let value = nested(take(expr));
    *place = nested(binary(number(-1), BinaryOperator::Minus, value));
}

/// The patterns of `LIKE ANY (…)`, for which the parser has a form, or of `LIKE ALL (…)`, which it reads as a call;
/// `None` if there is one pattern. The inner `None`: the patterns are no written list.
fn patterns_of(any: bool, pattern: &Expr) -> Option<(Quantifier, Option<Vec<Expr>>)> {
    if any {
        return Some((Quantifier::Any, items_of(pattern)));
    }
    let Expr::Function(Function { name, args, .. }) = pattern else { return None };
    if bare(name)? != "all" {
        return None;
    }
    let args = arguments(args)?;
    Some((Quantifier::All, if let [one] = args.as_slice() { items_of(one) } else { Some(args) }))
}

/// The items of a list literal.
pub(super) fn items_of(list: &Expr) -> Option<Vec<Expr>> {
    match list {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => items_of(inner),
        Expr::Array(Array { elem, .. }) => Some(elem.clone()),
        Expr::Tuple(items) => Some(items.clone()),
        Expr::Function(call) if bare(&call.name).is_some_and(|name| name == "make_array") => arguments(&call.args),
        other => literal(other).and_then(items_of_text),
    }
}

/// Rewrites `LIKE ANY (…)` and `LIKE ALL (…)` as a comparison with each pattern. Returns whether it was one.
pub(super) fn like_several(place: &mut Expr) -> Result<bool> {
    let (Expr::Like { any, pattern, expr, .. } | Expr::ILike { any, pattern, expr, .. }) = &*place else {
        return Ok(false);
    };
    let Some((quantifier, found)) = patterns_of(*any, pattern) else { return Ok(false) };
    let found = found.ok_or_else(|| unsupported("`LIKE ANY` and `LIKE ALL` take a list that is written out"))?;
    if found.len() > OPERATORS_MAX {
        let text = format!("`LIKE` of {} patterns is too long, at most {OPERATORS_MAX} are allowed", found.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    copied(expr, found.len())?;
    // Each comparison is a copy without the list.
    if let Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } = &mut *place {
        **pattern = boolean(quantifier.decisive());
    }
    let one = |item: Expr| -> Result<Expr> {
        let mut one = place.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut one {
            *any = false;
            **pattern = item;
        }
        patterns::translate(&mut one)?;
        Ok(one)
    };
    let all = found.into_iter().map(one).collect::<Result<Vec<_>>>()?;
    *place = halves(all, &quantifier.joining()).map_or_else(|| boolean(!quantifier.decisive()), nested);
    Ok(true)
}

/// Joins conditions as a balanced tree: a chain would nest as deeply as it is long, and planning it would take
/// quadratic time. `None` if there are no conditions.
pub(super) fn halves(mut all: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    while all.len() > 1 {
        let mut rest = all.into_iter();
        let mut pairs = Vec::new();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => nested(binary(left, op.clone(), right)),
                None => left,
            });
        }
        all = pairs;
    }
    all.pop()
}

/// A comparison with each of the items.
pub(super) fn compared_with_each(
    left: &Expr,
    op: &BinaryOperator,
    items: Vec<Expr>,
    quantifier: Quantifier,
) -> Result<Expr> {
    copied(left, items.len())?;
    if items.len() > ITEMS_MAX {
        let text =
            format!("a list of {} items to compare with is too long, at most {ITEMS_MAX} are allowed", items.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let join = quantifier.joining();
    let compared = |item: Expr| binary(nested(left.clone()), op.clone(), item);
    let whole = items.into_iter().map(compared).reduce(|before, next| binary(before, join.clone(), next));
    Ok(whole.map_or_else(|| boolean(!quantifier.decisive()), |whole| Expr::Nested(Box::new(whole))))
}

/// `document ?| array['a', 'b']` (any) and `?&` (all) as tests for each key.
pub(super) fn has_several(left: &Expr, right: &Expr, quantifier: Quantifier) -> Result<Expr> {
    if is_null(right) {
        return expr("CAST(NULL AS BOOLEAN)");
    }
    let mut keys = items_of(right).ok_or_else(|| unsupported("`?|` and `?&` take a list that is written out"))?;
    // As in PostgreSQL, NULL keys are ignored.
    keys.retain(|key| !matches!(key, Expr::Value(value) if matches!(value.value, Value::Null)));
    copied(left, keys.len())?;
    if keys.len() > ITEMS_MAX {
        let text = format!("a list of {} keys is too long, at most {ITEMS_MAX} are allowed", keys.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let op = quantifier.joining();
    let has = |key: Expr| call("json_has", vec![left.clone(), key]);
    let whole = keys.into_iter().map(has).reduce(|before, next| binary(before, op.clone(), next));
    Ok(whole.map_or_else(|| boolean(!quantifier.decisive()), |whole| Expr::Nested(Box::new(whole))))
}

/// `x BETWEEN SYMMETRIC a AND b`, in which either bound may be the lower one. It is parsed with three `NOT` before
/// `a` (see [`syntax_rewrites`](crate::syntax_rewrites)).
pub(super) fn symmetric(place: &mut Expr) -> Result<()> {
    fn marked(low: &Expr) -> Option<&Expr> {
        let mut inner = low;
        for _ in 0..3 {
            let Expr::UnaryOp { op: UnaryOperator::Not, expr } = inner else { return None };
            inner = expr;
        }
        Some(inner)
    }
    let Expr::Between { expr, negated, low, high } = &*place else { return Ok(()) };
    let Some(low) = marked(low) else { return Ok(()) };
    copied(expr, 2)?;
    copied(low, 2)?;
    copied(high, 2)?;
    let negated = *negated;
    let between = |low: &Expr, high: &Expr| Expr::Between {
        expr: expr.clone(),
        negated,
        low: Box::new(low.clone()),
        high: Box::new(high.clone()),
    };
    let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
    *place = nested(binary(between(low, high), op, between(high, low)));
    Ok(())
}

/// `a IS DISTINCT FROM b AND c`: the parser takes everything that follows for the right side. It is recognized by
/// conditions that stand there without parentheses, which no other statement gives.
pub(super) fn distinct(place: &mut Expr) {
    let inner = match &mut *place {
        Expr::IsDistinctFrom(_, inner)
        | Expr::IsNotDistinctFrom(_, inner)
        | Expr::UnaryOp { op: UnaryOperator::Not, expr: inner }
            if is_joined(inner) =>
        {
            inner
        }
        Expr::BinaryOp { op: BinaryOperator::And, right: inner, .. } if is_disjunction(inner) => inner,
        _ => return,
    };
    let mut whole = take(inner);
    let first = first_of(&mut whole);
    **inner = take(first);
    // Parentheses keep the right side from growing when it is printed and parsed again.
    *first = match take(place) {
        is @ (Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..)) => Expr::Nested(Box::new(is)),
        other => other,
    };
    *place = whole;
}

/// `a IS DISTINCT FROM 'no'` as `(a = 'no') IS NOT TRUE`: the literal is not NULL, and as an operand of `=` it gets
/// the type of the other side.
pub(super) fn unlike(place: &mut Expr) {
    let (left, right, is_same) = match &mut *place {
        Expr::IsDistinctFrom(left, right) => (left, right, false),
        Expr::IsNotDistinctFrom(left, right) => (left, right, true),
        _ => return,
    };
    if patterns::is_written(left) || patterns::is_written(right) {
        let equal = binary(nested(take(left)), BinaryOperator::Eq, nested(take(right)));
        let equal = Box::new(nested(equal));
        *place = if is_same { Expr::IsTrue(equal) } else { Expr::IsNotTrue(equal) };
    }
}

/// Whether an expression is an `AND` or an `OR`.
fn is_joined(whole: &Expr) -> bool {
    matches!(whole, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. })
}

fn is_disjunction(whole: &Expr) -> bool {
    matches!(whole, Expr::BinaryOp { op: BinaryOperator::Or, .. })
}

/// The leftmost of joined conditions.
fn first_of(whole: &mut Expr) -> &mut Expr {
    if !is_joined(whole) {
        return whole;
    }
    match whole {
        Expr::BinaryOp { left, .. } => first_of(left),
        other => other,
    }
}

/// `(a, b) OVERLAPS (c, d)`: the earlier of a pair is the start, and the later one is excluded. The second may be an
/// interval, which is added to the first. A NULL end is unknown.
pub(super) fn overlaps(left: &Expr, right: &Expr) -> Result<Expr> {
    let (Expr::Tuple(left), Expr::Tuple(right)) = (left, right) else { return Err(pairs()) };
    let ([a, b], [c, d]) = (left.as_slice(), right.as_slice()) else { return Err(pairs()) };
    for part in [a, b, c, d] {
        copied(part, 28)?;
    }
    let end = |begin: &Expr, end: &Expr| match end {
        Expr::Interval(_) => format!("(({begin}) + ({end}))"),
        _ => format!("({end})"),
    };
    let (b, d) = (end(a, b), end(c, d));
    let (first, second) = (format!("least(({a}), {b})"), format!("least(({c}), {d})"));
    let last = |begin: &Expr, end: &str| {
        format!("CASE WHEN ({begin}) IS NOT NULL AND {end} IS NOT NULL THEN greatest(({begin}), {end}) END")
    };
    let (to, other) = (last(a, &b), last(c, &d));
    expr(&format!(
        "(CASE WHEN {first} > {second} THEN {first} < {other} OR {to} < {other} \
         WHEN {first} < {second} THEN {second} < {to} OR {other} < {to} \
         WHEN {first} = {second} THEN {to} = {other} OR {to} <> {other} END)"
    ))
}

fn pairs() -> Error {
    unsupported("`OVERLAPS` takes two pairs of times")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded() {
        let long = Expr::Value(Value::SingleQuotedString("x".repeat(1_000)).into());
        assert!(copied(&long, 10).is_ok());
        assert_eq!(copied(&long, 100).unwrap_err().kind, ErrorKind::LimitExceeded);
    }

    #[test]
    fn comparisons_with_items_are_joined() {
        let x = expr("x").unwrap();
        let compared = |items: Vec<Expr>, quantifier| compared_with_each(&x, &BinaryOperator::Lt, items, quantifier);
        let check = |items: &[&str], quantifier, expected: &str| {
            let items = items.iter().map(|item| expr(item).unwrap()).collect();
            assert_eq!(compared(items, quantifier).unwrap().to_string(), expected, "{quantifier:?}");
        };
        check(&["1", "2", "3"], Quantifier::Any, "(x < 1 OR x < 2 OR x < 3)");
        check(&["1", "2"], Quantifier::All, "(x < 1 AND x < 2)");
        check(&[], Quantifier::Any, "false");
        check(&[], Quantifier::All, "true");
        let many = vec![expr("1").unwrap(); ITEMS_MAX + 1];
        assert_eq!(compared(many, Quantifier::Any).unwrap_err().kind, ErrorKind::LimitExceeded);
    }

    #[test]
    fn documents_have_any_or_all_keys() {
        let (x, keys) = (expr("x").unwrap(), expr("array['a', NULL, 'b']").unwrap());
        let has = |quantifier| has_several(&x, &keys, quantifier).unwrap().to_string();
        assert_eq!(has(Quantifier::Any), "(json_has(x, 'a') OR json_has(x, 'b'))");
        assert_eq!(has(Quantifier::All), "(json_has(x, 'a') AND json_has(x, 'b'))");
        assert!(has_several(&x, &expr("y").unwrap(), Quantifier::Any).is_err(), "keys of each row are not known");
    }

    #[test]
    fn joined_conditions_are_told_apart() {
        let of = |text: &str| {
            let found = expr(text).unwrap();
            (is_joined(&found), is_disjunction(&found))
        };
        assert_eq!(of("a OR b"), (true, true));
        assert_eq!(of("a AND b"), (true, false));
        assert_eq!(of("a = b"), (false, false));
        let all = ["a", "b", "c"].map(|name| expr(name).unwrap());
        let joined = halves(all.to_vec(), &BinaryOperator::Or).unwrap();
        assert_eq!(joined.to_string(), "((a OR b) OR c)");
        assert!(halves(Vec::new(), &BinaryOperator::And).is_none());
    }
}
