//! The tree as JSON: the answer of `/api/v1/parse_query`.

use quiver_types::{Error, Result};
use serde_json::{Value, json};

use crate::ast::{
    At, BinaryExpr, DurationExpr, DurationKind, Expr, ExprKind, MatchCardinality, SubqueryExpr, ValueType,
    VectorMatching, VectorSelector,
};
use crate::duration::evaluate;
use crate::functions;
use crate::print::number;
use crate::range_ends::RangeEnds;

/// Deepest tree that is shown: JSON values are walked by recursion.
const DEPTH_MAX: usize = 1000;

/// Gives the tree of a checked expression; every node is an object with `type`.
///
/// # Errors
/// Invalid: the tree is deeper than 1000 levels (a chain of so many operators).
pub fn to_json(expr: &Expr) -> Result<Value> {
    if expr.depth() > DEPTH_MAX {
        return Err(Error::invalid(format!(
            "expression is too deep to be shown as a tree, at most {DEPTH_MAX} levels are"
        )));
    }
    Ok(node(expr))
}

fn node(expr: &Expr) -> Value {
    match &expr.kind {
        ExprKind::Number { value, .. } => json!({"type": "numberLiteral", "val": number(*value)}),
        ExprKind::String(text) => json!({"type": "stringLiteral", "val": text.shown()}),
        ExprKind::Paren(inner) => json!({"type": "parenExpr", "expr": node(inner)}),
        ExprKind::Unary { negate, expr } => json!({"type": "unaryExpr", "op": sign(*negate), "expr": node(expr)}),
        ExprKind::Binary(binary) => binary_node(binary),
        ExprKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.op.as_str(),
            "expr": node(&aggregate.expr),
            "param": aggregate.param.as_ref().map(node),
            "grouping": aggregate.grouping,
            "without": aggregate.without,
        }),
        ExprKind::Call { function, args } => call_node(function, args),
        ExprKind::VectorSelector(selector) => selector_node("vectorSelector", selector),
        ExprKind::MatrixSelector { selector, range } => {
            let mut value = selector_node("matrixSelector", selector);
            value["range"] = millis(Some(range));
            value["rangeExpr"] = duration_expr(Some(range));
            value
        }
        ExprKind::Subquery(subquery) => subquery_node(subquery),
    }
}

fn binary_node(binary: &BinaryExpr) -> Value {
    json!({
        "type": "binaryExpr",
        "op": binary.op.as_str(),
        "lhs": node(&binary.lhs),
        "rhs": node(&binary.rhs),
        "bool": binary.return_bool,
        "matching": binary.matching.as_ref().map(matching_node),
    })
}

fn matching_node(matching: &VectorMatching) -> Value {
    let card = match matching.card {
        MatchCardinality::OneToOne => "one-to-one",
        MatchCardinality::ManyToOne => "many-to-one",
        MatchCardinality::OneToMany => "one-to-many",
        MatchCardinality::ManyToMany => "many-to-many",
    };
    json!({
        "card": card,
        "labels": matching.labels,
        "on": matching.on,
        "include": matching.include,
        "fillValues": {"lhs": matching.fill_left, "rhs": matching.fill_right},
    })
}

fn call_node(function: &str, args: &[Expr]) -> Value {
    let (types, variadic, returns): (&[ValueType], i32, ValueType) =
        functions::lookup(function).map_or((&[], 0, ValueType::Vector), |f| (f.args, f.variadic, f.returns));
    let types: Vec<_> = types.iter().map(|t| t.as_str()).collect();
    json!({
        "type": "call",
        "func": {"name": function, "argTypes": types, "variadic": variadic, "returnType": returns.as_str()},
        "args": args.iter().map(node).collect::<Vec<_>>(),
    })
}

fn selector_node(kind: &str, selector: &VectorSelector) -> Value {
    let matchers: Vec<_> =
        selector.matchers.iter().map(|m| json!({"name": m.name, "type": m.op.as_str(), "value": m.value})).collect();
    json!({
        "type": kind,
        "name": selector.name.as_deref().unwrap_or(""),
        "matchers": matchers,
        "offset": millis(selector.offset.as_ref()),
        "offsetExpr": duration_expr(selector.offset.as_ref()),
        "timestamp": timestamp(selector.at),
        "startOrEnd": start_or_end(selector.at),
        "anchored": selector.ends == RangeEnds::Anchored,
        "smoothed": selector.ends == RangeEnds::Smoothed,
    })
}

