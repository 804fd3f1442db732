//! The type of each expression, and whether operators and functions get operands of the types that they take.
//!
//! Runs once, after the parser. It also settles what depends on types: set operators match many to many, operators
//! on scalars match nothing. Error texts and their order are those of Prometheus 3.14.

use std::collections::HashSet;
use std::fmt;
use std::mem;

use crate::ast::{
    AggregateExpr, AggregateOp, BinaryExpr, Expr, ExprKind, MatchCardinality, PosRange, ValueType, VectorSelector,
};
use crate::error::{ParseError, Result};
use crate::functions;
use crate::lexer::quote::quote;

/// Gives the type of a checked expression.
pub fn type_of(expr: &Expr) -> ValueType {
    let mut expr = expr;
    loop {
        match &expr.kind {
            ExprKind::Number { .. } => return ValueType::Scalar,
            ExprKind::String(_) => return ValueType::String,
            ExprKind::MatrixSelector { .. } | ExprKind::Subquery(_) => return ValueType::Matrix,
            ExprKind::Call { function, .. } => {
                return functions::lookup(function).map_or(ValueType::Vector, |f| f.returns);
            }
            ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => expr = inner,
            ExprKind::Binary(b) if type_of(&b.rhs) == ValueType::Scalar => expr = &b.lhs,
            ExprKind::Binary(_) | ExprKind::VectorSelector(_) | ExprKind::Aggregate(_) => return ValueType::Vector,
        }
    }
}

impl ValueType {
    /// Gives the short name, as `/parse_query` and results have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
            Self::String => "string",
        }
    }
}

/// Shows the name that the documentation uses.
impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::Scalar | Self::String => self.as_str(),
        })
    }
}

/// Checks an expression parsed from `text`; gives its type.
pub(crate) fn check(expr: &mut Expr, text: &str) -> Result<ValueType> {
    let pos = expr.pos;
    match &mut expr.kind {
        ExprKind::Number { .. } => Ok(ValueType::Scalar),
        ExprKind::String(_) => Ok(ValueType::String),
        ExprKind::Paren(inner) => check(inner, text),
        ExprKind::Unary { expr: inner, .. } => match check(inner, text)? {
            given @ (ValueType::Scalar | ValueType::Vector) => Ok(given),
            given => {
                let given = quote(&given.to_string());
                fail(
                    pos,
                    format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {given}"
                    ),
                )
            }
        },
        ExprKind::Binary(_) => check_chain(expr, text),
        ExprKind::Aggregate(aggregate) => check_aggregate(aggregate, text),
        ExprKind::Call { function, args } => check_call(function, args, pos, text),
        ExprKind::VectorSelector(selector) => {
            check_selector(selector)?;
            Ok(ValueType::Vector)
        }
        ExprKind::MatrixSelector { selector, .. } => {
            check_selector(selector)?;
            Ok(ValueType::Matrix)
        }
        ExprKind::Subquery(subquery) => match check(&mut subquery.expr, text)? {
            ValueType::Vector => Ok(ValueType::Matrix),
            given => fail(pos, format!("subquery is only allowed on instant vector, got {} instead", given.as_str())),
        },
    }
}

fn check_aggregate(aggregate: &mut AggregateExpr, text: &str) -> Result<ValueType> {
    expect(&mut aggregate.expr, ValueType::Vector, "aggregation expression", text)?;
    if let Some(param) = &mut aggregate.param {
        let wanted = if aggregate.op == AggregateOp::CountValues { ValueType::String } else { ValueType::Scalar };
        expect(param, wanted, "aggregation parameter", text)?;
    }
    Ok(ValueType::Vector)
}

fn expect(expr: &mut Expr, wanted: ValueType, place: &str, text: &str) -> Result<()> {
    let given = check(expr, text)?;
    if given == wanted {
        return Ok(());
    }
    fail(expr.pos, format!("expected type {wanted} in {place}, got {given}"))
}

