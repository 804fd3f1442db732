//! Casts that are written as calls of the type: `float8(x)` is `x::float8`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Query, TimezoneInfo,
    VisitorMut,
};

use crate::names::bare;
use crate::statement_walk::walk_mut;

/// Rewrites such calls.
pub(super) fn as_casts(query: &mut Query) {
    let _ = walk_mut(query, &mut CastCalls);
}

struct CastCalls;

impl VisitorMut for CastCalls {
    type Break = ();

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = &*place
            && let Some(cast) = cast_of(call)
        {
            *place = cast;
        }
        ControlFlow::Continue(())
    }
}

fn cast_of(call: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_slice() else { return None };
    let is_plain = call.over.is_none() && call.filter.is_none() && call.within_group.is_empty();
    if !is_plain || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let data_type = match bare(&call.name)?.as_str() {
        "int2" => DataType::Int2(None),
        "int4" => DataType::Int4(None),
        "int8" => DataType::Int8(None),
        "float4" => DataType::Float4,
        "float8" => DataType::Float8,
        "bool" => DataType::Bool,
        "text" => DataType::Text,
        "jsonb" => DataType::JSONB,
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::Tz),
        _ => return None,
    };
    let expr = Box::new(value.clone());
    Some(Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None })
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    #[test]
    fn calls_of_types_are_casts() {
        for (text, expected) in [
            (
                "select float8('1.5'), TEXT(a + 1), pg_catalog.int4(int8('7')) from t",
                "CAST('1.5' AS FLOAT8), CAST(a + 1 AS TEXT), CAST(CAST('7' AS INT8) AS INT4)",
            ),
            ("select timestamptz('2024-01-01') from t", "CAST('2024-01-01' AS TIMESTAMPTZ)"),
            (
                "select float8(1, 2), int4(), text(distinct a), text(*) from t",
                "float8(1, 2), int4(), text(DISTINCT a), text(*)",
            ),
        ] {
            let read = parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
            let ReadStatement::Query(query) = read.statement else { panic!("{text} is no query") };
            assert_eq!(query.to_string(), format!("SELECT {expected} FROM t"));
        }
    }
}