fn subquery_node(subquery: &SubqueryExpr) -> Value {
    json!({
        "type": "subquery",
        "expr": node(&subquery.expr),
        "range": millis(Some(&subquery.range)),
        "rangeExpr": duration_expr(Some(&subquery.range)),
        "step": millis(subquery.step.as_ref()),
        "stepExpr": duration_expr(subquery.step.as_ref()),
        "offset": millis(subquery.offset.as_ref()),
        "offsetExpr": duration_expr(subquery.offset.as_ref()),
        "timestamp": timestamp(subquery.at),
        "startOrEnd": start_or_end(subquery.at),
    })
}

fn timestamp(at: Option<At>) -> Option<i64> {
    match at {
        Some(At::Time(millis)) => Some(millis),
        _ => None,
    }
}

fn start_or_end(at: Option<At>) -> Option<&'static str> {
    match at {
        Some(At::Start) => Some("start"),
        Some(At::End) => Some("end"),
        _ => None,
    }
}

fn is_literal(duration: &DurationExpr) -> bool {
    matches!(duration.kind, DurationKind::Literal { .. })
}

/// Gives the milliseconds of a literal; of nothing and of expressions, which have no value without a query, 0.
fn millis(duration: Option<&DurationExpr>) -> Value {
    let literal = duration.filter(|d| is_literal(d));
    literal.and_then(|d| evaluate(d, 0, 0).ok()).unwrap_or(0).into()
}

fn duration_expr(duration: Option<&DurationExpr>) -> Value {
    duration.filter(|d| !is_literal(d)).map_or(Value::Null, |d| duration_node(d, false))
}

fn duration_node(duration: &DurationExpr, wrapped: bool) -> Value {
    let operation = |op: &str, lhs: Option<&DurationExpr>, rhs: Option<&DurationExpr>| {
        let side = |d: Option<&DurationExpr>| d.map_or(Value::Null, |d| duration_node(d, false));
        json!({"type": "durationExpr", "op": op, "lhs": side(lhs), "rhs": side(rhs), "wrapped": wrapped})
    };
    match &duration.kind {
        DurationKind::Literal { seconds, duration } => {
            json!({"type": "numberLiteral", "val": number(*seconds), "duration": duration})
        }
        DurationKind::Step => operation("step", None, None),
        DurationKind::Range => operation("range", None, None),
        DurationKind::Unary { negate, expr } => operation(sign(*negate), None, Some(expr)),
        DurationKind::Binary { op, lhs, rhs } => operation(op.as_str(), Some(lhs), Some(rhs)),
        // Only operations bear the mark of parentheses, so a literal becomes one.
        DurationKind::Paren(inner) if is_literal(inner) => {
            json!({"type": "durationExpr", "op": "+", "lhs": null, "rhs": duration_node(inner, false), "wrapped": true})
        }
        DurationKind::Paren(inner) => duration_node(inner, true),
    }
}

