//! What tests of functions share: calls as plans make them, with the types that a function asks for and promises.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};

use super::held::Room;

/// A room without an end.
pub(super) fn room() -> Room {
    Room::new(Arc::new(UnboundedMemoryPool::default()))
}

/// One of several functions.
pub(super) fn named(mut functions: impl Iterator<Item = Arc<ScalarUDF>>, name: &str) -> Arc<ScalarUDF> {
    functions.find(|function| function.name() == name).unwrap_or_else(|| panic!("there is no `{name}`"))
}

/// A column.
pub(super) fn column(values: impl Array + 'static) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(values))
}

/// A column of texts.
pub(super) fn texts(values: &[Option<&str>]) -> ColumnarValue {
    column(StringViewArray::from(values.to_vec()))
}

/// A constant text.
pub(super) fn text(value: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(value))
}

/// Calls a function for some rows: its arguments get their types first, and what it gives is of the type that it said.
pub(super) fn call(function: &ScalarUDF, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let field = |value: &ColumnarValue| -> FieldRef { Arc::new(Field::new("a", value.data_type(), true)) };
    let given: Vec<FieldRef> = args.iter().map(field).collect();
    let arg_fields = fields_with_udf(&given, function)?;
    let typed = args.iter().zip(&arg_fields).map(|(value, field)| value.cast_to(field.data_type(), None));
    let args = typed.collect::<Result<Vec<ColumnarValue>>>()?;
    let constant = |value: &ColumnarValue| match value {
        ColumnarValue::Scalar(value) => Some(value.clone()),
        ColumnarValue::Array(_) => None,
    };
    let constants: Vec<Option<ScalarValue>> = args.iter().map(constant).collect();
    let scalar_arguments: Vec<Option<&ScalarValue>> = constants.iter().map(Option::as_ref).collect();
    let asked = ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalar_arguments };
    let return_field = function.return_field_from_args(asked)?;
    let config_options = Arc::new(ConfigOptions::default());
    let args = ScalarFunctionArgs { args, arg_fields, number_rows: rows, return_field, config_options };
    function.invoke_with_args(args)?.into_array(rows)
}

/// Values as texts; none: NULL.
pub(super) fn shown(values: &ArrayRef) -> Vec<Option<String>> {
    let texts = cast(values, &DataType::Utf8).expect("a type that has texts");
    texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

/// What a function gives for one row, as a text.
pub(super) fn one(function: &ScalarUDF, args: &[ColumnarValue]) -> Result<Option<String>> {
    Ok(shown(&call(function, args, 1)?).remove(0))
}