/// Checks the binary expressions down the left operands from the lowest one up.
fn check_chain(expr: &mut Expr, text: &str) -> Result<ValueType> {
    let mut spine = Vec::new();
    let mut lowest = mem::replace(expr, Expr::nothing());
    while let ExprKind::Binary(binary) = &mut lowest.kind {
        let lhs = mem::replace(&mut binary.lhs, Expr::nothing());
        spine.push(mem::replace(&mut lowest, lhs));
    }
    let mut left_type = check(&mut lowest, text)?;
    for mut next in spine.into_iter().rev() {
        if let ExprKind::Binary(binary) = &mut next.kind {
            let right_type = check(&mut binary.rhs, text)?;
            binary.lhs = lowest;
            left_type = check_binary(binary, next.pos, left_type, right_type, text)?;
        }
        lowest = next;
    }
    *expr = lowest;
    Ok(left_type)
}

fn check_binary(
    binary: &mut BinaryExpr,
    pos: PosRange,
    left: ValueType,
    right: ValueType,
    text: &str,
) -> Result<ValueType> {
    let op = binary.op;
    let op_pos = operator_pos(binary, text);
    let scalars = left == ValueType::Scalar && right == ValueType::Scalar;
    if binary.return_bool && !op.is_comparison() {
        return fail(op_pos, "bool modifier can only be used on comparison operators");
    }
    if op.is_comparison() && !binary.return_bool && scalars {
        return fail(op_pos, "comparisons between scalars must use BOOL modifier");
    }
    if let Some(matching) = &mut binary.matching {
        if op.is_set() && matching.card == MatchCardinality::OneToOne {
            matching.card = MatchCardinality::ManyToMany;
        }
        // Both lists may be long.
        let include: HashSet<&String> = if matching.on { matching.include.iter().collect() } else { HashSet::new() };
        if let Some(label) = matching.labels.iter().find(|l| include.contains(l)) {
            return fail(op_pos, format!("label {} must not occur in ON and GROUP clause at once", quote(label)));
        }
    }
    for (given, side) in [(left, &binary.lhs), (right, &binary.rhs)] {
        if !matches!(given, ValueType::Scalar | ValueType::Vector) {
            return fail(side.pos, "binary expression must contain only scalar and instant vector types");
        }
    }
    check_matching(binary, pos, left == ValueType::Vector && right == ValueType::Vector)?;
    if op.is_set() && (left == ValueType::Scalar || right == ValueType::Scalar) {
        let op = op.as_str();
        return fail(pos, format!("set operator \"{op}\" not allowed in binary scalar expression"));
    }
    Ok(if scalars { ValueType::Scalar } else { ValueType::Vector })
}

fn check_matching(binary: &mut BinaryExpr, pos: PosRange, vectors: bool) -> Result<()> {
    let Some(matching) = &binary.matching else { return Ok(()) };
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    if !vectors {
        if !matching.labels.is_empty() {
            return fail(pos, "vector matching only allowed between instant vectors");
        }
        if fills {
            return fail(pos, "filling in missing series only allowed between instant vectors");
        }
        binary.matching = None;
    } else if binary.op.is_set() {
        if matching.card != MatchCardinality::ManyToMany {
            return fail(pos, format!("no grouping allowed for \"{}\" operation", binary.op.as_str()));
        }
        if fills {
            return fail(pos, "filling in missing series not allowed for set operators");
        }
    }
    Ok(())
}

/// Gives the place of the operator with its modifiers: what is between the operands.
fn operator_pos(binary: &BinaryExpr, text: &str) -> PosRange {
    let (start, end) = (binary.lhs.pos.end, binary.rhs.pos.start);
    let between = &text[start as usize..end as usize];
    let trimmed = between.trim_start();
    PosRange { start: end - trimmed.len() as u32, end: start + between.trim_end().len() as u32 }
}

