//! Names of functions that replace operators: they display as the operator, so that result columns keep their names.

use std::fmt::Write as _;

use datafusion::logical_expr::Expr;

/// The functions, with what is written for them.
const SIGNS: &[(&str, &str)] = &[
    ("checked_add", "+"),
    ("checked_sub", "-"),
    ("checked_mul", "*"),
    ("quotient_or_null", "/"),
    ("remainder_or_null", "%"),
    ("decimal_quotient", "/"),
    ("joined", "||"),
];

/// The operator that a function stands for.
pub(crate) fn sign(function: &str) -> Option<&'static str> {
    SIGNS.iter().find(|(name, _)| *name == function).map(|(_, sign)| *sign)
}

/// What an operation is called. A chain of operations is written from its first operand on: if each took the name of the one
/// within it, that would be copied as often as there are operations around it, and planning asks each of them.
pub(crate) fn operation(left: &Expr, sign: &'static str, right: &Expr) -> String {
    let mut behind = vec![(sign, right)];
    let mut first = left;
    while let Some((inner, sign, operand)) = parts(first) {
        behind.push((sign, operand));
        first = inner;
    }
    let mut name = first.schema_name().to_string();
    for (sign, operand) in behind.iter().rev() {
        let _ = write!(name, " {sign} {}", operand.schema_name());
    }
    name
}

/// The value whose type a value has: that of a chain of operations is the type of its first operand. If an operation is asked
/// for its type, it names all operations within it, each time anew.
pub(crate) fn typed_as(value: &Expr) -> &Expr {
    let mut first = value;
    while let Expr::ScalarFunction(call) = first {
        let name = call.func.name();
        let [left, _] = call.args.as_slice() else { return first };
        // The quotient of decimals has digits of its own.
        if name == "decimal_quotient" || sign(name).is_none() {
            return first;
        }
        first = left;
    }
    first
}

fn parts(expr: &Expr) -> Option<(&Expr, &'static str, &Expr)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let sign = sign(call.func.name())?;
    let [left, right] = call.args.as_slice() else { return None };
    Some((left, sign, right))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;
    use crate::relational::overflow::checks;

    #[test]
    fn chains_are_called_as_they_are_written() {
        let [add, subtract, ..] = checks();
        let inner = subtract.call(vec![col("b"), col("c")]);
        let expr = add.call(vec![add.call(vec![col("a"), inner]), col("d")]);
        assert_eq!(expr.schema_name().to_string(), "a + b - c + d");
    }

    #[test]
    fn types_are_those_of_first_operands() {
        let [add, subtract, ..] = checks();
        let expr = add.call(vec![subtract.call(vec![col("a"), col("b")]), col("c")]);
        assert_eq!(typed_as(&expr), &col("a"));
        assert_eq!(typed_as(&col("c")), &col("c"));
        let quotient = crate::functions::decimals::function().call(vec![col("a"), col("b")]);
        assert_eq!(typed_as(&quotient), &quotient);
    }
}
