//! `x[…]` as in PostgreSQL, resolved while a statement is planned, when types are known: members and items of texts
//! that hold JSON, which DataFusion cannot subscript, and list indices below one, for which DataFusion counts from the
//! end. Items of `array_agg` are taken by themselves: DataFusion's `nth_value` for them takes no other order beside its own,
//! as in `(array_agg(a ORDER BY t))[1], (array_agg(b ORDER BY t DESC))[1]`.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable as _, GetFieldAccess, lit};

use crate::functions::json_get;

/// The expression planner for subscripts.
#[derive(Debug)]
pub(crate) struct Subscripts;

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => values.is_string(),
        kind => kind.is_string(),
    }
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

/// Whether an index is a negative literal.
fn is_negative(key: &Expr) -> bool {
    matches!(key, Expr::Negative(_) | Expr::Literal(ScalarValue::Int64(Some(..0)), _))
}

impl ExprPlanner for Subscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // An expression without a type yet (a parameter) is neither text nor list.
        let Ok(kind) = access.expr.get_type(schema) else { return Ok(PlannerResult::Original(access)) };
        let RawFieldAccessExpr { field_access, expr } = access;
        if is_text(&kind) {
            let key = match field_access {
                GetFieldAccess::NamedStructField { name } => lit(name),
                GetFieldAccess::ListIndex { key } => *key,
                GetFieldAccess::ListRange { .. } => {
                    return plan_err!("JSON has no slices: write the name of a member, or the place of an item");
                }
            };
            return Ok(PlannerResult::Planned(json_get().call(vec![expr, key])));
        }
        let field_access = match field_access {
            GetFieldAccess::ListIndex { key } if is_list(&kind) && is_negative(&key) => {
                GetFieldAccess::ListIndex { key: Box::new(lit(0_i64)) }
            }
            other => other,
        };
        match field_access {
            GetFieldAccess::ListIndex { key } if is_list(&kind) => match expr {
                Expr::AggregateFunction(call) if call.func.name() == "array_agg" => {
                    Ok(PlannerResult::Planned(item_of(call, *key)))
                }
                expr => {
                    let field_access = GetFieldAccess::ListIndex { key };
                    Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }))
                }
            },
            field_access => Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr })),
        }
    }
}

/// An item of the values that an `array_agg` gathers; the first one needs no list.
fn item_of(call: AggregateFunction, key: Expr) -> Expr {
    let is_first = matches!(key, Expr::Literal(ScalarValue::Int64(Some(1)), _));
    if is_first && !call.params.distinct {
        return Expr::AggregateFunction(AggregateFunction { func: first_value_udaf(), params: call.params });
    }
    array_element(Expr::AggregateFunction(call), key)
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::testing::answered;

    #[tokio::test]
    async fn items_of_lists_are_counted_from_the_first() {
        let lists = "(values (array[10, 20, 30]), (null)) as t(l)";
        let items = format!("select l[1], l[3], l[4], l[0] as none, l[-1] as before, l[1:2] is null from {lists}");
        assert_eq!(answered(&items).await.unwrap(), ["10|30|NULL|NULL|NULL|false", "NULL|NULL|NULL|NULL|NULL|true"]);
    }

    #[tokio::test]
    async fn items_of_gathered_values_have_orders_of_their_own() {
        let of = "(values (1, 'a', 3), (2, 'b', 2), (null, 'c', 1)) as t(x, y, z)";
        let asked = "(array_agg(x order by z))[1], (array_agg(x order by z desc))[1], (array_agg(y order by z))[2], \
                     string_agg(y, '' order by y desc), (array_agg(distinct y order by y desc))[1], \
                     (array_agg(x order by z) filter (where x > 1))[1], (array_agg(y order by y))[4]";
        assert_eq!(answered(&format!("select {asked} from {of}")).await.unwrap(), ["NULL|1|b|cba|c|2|NULL"]);
    }

    #[tokio::test]
    async fn texts_of_json_have_members_and_items() {
        let of = r#"(values ('{"a": {"b": [10, 20]}, "n": null}'), ('[5]'), ('no json'), (null)) as t(j)"#;
        let found = answered(&format!("select j['a']['b'][1], j[0], j['x'] from {of}")).await.unwrap();
        assert_eq!(found, ["20|NULL|NULL", "NULL|5|NULL", "NULL|NULL|NULL", "NULL|NULL|NULL"]);
        let error = answered(&format!("select j[0:1] from {of}")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "the planner's error is the caller's to tell");
    }
}