fn check_call(function: &str, args: &mut [Expr], pos: PosRange, text: &str) -> Result<ValueType> {
    let Some(f) = functions::lookup(function) else {
        return fail(pos, format!("unknown function with name {}", quote(function)));
    };
    let name = quote(function);
    let (wanted, given) = (f.args.len(), args.len());
    if f.variadic == 0 {
        if given != wanted {
            return fail(pos, format!("expected {wanted} argument(s) in call to {name}, got {given}"));
        }
    } else {
        let least = wanted.saturating_sub(1);
        if given < least {
            return fail(pos, format!("expected at least {least} argument(s) in call to {name}, got {given}"));
        }
        if let Ok(more) = usize::try_from(f.variadic)
            && given > least + more
        {
            let most = least + more;
            return fail(pos, format!("expected at most {most} argument(s) in call to {name}, got {given}"));
        }
    }
    let info = function == "info";
    if info && let Some(arg) = args.get(1) {
        check_info(arg, pos)?;
    }
    for (i, arg) in args.iter_mut().enumerate() {
        let Some(&wanted) = f.args.get(i).or(f.args.last()) else { break };
        let given = match &arg.kind {
            // Its matchers may all match the empty text.
            ExprKind::VectorSelector(_) if info && i == 1 => ValueType::Vector,
            _ => check(arg, text)?,
        };
        if given != wanted {
            return fail(arg.pos, format!("expected type {wanted} in call to function {name}, got {given}"));
        }
    }
    Ok(f.returns)
}

/// Checks the second argument of `info`, whose call stands at `call`: matchers without a metric name.
fn check_info(arg: &Expr, call: PosRange) -> Result<()> {
    let given = type_of(arg);
    if given != ValueType::Vector {
        let wanted = ValueType::Vector;
        return fail(call, format!("expected type {wanted} in call to function \"info\", got {given}"));
    }
    match &arg.kind {
        ExprKind::VectorSelector(selector) if selector.name.is_none() => Ok(()),
        ExprKind::VectorSelector(_) => fail(arg.pos, "expected label selectors only, got vector selector instead"),
        _ => fail(arg.pos, "expected label selectors only"),
    }
}

fn check_selector(selector: &VectorSelector) -> Result<()> {
    let matchers = &selector.matchers;
    if let Some(name) = &selector.name {
        // The last matcher is the one made of the name.
        let others = &matchers[..matchers.len().saturating_sub(1)];
        return match others.iter().find(|m| m.name == "__name__") {
            Some(m) => {
                let message = format!("metric name must not be set twice: {} or {}", quote(name), quote(&m.value));
                fail(selector.pos, message)
            }
            None => Ok(()),
        };
    }
    if matchers.iter().any(|m| !m.matches_empty()) {
        return Ok(());
    }
    fail(selector.pos, "vector selector must contain at least one non-empty matcher")
}

