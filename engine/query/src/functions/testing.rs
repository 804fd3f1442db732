//! Helpers for tests of functions: they call a function as a plan does, with the argument types it asks for, and check
//! its declared return type.

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
use serde_json::Value;

use super::result_memory::Room;

/// A room without an end.
pub(super) fn room() -> Room {
    Room::new(Arc::new(UnboundedMemoryPool::default()))
}

/// One of several functions.
pub(super) fn named(mut functions: impl Iterator<Item = Arc<ScalarUDF>>, name: &str) -> Arc<ScalarUDF> {
    functions.find(|function| function.name() == name).unwrap_or_else(|| panic!("there is no `{name}`"))
}

/// An argument that is a column of these values.
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

/// Numbers below an end, the same in each run.
pub(super) fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |end| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    }
}

/// A JSON document of a few levels, with names and texts that have to be escaped.
pub(super) fn document(draw: &mut impl FnMut(usize) -> usize, levels: usize) -> Value {
    const TEXTS: [&str; 8] = ["", "a", "b c", "ä,\u{1f980}", "q\"uote", "back\\slash", "{1}\n[", "null"];
    match draw(if levels == 0 { 4 } else { 7 }) {
        0 => Value::Null,
        1 => Value::from(draw(2) == 0),
        2 => Value::from(draw(2_000) as f64 / 4.0 - 250.0),
        3 => Value::from(TEXTS[draw(TEXTS.len())]),
        4 => Value::from(draw(1_000) as i64 - 500),
        5 => (0..draw(4)).map(|_| document(draw, levels - 1)).collect(),
        _ => (0..draw(5)).map(|_| (TEXTS[draw(TEXTS.len())].to_owned(), document(draw, levels - 1))).collect(),
    }
}

/// A step into a document: the name of a member, or the place of an item.
pub(super) type PathStep<'v> = std::result::Result<&'v str, usize>;

/// All parts of a document with the ways to them.
pub(super) fn parts_of<'v>(value: &'v Value, way: &[PathStep<'v>], out: &mut Vec<(Vec<PathStep<'v>>, &'v Value)>) {
    out.push((way.to_vec(), value));
    let deeper = |step: PathStep<'v>| [way, &[step]].concat();
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| parts_of(item, &deeper(Err(at)), out));
        }
        Value::Object(members) => {
            for (name, member) in members {
                parts_of(member, &deeper(Ok(name.as_str())), out);
            }
        }
        _ => {}
    }
}
