//! Values and numbers as OTLP/JSON has them.

use quiver_types::spans::Value;
use serde_json::{Value as Json, json};

use crate::export::values::any_value;
use crate::json_writer::JsonWriter;

/// A value as OTLP/JSON has it.
pub(super) fn any_json(value: Value<'_>) -> Json {
    let mut w = JsonWriter::default();
    any_value(value, &mut w);
    serde_json::from_slice(&w.finish().unwrap_or_default()).unwrap_or_default()
}

/// A number as OTLP/JSON has it: one that is no `int64` is a double, though it is whole.
pub(super) fn number(value: f64) -> Json {
    const INT_END: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-INT_END..INT_END).contains(&value) {
        json!({"intValue": (value as i64).to_string()})
    } else {
        double(value)
    }
}

/// A double as OTLP/JSON has it; what JSON has no number for is a text.
pub(super) fn double(value: f64) -> Json {
    if value.is_finite() { json!({"doubleValue": value}) } else { any_json(Value::Double(value)) }
}