fn sign(negate: bool) -> &'static str {
    if negate { "-" } else { "+" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn check(query: &str, expected: Value) {
        assert_eq!(to_json(&parse(query).expect(query)).expect(query), expected, "{query}");
    }

    #[test]
    fn trees() {
        check(
            "-1 + time()",
            json!({
                "type": "binaryExpr", "op": "+", "bool": false, "matching": null,
                "lhs": {"type": "numberLiteral", "val": "-1"},
                "rhs": {"type": "call", "args": [],
                        "func": {"name": "time", "argTypes": [], "variadic": 0, "returnType": "scalar"}},
            }),
        );
        check(
            r#"m{a!~"b"} @ 1.5 offset -5m"#,
            json!({
                "type": "vectorSelector", "name": "m", "offset": -300_000, "offsetExpr": null,
                "matchers": [{"name": "a", "type": "!~", "value": "b"}, {"name": "__name__", "type": "=", "value": "m"}],
                "timestamp": 1500, "startOrEnd": null, "anchored": false, "smoothed": false,
            }),
        );
        check(
            "topk without (a) (2, avg_over_time(rate(m[1m])[(5m):step()] @ end()))",
            json!({
                "type": "aggregation", "op": "topk", "grouping": ["a"], "without": true,
                "param": {"type": "numberLiteral", "val": "2"},
                "expr": {"type": "call",
                    "func": {"name": "avg_over_time", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"},
                    "args": [{"type": "subquery", "range": 0, "step": 0, "offset": 0, "offsetExpr": null,
                        "rangeExpr": {"type": "durationExpr", "op": "+", "lhs": null, "wrapped": true,
                                      "rhs": {"type": "numberLiteral", "val": "300", "duration": true}},
                        "stepExpr": {"type": "durationExpr", "op": "step", "lhs": null, "rhs": null, "wrapped": false},
                        "timestamp": null, "startOrEnd": "end",
                        "expr": {"type": "call",
                            "func": {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"},
                            "args": [{"type": "matrixSelector", "name": "m", "range": 60_000, "rangeExpr": null,
                                "matchers": [{"name": "__name__", "type": "=", "value": "m"}], "offset": 0,
                                "offsetExpr": null, "timestamp": null, "startOrEnd": null, "anchored": false,
                                "smoothed": false}]}}]},
            }),
        );
        check(
            "a * on (x) group_left (y) fill_left (1) b",
            json!({
                "type": "binaryExpr", "op": "*", "bool": false,
                "lhs": to_json(&parse("a").unwrap()).unwrap(), "rhs": to_json(&parse("b").unwrap()).unwrap(),
                "matching": {"card": "many-to-one", "labels": ["x"], "on": true, "include": ["y"],
                             "fillValues": {"lhs": 1.0, "rhs": null}},
            }),
        );
    }

    #[test]
    fn too_deep() {
        assert!(to_json(&parse(&format!("1{}", " + 1".repeat(999))).unwrap()).is_ok());
        assert!(to_json(&parse(&format!("1{}", " + 1".repeat(1000))).unwrap()).is_err());
    }

    #[test]
    fn literals_and_signs() {
        for (query, text) in [
            ("5m", "300"),
            ("0x10", "16"),
            ("-Inf", "-Inf"),
            ("inf", "+Inf"),
            ("NaN", "NaN"),
            ("1e-7", "0.0000001"),
            ("1e21", "1000000000000000000000"),
        ] {
            check(query, json!({"type": "numberLiteral", "val": text}));
        }
        check("'a\\xff\\n'", json!({"type": "stringLiteral", "val": "a\u{fffd}\n"}));
        let m = || to_json(&parse("m").unwrap()).unwrap();
        check("-m", json!({"type": "unaryExpr", "op": "-", "expr": m()}));
        check("+(m)", json!({"type": "unaryExpr", "op": "+", "expr": {"type": "parenExpr", "expr": m()}}));
    }

    #[test]
    fn how_vectors_match() {
        let matching = |query: &str| to_json(&parse(query).expect(query)).expect(query)["matching"].clone();
        let expected = |card: &str, on: bool, labels: &[&str], include: &[&str], fills: [Option<f64>; 2]| {
            let fills = json!({"lhs": fills[0], "rhs": fills[1]});
            json!({"card": card, "labels": labels, "on": on, "include": include, "fillValues": fills})
        };
        assert_eq!(matching("a and b"), expected("many-to-many", false, &[], &[], [None; 2]));
        assert_eq!(matching("a == bool b"), expected("one-to-one", false, &[], &[], [None; 2]));
        let right = matching("a / ignoring (x, 'y z') group_right (w) fill_right (-1) b");
        assert_eq!(right, expected("one-to-many", false, &["x", "y z"], &["w"], [None, Some(-1.0)]));
        assert_eq!(matching("a + on () b"), expected("one-to-one", true, &[], &[], [None; 2]));
        assert!(matching("a + 1").is_null() && matching("1 + 2").is_null(), "no two vectors");
    }

    #[test]
    fn durations_that_have_no_value_yet() {
        let of = |query: &str| to_json(&parse(query).expect(query)).expect(query);
        let offset = of("m offset -(step() + 5)");
        assert_eq!(offset["offset"], 0);
        let five = json!({"type": "numberLiteral", "val": "5", "duration": false});
        let step = json!({"type": "durationExpr", "op": "step", "lhs": null, "rhs": null, "wrapped": false});
        let sum = json!({"type": "durationExpr", "op": "+", "lhs": step, "rhs": five, "wrapped": true});
        let negated = json!({"type": "durationExpr", "op": "-", "lhs": null, "rhs": sum, "wrapped": false});
        assert_eq!(offset["offsetExpr"], negated);
        let range = of("m[max_of(range(), 1m)] @ start()");
        assert_eq!(
            (&range["range"], &range["startOrEnd"], &range["timestamp"]),
            (&json!(0), &json!("start"), &Value::Null)
        );
        assert_eq!((&range["rangeExpr"]["op"], &range["rangeExpr"]["rhs"]["val"]), (&json!("max_of"), &json!("60")));
        assert_eq!((of("m[90]")["range"].clone(), of("m[90]")["rangeExpr"].clone()), (json!(90_000), Value::Null));
    }
}