fn fail<T>(pos: PosRange, message: impl Into<String>) -> Result<T> {
    Err(ParseError::new(pos, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[test]
    fn types_of_expressions() {
        use ValueType::{Matrix, Scalar, String, Vector};

        for (query, expected) in [
            ("1", Scalar),
            ("5m", Scalar),
            ("'a'", String),
            ("('a')", String),
            ("m", Vector),
            ("m offset 5m", Vector),
            ("m[5m]", Matrix),
            ("(m[5m])", Matrix),
            ("(m)[5m:]", Matrix),
            ("-1 ^ 2", Scalar),
            ("-(m)", Vector),
            ("1 + 2 * 3", Scalar),
            ("1 == bool 2", Scalar),
            ("1 + m", Vector),
            ("m + 1", Vector),
            ("m + 1 + 2", Vector),
            ("1 + 2 + m", Vector),
            ("m and n", Vector),
            ("sum(m)", Vector),
            ("time() - 1", Scalar),
            ("scalar(m)", Scalar),
            ("max_of(1, time())", Scalar),
            ("vector(1)", Vector),
            ("hour()", Vector),
            ("rate(m[5m])", Vector),
            ("scalar(m) > bool scalar(n)", Scalar),
        ] {
            assert_eq!(type_of(&parse(query).expect(query)), expected, "{query}");
        }
        let long = format!("1{}", " + 1".repeat(5000));
        assert_eq!(type_of(&parse(&long).expect("a chain")), Scalar);
        let names = [Scalar, Vector, Matrix, String].map(|t| (t.to_string(), t.as_str()));
        let expected =
            [("scalar", "scalar"), ("instant vector", "vector"), ("range vector", "matrix"), ("string", "string")];
        assert_eq!(names, expected.map(|(long, short)| (long.to_owned(), short)));
    }

    /// Where several things are wrong it is said what Prometheus says first.
    #[test]
    fn the_first_of_several_errors() {
        const TYPES: &str = "binary expression must contain only scalar and instant vector types";
        const BOOL: &str = "bool modifier can only be used on comparison operators";
        for (query, column, message) in [
            ("1 and bool 'a'", 3, BOOL),
            ("a + bool on(x) group_left(x) b", 3, BOOL),
            ("a > bool on(x) group_left(x) 'b'", 3, "label \"x\" must not occur in ON and GROUP clause at once"),
            ("1 > 'a'", 5, TYPES),
            ("'a' and 1", 1, TYPES),
            ("m[5m] > on(x) 1", 1, TYPES),
            ("1 > 1", 3, "comparisons between scalars must use BOOL modifier"),
            ("1 and on(x) fill(1) 2", 1, "vector matching only allowed between instant vectors"),
            ("1 and fill(1) 2", 1, "filling in missing series only allowed between instant vectors"),
            ("a and on(x) group_left fill(1) b", 1, "no grouping allowed for \"and\" operation"),
            ("a or 1 + 'b'", 10, TYPES),
            ("sum('a') + (1 == 1)", 5, "expected type instant vector in aggregation expression, got string"),
            ("topk('a', 1)", 11, "expected type instant vector in aggregation expression, got scalar"),
            ("rate(-1[5m:])", 7, "subquery is only allowed on instant vector, got scalar instead"),
        ] {
            let error = parse(query).expect_err(query);
            assert_eq!((error.message.as_str(), error.line, error.column), (message, 1, column), "{query}");
        }
    }

    #[test]
    fn how_many_arguments_a_call_takes() {
        let fails = |query: &str| parse(query).err().map(|e| e.message);
        for query in [
            "hour()",
            "hour(m)",
            "round(m)",
            "round(m, 5)",
            "label_join(m, 'a', '-')",
            "label_join(m, 'a', '-', 'b', 'c', 'd', 'e', 'f')",
            "sort_by_label(m)",
            "sort_by_label(m, 'a', 'b')",
            "histogram_quantiles(m, 'q', 0.1)",
            "histogram_quantiles(m, 'q', 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)",
            "info(m)",
            "info(m, {})",
            "info(m, {a=~'.*'})",
        ] {
            assert_eq!(fails(query), None, "{query}");
        }
        let too_many = "histogram_quantiles(m, 'q', 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1)";
        for (query, message) in [
            ("round()", "expected at least 1 argument(s) in call to \"round\", got 0"),
            ("round(m, 1, 1)", "expected at most 2 argument(s) in call to \"round\", got 3"),
            ("pi(1)", "expected 0 argument(s) in call to \"pi\", got 1"),
            ("clamp(m, 1)", "expected 3 argument(s) in call to \"clamp\", got 2"),
            ("sort_by_label()", "expected at least 1 argument(s) in call to \"sort_by_label\", got 0"),
            (
                "histogram_quantiles(m, 'q')",
                "expected at least 3 argument(s) in call to \"histogram_quantiles\", got 2",
            ),
            (too_many, "expected at most 12 argument(s) in call to \"histogram_quantiles\", got 13"),
            ("label_replace(m, 'a', 'b', 'c')", "expected 5 argument(s) in call to \"label_replace\", got 4"),
            ("info({a='b'}, {}, {})", "expected at most 2 argument(s) in call to \"info\", got 3"),
            ("sum_over_time(m, m)", "expected 1 argument(s) in call to \"sum_over_time\", got 2"),
        ] {
            assert_eq!(fails(query).as_deref(), Some(message), "{query}");
        }
    }
}
