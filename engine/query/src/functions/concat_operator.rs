//! The operator `||` as a function, which can be bounded, unlike DataFusion's operator.

use std::sync::Arc;

use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};

use super::operator_names::{operation, typed_as};

/// The name of the function in plans.
pub(super) const JOINED: &str = "joined";

/// The operands of `||`, if both have one type, as they do after type coercion.
pub(super) fn sides<'e>(expr: &'e Expr, schema: &DFSchema) -> Result<Option<(&'e Expr, &'e Expr)>> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = expr else { return Ok(None) };
    let kind = typed_as(left).get_type(schema)?;
    let is_joined = kind.is_string() || matches!(kind, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    Ok((is_joined && kind == typed_as(right).get_type(schema)?).then_some((left.as_ref(), right.as_ref())))
}

/// Concatenates two texts; NULL if one is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ConcatFunction {
    signature: Signature,
}

impl ConcatFunction {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ConcatFunction {
    fn name(&self) -> &'static str {
        JOINED
    }

    /// Columns keep the names that they had with the operator.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return internal_err!("`||` has two sides") };
        Ok(operation(left, "||", right))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind, _] = types else { return internal_err!("`||` has two sides") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [left, right] = args.arg_fields else { return internal_err!("`||` has two sides") };
        let is_nullable = left.is_nullable() || right.is_nullable();
        Ok(Arc::new(Field::new(self.name(), left.data_type().clone(), is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else { return internal_err!("`||` has two sides") };
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let joined = concat_elements_dyn(&left.to_array(rows)?, &right.to_array(rows)?)?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)
        } else {
            ColumnarValue::Array(joined)
        })
    }
}
