//! Literals in printed plans: values of the query become parameters. Constants of models stay in the text, unless
//! they would be misprinted.

use std::collections::{BTreeMap, HashMap};

use datafusion::common::ScalarValue;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, cast};
use serde_json::Value;

use crate::functions::instant_type;

/// Metadata key of literals that are values of the query.
const MARK: &str = "quiver.value";
/// Instants closer than this to the limits of time count as the limits, and can be parsed again.
const MARGIN_NS: i64 = 1_000_000_000;

/// Marks a literal as a value of the query.
pub(crate) fn marked(literal: Expr) -> Expr {
    match literal {
        Expr::Literal(value, _) => {
            let mark = BTreeMap::from([(MARK.to_owned(), String::new())]);
            Expr::Literal(value, Some(FieldMetadata::from(mark)))
        }
        other => other,
    }
}

/// The parameters' values so far; equal ones are shared.
#[derive(Debug, Default)]
pub(super) struct Params {
    values: Vec<Value>,
    /// The index of each value, by its JSON.
    places: HashMap<String, usize>,
}

impl Params {
    /// All values in order.
    pub(super) fn into_values(self) -> Vec<Value> {
        self.values
    }

    fn place(&mut self, value: Value) -> Expr {
        let at = *self.places.entry(value.to_string()).or_insert_with(|| {
            self.values.push(value);
            self.values.len() - 1
        });
        Expr::Placeholder(Placeholder::new_with_field(format!("${}", at + 1), None))
    }

    /// Converts the literals of an expression to their printed form.
    pub(super) fn with_placeholders(&mut self, expr: Expr) -> Result<Expr> {
        let replaced = expr.transform_down(|e| match e {
            Expr::Literal(value, mark) => {
                let is_value = mark.is_some_and(|m| m.inner().contains_key(MARK));
                Ok(Transformed::new(self.literal(value, is_value), true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(replaced.data)
    }

    fn literal(&mut self, value: ScalarValue, is_value: bool) -> Expr {
        let plain = |value: ScalarValue| Expr::Literal(value, None);
        match value {
            ScalarValue::Null => plain(ScalarValue::Null),
            value if value.is_null() => cast(plain(ScalarValue::Null), value.data_type()),
            ScalarValue::TimestampNanosecond(Some(ns), zone) => {
                let text = instant_text(ns, zone.is_some());
                let ty = if zone.is_some() {
                    instant_type()
                } else {
                    arrow::datatypes::DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None)
                };
                let text = if is_value { self.place(text.into()) } else { plain(ScalarValue::from(text)) };
                cast(text, ty)
            }
            ScalarValue::Utf8(Some(text)) if is_value || is_misprinted(&text) => self.place(text.into()),
            ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) if is_misprinted(&text) => {
                self.place(text.into())
            }
            ScalarValue::Int64(Some(n)) if is_value => self.place(n.into()),
            ScalarValue::Float64(Some(n)) if is_value => self.place(n.into()),
            ScalarValue::Boolean(Some(is)) if is_value => self.place(is.into()),
            value @ (ScalarValue::Decimal128(..) | ScalarValue::Decimal256(..)) => {
                let ty = value.data_type();
                cast(plain(ScalarValue::from(value.to_string())), ty)
            }
            value => plain(value),
        }
    }
}

/// Whether the printer would change a text: it takes such quotes for escaped ones.
fn is_misprinted(text: &str) -> bool {
    text.contains("''") || text.contains("\\'")
}

/// RFC 3339, with milliseconds if these are exact.
pub(crate) fn instant_text(ns: i64, in_utc: bool) -> String {
    let ns = ns.clamp(i64::MIN + MARGIN_NS, i64::MAX - MARGIN_NS);
    let time = chrono::DateTime::from_timestamp_nanos(ns);
    let form = if ns % 1_000_000 == 0 { "%Y-%m-%dT%H:%M:%S%.3f" } else { "%Y-%m-%dT%H:%M:%S%.9f" };
    format!("{}{}", time.format(form), if in_utc { "Z" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parameters_and_constants_are_not() {
        let mut params = Params::default();
        let text = |e: Expr| e.to_string();
        let value = marked(datafusion::logical_expr::lit("a'b"));
        assert_eq!(text(params.with_placeholders(value.clone()).unwrap()), "$1");
        assert_eq!(text(params.with_placeholders(value).unwrap()), "$1", "equal values stand once");
        assert_eq!(text(params.with_placeholders(marked(datafusion::logical_expr::lit(5_i64))).unwrap()), "$2");
        assert_eq!(
            params.with_placeholders(datafusion::logical_expr::lit("k")).unwrap(),
            datafusion::logical_expr::lit("k")
        );
        for (at, other) in ["a''b", r"a\'b"].into_iter().enumerate() {
            let constant = datafusion::logical_expr::lit(other);
            assert_eq!(
                text(params.with_placeholders(constant).unwrap()),
                format!("${}", at + 3),
                "it is not printed as it is"
            );
        }
        let values = vec![Value::from("a'b"), Value::from(5), Value::from("a''b"), Value::from(r"a\'b")];
        assert_eq!(params.into_values(), values);
        assert_eq!(instant_text(1_774_224_000_000_000_000, true), "2026-03-23T00:00:00.000Z");
        assert_eq!(instant_text(1, false), "1970-01-01T00:00:00.000000001");
        assert!(instant_text(i64::MIN, true).starts_with("1677-09-21T00:12:44."));
    }
}
